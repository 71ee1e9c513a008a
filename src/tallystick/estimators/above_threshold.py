"""Which values or items at least so many records have, told by computing parties without opening a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.algorithms.program import State
from tallystick.algorithms.quantiles.settings import columns_asked
from tallystick.algorithms.selection.above import AboveProgram
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class AboveThreshold(PrivateEstimator):
    """Values and items that at least ``threshold`` records have, by the sparse vector technique (``trust="parties"``).

    It costs the same for ten counts as for four thousand: what is paid for is how many answers may be "above", at most
    ``most``. Nothing but those answers is opened: no count, and not how far it is from the threshold.

    Parameters
    ----------
    column : str or list of str
        Categories, items, integers or numbers with bins; all columns if left out. A record may be in any number of
        counts.
    threshold : int
        A number of records. Counts and threshold are compared with noise, whose size the plan states.
    most : int
        After so many counts above the threshold it stops: later ones, in the order in which the schema declares them,
        are not looked at. A larger number means more noise.
    epsilon, neighbours, schema
        As for every estimator; the promise is pure ε.

    Attributes
    ----------
    above_ : list of (column, value)
        In the declared order; at most ``most``.
    stopped_ : bool
        Whether ``most`` were found, so that later ones may be missing.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "above_threshold"
    ignores_y: ClassVar[bool] = True

    mechanism: str = "laplace"
    column: str | Sequence[str] | None = None
    threshold: int | None = None
    most: int = 1

    def _study_program(self) -> dict[str, Any]:
        columns = list(columns_asked(self.column))
        return {"column": columns or None, "threshold": self.threshold, "most": self.most}

    def study_for(
        self,
        fed: Federation,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        **options: Any,
    ) -> Study:
        """As every estimator's; only the columns that are counted are read."""
        columns = columns_asked(self.column)
        if features is None and columns and target is None:
            features = list(columns)
        return super().study_for(fed, target=target, features=features, **options)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: AboveProgram = self._program
        self.above_ = program.above(state)
        self.stopped_ = len(self.above_) >= min(program.most, program.size)

    def _answer(self) -> Answer:
        program: AboveProgram = self._program
        rows = [{"column": column, "value": value} for column, value in self.above_]
        notes = [
            f"Told of {program.size:,} counts: those of about {program.threshold:,} records and more. A count near the "
            "threshold may be told wrongly either way: that is what hides a record.",
            "No count is opened, so there is none here.",
        ]
        if self.stopped_ and program.most < program.size:
            notes.append(
                f"It stopped after {program.most}: counts declared after the last one here were not looked at."
            )
        return Answer.of(rows, notes, ("column", "value"))

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        program: AboveProgram = self._program
        return {
            "type": type(self).__name__,
            "threshold": program.threshold,
            "most": program.most,
            "counts": program.size,
            "above": [list(pair) for pair in self.above_],
            "stopped": self.stopped_,
        }
