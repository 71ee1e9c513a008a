"""Medians, percentiles, the smallest and the largest: from noisy counts that zoom in on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallystick.algorithms.program import State
from tallystick.algorithms.quantiles.answers import QuantileAnswer, of_changing_records, quantile_answers
from tallystick.algorithms.quantiles.design import laplace_is_better
from tallystick.algorithms.quantiles.program import QuantileProgram
from tallystick.algorithms.quantiles.settings import by_asked, columns_asked, quantiles_asked, weights_asked
from tallystick.algorithms.selection.quantiles import SelectedQuantiles
from tallystick.core.errors import DataError, StudyError
from tallystick.data.encoding import Records
from tallystick.engines.federation import Federation
from tallystick.engines.planning import public_budget
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.noise_intervals import LEVEL
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout
from tallystick.study.trust import trust_model

_NAMES = {0.0: "min", 0.5: "median", 1.0: "max"}


@dataclass(kw_only=True, eq=False, repr=False)
class Quantiles(PrivateEstimator):
    """Quantiles of numbers, for all records or for each group of a category, with intervals of the noise.

    ``method="counts"`` is a search by secure sums: noisy counts of few public cells, finer ones around the answers in
    every round, at most 15 rounds; all quantiles, columns and groups share them.

    Parameters
    ----------
    q : float or sequence of float
        Shares of the records below the answer. 0 and 1 are the smallest and the largest value *as far as noise can
        tell*: the value with a few records beyond it (how many is a public number, stated by the plan), because one
        record's value is what the promise hides.
    column : str or list of str
        Number or integer columns; all of them if left out. A number's answers lie on a public grid of 10^8 to 10^9
        steps over its declared range.
    by : str, optional
        A category: quantiles of each of its groups. How many records a group has is noised too.
    method : "counts", "exponential" or "subranges"
        How they are found: by noisy counts that zoom in, on every trust model that sums; or, among computing parties
        (``trust="parties"``), by one draw of the exponential mechanism after a tenth of the budget in counts, or by the
        recursive subranges of [BK20], which have no groups.
    weights : "epsilon", "ln2" or "ln2/2^d"
        Of a draw by subranges: those that the budget pays for, or 2^u and 2^(u/2^d), u ranks away.
    mechanism : "auto", "laplace", "gaussian" or "none"
        "auto" takes what has less noise, decided from public facts before anybody approves. Laplace (pure epsilon)
        nearly always has; it weighs more on a ledger of Rényi curves, and the plan says how much.
    epsilon, delta, neighbours, schema, bounds
        As for every estimator.

    Attributes
    ----------
    quantiles_ : {q: value}
        With ``by`` {group: {q: value}}; with several columns {column: …}. None for a group without records to speak of.
    interval_ : as ``quantiles_``, with (lower, upper) or None
        Holds the quantile of these very records with probability 95 %. None where that cannot be promised, as where
        clients were missing from some rounds, and always where answers were drawn; ``answer()`` says why.
    counts_ : as ``quantiles_``, with a number for each {q: …}
        How many records there are, as released (the public number, or a noisy one). None where nothing was counted:
        a draw over the whole domain, the number not being public.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "quantiles"
    evaluates_its_own_records: ClassVar[bool] = True
    ignores_y: ClassVar[bool] = True

    q: float | Sequence[float] = (0.5,)
    column: str | Sequence[str] | None = None
    by: str | None = None
    method: str = "counts"
    mechanism: str = "auto"
    weights: str = "epsilon"

    def _study_program(self) -> dict[str, Any]:
        """Checked here already: what is wrong is said before a study is made of it."""
        columns = columns_asked(self.column)
        by_asked(self.by)
        weights = weights_asked(self.weights, self.method)
        own = {"q": list(quantiles_asked(self.q)), "column": list(columns) or None, "by": self.by}
        return {**own, "method": self.method, "weights": weights if self.method == "subranges" else None}

    def _promise(self, fed: Federation) -> dict[str, Any]:
        """With ``mechanism="auto"`` decided: from ε, δ, the trust model and how much is asked for."""
        asked = super()._promise(fed)
        if asked["mechanism"] != "auto":
            return asked
        if self.method != "counts":
            return {**asked, "mechanism": "exponential"}
        laplace = {**asked, "mechanism": "laplace", "delta": 0.0}
        gaussian = {**asked, "mechanism": "gaussian"}
        trust = fed.trust_settings()
        if not trust_model(trust["model"]).whole_noise:
            return gaussian
        budgets = [
            public_budget(
                Study.from_dict({"study": {"name": "auto", "program": "summary"}, "privacy": p, "trust": trust})
            )
            for p in (laplace, gaussian)
        ]
        columns = max(1, len(columns_asked(self.column)))
        better = laplace_is_better(*budgets, columns=columns, quantiles=len(quantiles_asked(self.q)))
        return laplace if better else gaussian

    def study_for(
        self,
        fed: Federation,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        **options: Any,
    ) -> Study:
        """As every estimator's; a number's bins are undone, because its own values are asked for."""
        if target is not None:
            raise StudyError("quantiles have no target", remedy="Name the column as `column` instead.")
        columns = columns_asked(self.column)
        by_asked(self.by)
        if features is None and columns:
            features = [*columns, *([self.by] if self.by is not None and self.by not in columns else [])]
        study = super().study_for(fed, target=None, features=features, **options)
        raw = study.model_dump()
        for name, declared in raw["data"]["columns"].items():
            if declared["type"] == "number" and name != self.by:
                declared["bins"] = None
        return Study.from_dict(raw)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: QuantileProgram | SelectedQuantiles = self._program
        if isinstance(program, SelectedQuantiles):
            self._answers = program.answers(state)
        else:
            self._answers = quantile_answers(program, state, level=LEVEL)
        if self._counted_changing_records():
            self._answers = of_changing_records(self._answers)
        self.quantiles_ = self._nested({a.q: a.value for a in of} for of in self._by_series())
        self.interval_ = self._nested({a.q: a.interval for a in of} for of in self._by_series())
        self.counts_ = self._nested(of[0].records for of in self._by_series())

    def _counted_changing_records(self) -> bool:
        """Whether clients were missing from counts that are taken for those of the same, or of all, records."""
        program: QuantileProgram | SelectedQuantiles = self._program
        if isinstance(program, SelectedQuantiles) and all(look.target >= 0 for look in program.looks):
            return False  # a draw counts its own records
        missing = {frozenset(names) for names in self.dropped_}
        return any(missing) if program.public_count else len(missing) > 1

    def _by_series(self) -> list[list[QuantileAnswer]]:
        many = self._program.targets
        return [self._answers[at : at + many] for at in range(0, len(self._answers), many)]

    def _nested(self, values: Any) -> Any:
        """One for each series: by group where there are groups, by column where there are several."""
        program: QuantileProgram = self._program
        out: dict[str, Any] = {}
        for series, value in zip(program.series, values):
            if series.label is None:
                out[series.grid.column] = value
            else:
                out.setdefault(series.grid.column, {})[series.label] = value
        return out if len(program.columns) > 1 else next(iter(out.values()))

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Mean rank error (records between the answer and the quantile) and mean absolute error; simulations only."""
        if len(test) == 0:
            raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
        program: QuantileProgram = self._program
        prepared = program.prepare(test.features, None)
        ranks, absolute = [], []
        for number, (series, answers) in enumerate(zip(program.series, self._by_series())):
            index, group = prepared[number // program.per_column]
            own = np.sort(index[group == series.group])
            for answer in answers:
                if answer.index is None or not len(own):
                    continue
                wanted = answer.q * len(own)
                below, upto = np.searchsorted(own, answer.index), np.searchsorted(own, answer.index, side="right")
                ranks.append(max(0.0, below - wanted, wanted - upto))
                exact = int(own[min(len(own) - 1, int(wanted))])
                absolute.append(abs(float(series.grid.value(exact)) - float(series.grid.value(answer.index))))
        if not ranks:
            return {}
        return {"rank_error": float(np.mean(ranks)), "absolute_error": float(np.mean(absolute))}

    def _answer(self) -> Answer:
        groups = self._program.by is not None
        rows: list[Mapping[str, Any]] = []
        for series, answers in zip(self._program.series, self._by_series()):
            for a in answers:
                row: dict[str, Any] = {"column": series.grid.column}
                if groups:
                    row["group"] = series.label
                low, high = a.interval or (None, None)
                row |= {"quantile": _NAMES.get(a.q, f"{100 * a.q:g} %"), "q": a.q, "estimate": a.value}
                rows.append({**row, "lower": low, "upper": high})
        return Answer.of(rows, self._notes())

    def _notes(self) -> list[str]:
        notes = []
        if any(a.interval is not None for a in self._answers):
            notes.append(f"Intervals hold the quantile of these very records with probability {LEVEL:.0%}.")
        notes += sorted({a.reason for a in self._answers if a.reason})
        if isinstance(self._program, SelectedQuantiles):
            return notes + [f"{note}." for note in self._program.notes]
        beyond = next((abs(t.shift) for t in self._program.series[0].targets if t.shift), 0.0)
        if beyond:
            notes.append(
                f"min and max are the values with about {beyond:,.0f} records beyond them: one record is hidden."
            )
        return notes

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {"type": type(self).__name__, "method": self.method, "level": LEVEL, "table": list(self._answer().rows)}
