"""What maps a client's records, made in one place for simulations, roles, a stream's batches and samples.

A study's program is compiled once; every client's records are then given to the same map. Whether a round sees all of
them, a sample by the client's coins or the batch of a tick is the study's to say, not the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.algorithms.program import Program, State
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.engines.client_map import ClientMap, compile_map_of
from tallystick.engines.record_choice import ChosenMap, record_choice
from tallystick.engines.stream import Batches, simulated_ticks
from tallystick.study import Study

Streams = Callable[..., WordSource]
"""A client's random streams, by labels of bytes: the system's, or a seeded simulation's."""


class ClientMaps:
    """The maps of one study's clients."""

    def __init__(self, study: Study, program: Program, template: State) -> None:
        self._study, self._program, self._template = study, program, template
        self._compiled = compile_map_of(program, template)

    def whole(self, records: Records) -> ClientMap:
        """Every record in every round; also for one batch of a stream, which is asked once."""
        return ClientMap(self._program, records, self._template, compiled=self._compiled, persons=records.persons)

    def of(self, records: Records, streams: Streams, party: str) -> ClientMap | ChosenMap:
        """A client's records, in every round those that the study samples by this client's own coins."""
        hashed, name = self._study.hash, party.encode()
        choice = record_choice(self._study, records, lambda round: streams(hashed, b"coins", round, name))
        if choice is None:
            return self.whole(records)
        return ChosenMap(self._program, records, self._template, choice, self._compiled)

    def simulated(self, records: Records, streams: Streams, party: str, frame: Any) -> ClientMap | ChosenMap:
        """The same in a simulation, where the records of all ticks of a stream are there from the beginning."""
        if self._study.stream is None:
            return self.of(records, streams, party)
        arrivals = streams(self._study.hash, b"arrivals", party.encode())
        ticks = simulated_ticks(self._study.stream, frame, records, arrivals, party=party)
        return ChosenMap(self._program, records, self._template, Batches(ticks), self._compiled)
