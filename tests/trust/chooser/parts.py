"""A choice simulated and between real processes: the curator's lines, but what it ends with is a place, not a total."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.trust.chooser import ChoicePlan
from tests.trust.curator.machines import CuratorMachine
from tests.trust.curator.parts import CuratorClientPart, CuratorPart

from tallystick.algorithms.program import pack_state
from tallystick.data.encoding import Records
from tallystick.engines.engine import Computation, Computed, SimulatedStudy
from tallystick.engines.setup import Setup
from tallystick.engines.totals import RoundRequest
from tallystick.protocol.instructions import Compute, Finished
from tallystick.protocol.secure_sum.open_round import NoiseSource


def chosen(noisy: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([float(np.argmax(noisy))])


class SimulatedChooser(Computation):
    def __init__(self, simulated: SimulatedStudy) -> None:
        self.simulated = simulated

    def compute(self, *, progress: Any = None, released: Any = None) -> Computed:
        facts = self.simulated
        assert isinstance(facts.plan, ChoicePlan)
        counts = sum(facts.design.program.counts(records) for records in facts.records.values())
        noise = facts.plan.draw(facts.keyed(b"noise"))
        return Computed(history=(chosen(counts + noise),), contributors=(tuple(facts.records),), dropped=((),))


class _Noise(NoiseSource):
    def __init__(self, plan: ChoicePlan, source: Any) -> None:
        self._plan, self._source = plan, source

    def draw(self, round: int) -> NDArray[np.int64]:
        return self._plan.draw(self._source(b"noise", round.to_bytes(8, "little")))


class ChooserMachine(CuratorMachine):
    """Ends with the place of the largest noisy count; the counts go no further."""

    def _try_end(self, now: float) -> list[Any]:
        return [
            Finished(replace(step.result, total=chosen(step.result.total).astype(np.int64)))
            if isinstance(step, Finished)
            else step
            for step in super()._try_end(now)
        ]


class ChooserClientPart(CuratorClientPart):
    def prepare(self, records: Records) -> Any:
        return self.setup.design.program.counts(records)

    def answer(self, step: Compute, prepared: Any) -> None:
        self.contribute(step.round, prepared)


class ChooserPart(CuratorPart):
    machine_class = ChooserMachine

    def noise(self, setup: Setup, source: Any, admitted: bytes | None) -> NoiseSource:
        assert isinstance(setup.plan, ChoicePlan)
        return _Noise(setup.plan, source)

    def compute(self, *, progress: Any, released: Any) -> Computed:
        """One question, one answer; no loop of rounds."""
        model = pack_state(self.setup.template)
        answer = self.session.answer(RoundRequest(round=1, model=model))
        progress(1, 1)
        state = answer.values.astype(np.float64)
        return Computed(history=(state,), contributors=(answer.participants,), dropped=(answer.dropped,))
