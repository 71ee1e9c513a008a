"""The client's machine: draw, deal, mask, sign one survivor set, reveal one share of each dealer, erase.

THEORY. What leaves a client in a round is (1) a dealing: shares of two fresh secrets, sealed to its neighbours, and its
round keys under one of them; (2) its sum plus its noise plus its masks, uniform to whoever lacks one of the masks;
(3) one signature under one survivor set; (4) one share of each dealer's secrets.

*Never both secrets of a client.* Let i be honest and survive by one set and drop by another. Whoever rebuilds both its
secrets has t shares of each. An honest holder tells one share of i, by the one set that it has signed and kept first,
and only after q > (n + c)/2 clients have signed that very set. Two sets with q signers each would take 2q ≤ n + c, for
each of the n − c honest clients signs one set a round: so there is one set, and every honest holder tells shares of the
same secret of i. The colluders' own c < t shares do not rebuild the other one. (Everybody with everybody, the shares'
threshold t = q makes this true even without signatures: both secrets would take 2t ≤ (n − c) + 2c shares.)

*Nothing of another round.* Both secrets are drawn afresh for each round and open masks of that round only: the seed
expands to this round's self-mask, under the wrapping key lie this round's pair keys, each an output of HKDF-Expand at
the round's number. The key agreement's secret is neither shared nor wrapped nor sent. So of a client that survived
round 1 (its self-mask is open) and dropped in round 2 (its pair keys of round 2 are open) round 1 stays hidden under
its pair masks of round 1, and round 2 under its self-mask of round 2.

*What stays hidden.* Of the honest survivors' sums nothing but their total (with all their noise): their pair masks are
open to nobody, and they are connected (:mod:`tallystick.crypto.mask_bounds`; everybody with everybody they always are).
A client checks the survivor set before it signs: its own name, the very dealers it masked with, at least ``least``
clients, and the graph's own conditions (``MaskGraph.refusal``).

*Masked for the same dealers.* Above, all honest survivors have masked for the dealers of the signed set S. A reducer
may have told some others: let it hold sums of a set T of honest survivors, their self seeds open, without all the other
honest survivors' sums. Everybody with everybody: no signer is in T, or all are (a signer's masks with every honest
survivor stay). So of a v in T every honest dealer it was told of is in T too or has dropped out by S, none is a signer;
it was told of ``least`` − c ≥ q − c honest ones, and q − c honest others have signed: 2(q − c) > n − c, too many. On a
circle v has few neighbours, and leaving out these alone would take every mask from it. So there each client signs with
its vector for which dealers it is masked, and its neighbours sign no survivor set that has it for others: of the t
shares of its self seed one at least is an honest neighbour's who has looked.

*One vector a round.* The masked vector is kept before it is sent and the same bytes are sent again. A client set back
to an old disk deals anew in a round it has dealt in: its neighbours have kept the first dealing and take no second, its
new self-mask is rebuilt by nobody; and they have met its start (``boots``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from tallystick.core.errors import VerificationError
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Aborted, Forget, Persist, Send, Wake
from tallystick.protocol.masked_sum.client_masking import ClientEvent, ClientState, MaskerParts, MaskingClient
from tallystick.protocol.masked_sum.codec import decode, encode
from tallystick.protocol.masked_sum.machine import Instruction, abort_error
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Dealing,
    Inquiry,
    Masked,
    Message,
    Quorum,
    Refused,
    Relay,
    Revealed,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Signed,
    Stored,
    Survivors,
    TiedSurvivors,
    dealers_digest,
    masked_part,
)
from tallystick.protocol.masked_sum.opening import quorum_problem, set_problem
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters
from tallystick.protocol.masked_sum.records import NoiseRecord, SecretsRecord

__all__ = ["ClientEvent", "ClientMachine", "ClientState", "MaskerParts"]

_S, _E = ClientState, ClientEvent


class ClientMachine(MaskingClient):
    """One institution's part in the masked sums of a study."""

    def __init__(self, parameters: MaskedSumParameters, name: str, **parts: Unpack[MaskerParts]) -> None:
        super().__init__(parameters, name, **parts)
        self._handlers = {
            RoundOpen: self._on_open,
            SecretOpen: self._on_open,
            Relay: self._on_relay,
            Stored: self._on_stored,
            Survivors: self._on_survivors,
            TiedSurvivors: self._on_survivors,
            Quorum: self._on_quorum,
            RoundClosed: self._on_closed,
            Abort: self._on_abort,
            Refused: self._on_refused,
        }

    # -- agreeing ----------------------------------------------------------------------------------------------------

    def _on_survivors(self, sender: str, message: Survivors, now: float) -> list[Instruction]:
        if sender != self.parameters.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the reducer names the survivors")
        if message.round != self.round or self._secrets is None or self._masked is None:
            return self._refuse(sender, message, Code.NOT_EXPECTED, "this client has sent no sum in this round")
        if self._survivors is not None:
            if message != self._survivors:
                cause = "the reducer named two different survivor sets in one round"
                return self._object(self.round, Code.SET_DISAGREEMENT, sender, cause)
            return [Send(sender, self._signature())]
        wrong = self._check_survivors(message)
        if wrong is not None:
            return self._object(self.round, Code.SET_DISAGREEMENT, sender, wrong)
        self._survivors = message
        self._move(_E.AGREE)
        return [Persist("agreed", encode(message)), Send(sender, self._signature())]

    def _check_survivors(self, message: Survivors) -> str | None:
        """Why this client does not sign such a set."""
        p, relay = self.parameters, self._relay
        if relay is None or message.dealers != relay.dealers or message.model_hash != self._model_hash:
            return "the survivor set is of another round than this client has masked its sum for"
        if self.index not in message.clients:
            return "the survivor set is not one of those who have dealt, this client among them"
        wrong = set_problem(p, message)
        if wrong is not None:
            return wrong
        known = {dealer: packet.start for dealer, packet in self._packets.items()}
        if self._dealing is not None:
            known[self.index] = self._dealing.start
        for client, start in zip(message.clients, message.starts):
            if client in known and start != known[client]:
                return f"{p.clients[client]} dealt under another start than the survivor set says"
        return self._other_sum(message) or self._masked_otherwise(message)

    def _other_sum(self, message: Survivors) -> str | None:
        """Where every peer adds up itself: the set must name the very vector that this client has sent."""
        if not isinstance(message, TiedSurvivors):
            return None
        if self._dealing is None or self._masked is None:
            raise damaged()
        if message.sums[message.clients.index(self.index)] != self._tied(self._dealing, self._masked):
            return f"the survivor set has another sum of {self.name} than it has sent"
        return None

    def _masked_otherwise(self, message: Survivors) -> str | None:
        """On a circle: a neighbour whose self-mask must stay, for it has not said that it masked for these dealers."""
        p = self.parameters
        if p.graph.plan.complete:
            return None
        dealers = dealers_digest(p.study_hash, self.round, message.dealers)
        tied = message.sums if isinstance(message, TiedSurvivors) else (b"",) * len(message.clients)
        for client, start, signature, tie in zip(message.clients, message.starts, message.signatures, tied):
            try:
                if client in self._packets:  # and its start is the one it has dealt under
                    p.identities[p.clients[client]].verify(masked_part(dealers, client, start, tie), signature)
            except VerificationError:
                return f"{p.clients[client]} has not signed that it masked its sum for the dealers of the survivor set"
        return None

    def _signature(self) -> Signed:
        if self._survivors is None:
            raise damaged()
        unsigned = Signed(
            study_hash=self.study_hash, round=self.round, client=self.index, agreement=self._survivors.digest()
        )
        return replace(unsigned, signature=self._signing.sign(unsigned.signed_part()))

    def _on_quorum(self, sender: str, message: Quorum, now: float) -> list[Instruction]:
        if sender != self.parameters.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the reducer tells who has signed")
        if message.round != self.round or self._secrets is None or self._survivors is None:
            return self._refuse(sender, message, Code.NOT_EXPECTED, "this client has signed no survivor set")
        wrong = quorum_problem(self.parameters, self._survivors, message)
        if wrong is not None:
            return self._object(self.round, wrong[0], sender, wrong[1])
        if self.state is _S.AGREED:
            self._move(_E.REVEAL)
        return [Send(sender, self._reveal())]

    def _reveal(self) -> Revealed:
        """One share of each dealer: of a survivor its self seed's, of anybody else its wrapping key's."""
        p, survivors, secrets = self.parameters, self._survivors, self._secrets
        if survivors is None or secrets is None:
            raise damaged()
        alive, shares = set(survivors.clients), []
        for dealer in p.held_by(self.name, survivors.dealers):
            if dealer == self.index:
                shares.append(secrets.share)
            else:
                packet = self._packets[dealer]
                shares.append(packet.seed_share if dealer in alive else packet.key_share)
        return Revealed(
            study_hash=self.study_hash,
            round=self.round,
            client=self.index,
            agreement=survivors.digest(),
            shares=b"".join(shares),
        )

    @property
    def survivors(self) -> Survivors | None:
        """The one set that this client has signed in this round."""
        return self._survivors

    # -- ending, repeating, restarting -------------------------------------------------------------------------------

    def _end(self) -> list[Instruction]:
        """This client's part is over: whatever could open a mask of the round is erased."""
        if self.state is not _S.IDLE:
            self._move(_E.END)
        kept = [key for key, there in self._kept_secrets().items() if there]
        self._opened = self._values = self._noise = self._secrets = self._relay = self._masked = None
        self._survivors, self._packets, self._stored = None, {}, False
        return [Forget(key) for key in kept]

    def _kept_secrets(self) -> dict[str, bool]:
        masked = self._masked is not None
        return {
            "secrets": self._secrets is not None,
            "noise": self._noise is not None,
            "relay": masked,
            "masked": masked,
        }

    def _say_again(self) -> list[Instruction]:
        """What this client has said in this round, in order; nothing if its part is over."""
        said: list[Message | None] = []
        if self._secrets is not None:
            said = [self._dealing, None if self._stored else self._masked]
            if self._survivors is not None:
                said.append(self._signature())
        return [Send(self.parameters.reducer, message) for message in said if message is not None]

    def _on_stored(self, sender: str, message: Stored, now: float) -> list[Instruction]:
        if sender == self.parameters.reducer and message.round == self.round:
            self._stored = True
        return []

    def _on_closed(self, sender: str, message: RoundClosed, now: float) -> list[Instruction]:
        if sender == self.parameters.reducer and message.round >= self.round:  # rounds only go up
            return self._end()
        return []

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        inside = self.state is not _S.IDLE or self._secrets is not None
        if sender == self.parameters.reducer and message.round == self.round and inside:
            return [*self._end(), Aborted(abort_error(message))]
        return []

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        inside = self.state is not _S.IDLE or self._secrets is not None
        final = message.code not in (Code.TOO_EARLY, Code.NOT_EXPECTED, Code.MALFORMED)
        if sender != self.parameters.reducer or message.round != self.round or not inside or not final:
            return []
        remedy = "The next round is open to this client."
        abort = self._abort_of(
            self.round, Code(message.code), self.name, f"the reducer refused: {message.cause}", remedy
        )
        return [*self._end(), Aborted(abort_error(abort))]

    def tick(self, now: float) -> list[Instruction]:
        """Send again what the reducer may not have."""
        if self.state not in (_S.DEALT, _S.MASKED) or self._stored:
            return []
        return [*self._say_again(), Wake(now + self.parameters.retry_seconds)]

    @classmethod
    def restore(
        cls, parameters: MaskedSumParameters, name: str, records: Mapping[str, bytes], **parts: Unpack[MaskerParts]
    ) -> tuple[ClientMachine, list[Instruction]]:
        """The machine as its records have it; it asks the reducer which round is open. Nothing is drawn anew that may
        have been used: without its secrets the client's part in a round is over."""
        machine = cls(parameters, name, **parts)
        stray: list[Instruction] = []
        noise = NoiseRecord.from_bytes(records["noise"]) if "noise" in records else None
        secrets = SecretsRecord.from_bytes(records["secrets"]) if "secrets" in records else None
        dealing = decode(records["dealing"]) if "dealing" in records else None
        if isinstance(dealing, Dealing):
            machine.round, machine._model_hash, machine._dealing = dealing.round, dealing.model_hash, dealing
        if noise is not None and noise.round > machine.round:  # drawn, and nothing was dealt yet
            machine._drawn = noise
        elif noise is not None and secrets is not None and noise.round == machine.round:
            machine._noise = noise.noise
        elif noise is not None:
            stray.append(Forget("noise"))
        if secrets is not None and secrets.round == machine.round:
            machine._secrets = secrets
            machine._recall(records)
            if machine._masked is None and "relay" in records:  # died before it had masked: it is relayed again
                stray.append(Forget("relay"))
            if machine._masked is not None and machine._noise is not None:
                machine._noise = None
                stray.append(Forget("noise"))
            if machine._masked is None and machine._noise is None:  # it may have been used: it is never drawn again
                raise damaged()
        else:
            stray += [Forget(key) for key in ("secrets", "relay", "masked") if key in records]
        question = Inquiry(study_hash=parameters.study_hash, round=machine.round)
        again = machine._say_again() if machine._masked is not None else []
        return machine, [*stray, *again, Send(parameters.reducer, question)]

    def _recall(self, records: Mapping[str, bytes]) -> None:
        def said(key: str) -> Message | None:
            message = decode(records[key]) if key in records else None
            return message if message is not None and message.round == self.round else None

        relay, masked, agreed = said("relay"), said("masked"), said("agreed")
        if isinstance(relay, Relay) and isinstance(masked, Masked):
            self._relay, self._masked, self.state = relay, masked, _S.MASKED
            self._packets = self._open_packets(relay)
            if isinstance(agreed, Survivors):
                self._survivors, self.state = agreed, _S.AGREED

    def erase(self) -> None:
        """The study is over: nothing of it can be unmasked any more."""
        for pair in self._pairs.values():
            pair.erase()
        self._pairs = {}
        self._agreement.erase()
