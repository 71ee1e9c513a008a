"""The second half of a server's round: signed lists, the agreed set, the one release. The argument is in ``server``.

Lists say whose commitments a server holds; agreements, which clients are in the sum and under which start each server
opened the round; only when all m agreements are identical are the shares of exactly that set added up. Whatever does
not fit ends the round, names who it does not fit with, and drops the shares.

A round that was held while the study was paused goes on over the same set and the same bytes, or not at all. Before
this server says or sums anything more in it, every client whose share it holds must say again that it takes part, and
must have shared what is held here. Nobody else can say so for a client, the aggregator least of all. If one does not,
or if anything of the round is lost here, the round is spent: noise and shares are erased, and its number never returns.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import NotRequired, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.randomness import WordSource
from tallystick.crypto.field import add_into, encode_signed, to_bytes
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.instructions import Aborted, Forget, Persist, Send, Wake
from tallystick.protocol.secure_sum.boots import BootBook, MemoryBoots, SeenBoots, dispute
from tallystick.protocol.secure_sum.codec import encode
from tallystick.protocol.secure_sum.instructions import Blame, Drop, Instruction
from tallystick.protocol.secure_sum.machine import SumMachine, abort_error
from tallystick.protocol.secure_sum.messages import (
    BOOT_VALUE_BYTES,
    MARK_BYTES,
    Agreement,
    Code,
    Confirmed,
    Partial,
    ReceivedList,
    Share,
    ShareKind,
    StillIn,
)
from tallystick.protocol.secure_sum.open_round import ACTIVE, NoiseSource, OpenRound, ServerEvent, ServerState
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.shares import ShareStore, sum_shares

_S, _E = ServerState, ServerEvent


class ServerParts(TypedDict):
    """What a server is made of, beside the study's parameters and its name."""

    key: SigningKey
    noise: NoiseSource
    blinds: WordSource
    shares: ShareStore
    boot: NotRequired[int]
    boot_value: NotRequired[bytes]
    boots: NotRequired[BootBook | None]
    held: NotRequired[int]


