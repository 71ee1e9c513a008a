"""How signed statements get around: the aggregator is the notice board, everybody keeps a copy.

Nothing here is believed because of who sent it: a statement counts by its signature, whoever passes it on. What is lost
on the way is found by HAVE, said anew whenever a line comes up, and after something was not taken or did not fit.

Nobody can fill the board. A proposal is kept as long as its analyst has room (``room``); anything else only if it is
about a study that is proposed. What comes before its proposal waits in memory, a little of each signer. Every party may
send so many statements and questions in a while, and be given so many bytes in answer; what is more is not looked at,
counted and named. These limits are checked before a signature is, and long before anything is stored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.core.allowance import Allowances
from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import HASH_BYTES, format_hash, parse_hash
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.docket import Docket, check_speaker, order_of
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement, decode, ident_of, make
from tallystick.protocol.members import Members
from tallystick.roles.governance.early import EarlyStatements
from tallystick.roles.governance.messages import Op, pack_parts, unpack_parts
from tallystick.roles.governance.room import GRACE_SECONDS
from tallystick.roles.governance.store import GovernanceStore
from tallystick.transport.wire import GOVERNANCE, head

FOR_ALL = frozenset({"proposal", "withdrawal", "outcome", "pause"})  # shown to every client, however many there are
NOBODY = bytes(HASH_BYTES)
BATCH_BYTES = 1 << 19
IDENTS_OF_ONE = 1 << 12  # in a list that counts as one question; a longer one counts as several
SHARED_DECISIONS = 100  # up to so many clients, each client is shown what the others decided
STATEMENTS_AT_ONCE, STATEMENTS_A_SECOND = 256, 20.0  # new ones from one party; four more at once for every party
QUESTIONS_AT_ONCE, QUESTIONS_A_SECOND = 128, 8.0
COMPARISONS_AT_ONCE, COMPARISONS_A_SECOND = 32, 1.0  # HAVE: the answer may be everything there is
ANSWER_BYTES_AT_ONCE, ANSWER_BYTES_A_SECOND = 32 << 20, float(1 << 20)
AGAIN_SECONDS = 10.0  # after which notes are compared again with who was not listened to, or could not be told
PRUNE_SECONDS = 3600.0
PRESSED_SECONDS = 60.0  # between two prunings for want of room


class _Board:
    """What parties are told of a study before they are asked to take part, at one state of the file; made once for a
    thousand of them."""

    def __init__(self, place: tuple[bytes, int], statements: Sequence[Statement], quorum: Sequence[Statement]) -> None:
        self.place = place
        self.whole = list({s.ident: s for s in (*statements, *quorum)}.values())
        self._common = {s.ident: s for s in (*(s for s in statements if s.kind in FOR_ALL), *quorum)}
        self._signed: dict[str, list[Statement]] = {}
        for statement in statements:
            self._signed.setdefault(statement.signer, []).append(statement)

    def for_one(self, client: str) -> list[Statement]:
        """For one of many clients: what is for all, the quorum, and its own."""
        return list({**self._common, **{s.ident: s for s in self._signed.get(client, ())}}.values())


class Exchange:
    """One party's copy of the notice board, and its line to the others. Used by the process's loop only.

    ``heard`` is called once for every statement that is new here, whoever it came from; ``limited`` for what a member
    was refused: (member, limit, how often).
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
        limited: Callable[[str, str, int], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.members, self.name, self.wall = store, members, name, wall
        self._key, self._send, self._heard = key, send, heard or (lambda _statement: None)
        self._limited, self._now = limited or (lambda _member, _limit, _count: None), now
        burst = STATEMENTS_AT_ONCE + 4 * len(members.identities)
        self._statements = Allowances(rate=STATEMENTS_A_SECOND, burst=burst)
        self._questions = Allowances(rate=QUESTIONS_A_SECOND, burst=QUESTIONS_AT_ONCE)
        self._comparisons = Allowances(rate=COMPARISONS_A_SECOND, burst=COMPARISONS_AT_ONCE)
        self._answers = Allowances(rate=ANSWER_BYTES_A_SECOND, burst=ANSWER_BYTES_AT_ONCE)
        self._early = EarlyStatements()
        self._again: dict[str, float] = {}  # with whom notes are compared once more, and when
        self._pruned, self._pressed = now(), -PRESSED_SECONDS
        self.proposed: set[bytes] = set(store.proposed())
        """Studies that somebody has proposed; other threads may look."""
        self._idents: dict[str, tuple[str, str]] = {}  # what is held: its kind and its signer
        self._offered: dict[str, set[str]] = {}  # by the aggregator: what it holds and has not told yet
        self._row = 0
        self._hub = name == members.board
        self._clients = frozenset(members.clients)
        self._others = (*members.helpers, *members.analysts)
        self._dockets: dict[bytes, tuple[int, Docket]] = {}
        self._board: _Board | None = None
        self._held: dict[str, list[Statement]] | None = None  # to be passed on at the end of a turn

    def adopt(self, members: Members, running: Iterable[bytes]) -> None:
        """Another consortium file is in force: what those who left have said counts no more.

        But for studies that run: they are judged to their end by the file they were started with.
        """
        judged = {study: (self.docket(study), self.store.last()) for study in running}
        self.store.pin(members.identities)
        self.members, self._clients = members, frozenset(members.clients)
        self._others = (*members.helpers, *members.analysts)
        self._hub = self.name == members.board
        self._dockets = {study: (number, docket) for study, (docket, number) in judged.items()}
        self._board = None
        self._idents = {kept.ident: (kept.kind, kept.signer) for _, kept in self.store.since(0)}
        self._offered.clear()
        for peer in (members.board,) if not self._hub else (*members.parties, *members.analysts):
            self.compare_again(peer)

    # -- what is known -------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what is new in the file, whoever wrote it: this process, a steward's command line, an earlier run."""
        for row, statement in self.store.since(self._row):
            self._row = max(self._row, row)
            self._note(statement)
        now = self._now()
        for peer in [peer for peer, at in list(self._again.items()) if at <= now]:
            del self._again[peer]
            self.connected(peer)
        if now >= self._pruned + PRUNE_SECONDS:
            self._pruned = now
            self.prune()

    def _note(self, statement: Statement, sender: str = "") -> None:
        if statement.ident not in self._idents:
            self._idents[statement.ident] = statement.kind, statement.signer
            if statement.kind == "proposal":
                self.proposed.add(statement.study_hash)
            self._pass_on(statement, sender)
            self._heard(statement)
            if statement.kind == "proposal":
                for came_from, raw in self._early.take(statement.study_hash):
                    self._receive_statement(came_from, raw)

    def prune(self, grace: float = GRACE_SECONDS) -> None:
        """Forget studies that can never start any more."""
        gone = self.store.prune(self.wall(), grace)
        if gone:
            for study in gone:
                self._dockets.pop(study, None)
            kept = self.store.idents()
            self._idents = {ident: of for ident, of in self._idents.items() if ident in kept}
            self.proposed -= gone

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
            if sender != self.members.board and statement.signer == self.name:
                self._tell(self.members.board, [statement])
            return
        everybody = statement.kind in FOR_ALL or len(self._clients) <= SHARED_DECISIONS
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
        if kind in FOR_ALL or signer == party or party not in self._clients:
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
        for raw in (s.encode() for s in sorted(statements, key=order_of)):  # a proposal before what is said of it
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
        if self._hub or peer == self.members.board:
            told = [ident for ident, of in self._idents.items() if not self._hub or self._concerns(*of, peer)]
            self.send(peer, Op.HAVE, b"".join(map(parse_hash, sorted(told))))

    def compare_again(self, peer: str) -> None:
        """What was said on one side may not be known on the other: compare notes in a while."""
        self._again.setdefault(peer, self._now() + AGAIN_SECONDS)

    def in_step(self, peer: str) -> bool:
        """Whether a peer has told what it holds, and has been listened to."""
        offered = self._offered.get(peer)
        return offered is not None and offered <= self._idents.keys()

    def may_ask(self, sender: str) -> bool:
        """Whether a party may ask something of this one now; if not, it is counted and named."""
        return self._within(self._questions, "questions", sender)

    def _within(self, allowance: Allowances, limit: str, sender: str, cost: float = 1.0) -> bool:
        if allowance.take(sender, self._now(), cost):
            return True
        self._limited(sender, limit, 1)
        return False

    def may_answer(self, to: str, size: int) -> bool:
        """Whether a party may be given so many bytes now because it asked for them."""
        return self._within(self._answers, "answers", to, size)

    def receive(self, sender: str, op: int, body: bytes) -> bool:
        """Take a message about statements; False if it is about something else."""
        if op == Op.STATEMENTS:
            parts = unpack_parts(body, sender)
            for i, raw in enumerate(parts):
                if ident_of(raw) in self._idents:
                    continue
                # The aggregator passes on what all the others say: what it may bring is limited signer by signer.
                if sender != self.members.board and not self._statements.take(sender, self._now()):
                    self._limited(sender, "statements", len(parts) - i)
                    self.compare_again(sender)
                    break
                self._receive_statement(sender, raw)
        elif op in (Op.HAVE, Op.WANT):
            if len(body) % HASH_BYTES:
                raise RemoteProtocolError("a list of idents is cut short", rule="malformed", party=sender)
            # Comparing has an allowance of its own: a command run again and again must not cost its caller the result.
            allowance, limit = (self._comparisons, "comparisons") if op == Op.HAVE else (self._questions, "questions")
            # A list takes time for every ident in it, and may be as long as a running study's vectors.
            if not self._within(allowance, limit, sender, max(1.0, len(body) / HASH_BYTES / IDENTS_OF_ONE)):
                self.compare_again(sender)
                return True
            idents = [format_hash(body[i : i + HASH_BYTES]) for i in range(0, len(body), HASH_BYTES)]
            self._compare(sender, idents) if op == Op.HAVE else self._give(sender, idents)
        else:
            return False
        return True

    def _receive_statement(self, sender: str, raw: bytes) -> None:
        """Keep a statement and pass it on, if there is room for it: the cheap questions first."""
        statement = decode(raw, party=sender)
        self._offered.get(sender, set()).discard(statement.ident)
        if sender not in (statement.signer, self.members.board):
            raise RemoteProtocolError("a statement must come from who signed it", party=sender)
        if statement.signer not in self.members.identities:
            raise RemoteProtocolError("a statement of nobody in the consortium", party=sender, rule="unknown-signer")
        try:
            check_speaker(self.members, statement)
        except RemoteProtocolError as error:  # its signature is not checked yet: it is the sender who answers for it
            raise RemoteProtocolError(error.cause, party=sender, rule=error.rule) from None
        try:
            if statement.kind != "proposal" and statement.study_hash not in self.proposed:
                # Perhaps the proposal is still on its way.
                if not self._early.put(statement.signer, statement.study_hash, sender, raw):
                    self._limited(statement.signer, "statements-without-proposal", 1)
                return
            self._keep(sender, raw)
        except VerificationError as error:
            raise RemoteProtocolError(f"a forged statement: {error.cause}", party=sender, rule=error.rule) from error
        self._note(statement, sender)

    def _keep(self, sender: str, raw: bytes) -> None:
        try:
            self.store.add(raw, sender=sender)
        except RemoteProtocolError as error:
            if error.rule != "too-many-statements" or self._now() < self._pressed + PRESSED_SECONDS:
                raise
            self._pressed = self._now()
            self.prune(grace=0.0)
            self.store.add(raw, sender=sender)

    def _compare(self, sender: str, idents: Sequence[str]) -> None:
        theirs = set(idents)
        if sender == self.members.board:
            self._offered[sender] = theirs
        wanted = [ident for ident in idents if ident not in self._idents]
        self._give(sender, [ident for ident in self._idents if ident not in theirs])
        if wanted:
            self.send(sender, Op.WANT, b"".join(map(parse_hash, wanted)))

    def _give(self, sender: str, idents: Sequence[str]) -> None:
        told = [ident for ident in idents if ident in self._idents and self._may_tell(*self._idents[ident], sender)]
        given = [s for s in map(self.store.statement, told) if s is not None]
        if given and self.may_answer(sender, sum(len(s.encode()) for s in given)):
            self._tell(sender, given)
        elif given:
            self.compare_again(sender)

    def _may_tell(self, kind: str, signer: str, to: str) -> bool:
        return self._concerns(kind, signer, to) if self._hub else signer == self.name
