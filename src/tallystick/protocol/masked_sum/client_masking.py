"""The first half of a client's round: it draws, deals shares of its secrets, and sends its masked sum.

The argument is in ``client``. What is kept, and when it goes:

| record | what | gone |
|---|---|---|
| prices | what the rounds so far have cost, where a plan leaves it open | never |
| noise | the one draw of this round | once the masked vector is kept |
| secrets | self seed and own share of it; as long as it is there the client is in the round | with the round |
| dealing | the dealing, as it is sent again and again; it says which round was the last one | with the next dealing |
| relay, masked | the packets of the others, and the one vector that is ever sent in this round | with the round |
| agreed | the one survivor set that was signed | with the next one |
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from enum import Enum, unique
from typing import ClassVar, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, PrivacyRefused, RemoteProtocolError, RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.field import add_into, encode_signed, to_bytes
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.crypto.masking import PairSecret, RoundSecrets, agree_pair, mask, wrap_round_keys
from tallystick.crypto.prg import SEED_BYTES
from tallystick.crypto.shamir import split
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.boots import BOOT_VALUE_BYTES, BootBook, MemoryBoots, SeenBoots, Start
from tallystick.protocol.instructions import Aborted, Compute, Forget, Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.masked_sum.codec import encode
from tallystick.protocol.masked_sum.machine import Instruction, MaskedSumMachine, abort_error, check_model
from tallystick.protocol.masked_sum.messages import (
    Code,
    Dealing,
    Masked,
    Refused,
    Relay,
    RoundOpen,
    Survivors,
    dealers_digest,
    key_commitment,
    noise_commitment,
    seed_commitment,
    sum_digest,
)
from tallystick.protocol.masked_sum.packets import Packet, open_packet, seal_packet
from tallystick.protocol.masked_sum.parameters import PACKET_BYTES, MaskedSumParameters
from tallystick.protocol.masked_sum.records import NoiseRecord, SecretsRecord
from tallystick.protocol.noise_draws import draw_once
from tallystick.protocol.noise_source import NoiseSource


@unique
class ClientState(Enum):
    IDLE = "idle"
    COMPUTING = "computing"
    DEALT = "dealt"
    MASKED = "masked"
    AGREED = "agreed"
    REVEALED = "revealed"


@unique
class ClientEvent(Enum):
    OPEN = "model checked"
    DEAL = "sum computed; noise, secrets and dealing kept"
    MASK = "packets of the others opened: masked sum kept, noise erased"
    AGREE = "survivor set checked, kept and signed"
    REVEAL = "enough have signed the same set: shares told"
    END = "round closed, aborted or withdrawn: secrets erased"


_S, _E = ClientState, ClientEvent


class MaskerParts(TypedDict):
    """What a client's machine is made of, beside the study's parameters and its name."""

    key: SigningKey
    """Its identity."""
    agreement: AgreementKey
    """Its key of this study, the one that is in the roster."""
    noise: NoiseSource
    boot: NotRequired[int]
    boot_value: NotRequired[bytes]
    boots: NotRequired[BootBook | None]


class MaskingClient(MaskedSumMachine):
    """A client up to its masked sum."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.COMPUTING,
        (_S.COMPUTING, _E.DEAL): _S.DEALT,
        (_S.DEALT, _E.MASK): _S.MASKED,
        (_S.MASKED, _E.AGREE): _S.AGREED,
        (_S.AGREED, _E.REVEAL): _S.REVEALED,
        **{(state, _E.END): _S.IDLE for state in _S if state is not _S.IDLE},
    }

    def __init__(self, parameters: MaskedSumParameters, name: str, **parts: Unpack[MaskerParts]) -> None:
        super().__init__(parameters, name, _S.IDLE)
        self.index = parameters.client_index[name]
        self._signing, self._agreement, self._noise_source = parts["key"], parts["agreement"], parts["noise"]
        if (
            self._signing.public != parameters.identities[name]
            or self._agreement.public != parameters.keys[name].public
        ):
            raise LocalProtocolError("this client's keys are not the ones in the study", party=name)
        self._boot, self._boot_value = parts.get("boot", 0), parts.get("boot_value", bytes(BOOT_VALUE_BYTES))
        boots = parts.get("boots")
        everybody = [parameters.identities[client] for client in parameters.clients]
        self._seen = SeenBoots(everybody, boots if boots is not None else MemoryBoots())
        self._pairs: dict[str, PairSecret] = {}
        self._model_hash = b""
        self._opened: RoundOpen | None = None  # while its sum is computed
        self._values: NDArray[np.int64] | None = None  # until it is masked
        self._noise: NDArray[np.int64] | None = None
        self._drawn: NoiseRecord | None = None  # kept for a round that was not dealt in before a restart
        self._secrets: SecretsRecord | None = None
        self._dealing: Dealing | None = None
        self._relay: Relay | None = None  # the one that was accepted, or came while the sum is computed
        self._packets: dict[int, Packet] = {}
        self._masked: Masked | None = None
        self._stored = False
        self._survivors: Survivors | None = None

    # -- opening -----------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: RoundOpen, now: float) -> list[Instruction]:
        p = self.parameters
        if sender != p.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the reducer opens rounds")
        if message.round < self.round or not 0 < message.round <= p.last_round:
            return self._refuse(sender, message, Code.PAST_ROUND, "this client has gone on to a later round")
        if message.round == self.round and self._model_hash and message.model_hash != self._model_hash:
            return self._object(
                message.round, Code.BAD_MODEL, p.reducer, "two different models were sent for one round"
            )
        wrong = check_model(message, p)
        if wrong is not None:
            return self._object(message.round, Code.BAD_MODEL, p.reducer, wrong)
        if message.round == self.round and (self.state is not _S.IDLE or self._secrets is None):
            self._stored = False  # the reducer may have been killed before it kept what it had
            return self._say_again()  # nothing, if this client's part is over
        out = self._end() if message.round > self.round else []
        self.round, self._model_hash, self._opened = message.round, message.model_hash, message
        self._move(_E.OPEN)
        return [*out, Compute(message.round, message.model)]

    def _object(self, round: int, code: Code, party: str, cause: str) -> list[Instruction]:
        """Stop this round here for good, and say why: nothing more is sent for it."""
        out = self._end() if round == self.round else []
        remedy = "This client helps to unmask nothing of it. Look at the party named before the next round."
        abort = self._abort_of(round, code, party, cause, remedy)
        return [*out, Send(self.parameters.reducer, abort), Aborted(abort_error(abort))]

    # -- dealing -----------------------------------------------------------------------------------------------------

    def contribute(self, round: int, values: NDArray[np.int64], source: WordSource, now: float) -> list[Instruction]:
        """Deal for this round's sum; it leaves, masked, once it is known who else has dealt."""
        p, opened = self.parameters, self._opened
        if self.state is not _S.COMPUTING or round != self.round or opened is None:
            return []  # the round ended while the sum was being computed
        if values.shape != (p.size,) or values.dtype != np.int64:
            raise LocalProtocolError(f"the contribution must be {p.size} integers", party=self.name, round=round)
        self._values = values
        out: list[Instruction] = []
        if self._dealing is None or self._dealing.round != round:
            try:
                admitted = self._noise_source.admit(round, opened.model)
            except PrivacyRefused as error:
                return self._object(round, Code.BAD_MODEL, p.reducer, error.cause)
            out += self._deal(opened, admitted, source)
        self._opened = None
        self._move(_E.DEAL)
        out += self._say_again()
        relay, self._relay = self._relay, None
        return [*out, *(self._mask(relay, now) if relay is not None else [Wake(now + p.retry_seconds)])]

    def _deal(self, opened: RoundOpen, admitted: bytes | None, source: WordSource) -> list[Instruction]:
        p, round, name = self.parameters, opened.round, self.name
        kept, self._drawn = self._drawn, None
        drawn = draw_once(
            self._noise_source, NoiseRecord, round=round, admitted=admitted, kept=kept, size=p.size, party=name
        )
        blind = source.bytes(SEED_BYTES)
        commitment = noise_commitment(blind, self.study_hash, round, self._boot_value, drawn.raw)
        start = Start(boot=self._boot, value=self._boot_value, noise=commitment)
        secrets, near = RoundSecrets.generate(source), p.graph.neighbours(name)
        key_shares, seed_shares = split(
            [secrets.wrapping_key, secrets.self_seed], threshold=p.threshold, shares=p.holders(name), source=source
        )
        packets = [
            seal_packet(
                Packet(
                    round=round,
                    dealer=self.index,
                    model_hash=opened.model_hash,
                    start=start,
                    key_share=key_shares[p.point(name, other) - 1],
                    seed_share=seed_shares[p.point(name, other) - 1],
                ),
                self._pair(other),
                sender=name,
                source=source,
            )
            for other in near
        ]
        keys = [self._pair(other).round_key(round) for other in near]
        seed = secrets.self_seed.reveal()
        wrapped = wrap_round_keys(keys, secrets.wrapping_key, study_hash=p.study_hash, round=round, party=name)
        dealing = Dealing(
            study_hash=p.study_hash,
            round=round,
            client=self.index,
            model_hash=opened.model_hash,
            start=start,
            seed_commitment=seed_commitment(p.study_hash, round, self.index, seed),
            key_commitment=key_commitment(p.study_hash, round, self.index, secrets.wrapping_key.reveal(), wrapped),
            wrapped=wrapped,
            packets=b"".join(packets),
        )
        self._dealing = replace(dealing, signature=self._signing.sign(dealing.signed_part()))
        self._noise = drawn.noise
        self._secrets = SecretsRecord(round=round, seed=seed, share=seed_shares[p.point(name, name) - 1])
        return [
            *drawn.keep,
            Persist("secrets", self._secrets.to_bytes(), secret=True),
            Persist("dealing", encode(self._dealing)),
        ]

    def _pair(self, other: str) -> PairSecret:
        """One agreement with each neighbour for the whole study; each round has keys of its own from it."""
        if other not in self._pairs:
            mine, theirs = self.parameters.session_key(self.name), self.parameters.session_key(other)
            self._pairs[other] = agree_pair(self._agreement, mine=mine, theirs=theirs)
        return self._pairs[other]

    # -- masking -----------------------------------------------------------------------------------------------------

    def _on_relay(self, sender: str, message: Relay, now: float) -> list[Instruction]:
        if sender != self.parameters.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "packets are relayed by the reducer")
        if message.round != self.round or self._secrets is None:
            return []
        if self._masked is not None and self._relay is not None:
            if message != self._relay:
                cause = "the reducer named two different sets of dealers in one round"
                return self._object(self.round, Code.SET_DISAGREEMENT, sender, cause)
            self._stored = False
            return self._say_again()
        if self.state is _S.DEALT:
            return self._mask(message, now)
        if self.state is _S.COMPUTING:  # dealt before a restart; its sum is computed again
            self._relay = message
        return []

    def _mask(self, relay: Relay, now: float) -> list[Instruction]:
        p, values, noise, secrets, dealt = self.parameters, self._values, self._noise, self._secrets, self._dealing
        if values is None or noise is None or secrets is None or dealt is None:
            raise LocalProtocolError("the noise of this round is gone", party=self.name, round=self.round)
        try:
            packets = self._open_packets(relay)
        except RemoteProtocolError as error:
            return self._object(self.round, Code.BAD_PACKET, error.party or p.reducer, error.cause)
        wrong = self._judge(packets)
        if wrong is not None:
            return self._object(self.round, *wrong)
        noted = [step for dealer, packet in packets.items() for step in self._seen.note(dealer, packet.start)]
        vector = encode_signed(values)
        add_into(vector, encode_signed(noise))
        keys = [self._pair(p.clients[dealer]).round_key(self.round) for dealer in packets]
        mask(vector, keys, Secret(secrets.seed), study_hash=p.study_hash, round=self.round, party=self.name)
        self._relay, self._packets = relay, packets
        unsigned = Masked(
            study_hash=p.study_hash,
            round=self.round,
            client=self.index,
            model_hash=self._model_hash,
            dealers=dealers_digest(p.study_hash, self.round, relay.dealers),
            size=p.size,
            vector=to_bytes(vector),
        )
        tied = self._tied(dealt, unsigned) if p.every_peer else b""
        self._masked = replace(unsigned, signature=self._signing.sign(unsigned.signed_part(dealt.start, tied)))
        self._values = self._noise = None
        self._move(_E.MASK)
        return [
            *noted,
            Persist("relay", encode(relay), secret=True),
            Persist("masked", encode(self._masked), secret=True),
            Forget("noise"),
            *self._say_again(),
            Wake(now + p.retry_seconds),
        ]

    @staticmethod
    def _tied(dealt: Dealing, masked: Masked) -> bytes:
        """Names this client's vector, where every peer adds them up itself."""
        return sum_digest(dealt.seed_commitment, masked.vector)

    def _open_packets(self, relay: Relay) -> dict[int, Packet]:
        """The neighbours' packets, by dealer, of a set of dealers that can carry a round."""
        p = self.parameters
        names = p.graph.neighbours(self.name)
        dealers = set(relay.dealers)
        there = [p.client_index[name] for name in names if p.client_index[name] in dealers]
        if not dealers <= set(range(len(p.clients))) or self.index not in dealers or len(dealers) < p.least:
            raise RemoteProtocolError("the reducer's set of dealers is none that a round can be made of")
        if len(relay.packets) != PACKET_BYTES * len(there):
            raise RemoteProtocolError("the reducer relayed other packets than the dealers have sealed for this client")
        found = {}
        for at, dealer in enumerate(there):
            sealed = relay.packets[PACKET_BYTES * at : PACKET_BYTES * (at + 1)]
            name = p.clients[dealer]
            found[dealer] = open_packet(sealed, self._pair(name), dealer=dealer, sender=name, round=self.round)
        return found

    def _judge(self, packets: dict[int, Packet]) -> tuple[Code, str, str] | None:
        """Why this client masks with none of them: whom it is about, and what."""
        for dealer, packet in packets.items():
            name = self.parameters.clients[dealer]
            if packet.model_hash != self._model_hash:
                cause = f"{name} was shown another model than {self.name} in this round"
                return Code.BAD_MODEL, self.parameters.reducer, cause
            stale = self._seen.objection(dealer, packet.start)
            if stale is not None:
                return Code.STALE_COPY, name, stale
        return None

    # -- ending ------------------------------------------------------------------------------------------------------

    def withdraw(self, round: int) -> list[Instruction]:
        """Sit this round out: nothing more is sent for it. Outside, the reason is only "unavailable"."""
        if round != self.round or self.state is _S.IDLE:
            return []
        absent = Refused(study_hash=self.study_hash, round=round, code=Code.ABSENT, cause="unavailable in this round")
        error = RoundAborted(
            "this client is unavailable in this round",
            remedy="It takes part again in the next round; the reason is in its own log.",
            party=self.name,
            round=round,
        )
        return [*self._end(), Send(self.parameters.reducer, absent), Aborted(error)]

    @abstractmethod
    def _end(self) -> list[Instruction]: ...

    @abstractmethod
    def _say_again(self) -> list[Instruction]: ...
