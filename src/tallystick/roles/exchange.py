"""How signed statements get around: the aggregator is the notice board, everybody keeps a copy.

    op (1) ‖ body       STATEMENTS  statements, each after its length
                        HAVE        the idents of what I hold: send me what I lack, ask for what you lack
                        WANT        idents: send me these
                        NOTICE      client to server: the charge of a study, and the links of my ledger up to it
                        HEAD        client to server: which head of my ledger have you seen last?
                        SEEN        server to client: this one
                        RESULT_WANTED / RESULT / NO_RESULT    the result of a study, sealed to who may see it
                        RECEIPT_WANTED / RECEIPT              its privacy receipt, for everybody

Nothing here is believed because of who sent it: a statement counts by its signature, whoever passes it on. What is lost
on the way is found by HAVE, said anew whenever a line comes up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum, unique
from struct import Struct
from typing import Any

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import HASH_BYTES, format_hash, parse_hash
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.governance.statements import decode as decode_statement
from tallystick.protocol.study.roster import Members
from tallystick.roles.governance_store import GovernanceStore
from tallystick.roles.wire import GOVERNANCE, head

__all__ = ["Exchange", "Op", "pack_parts", "unpack_parts"]

_LENGTH = Struct("<I")
NOBODY = bytes(HASH_BYTES)
BATCH_BYTES = 1 << 19
SHARED_DECISIONS = 100  # up to so many clients, each client is shown what the others decided
_FOR_ALL = frozenset({"proposal", "withdrawal", "outcome"})


@unique
class Op(IntEnum):
    """What a message of this layer is."""

    STATEMENTS = 1
    HAVE = 2
    WANT = 3
    NOTICE = 4
    HEAD = 5
    SEEN = 6
    RESULT_WANTED = 7
    RESULT = 8
    NO_RESULT = 9
    RECEIPT_WANTED = 10
    RECEIPT = 11


def pack_parts(parts: Iterable[bytes]) -> bytes:
    """Byte strings after one another, each behind its length."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_parts(raw: bytes | memoryview, sender: str) -> list[bytes]:
    """Inverse of :func:`pack_parts`; lengths are compared with what is there before anything is made of them."""
    parts, at = [], 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise RemoteProtocolError("a message claims more than it holds", rule="X14", party=sender)
        size = _LENGTH.unpack_from(raw, at)[0]
        at += 4
        if at + size > len(raw):
            raise RemoteProtocolError("a message claims more than it holds", rule="X14", party=sender)
        parts.append(bytes(raw[at : at + size]))
        at += size
    return parts


