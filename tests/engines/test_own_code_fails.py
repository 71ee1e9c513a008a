"""A program of one's own that raises: a typed error with its own words, never a traceback; built-ins stay bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.linear.losses import LogisticProgram
from tallystick.core.errors import RoundAborted, StudyError

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "hours": ts.Number(0, 10)})


def federation() -> Any:
    rng = np.random.default_rng(1)
    frames = [{"x": rng.uniform(-1, 1, 40), "hours": rng.uniform(0, 10, 40)} for _ in range(3)]
    return ts.Federation.simulate(frames, schema=SCHEMA, seed=1)


class Sound(ts.Program):
    """The sum of whatever a record holds."""

    rounds = 2
    bound = 20.0

    def init(self, public: Any) -> Any:
        return np.zeros(len(public.features))

    def map_in_client(self, record: Any, state: Any) -> Any:
        return record * 1.0

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return np.asarray(total)


class FailsToStart(Sound):
    def init(self, public: Any) -> Any:
        raise KeyError("no such column")


class FailsToQuery(Sound):
    def query(self, state: Any) -> Any:
        raise ArithmeticError("no question")


class FailsToReduce(Sound):
    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        raise LookupError("seven of nine")


class FailsToEnd(Sound):
    def finished(self, state: Any) -> bool:
        raise RuntimeError("never finished")


class TellsTheTotal(Sound):
    """Has the noisy total told by its error, and says that nothing has come out yet."""

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        raise RoundAborted(f"the total is {total}", rule="too-few-clients", round=1)


class TellsItLater(Sound):
    def query(self, state: Any) -> Any:
        if np.any(state):
            raise RoundAborted(f"the total was {state}", rule="too-few-clients", round=1)
        return state


class ChangesShape(Sound):
    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return np.append(state, total)


class IsNoState(Sound):
    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return "done"


def fit(program: ts.Program, **options: Any) -> Any:
    return ts.ProgramEstimator(program, epsilon=1.0).fit(federation(), features=["x"], **options)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (FailsToStart(), "init fails: KeyError: 'no such column'"),
        (FailsToQuery(), "query fails: ArithmeticError: no question"),
    ],
)
def test_a_program_that_fails_before_the_first_round_is_a_wrong_study(program: Any, words: str) -> None:
    fed = federation()
    with pytest.raises(StudyError, match=words) as told:
        ts.ProgramEstimator(program, epsilon=1.0).fit(fed, features=["x"])
    assert told.value.exit_code == 2
    assert told.value.rule == "run"
    assert fed.spent.fits == 0


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (FailsToReduce(), "reduce_in_aggregator fails: LookupError: seven of nine"),
        (FailsToEnd(), "finished fails: RuntimeError: never finished"),
        (ChangesShape(), "another shape than it was given"),
    ],
)
def test_a_program_that_fails_in_a_round_aborts_it(program: Any, words: str) -> None:
    fed = federation()
    with pytest.raises(RoundAborted, match=words) as told:
        ts.ProgramEstimator(program, epsilon=1.0).fit(fed, features=["x"])
    assert told.value.exit_code == 4
    assert told.value.round == 1
    assert "What was spent stays spent" in (told.value.remedy or "")
    assert fed.spent.fits == 1


@pytest.mark.parametrize("program", [TellsTheTotal(), TellsItLater()], ids=lambda p: type(p).__name__)
def test_a_program_that_has_seen_a_noisy_total_has_spent_whatever_it_says(program: Any) -> None:
    """Otherwise a program is told the same sum with fresh noise, for nothing, as often as it likes."""
    fed = federation()
    for fits in (1, 2):
        with pytest.raises(RoundAborted, match="the total"):
            ts.ProgramEstimator(program, epsilon=1.0).fit(fed, features=["x"])
        assert fed.spent.fits == fits


def test_a_round_that_nobody_answered_is_given_back() -> None:
    fed = federation()
    fed.trust["min_clients"], fed.drop = 3, 0.999
    with pytest.raises(RoundAborted):
        ts.ProgramEstimator(Sound(), epsilon=1.0).fit(fed, features=["x"])
    assert fed.spent.fits == 0


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(StudyError, match="holds a str"):
        fit(IsNoState())


class ReadsTheTarget(Sound):
    """A weight per feature and an intercept, as the tutorial's program: without a target a record is one shorter."""

    def init(self, public: Any) -> Any:
        return np.zeros(len(public.features) + 1)

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return state + total


def test_a_forgotten_target_is_named() -> None:
    with pytest.raises(RoundAborted, match="reduce_in_aggregator") as told:
        ts.ProgramEstimator(ReadsTheTarget(), epsilon=1.0).fit(federation(), features=[*SCHEMA])
    assert 'fit(federation, target="…")' in str(told.value)
    model = ts.ProgramEstimator(ReadsTheTarget(), epsilon=1.0).fit(federation(), target="hours")
    assert model.state_.shape == (2,)
    with pytest.raises(RoundAborted) as told:
        fit(FailsToReduce(), target="hours")
    assert "names no target" not in str(told.value)


def test_a_bug_of_a_built_in_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, total: Any, state: Any) -> Any:
        raise LookupError("ours")

    monkeypatch.setattr(LogisticProgram, "reduce_in_aggregator", broken)
    rng = np.random.default_rng(1)
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    frames = [{"x": rng.uniform(-1, 1, 40), "y": rng.choice(["a", "b"], 40)} for _ in range(3)]
    fed = ts.Federation.simulate(frames, schema=schema, seed=1)
    with pytest.raises(LookupError, match="ours"):
        ts.LogisticRegression(epsilon=1.0, rounds=2).fit(fed, target="y")