class AgreeingServer(SumMachine):
    """A server that has its shares: agrees on the set with its peers, sums it once, or gives the round up."""

    def __init__(self, parameters: SumParameters, name: str, **parts: Unpack[ServerParts]) -> None:
        super().__init__(parameters, name, _S.IDLE)
        self.index = parameters.server_index[name]
        self._key, self._noise, self._blinds, self._shares = (
            parts["key"], parts["noise"], parts["blinds"], parts["shares"],
        )  # fmt: skip
        if self._key.public != parameters.server_keys[self.index]:
            raise LocalProtocolError("this server's key is not the one pinned in the study", party=name)
        self._boot, self._boot_value = parts.get("boot", 0), parts.get("boot_value", bytes(BOOT_VALUE_BYTES))
        boots = parts.get("boots")
        self._seen = SeenBoots(parameters, boots if boots is not None else MemoryBoots())
        self._peers = tuple(server for server in parameters.servers if server != name)
        self._now: OpenRound | None = None
        self._held = parts.get("held", 0)
        """The round in which the study was paused; 0 if it never was."""
        self._unconfirmed: set[int] = set()
        self._confirm_by = 0.0
        self._mark = bytes(MARK_BYTES)
        """Of this server's question who still takes part: drawn anew whenever a held round is taken up."""

    @property
    def blamed(self) -> tuple[str, ...]:
        """Clients caught with two different sharings in the current round, by any server."""
        blamed = self._now.blamed() if self._now is not None else ()
        return tuple(self.parameters.clients[client] for client in blamed)

    # -- a round that was held ---------------------------------------------------------------------------------------

    def _ask_again(self, current: OpenRound, now: float) -> list[Instruction]:
        """Who is in the round is asked whether that still holds; nothing goes on until all have answered."""
        there = set(self._shares.clients(self.round))
        if current.noise is None or not there.issuperset(current.received):
            return self._lost()
        self._unconfirmed = set(current.received)
        self._confirm_by = now + self.parameters.agreement_seconds
        self._mark = self._blinds.bytes(MARK_BYTES)
        return self._ask_unconfirmed(now) if self._unconfirmed else self._go_on(current, now)

    def _lost(self) -> list[Instruction]:
        return self._abort(Code.ABSENT, self.name, "what this server kept of the round is lost; the round is spent")

    def _ask_unconfirmed(self, now: float) -> list[Instruction]:
        p = self.parameters
        question = StillIn(study_hash=p.study_hash, round=self.round, mark=self._mark)
        asked: list[Instruction] = [Send(name, question) for i, name in enumerate(p.clients) if i in self._unconfirmed]
        return [*asked, Wake(min(now + p.retry_seconds, self._confirm_by))]

    def _on_confirmed(self, sender: str, message: Confirmed, now: float) -> list[Instruction]:
        client, current = self.parameters.client_index.get(sender), self._now
        here = self._held == message.round == self.round and self.state in ACTIVE
        if client is None or current is None or not here or message.mark != self._mark:
            return []
        mine = current.received.get(client)
        if message.complete and mine is None and client not in current.equivocators:
            return self._abort(Code.ABSENT, self.name, f"the share of {sender} is lost here; the round is spent")
        if mine is not None and mine != message.digest:
            return self._abort(Code.ABSENT, sender, "the client no longer has what it shared; the round is spent")
        if client not in self._unconfirmed:
            return []
        self._unconfirmed.discard(client)
        return [] if self._unconfirmed else self._go_on(current, now)

    def _go_on(self, current: OpenRound, now: float) -> list[Instruction]:
        if self.state is _S.COLLECTING:
            return self._list(current, now) if current.complete(self.parameters) else [Wake(current.deadline)]
        current.give_up = now + self.parameters.agreement_seconds
        return [*(self._try_agree(current) or self._try_release(current)), Wake(now + self.parameters.retry_seconds)]

    # -- lists, agreements, the release ------------------------------------------------------------------------------

    def _list(self, current: OpenRound, now: float) -> list[Instruction]:
        if self._unconfirmed:
            return []
        clients = tuple(sorted(current.received))
        unsigned = ReceivedList(
            study_hash=self.parameters.study_hash,
            round=self.round,
            server=self.index,
            start=current.start,
            model_hash=current.record.model_hash,
            clients=clients,
            digests=tuple([current.received[client] for client in clients]),
            equivocators=tuple(sorted(current.equivocators)),
        )
        own = replace(unsigned, signature=self._key.sign(unsigned.signed_part()))
        current.lists[self.index] = own
        self._move(_E.LIST)
        out: list[Instruction] = [Persist("list", encode(own))]
        out += [Send(peer, own) for peer in self._peers]
        out += self._try_agree(current)
        return [*out, Wake(now + self.parameters.retry_seconds)] if self.state in ACTIVE else out

    def _statement_is_good(self, sender: str, message: ReceivedList | Agreement) -> Code | None:
        if self.parameters.server_index.get(sender) != message.server or sender == self.name:
            return Code.WRONG_PARTY
        named = message.clients + (message.equivocators if isinstance(message, ReceivedList) else ())
        if named and max(named) >= len(self.parameters.clients):
            return Code.WRONG_PARTY
        try:
            self.parameters.server_keys[message.server].verify(message.signed_part(), message.signature)
        except VerificationError:
            return Code.BAD_SIGNATURE
        if message.round != self.round or self._now is None:
            return Code.PAST_ROUND if message.round < self.round else Code.TOO_EARLY
        return None

    def _on_list(self, sender: str, message: ReceivedList, now: float) -> list[Instruction]:
        current = self._now
        known = current.lists.get(message.server) if current is not None else None
        if known is not None and known == message:
            return []
        wrong = self._statement_is_good(sender, message)
        if wrong is not None or current is None:
            return self._refuse(sender, message, wrong or Code.TOO_EARLY, "the list is not for this round or not valid")
        stale = self._stale(current, message)
        if self.state not in ACTIVE:
            return self._refuse(sender, message, Code.STALE_SERVER, stale) if stale is not None else []
        if stale is not None:
            return self._abort(Code.STALE_SERVER, sender, stale)
        if known is not None:
            return self._abort(Code.EQUIVOCATION, sender, "a server signed two different lists for one round")
        if self._other_model(current, message):
            return self._abort(Code.TWO_MODELS, sender, "servers were given different models for one round")
        current.lists[message.server] = message
        out = self._seen.note(message.server, message.start)
        if len(message.clients) + len(message.equivocators) < len(self.parameters.clients):
            out += self._sooner(current, now + self.parameters.retry_seconds)  # the peer's deadline has passed
        return out + self._try_agree(current)

    def _stale(self, current: OpenRound, message: ReceivedList) -> str | None:
        opened = current.start_of(message.server, self.index)
        if opened is not None and opened != message.start:
            return "it has opened this round twice: it was set back to a copy, or two copies run"
        return self._seen.objection(message.server, message.start)

    def _try_agree(self, current: OpenRound) -> list[Instruction]:
        p = self.parameters
        if self.state is not _S.LISTED or self._unconfirmed or len(current.lists) < len(p.servers):
            return []
        agreed = current.agreed_set()
        cause = "the servers hold different sharings of it for one round; none counts"
        unlike = [client for client in current.blamed() if client not in current.equivocators]
        blames: list[Instruction] = [Blame(p.clients[client], self.round, cause) for client in unlike]
        if len(agreed) < p.min_clients:
            cause = f"{len(agreed)} clients reached every server, the study asks for {p.min_clients}"
            return blames + self._abort(Code.TOO_FEW_CLIENTS, self.name, cause)
        unsigned = Agreement(
            study_hash=p.study_hash,
            round=self.round,
            server=self.index,
            honest=p.honest,
            model_hash=current.record.model_hash,
            starts=tuple([current.lists[server].start for server in range(len(p.servers))]),
            clients=agreed,
        )
        own = replace(unsigned, signature=self._key.sign(unsigned.signed_part()))
        current.agreements[self.index] = own
        self._move(_E.AGREE)
        out: list[Instruction] = [*blames, Persist("agreement", encode(own))]
        out += [Send(peer, own) for peer in (*self._peers, p.aggregator)]
        return out + self._try_release(current)

    def _on_agreement(self, sender: str, message: Agreement, now: float) -> list[Instruction]:
        current = self._now
        known = current.agreements.get(message.server) if current is not None else None
        if known is not None and known == message:
            return []
        wrong = self._statement_is_good(sender, message)
        if wrong is not None or current is None:
            return self._refuse(
                sender, message, wrong or Code.TOO_EARLY, "the agreement is not for this round or not valid"
            )
        if self.state not in ACTIVE:
            return []
        if known is not None:
            return self._abort(Code.EQUIVOCATION, sender, "a server signed two different agreements for one round")
        current.agreements[message.server] = message
        return self._try_release(current)

    def _try_release(self, current: OpenRound) -> list[Instruction]:
        waits = self._unconfirmed or len(current.agreements) < len(self.parameters.servers)
        if self.state is not _S.AGREED or waits:
            return []
        own = current.agreements[self.index]
        common = own.digest()
        for agreement in current.agreements.values():
            if agreement.digest() != common:
                return self._abort(*dispute(own, agreement, self.parameters.servers))
        if current.noise is None:
            raise LocalProtocolError("the noise of this round is gone", party=self.name, round=self.round)
        if self._noise.ends_in_a_draw(self.round):
            return self._begin_draw(current)
        total = self._sum(current, own.clients)
        add_into(total, encode_signed(current.noise))
        return self._say_partial(current, total)

    @abstractmethod
    def _begin_draw(self, current: OpenRound) -> list[Instruction]:
        """All have agreed, and the servers draw from what was agreed on: exactly once for a round."""

    def _say_partial(self, current: OpenRound, vector: NDArray[np.uint64]) -> list[Instruction]:
        unsigned = Partial(
            study_hash=self.parameters.study_hash,
            round=self.round,
            server=self.index,
            start=current.start,
            agreement=current.agreements[self.index].digest(),
            size=self.parameters.size,
            vector=to_bytes(vector),
        )
        current.partial = replace(unsigned, signature=self._key.sign(unsigned.signed_part()))
        self._move(_E.RELEASE)
        return [
            Persist("partial", encode(current.partial)),
            *self._erase(current),
            Send(self.parameters.aggregator, current.partial),
        ]

    def _erase(self, current: OpenRound) -> list[Instruction]:
        """The round's end is durable: its noise and shares are needed no more, and nobody finds them on this disk."""
        current.noise = None
        return [Forget("noise"), Drop(self.round)]

    def _sum(self, current: OpenRound, agreed: tuple[int, ...]) -> NDArray[np.uint64]:
        return sum_shares(self._shares, current.record.round, agreed, self.parameters.size)

    def _other_model(self, current: OpenRound, message: Share | ReceivedList) -> bool:
        """[Pasquini22]: a sum over two models can isolate one client; such a round is given up."""
        return message.model_hash != current.record.model_hash

    # -- giving up ---------------------------------------------------------------------------------------------------

    def _abort(self, code: Code, party: str, cause: str, *, tell: bool = True) -> list[Instruction]:
        current = cast(OpenRound, self._now)
        current.abort = self._abort_of(self.round, code, party, cause)
        self._unconfirmed = set()
        self._move(_E.ABORT)
        out: list[Instruction] = [Persist("aborted", encode(current.abort)), *self._erase(current)]
        if tell:
            out += [Send(to, current.abort) for to in (*self._peers, self.parameters.aggregator)]
        return [*out, Aborted(abort_error(current.abort))]

    def _sooner(self, current: OpenRound, deadline: float) -> list[Instruction]:
        """Bring the deadline forward (after a restart nobody knows how much of it was left); never put it off."""
        if self.state is not _S.COLLECTING or current.waits or deadline >= current.deadline:
            return []
        current.deadline, current.give_up = deadline, deadline + self.parameters.agreement_seconds
        return [Wake(deadline)]

    def _misfit(self, message: Share, digest: bytes) -> tuple[Code, str] | None:
        """What is wrong with a share whatever the round: made for someone else, or not what was committed to."""
        parameters, server = self.parameters, self.index
        if message.server != server or message.servers != len(parameters.servers):
            return Code.WRONG_SHAPE, "the share is for another server or set of servers"
        if message.size != parameters.size:
            return Code.WRONG_SHAPE, f"the share has {message.size} entries instead of {parameters.size}"
        mine = parameters.vector_server(message.round, message.client) == server
        kind = ShareKind.VECTOR if mine else ShareKind.SEED
        if message.kind != kind or message.proof:
            return Code.WRONG_SHAPE, f"this server expects a {kind.name.lower()} without proof"
        if message.commitments[server] != digest:
            return Code.BAD_COMMITMENT, "the share is not the one committed to"
        return None
