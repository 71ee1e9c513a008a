"""One computing party of one selection, sans I/O: it carries layers between its circuit and its peers.

begin     → Layer 0 to every peer
receive   Layer: kept until everybody's is there; then the circuit goes on, and the next one is sent
          Again: the same bytes of the layer named, as long as the peer can still want it
          Stopped: the selection is over without an answer
tick      peers whose layer is missing are asked again; one that is silent for too long ends the selection, and so do
          many that are slow: all layers together have a time as well

A peer is at most one layer ahead (``messages``), so two layers are kept of what comes in and two of what went out,
however long the circuit. The answer is opened in the last layer and nothing before it: a party that stops earlier,
for whatever reason, has helped to open nothing. Once its own shares of the answer are sent that can no longer be said,
and the error says so. A machine that has its answer still repeats its last layers; its driver keeps it
until the peers have theirs, or for ``give_up_seconds``, after which they no longer wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.crypto import gf16
from tallystick.crypto.field import check_vector, is_canonical
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.instructions import Aborted, Send, Wake
from tallystick.protocol.machine import Machine
from tallystick.protocol.selection.circuit import Asked, Exchange, Purpose, program
from tallystick.protocol.selection.codec import LAYER_HEAD_BYTES, OTHER_BYTES, decode, encode_parts
from tallystick.protocol.selection.grouped import GroupedQuestion
from tallystick.protocol.selection.messages import Again, Code, Layer, Message, Refused, Stopped
from tallystick.protocol.selection.question import check_parties
from tallystick.protocol.selection.threshold import ThresholdQuestion


@dataclass(frozen=True, slots=True)
class Chosen:
    """The selection's one result: the cell that was drawn; of a comparison, the bits of the counts above."""

    place: int


Instruction = Send | Wake | Chosen | Aborted


class State(Enum):
    """Where a party is in its one selection."""

    IDLE = "idle"
    COMPUTING = "computing"
    OPENING = "opening"
    CHOSEN = "chosen"
    ABORTED = "aborted"


class Event(Enum):
    """What moves it."""

    BEGIN = "begun: own share and word dealt"
    OPEN = "circuit done: own shares of the answer sent"
    CHOOSE = "everybody's shares of the answer in"
    STOP = "given up"


