"""A server of a round that ends with a draw: the total is opened to nobody, the servers draw from it together.

What the servers compute on their shares of the total (:mod:`tallystick.protocol.selection`) is not this machine's
business: it hands out its share and is told how it ended. What is its business is that a draw is made ONCE:

1. that the draw has begun is durable before the first message of it can leave;
2. with that, what the draw needs is erased from the disk: this server's random word and the clients' shares. From here
   on they are in this process's memory only;
3. so a server that was stopped in the middle cannot go on, and never begins again: when it is back the round is given
   up. Drawn twice from one total, two places would be two releases for one charge.

The draw's end is said as a partial is: signed, bound to the agreement, kept before it is sent. The vector holds, in
this server's own entries, the answer (the place that was drawn, or a bit for each count) in digits of 24 bits, each
plus 1, and zeros elsewhere; so the total over all servers shows what each of them says, and whether they all say the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.field import encode_signed
from tallystick.privacy.sparse_vector import ANSWER_BITS
from tallystick.protocol.instructions import Forget, Persist
from tallystick.protocol.secure_sum.instructions import Draw, Drop, Instruction
from tallystick.protocol.secure_sum.messages import Code
from tallystick.protocol.secure_sum.open_round import OpenRound, ServerEvent, ServerState
from tallystick.protocol.secure_sum.records import DrawRecord
from tallystick.protocol.secure_sum.server_agreeing import AgreeingServer

_S, _E = ServerState, ServerEvent


class DrawingServer(AgreeingServer):
    """A server that has agreed on the set: releases the noisy sum, or draws from it with its peers."""

    def _begin_draw(self, current: OpenRound) -> list[Instruction]:
        total = self._sum(current, current.agreements[self.index].clients)
        noise, current.noise = cast("NDArray[np.int64]", current.noise), None
        self._move(_E.DRAW)
        return [
            Persist("drawing", DrawRecord(round=self.round).to_bytes()),
            Forget("noise"),
            Drop(self.round),
            Draw(round=self.round, share=total, noise=noise),
        ]

    def drawn(self, round: int, answer: int) -> list[Instruction]:
        """The servers have drawn this place, counted from 0; of a comparison, bit i says whether count i is above."""
        current = self._now
        if self.state is not _S.DRAWING or round != self.round or current is None:
            return []  # the round was given up meanwhile
        many = self._noise.answer_digits(round)
        digits = [(answer >> (ANSWER_BITS * i)) % (1 << ANSWER_BITS) + 1 for i in range(many)]
        fits = 0 <= answer < 1 << (ANSWER_BITS * many) and max(digits) <= self.parameters.result_limit
        if not fits or (self.index + 1) * many > self.parameters.size:
            raise LocalProtocolError("the answer that was drawn cannot be written", party=self.name, round=round)
        said = np.zeros(self.parameters.size, dtype=np.int64)
        said[self.index * many : (self.index + 1) * many] = digits
        return self._say_partial(current, encode_signed(said))

    def not_drawn(self, round: int, party: str, cause: str) -> list[Instruction]:
        """The draw has failed, perhaps because of a party; nothing was opened here."""
        if self.state is not _S.DRAWING or round != self.round:
            return []
        return self._abort(Code.DRAW_FAILED, party, cause)

    def _was_drawing(self, records: Mapping[str, bytes]) -> bool:
        return "drawing" in records and DrawRecord.from_bytes(records["drawing"]).round == self.round

    def _interrupted(self) -> list[Instruction]:
        cause = "it was stopped in the middle of a draw, which is never made twice; the round is spent"
        return self._abort(Code.DRAW_FAILED, self.name, cause)
