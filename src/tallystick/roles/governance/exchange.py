"""How signed statements get around: the aggregator is the notice board, everybody keeps a copy.

    op (1) ‖ body       STATEMENTS  statements, each after its length
                        HAVE        the idents of what I hold: send me what I lack, ask for what you lack
                        WANT        idents: send me these
                        NOTICE      client to server: the charge of a study, and the links of my ledger up to it
                        HEAD        client to server: which head of my ledger have you seen last?
                        SEEN        server to client: this one
                        RESULT_WANTED / RESULT / NO_RESULT    the result of a study, sealed to who may see it
                        RECEIPT_WANTED / RECEIPT              its privacy receipt, for everybody
                        TICK / TICK_SEEN    a stream's client to server and back: the last tick seen (streams/ticks)

Nothing here is believed because of who sent it: a statement counts by its signature, whoever passes it on. What is lost
on the way is found by HAVE, said anew whenever a line comes up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, unique
from struct import Struct
from typing import Any

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import HASH_BYTES, format_hash, parse_hash
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.study.roster import Members
from tallystick.roles.governance.store import GovernanceStore
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
    TICK = 12
    TICK_SEEN = 13


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


class _Board:
    """What parties are told of a study at one state of the file; made once for a thousand of them."""

    def __init__(self, place: tuple[bytes, int], statements: Sequence[Statement], quorum: Sequence[Statement]) -> None:
        self.place = place
        self.whole = list({s.ident: s for s in (*statements, *quorum)}.values())
        self._common = {s.ident: s for s in (*(s for s in statements if s.kind in _FOR_ALL), *quorum)}
        self._signed: dict[str, list[Statement]] = {}
        for statement in statements:
            self._signed.setdefault(statement.signer, []).append(statement)

    def for_one(self, client: str) -> list[Statement]:
        """For one of many clients: what is for all, the quorum, and its own."""
        return list({**self._common, **{s.ident: s for s in self._signed.get(client, ())}}.values())


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
        self._idents: dict[str, tuple[str, str]] = {}  # what is held: its kind and its signer
        self._offered: dict[str, frozenset[str]] = {}
        self._row = 0
        self._hub = name == members.aggregator
        self._clients = frozenset(members.clients)
        self._others = (*members.servers, *members.analysts)
        self._dockets: dict[bytes, tuple[int, Docket]] = {}
        self._board: _Board | None = None
        self._held: dict[str, list[Statement]] | None = None  # to be passed on at the end of a turn

    # -- what is known -------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what is new in the file, whoever wrote it: this process, a steward's command line, an earlier run."""
        for row, statement in self.store.since(self._row):
            self._row = max(self._row, row)
            self._note(statement)

    def _note(self, statement: Statement, sender: str = "") -> None:
        if statement.ident not in self._idents:
            self._idents[statement.ident] = statement.kind, statement.signer
            self._pass_on(statement, sender)
            self._heard(statement)

    def docket(self, study: bytes) -> Docket:
        """Everything said about a study, weighed: what is in the file now, each statement looked at once."""
        number = self.store.last()
        known = self._dockets.get(study)
        if known is None or known[0] > number:
            docket = Docket.of(study, self.members, self.store.statements(study))
        else:
            docket = known[1]
            for _, statement in self.store.since(known[0]) if known[0] < number else ():
                if docket.bears_on(statement):
                    docket.apply_if_it_counts(statement)
        self._dockets[study] = number, docket
        return docket

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
        everybody = statement.kind in _FOR_ALL or len(self._clients) <= SHARED_DECISIONS
        for party in (*self._others, *(self.members.clients if everybody else ())):
            if party in (sender, statement.signer):
                continue
            if self._held is None:
                self._tell(party, [statement])
            else:
                self._held.setdefault(party, []).append(statement)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """What comes in meanwhile is passed on in one go: a thousand clients decide at once."""
        self._held = {}
        try:
            yield
        finally:
            held, self._held = self._held, None
            for party, statements in held.items():
                self._tell(party, statements)

    def _concerns(self, kind: str, signer: str, party: str) -> bool:
        """Whether a party is shown a statement: servers and analysts all, clients all while they are not too many."""
        if kind in _FOR_ALL or signer == party or party not in self._clients:
            return True
        return len(self._clients) <= SHARED_DECISIONS

    def tell_docket(self, study: bytes, party: str) -> None:
        """Before a party is asked to take part: what concerns it, and approvals enough to see the quorum itself."""
        place = study, self.store.last()
        if self._board is None or self._board.place != place:
            standing = self.standing(study)
            quorum = [standing.approvals[name] for name in list(standing.approvals)[: standing.quorum]]
            self._board = _Board(place, self.store.statements(study), quorum)
        few = party in self._clients and len(self._clients) > SHARED_DECISIONS
        self._tell(party, self._board.for_one(party) if few else self._board.whole)

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
            told = [ident for ident, of in self._idents.items() if not self._hub or self._concerns(*of, peer)]
            self.send(peer, Op.HAVE, b"".join(map(parse_hash, sorted(told))))

    def in_step(self, peer: str) -> bool:
        """Whether a peer has told what it holds and all of that is here."""
        offered = self._offered.get(peer)
        return offered is not None and offered <= self._idents.keys()

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
        try:
            statement = self.store.check(raw, sender=sender)
            if sender not in (statement.signer, self.members.aggregator):
                raise RemoteProtocolError("a statement must come from who signed it", party=sender)
            self.store.add(raw, sender=sender)
        except VerificationError as error:
            raise RemoteProtocolError(f"a forged statement: {error.cause}", party=sender, rule=error.rule) from error
        self._note(statement, sender)

    def _compare(self, sender: str, idents: Sequence[str]) -> None:
        theirs = self._offered[sender] = frozenset(idents)
        self._give(sender, [ident for ident in self._idents if ident not in theirs])
        wanted = [ident for ident in idents if ident not in self._idents]
        if wanted:
            self.send(sender, Op.WANT, b"".join(map(parse_hash, wanted)))

    def _give(self, sender: str, idents: Sequence[str]) -> None:
        told = [ident for ident in idents if ident in self._idents and self._may_tell(*self._idents[ident], sender)]
        self._tell(sender, [s for s in map(self.store.statement, told) if s is not None])

    def _may_tell(self, kind: str, signer: str, to: str) -> bool:
        return self._concerns(kind, signer, to) if self._hub else signer == self.name