def message_limit(question: Asked, parties: int) -> int:
    """No message of a selection is longer, with room to spare: shares are two to a byte, and counted here as one.

    The widest layers: adding up the parties' pieces, comparing fours of scores, one-hot rows, groups of weights; and
    the product R · W, which does not grow with the cells.
    """
    if isinstance(question, ThresholdQuestion):
        a_count = max(-(-parties // 3) * (question.width + 12), 2 * question.width)
        return LAYER_HEAD_BYTES + OTHER_BYTES + 2 * (question.cells + 4) * a_count
    if isinstance(question, GroupedQuestion):
        return question.groups * message_limit(question.each, parties)
    table, total = question.table, question.total_bits
    a_cell = max(
        -(-parties // 3) * (question.width + 12), 2 * question.width, 4 << (table.index_bits // 2), table.bits, total
    )
    return LAYER_HEAD_BYTES + OTHER_BYTES + 2 * (question.cells + 4) * a_cell + 2 * total * (question.draw_bits + total)


class SelectionMachine(Machine):
    """Party ``name`` of ``parties`` (in the order all of them use), of which up to ``colluding`` may be curious
    together.

    ``share`` is its additive share modulo p of the exact totals, ``word`` its random word (``question.word_bytes``),
    drawn once and kept by the caller; ``source`` gives the randomness of shares, which must never be used twice.
    """

    TRANSITIONS = {  # noqa: RUF012
        (State.IDLE, Event.BEGIN): State.COMPUTING,
        (State.COMPUTING, Event.OPEN): State.OPENING,
        (State.OPENING, Event.CHOOSE): State.CHOSEN,
        (State.IDLE, Event.STOP): State.ABORTED,
        (State.COMPUTING, Event.STOP): State.ABORTED,
        (State.OPENING, Event.STOP): State.ABORTED,
    }
    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this party takes part in another selection"

    def __init__(
        self,
        name: str,
        session: bytes,
        parties: tuple[str, ...],
        *,
        colluding: int,
        round: int,
        question: Asked,
        share: NDArray[np.uint64],
        word: bytes,
        source: WordSource,
        retry_seconds: float,
        give_up_seconds: float,
        whole_seconds: float = math.inf,
    ) -> None:
        super().__init__(name, session, State.IDLE)
        check_parties(len(parties), colluding)
        if name not in parties or len(set(parties)) != len(parties):
            raise LocalProtocolError("a selection is among parties of different names, this one among them")
        if len(session) != 32 or len(word) != question.word_bytes:
            raise LocalProtocolError(f"a session has 32 bytes and a word {question.word_bytes}")
        if check_vector(share).size != question.values or not is_canonical(share):
            raise LocalProtocolError(f"a share is {question.values} elements below the modulus")
        self.round, self.parties, self.question = round, parties, question
        self.retry_seconds, self.give_up_seconds, self.whole_seconds = retry_seconds, give_up_seconds, whole_seconds
        self.message_limit = message_limit(question, len(parties))
        self.layers = 0
        """How many layers were exchanged."""
        self.bytes_sent = 0
        """Bytes of the layers sent, encoded, each once."""
        self.longest_message = 0
        self._index = parties.index(name)
        self._peers = {peer: i for i, peer in enumerate(parties) if peer != name}
        self._program = program(question, self._index, len(parties), colluding, share=share, word=word, source=source)
        self._own: Elements = np.zeros(0, dtype=np.uint8)
        self._step = -1
        self._sent: dict[tuple[str, int], Layer] = {}
        self._arrived: dict[tuple[str, int], bytes] = {}
        self._progress = self._asked = self._began = 0.0
        self._handlers = {Layer: self._layer, Again: self._again, Refused: self._refused, Stopped: self._stopped}

    def __repr__(self) -> str:
        return f"SelectionMachine({self.name!r}, round {self.round}, {self.state.value}, layer {self._step})"

    # -- driven --------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Instruction]:
        """Deal this party's share and word: the first layer."""
        self._move(Event.BEGIN)
        self._progress = self._asked = self._began = now
        sends = self._put(next(self._program))
        return [*sends, *self._go_on(now), Wake(now + self.retry_seconds)]

    def tick(self, now: float) -> list[Instruction]:
        if self.state not in (State.COMPUTING, State.OPENING):
            return []
        missing = self._missing()
        if now >= self._began + self.whole_seconds:
            return self._too_slow()
        if now >= self._progress + self.give_up_seconds:
            cause = f"{missing[0]} has been silent for {self.give_up_seconds:g} seconds in layer {self._step}"
            return self._stop(Code.SILENT_PARTY, missing[0], cause)
        asks: list[Instruction] = []
        if now >= self._asked + self.retry_seconds:
            self._asked = now
            again = Again(study_hash=self.study_hash, round=self.round, step=self._step)
            asks = [Send(peer, again) for peer in missing]
        ends = self._progress + self.give_up_seconds, self._began + self.whole_seconds
        return [*asks, Wake(min(self._asked + self.retry_seconds, *ends))]

    def stop(self, cause: str) -> list[Instruction]:
        """Give the selection up, for a reason of the driver's, and tell the peers."""
        if self.state in (State.CHOSEN, State.ABORTED):
            return []
        return self._stop(Code.GIVEN_UP, "", cause)

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message, now: float) -> list[Instruction]:
        """Take one message from an authenticated sender."""
        if sender not in self._peers:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the sender is no party of this selection")
        if message.study_hash == self.study_hash and message.round != self.round:
            return self._refuse(sender, message, Code.WRONG_ROUND, f"this is round {self.round}")
        return super().receive(sender, message, now)

    def _layer(self, sender: str, message: Layer, now: float) -> list[Instruction]:
        step, key = message.step, (sender, message.step)
        if self.state in (State.CHOSEN, State.ABORTED) or step < self._step:
            return []  # said twice, or too late to matter
        if step > self._step + 1:
            return self._refuse(sender, message, Code.WRONG_STEP, f"layer {step} came in layer {self._step}")
        if key in self._arrived:
            if self._arrived[key] != message.payload:
                return self._refuse(sender, message, Code.EQUIVOCATION, f"layer {step} came twice, with other shares")
            return []
        if step == self._step and gf16.unpack(message.payload, self._own.size) is None:
            return self._refuse(sender, message, Code.WRONG_SHAPE, f"layer {step} has not {self._own.size} shares")
        if now >= self._began + self.whole_seconds and self.state is not State.IDLE:
            return self._too_slow()  # whoever sends one layer after the other, each at the last moment, holds up nobody
        self._arrived[key] = message.payload
        self._sent.pop((sender, step - 1), None)  # it has everybody's layer before
        return self._go_on(now)

    def _again(self, sender: str, message: Again, now: float) -> list[Instruction]:
        layer = self._sent.get((sender, message.step))
        return [] if layer is None else [Send(sender, layer)]  # one that is yet to come will be sent when it is there

    def _refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        return []  # what matters is asked for again

    def _stopped(self, sender: str, message: Stopped, now: float) -> list[Instruction]:
        if self.state in (State.CHOSEN, State.ABORTED):
            return []
        party = message.party if message.party in self.parties else sender
        return self._abort(Code(message.code), party, f"{sender} has given the selection up: {message.cause}")

    # -- layers --------------------------------------------------------------------------------------------------------

    def _put(self, exchange: Exchange) -> list[Instruction]:
        """Send the rows of the next layer."""
        self._step += 1
        self.layers += 1
        self._own = exchange.rows[self._index]
        if exchange.purpose is Purpose.OPENING:
            self._move(Event.OPEN)
        sends: list[Instruction] = []
        for peer, i in self._peers.items():
            payload = gf16.pack(exchange.rows[i])
            layer = Layer(study_hash=self.study_hash, round=self.round, step=self._step, payload=payload)
            self._sent[peer, self._step] = layer
            sends.append(Send(peer, layer))
            size = sum(map(len, encode_parts(layer)))
            self.bytes_sent += size
            self.longest_message = max(self.longest_message, size)
        return sends

    def _missing(self) -> list[str]:
        return [peer for peer in self._peers if (peer, self._step) not in self._arrived]

    def _go_on(self, now: float) -> list[Instruction]:
        """Feed the circuit as long as everybody's layer is there."""
        out: list[Instruction] = []
        while self.state in (State.COMPUTING, State.OPENING):
            rows: list[Elements] = []
            for party in self.parties:
                if party == self.name:
                    rows.append(self._own)
                    continue
                payload = self._arrived.get((party, self._step))
                row = None if payload is None else gf16.unpack(payload, self._own.size)
                if payload is not None and row is None:  # it came early, when its length was not yet known
                    del self._arrived[party, self._step]
                    out += self._refuse(party, None, Code.WRONG_SHAPE, f"layer {self._step} has another length")
                if row is not None:
                    rows.append(row)
            if len(rows) < len(self.parties):
                return out
            for peer in self._peers:
                del self._arrived[peer, self._step]
            self._progress = self._asked = now
            try:
                out += self._put(self._program.send(np.stack(rows)))
            except StopIteration as end:
                self._move(Event.CHOOSE)
                return [*out, Chosen(end.value)]
            except RoundAborted as error:
                self._move(Event.STOP)
                error.round = self.round
                return [*out, Aborted(error)]
        return out

    def _too_slow(self) -> list[Instruction]:
        missing = self._missing()
        cause = f"the whole of it has taken more than {self.whole_seconds:g} seconds, up to layer {self._step}"
        return self._stop(Code.SILENT_PARTY, missing[0] if missing else "", cause)

    # -- endings -------------------------------------------------------------------------------------------------------

    def _stop(self, code: Code, party: str, cause: str) -> list[Instruction]:
        said = Stopped(study_hash=self.study_hash, round=self.round, code=code, party=party, cause=cause)
        return [*(Send(peer, said) for peer in self._peers), *self._abort(code, party, cause)]

    def _abort(self, code: Code, party: str, cause: str) -> list[Instruction]:
        opening = self.state is State.OPENING
        self._move(Event.STOP)
        self._program.close()
        self._sent.clear()
        self._arrived.clear()
        self._own = np.zeros(0, dtype=np.uint8)
        remedy = (
            "This party had sent its shares of the answer, so others may know it." if opening else "Nothing was opened."
        )
        return [
            Aborted(
                RoundAborted(
                    cause,
                    remedy=f"{remedy} The budget stays charged; a new try is a new round.",
                    rule=code.name.lower().replace("_", "-"),
                    party=party or None,
                    round=self.round,
                )
            )
        ]

    def _refuse(self, sender: str, message: Any, code: Code, cause: str) -> list[Instruction]:
        if isinstance(message, (Refused, Stopped)):  # answering a refusal with a refusal would never end
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, round=self.round, code=code, cause=cause))]
