"""What every engine must do, whatever it runs on: the bits of records that are all in memory.

A suite for an engine is a subclass that says how the engine is given records (``federation``). Programs come from the
table that trust models are tried with, so a new one is tried here by itself.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
from tests.trust.test_same_bits import SCHEMA, STUDIES, frames, states

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import DataError

Frame = dict[str, Any]


@functools.cache
def in_memory(program: str) -> tuple[bytes, ...]:
    """The states after every round, with records in memory."""
    return tuple(states(program, "servers"))


def whole(parts: list[Frame]) -> Frame:
    """Several frames as one."""
    return {name: [cell for part in parts for cell in part[name]] for name in parts[0]}


def with_names(frame: Frame, each: int) -> Frame:
    """Every person has about so many records, far from each other."""
    count = len(frame["age"])
    return {**frame, "who": [f"p{i % max(1, count // each)}" for i in range(count)]}


def exact(fed: ts.Federation, program: Any, target: str | None = "ill", **options: Any) -> list[bytes]:
    """The states of a fit without noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.set_params(mechanism="none").fit(fed, target=target, **options)
    return [pack_state(state) for state in program.history_]


class EngineContract:
    """Subclass it and write ``federation``."""

    programs = tuple(STUDIES)
    splits: tuple[int, ...] = (1, 7, 1000)
    """Records in a block, or partitions: whatever the engine calls its parts."""

    def federation(self, parts: list[Frame], split: int = 7, **options: Any) -> ts.Federation:
        """Institutions whose records this engine maps, cut at ``split``."""
        raise NotImplementedError

    @staticmethod
    def memory(parts: list[Frame], **options: Any) -> ts.Federation:
        return ts.Federation.simulate(parts, seed=11, **{"schema": SCHEMA, **options})

    def test_every_program_of_several_rounds_has_the_bits_of_memory(self, program: str) -> None:
        assert tuple(states(program, "servers", self.federation(frames()))) == in_memory(program)

    def test_neither_parts_nor_order_leave_a_trace(self) -> None:
        parts = frames()
        model = ts.LogisticRegression(rounds=2)
        expected = exact(self.memory(parts), model)
        for split in self.splits:
            assert exact(self.federation(parts, split), model) == expected
        turned = [{name: list(column)[::-1] for name, column in part.items()} for part in parts]
        assert exact(self.federation(turned), model) == expected
        other = whole(parts)  # the same records, dealt to other institutions
        dealt = [{name: column[i::3] for name, column in other.items()} for i in range(3)]
        assert exact(self.federation(dealt), model) == expected

    def test_a_person_s_records_are_clipped_together_wherever_they_lie(self) -> None:
        parts = [with_names(part, 5) for part in frames()]
        raw = {
            "study": {"name": "p", "program": "summary", "features": ["age", "dose"], "accept_noise": True},
            "program": {"bins": 4},
            "privacy": {
                "mechanism": "none",
                "unit": "person",
                "person": "who",
                "max_records": 2,
                "max_institutions": 3,
            },
            "trust": {"model": "servers"},
            "data": {"records": 120, "columns": {n: SCHEMA.to_dict()[n] for n in ("age", "dose")}},
        }

        def fitted(fed: ts.Federation) -> list[bytes]:
            from tallystick.estimators.from_study import estimator_for
            from tallystick.study import Study

            estimator, study = estimator_for(Study.from_dict(raw), None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator.fit_study(fed, study)
            return [pack_state(state) for state in estimator.history_]

        expected = fitted(self.memory(parts))
        for split in self.splits:
            assert fitted(self.federation(parts, split)) == expected
        alone = [{**part, "who": [f"{i}" for i in range(len(part["age"]))]} for part in parts]
        assert fitted(self.memory(alone)) != expected  # clipping together is seen

    def test_bad_cells_add_zeros_and_are_counted_at_home(self) -> None:
        parts = frames()
        parts[1]["ill"] = [None if i % 10 == 0 else cell for i, cell in enumerate(parts[1]["ill"])]
        missing = ts.Missing(policy="drop")
        fed, memory = self.federation(parts, missing=missing), self.memory(parts, missing=missing)
        model = ts.LogisticRegression(rounds=2)
        assert exact(fed, model) == exact(memory, model)
        found, expected = fed.check(target="ill"), memory.check(target="ill")
        assert found.to_dict() == expected.to_dict()
        assert found.together.used == 115

    def test_a_column_that_is_not_there_is_named(self) -> None:
        parts = [{name: column for name, column in part.items() if name != "dose"} for part in frames()]
        with pytest.raises(DataError, match="has no column 'dose'"):
            exact(self.federation(parts), ts.LogisticRegression(rounds=2))

    def test_institutions_without_records_take_part(self) -> None:
        empty = {name: np.asarray(column)[:0] if name != "drugs" else [] for name, column in frames()[0].items()}
        model, names = ts.LogisticRegression(rounds=2), ["age", "dose"]
        parts = [*frames(), empty]
        assert exact(self.federation(parts), model, features=names) == exact(self.memory(parts), model, features=names)
