"""The most frequent value of a column, selected by computing parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.algorithms.program import State
from tallystick.algorithms.selection.mode import ModeProgram
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class Mode(PrivateEstimator):
    """The value that most records have, by the exponential mechanism among computing parties (``trust="parties"``).

    Nothing but the selected value is opened: no count, and not by how much it leads.

    Parameters
    ----------
    column : str
        A category, or an integer column.
    epsilon, neighbours, schema
        As for every estimator; the promise is pure ε.

    Attributes
    ----------
    mode_ : str or int
        The selected value.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "mode"
    ignores_y: ClassVar[bool] = True

    mechanism: str = "exponential"
    column: str | None = None

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: ModeProgram = self._program
        self.mode_ = program.values[int(state[0])]

    def _answer(self) -> Answer:
        notes = ["A value that nearly as many records have may be selected in its place: that is what hides a record."]
        return Answer.of([{"column": self.column, "mode": self.mode_}], notes)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {"type": type(self).__name__, "column": self.column, "mode": self.mode_}