class Exchange:
    """One party's copy of the notice board, and its line to the others. Used by the process's loop only.

    ``heard`` is called once for every statement that is new here, whoever it came from.
    """

    def __init__(
        self,
        store: GovernanceStore,
        members: Members,
        name: str,
        key: SigningKey,
        *,
        send: Callable[[str, bytes], None],
        wall: Callable[[], float],
        heard: Callable[[Statement], None] | None = None,
    ) -> None:
        self.store, self.members, self.name, self.wall = store, members, name, wall
        self._key, self._send, self._heard = key, send, heard or (lambda _statement: None)
        self._idents: set[str] = set()
        self._offered: dict[str, frozenset[str]] = {}
        self._row = 0
        self._hub = name == members.aggregator

    # -- what is known -------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what is new in the file, whoever wrote it: this process, a steward's command line, an earlier run."""
        for row, statement in self.store.since(self._row):
            self._row = max(self._row, row)
            self._note(statement)

    def _note(self, statement: Statement, sender: str = "") -> None:
        if statement.ident not in self._idents:
            self._idents.add(statement.ident)
            self._pass_on(statement, sender)
            self._heard(statement)

    def docket(self, study: bytes) -> Docket:
        """Everything said about a study, weighed."""
        return Docket.of(study, self.members, self.store.statements(study))

    def standing(self, study: bytes) -> Standing:
        """How a study stands now."""
        return self.docket(study).standing(self.wall())

    # -- saying --------------------------------------------------------------------------------------------------------

    def say(self, kind: str, body: Mapping[str, Any]) -> Statement:
        """Sign, keep, and tell everybody."""
        statement = make(kind, self.name, body, self._key)
        self.add(statement)
        return statement

    def add(self, statement: Statement) -> None:
        """Keep a statement and pass it on."""
        self.store.add(statement.encode())
        self._note(statement)

    def _pass_on(self, statement: Statement, sender: str) -> None:
        if not self._hub:
            if sender != self.members.aggregator and statement.signer == self.name:
                self._tell(self.members.aggregator, [statement])
            return
        for party in (*self.members.parties, *self.members.analysts):
            if party not in (sender, statement.signer) and self._concerns(statement, party):
                self._tell(party, [statement])

    def _concerns(self, statement: Statement, party: str) -> bool:
        """Whether a party is shown a statement: servers and analysts all, clients all while they are not too many."""
        if statement.kind in _FOR_ALL or statement.signer == party or party not in self.members.clients:
            return True
        return len(self.members.clients) <= SHARED_DECISIONS

    def tell_docket(self, study: bytes, party: str) -> None:
        """Before a party is asked to take part: what concerns it, and approvals enough to see the quorum itself."""
        standing = self.standing(study)
        quorum = [standing.approvals[name] for name in list(standing.approvals)[: standing.quorum]]
        told = [s for s in self.store.statements(study) if self._concerns(s, party)]
        self._tell(party, list({s.ident: s for s in (*told, *quorum)}.values()))

    def _tell(self, to: str, statements: Sequence[Statement]) -> None:
        batch: list[bytes] = []
        size = 0
        for raw in (s.encode() for s in statements):
            if batch and size + len(raw) > BATCH_BYTES:
                self.send(to, Op.STATEMENTS, pack_parts(batch))
                batch, size = [], 0
            batch.append(raw)
            size += len(raw) + 4
        if batch:
            self.send(to, Op.STATEMENTS, pack_parts(batch))

    def send(self, to: str, op: Op, body: bytes, study: bytes = NOBODY) -> None:
        """One message of this layer."""
        self._send(to, head(GOVERNANCE, study) + bytes([op]) + body)

    # -- hearing -------------------------------------------------------------------------------------------------------

    def connected(self, peer: str) -> None:
        """A line is there (again): compare notes with the aggregator, or as the aggregator."""
        if self._hub or peer == self.members.aggregator:
            self.send(peer, Op.HAVE, b"".join(map(parse_hash, sorted(self._idents))))

    def in_step(self, peer: str) -> bool:
        """Whether a peer has told what it holds and all of that is here."""
        offered = self._offered.get(peer)
        return offered is not None and offered <= self._idents

    def receive(self, sender: str, op: int, body: bytes) -> bool:
        """Take a message about statements; False if it is about something else."""
        if op == Op.STATEMENTS:
            for raw in unpack_parts(body, sender):
                self._receive_statement(sender, raw)
        elif op in (Op.HAVE, Op.WANT):
            if len(body) % HASH_BYTES:
                raise RemoteProtocolError("a list of idents is cut short", rule="X14", party=sender)
            idents = [format_hash(body[i : i + HASH_BYTES]) for i in range(0, len(body), HASH_BYTES)]
            self._compare(sender, idents) if op == Op.HAVE else self._give(sender, idents)
        else:
            return False
        return True

    def _receive_statement(self, sender: str, raw: bytes) -> None:
        statement = decode_statement(raw, party=sender)
        if sender not in (statement.signer, self.members.aggregator):
            raise RemoteProtocolError("a statement must come from who signed it", party=sender)
        try:
            self.store.add(raw, sender=sender)
        except VerificationError as error:
            raise RemoteProtocolError(f"a forged statement: {error.cause}", party=sender, rule=error.rule) from error
        self._note(statement, sender)

    def _compare(self, sender: str, idents: Sequence[str]) -> None:
        theirs = self._offered[sender] = frozenset(idents)
        lacking = [s for s in self.store.statements() if s.ident not in theirs]
        self._tell(sender, [s for s in lacking if self._may_tell(s, sender)])
        wanted = [ident for ident in idents if ident not in self._idents]
        if wanted:
            self.send(sender, Op.WANT, b"".join(map(parse_hash, wanted)))

    def _give(self, sender: str, idents: Sequence[str]) -> None:
        held = [s for s in map(self.store.statement, idents) if s is not None]
        self._tell(sender, [s for s in held if self._may_tell(s, sender)])

    def _may_tell(self, statement: Statement, to: str) -> bool:
        return self._concerns(statement, to) if self._hub else statement.signer == self.name
