"""A witness of ledgers: it countersigns what clients have charged, and remembers, so that none goes back unseen.

Which role witnesses is the trust model's to say. A client shows the links of its ledger since the last head that this
party has seen (:mod:`tallystick.roles.governance.clearance`), or asks which one that was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tallystick.core.allowance import Allowances
from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.privacy.chain import Head
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.messages import Op, pack_head, pack_parts, unpack_parts
from tallystick.roles.ledger.countersignatures import head_of
from tallystick.roles.ledger.seen_heads import MAX_LINKS, SeenHeads
from tallystick.roles.operations.conduct import Conduct

_log = logging.getLogger("tallystick.roles")
HEADS_OF_A_STUDY = 4  # countersigned for one client: its charge, and again should its ledger have been recovered
LINKS_A_SECOND = 1.0  # new in one client's ledger, once a whole message of them was shown; a study makes a handful
FOLLOWING, FOLLOWING_AT_ONCE = 0.1, 5.0  # of a witness's time for one client's ledger: a tenth, after five seconds


class Witness:
    """What this party has seen of every client's ledger. ``exchange`` is asked for anew: members may change."""

    def __init__(self, exchange: Exchange, seen: SeenHeads, conduct: Conduct, now: Callable[[], float]) -> None:
        self.exchange, self.seen, self.conduct, self.now = exchange, seen, conduct, now
        self.following = Allowances(rate=FOLLOWING, burst=FOLLOWING_AT_ONCE)
        self.links = Allowances(rate=LINKS_A_SECOND, burst=float(MAX_LINKS))

    def receive(self, client: str, study_hash: bytes, op: int, body: bytes) -> bool:
        """A client shows its ledger's head, or asks which one was seen last; whether that is what it was."""
        if op not in (Op.NOTICE, Op.HEAD) or client not in self.exchange.members.clients:
            return False
        if op == Op.NOTICE:
            self._countersign(client, study_hash, body)
        else:
            self._tell_seen(client)
        return True

    def _countersign(self, client: str, study_hash: bytes, body: bytes) -> None:
        parts = unpack_parts(body, client)
        if len(parts) != 2 or len(parts[1]) % HASH_BYTES:
            raise RemoteProtocolError("a notice of a charge is not one", rule="malformed", party=client)
        charge = self.exchange.store.check(parts[0], sender=client)
        if charge.kind != "charge" or charge.signer != client or charge.study_hash != study_hash:
            raise RemoteProtocolError("a notice that is not of the client's own charge", party=client)
        docket = self.exchange.docket(study_hash)
        if client not in docket.standing(self.exchange.wall()).approvals:
            raise RemoteProtocolError(
                "a charge of a study that this client has not approved, as far as is known here",
                party=client,
                rule="unknown-study",
                remedy="It is not countersigned. The client asks again; its approval may be on its way.",
            )
        links = [parts[1][i : i + HASH_BYTES] for i in range(0, len(parts[1]), HASH_BYTES)]
        body_of = {"client": client, **{key: charge.body[key] for key in ("hash", "ledger", "sequence", "head")}}
        own = [s for s in docket.countersignatures(client) if s.signer == self.exchange.name]
        signed = next((s for s in own if s.body == body_of), None)
        if signed is None:
            if len(own) >= HEADS_OF_A_STUDY:  # what a witness may sign about a study is limited, and meant for all
                raise RemoteProtocolError(
                    "more charges of one study than a client can have", party=client, rule="too-many-statements"
                )
            if not self._follow(client, head_of(charge), links):
                return
            signed = self.exchange.say("countersignature", body_of)
        self.exchange.send(client, Op.STATEMENTS, pack_parts([signed.encode()]))

    def _follow(self, client: str, head: Head, links: Sequence[bytes]) -> bool:
        """Whether a client's ledger adds to what was seen of it; if not, or not now, the client is told, or asks again.

        A message may hold tens of thousands of links, a second's work and megabytes on disk, and a client may send
        eight of those a second: its ledger takes a share of this party's time, and grows at a rate.
        """
        now, last = self.now(), self.seen.last(client)
        fresh = min(len(links), max(0, head.sequence - last.sequence)) if last is not None else len(links)
        if self.following.wait(client, now) or not self.links.take(client, now, fresh):
            self.conduct.note(client, "ledger-links")
            return False
        try:
            verdict = self.seen.accept(client, head, links)
        finally:
            self.following.take(client, now, self.now() - now)
        if not verdict.accepted:
            said = "the ledger of %s is not countersigned: %s"
            _log.warning(said, client, verdict.why, extra={"member": client})
            self._tell_seen(client)
        return verdict.accepted

    def _tell_seen(self, client: str) -> None:
        last = self.seen.last(client)
        self.exchange.send(client, Op.SEEN, b"" if last is None else pack_head(last))

    def close(self) -> None:
        """After the loop has ended."""
        self.seen.close()
