"""What the records are like, privately: counts, histograms, means, variances, correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.algorithms.program import State
from tallystick.algorithms.tables.summary import SummaryProgram
from tallystick.algorithms.tables.summary_table import summarise
from tallystick.core.errors import StudyError
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.noise_intervals import LEVEL, OF_THE_NOISE, quantile
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study import Study
from tallystick.study.columns import Category, Items
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class Summary(PrivateEstimator):
    """A table of noisy statistics of every column, each with the standard error and a 95 % interval of its noise.

    One round. Errors are those of the noise alone: the number for these very records lies in its interval. A study with
    a threshold has estimates only: what was set to 0 has an error that nobody knows.

    Parameters
    ----------
    columns : list of str, optional
        What to summarise; all columns of the schema if left out.
    bins : int
        Bins of equal width of a number's histogram, where neither ``cuts`` nor the schema's ``bins`` say otherwise.
    cuts : {column: cut points}, optional
        Public cut points of a number's histogram, in its units.
    correlations : bool
        Between all pairs of numbers that cannot be missing.
    epsilon, delta, neighbours, mechanism, schema, bounds
        As for every estimator.

    Attributes
    ----------
    table_ : list of dict
        Rows with ``column``, ``statistic`` (count, missing, histogram, mean, variance, correlation), ``of`` (the bin,
        category or other column), ``estimate``, ``standard_error``, ``lower``, ``upper``; ``pandas.DataFrame(table_)``
        makes a frame of it. A correlation with a column that may be constant is None.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "summary"
    ignores_y: ClassVar[bool] = True

    columns: Sequence[str] | None = None
    bins: int = 10
    cuts: Mapping[str, Sequence[float]] | None = None
    correlations: bool = True

    def study_for(
        self,
        fed: Federation,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        **options: Any,
    ) -> Study:
        """As every estimator's; a number's bins and logarithm are undone, because its mean is asked for too."""
        if target is not None:
            raise StudyError("a summary has no target", remedy="Name the column among `columns` instead.")
        if features is None and self.columns is not None:
            features = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        study = super().study_for(fed, target=None, features=features, **options)
        raw = study.model_dump()
        cuts = dict(raw["program"].get("cuts") or {})
        for column, declared in raw["data"]["columns"].items():
            if declared["type"] != "number" or (features is not None and column not in features):
                continue
            if declared["bins"] is not None:
                cuts.setdefault(column, list(declared["bins"]))
                declared["bins"] = None
            declared["log"] = False
        raw["program"]["cuts"] = {c: list(v) for c, v in cuts.items()} or None
        return Study.from_dict(raw)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: SummaryProgram = self._program
        noise = rounds_of(self.plan_)[0]
        study: Study = self.study_
        schema = study.schema_of_data()
        self.table_ = summarise(
            program,
            state,
            {n.group.name: noise.std_of(n.group.name) for n in noise.noise},
            records=study.data.records if study.counts_are_public and not study.drops_incomplete else None,
            complete=[c.name for c in program.columns if _complete(schema[c.name])],
            z=quantile(LEVEL, self.plan_.claim.mechanism),
        )
        if study.privacy.threshold:  # of a total that was set to 0 the noise's error says too little
            self.table_ = [{**row, "standard_error": None, "lower": None, "upper": None} for row in self.table_]

    def _answer(self) -> Answer:
        notes = [f"Intervals hold the number for these very records with probability {LEVEL:.0%}: {OF_THE_NOISE}"]
        if self.study_.privacy.threshold:
            notes = ["No intervals: a sum below the threshold was set to 0, and nobody knows how far off that is."]
        return Answer.of(self.table_, notes)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {"type": type(self).__name__, "level": LEVEL, "table": self.table_}


def _complete(column: Any) -> bool:
    """Whether every record falls in one cell of the column: an undeclared category is in none."""
    return not isinstance(column, Items) and (not isinstance(column, Category) or column.merge is not None)
