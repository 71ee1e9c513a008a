"""Before a client's first share of a study leaves: the charge is durable, and its witnesses have countersigned it, all
of them or as many as the study's trust model asks for.

    client   release (durable) → charge statement, links of the ledger since the witness's last word   NOTICE
    witness  follows the links from the head it has seen; signs the new one and remembers it          countersignature
             or says which head it has seen (SEEN): another one means a ledger that was rolled back or runs twice

So an owner that restores an old copy of its ledger, by mistake or by a burglar's hand, finds out before it spends
anything twice; and the receipt of the study shows that each participant's account had been charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.engines.setup import Setup
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.messages import Op, pack_parts
from tallystick.roles.ledger.seen_heads import MAX_LINKS
from tallystick.roles.ledger.store import LedgerStore

CLEARANCE = "clearance"
ASK_SECONDS = 2.0


class Clearance:
    """One study's charge at a client, on its way to all witnesses."""

    def __init__(
        self,
        study_hash: bytes,
        exchange: Exchange,
        ledger: LedgerStore,
        *,
        seen_by: dict[str, int],
        check: Callable[[], None],
        again: Callable[[], None],
        witnesses: Sequence[str],
        needed: int | None = None,
    ) -> None:
        """``check`` raises if the ledger is not the newest copy; ``again`` has :meth:`ask` called a little later."""
        self._study, self._exchange, self._ledger = study_hash, exchange, ledger
        self._seen_by, self._check, self._again = seen_by, check, again
        self._charge: Statement | None = None
        self._given = False
        self._witnesses = tuple(witnesses)  # of this study, whoever joins meanwhile
        self._needed = len(self._witnesses) if needed is None else needed

    def given(self, setup: Setup) -> bool:
        """Whether shares may leave; asks for what is missing if not."""
        if not self._given:
            if self._charge is None:
                self._check()
                self._ledger.release(self._study)
                self._charge = self._exchange.say("charge", self._ledger.charge_body(self._study))
            self._given = len(self._witnesses) - len(self._missing()) >= self._needed
            if not self._given:
                self.ask()
        return self._given

    def _missing(self) -> list[str]:
        """Witnesses that have not countersigned this very head."""
        if self._charge is None:
            return list(self._witnesses)
        body = self._charge.body
        wanted = (body["ledger"], body["sequence"], body["head"])
        signed = {
            s.signer
            for s in self._exchange.docket(self._study).countersignatures(self._exchange.name)
            if (s.body["ledger"], s.body["sequence"], s.body["head"]) == wanted
        }
        return [name for name in self._witnesses if name not in signed]

    def ask(self) -> None:
        """Show the charge to the witnesses that have not signed it, and come back to it later."""
        charge = self._charge
        if charge is None:
            return
        sequence = int(charge.body["sequence"])
        for witness in self._missing():
            since = self._seen_by.get(witness, 0)
            links = self._ledger.links(since, sequence) if since < sequence else []
            notice = pack_parts([charge.encode(), b"".join(links[:MAX_LINKS])])
            self._exchange.send(witness, Op.NOTICE, notice, self._study)
        self._again()
