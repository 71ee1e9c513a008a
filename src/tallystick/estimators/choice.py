"""What parties select by a utility that adds up over records: a user's candidates, or the parameter of least loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tallystick.algorithms.program import State
from tallystick.algorithms.selection.risk import RiskProgram
from tallystick.algorithms.selection.utility import DecomposableUtility
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.custom import ProgramEstimator
from tallystick.study.schema import FeatureLayout

_NOTE = "A candidate that is nearly as good may be selected in its place: that is what hides a record."


@dataclass(kw_only=True, eq=False, repr=False)
class Choice(ProgramEstimator):
    """One of a user's candidates, by a :class:`tallystick.DecomposableUtility` (``trust="parties"``).

    ``ts.Choice(MyUtility(), epsilon=1.0).fit(fed).choice_``. Nothing but the selected candidate is opened: no score,
    and not by how much it leads.

    Attributes
    ----------
    choice_ : the selected candidate
    """

    mechanism: str = "exponential"
    program: DecomposableUtility | None = field(default=None, kw_only=False)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        super()._accept(state, layout)
        utility = self.program
        self.choice_ = utility.candidate(state) if isinstance(utility, DecomposableUtility) else int(state[0])

    def _answer(self) -> Answer:
        return Answer.of([{"choice": str(self.choice_)}], [_NOTE])


@dataclass(kw_only=True, eq=False, repr=False)
class RiskMinimizer(PrivateEstimator):
    """The number with the least mean loss over all records, by the exponential mechanism among parties.

    Parameters
    ----------
    column : str
        A number or integer column.
    loss : "huber", "squared" or "absolute"
        Of the distance between a record's value and the parameter: a robust centre, the mean, the median.
    epsilon, neighbours, schema
        As for every estimator; the promise is pure ε.

    Attributes
    ----------
    minimizer_ : float
        One of a thousand equally spaced values of the declared range.
    """

    program_name: ClassVar[str] = "risk_minimizer"
    ignores_y: ClassVar[bool] = True

    mechanism: str = "exponential"
    column: str | None = None
    loss: str = "huber"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: RiskProgram = self._program
        self.minimizer_ = program.value(state)

    def _answer(self) -> Answer:
        row = {"column": self.column, "loss": self.loss, "minimizer": self.minimizer_}
        return Answer.of([row], [_NOTE])

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__, "column": self.column, "loss": self.loss, "minimizer": self.minimizer_
        }  # fmt: skip
