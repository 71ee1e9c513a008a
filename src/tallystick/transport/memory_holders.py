"""Dealer and holders of different columns in one process: the deployed machines, without sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.field_matrix import Matrix
from tallystick.protocol.instructions import Send
from tallystick.protocol.joint_products import (
    DealerMachine,
    HolderMachine,
    JointParameters,
    OwnRows,
    ProductShares,
    encode,
)
from tallystick.protocol.joint_products.messages import Refused


class MemoryHolders:
    """All parties of one study's joint products; :meth:`run` multiplies once. ``bytes_up`` counts what holders sent."""

    def __init__(
        self, parameters: JointParameters, units: Mapping[str, NDArray[np.float64]], source: WordSource
    ) -> None:
        self.parameters, self._units, self._source = parameters, units, source
        self.bytes_up, self.bytes_down = dict.fromkeys(units, 0), dict.fromkeys(units, 0)
        self._holders = {name: HolderMachine(parameters, name) for name in parameters.holders}
        self._queue: deque[tuple[str, str, bytes]] = deque()
        self._shares: dict[str, Mapping[tuple[str, str], Matrix]] = {}

    def run(self) -> dict[str, Mapping[tuple[str, str], Matrix]]:
        """Every holder's shares."""
        dealer = DealerMachine(self.parameters)
        self._carry_out(self.parameters.dealer, dealer.deal(self._source))
        for name, holder in self._holders.items():
            self._carry_out(name, holder.begin())
        while self._queue:
            sender, to, raw = self._queue.popleft()
            if to == self.parameters.dealer:
                self._carry_out(to, dealer.receive_bytes(sender, raw, 0.0))
            else:
                self.bytes_down[to] += len(raw)
                self._carry_out(to, self._holders[to].receive_bytes(sender, raw, 0.0))
        if len(self._shares) < len(self._holders):
            raise LocalProtocolError("the products did not end")
        return self._shares

    def _carry_out(self, name: str, instructions: list[Any]) -> None:
        for step in instructions:
            match step:
                case Send(message=Refused() as refused):
                    raise LocalProtocolError(f"a message was refused: {refused.cause}", party=name)
                case Send(to=to, message=message):
                    raw = encode(message)
                    self._queue.append((name, to, raw))
                    if name in self.bytes_up:
                        self.bytes_up[name] += len(raw)
                case OwnRows():
                    self._carry_out(name, self._holders[name].open_rows(self._units[name]))
                case ProductShares(shares=shares):
                    self._shares[name] = shares
