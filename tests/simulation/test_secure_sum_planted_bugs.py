"""Servers with one bug each: the oracle must catch every one, or it proves nothing."""

from __future__ import annotations

import pytest
from secure_sum_world import DRAWN, Op, Schedule, World, breaks, schedule, shrink
from tests.transport.memory_network import Faults

from tallystick.protocol.secure_sum import Drop, ServerMachine
from tallystick.protocol.secure_sum.records import NoiseRecord, RoundRecord
from tallystick.protocol.secure_sum.shares import sum_shares


class SumsItsOwnSet(ServerMachine):
    """Sums whatever it received instead of the agreed set."""

    def _sum(self, current, agreed):
        mine = sorted(self._shares.clients(self.round))
        return sum_shares(self._shares, self.round, mine, self.parameters.size)


class RedrawsNoise(ServerMachine):
    """Draws noise anew after a restart and makes its partial again."""

    def _try_release(self, current):
        return [step for step in super()._try_release(current) if not isinstance(step, Drop)]

    @classmethod
    def restore(cls, parameters, name, records, *, noise, **given):
        if "round" in records:
            old = RoundRecord.from_bytes(records["round"])
            records["noise"] = NoiseRecord(round=old.round, noise=noise.draw(old.round)).to_bytes()
            records[DRAWN] = records["noise"]
            records.pop("partial", None)
        return super().restore(parameters, name, records, noise=noise, **given)


class AcceptsTwoModels(ServerMachine):
    """Does not compare the model hash in a share with the round's."""

    def _other_model(self, current, message):
        return False


def calm(seed: int, *ops: Op, noisy: bool = True, clients: int = 5) -> Schedule:
    return Schedule(seed, clients, 2, 2, 2, noisy, Faults(), ops)


def server_kinds(kind: type) -> dict[str, type]:
    return dict.fromkeys(("s0", "s1", "s2"), kind)


def test_a_server_that_sums_its_own_set_is_caught() -> None:
    # A client dies after its first share was sent: server 0 has it, server 1 does not.
    plan = calm(1, Op("crash", "c2", 0.0, 2, 300.0))
    assert breaks(plan) is None
    cause = breaks(plan, server_kinds(SumsItsOwnSet))
    assert cause is not None
    assert "buckets" in cause


def test_a_server_that_redraws_noise_is_caught() -> None:
    causes = []
    for steps in range(34):  # wherever in the round it dies
        plan = calm(2, Op("crash", "s0", 0.0, steps, 0.05))
        assert breaks(plan) is None, steps
        causes.append(breaks(plan, server_kinds(RedrawsNoise)))
    assert any(cause and "Partial" in cause for cause in causes), causes


def test_a_server_that_accepts_two_models_is_caught() -> None:
    plan = calm(3, Op("deceive", "c1", 0.0, 0, 5.0))
    assert breaks(plan) is None
    assert [error.rule for error in World(plan).run().errors.values()] == ["two-models", "two-models"]
    assert "the buckets of c1" in (breaks(plan, server_kinds(AcceptsTwoModels)) or "")


@pytest.mark.parametrize("kind", [SumsItsOwnSet, RedrawsNoise, AcceptsTwoModels])
def test_random_schedules_find_the_bug_too(kind: type) -> None:
    for seed in range(400):
        plan = schedule(seed)
        if breaks(plan, server_kinds(kind)):
            small = shrink(plan, server_kinds(kind))
            assert len(small.ops) <= len(plan.ops)
            assert breaks(small) is None, "the shrunk schedule must blame the bug, not the protocol"
            return
    pytest.fail(f"{kind.__name__} went through 400 schedules unseen")
