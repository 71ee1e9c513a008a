"""Differentially private frequent itemsets across institutions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tallystick.algorithms.itemsets.basis import BasisProgram
from tallystick.algorithms.itemsets.exact import Level, itemset_loss, least_count, mine
from tallystick.algorithms.itemsets.levels import LevelsProgram
from tallystick.algorithms.program import State
from tallystick.core.errors import DataError
from tallystick.data.encoding import Records
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class FrequentItemsets(PrivateEstimator):
    """Sets of items that occur together in at least a given share of the records.

    Items are the values of categories (``odor=none``), the bins of binned numbers, the vocabulary of ``ts.Items``
    columns, and for a number without bins "above the middle of its declared range", so that 0/1 columns mean what they
    say. Every record holds at most as many items as the schema allows; longer baskets were cut in vocabulary order.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X)``.
    min_support : float
        The least share of records, above 0 and at most 1.
    max_length : int
        The most items in a set.
    method : "auto", "levels" or "basis"
        ``"levels"`` counts every candidate set of every length (Apriori with noise, as PEM has it). ``"basis"`` counts
        single items, pairs and the profiles of latent classes, and reads all sets from the fitted model: far more
        accurate unless the noise is tiny. ``"auto"`` chooses from public facts.
    singles : bool
        Levels: count single items first (PEM starts with all pairs).
    cap : "auto" or int
        Levels: the most candidates of one length that a record counts, in the public order of candidates.
    max_candidates : "auto" or int
        Levels: the most candidates of one length; "auto" is 2^18, or all there can be.
    exclusive : bool
        Levels: leave out sets that no record can hold, such as two values of one category (PEM does not).
    split : "auto" or "uniform"
        Levels: the budget over lengths, in proportion to sensitivities or evenly (as PEM has it).
    consistent : bool
        Levels: lower every support to its subsets'; free, and never worse than a constant factor of the noise.
    classes : "auto" or int
        Basis: the most latent classes.

    Attributes
    ----------
    itemsets_ : list of (tuple of items, noisy support)
        By length, then by falling support. A set's support is never above its subsets'.
    min_support_ : float
        The least support in effect: above ``min_support`` only if there were more than a million sets.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "frequent_itemsets"
    evaluates_its_own_records: ClassVar[bool] = True
    ignores_y: ClassVar[bool] = True

    min_support: float = field(default=0.1, kw_only=False)
    max_length: int = 4
    method: str = "auto"
    singles: bool = True
    cap: int | str = "auto"
    max_candidates: int | str = "auto"
    exclusive: bool = True
    split: str = "auto"
    consistent: bool = True
    classes: int | str = "auto"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: BasisProgram | LevelsProgram = self._program
        if isinstance(program, BasisProgram):
            self._levels, self.min_support_ = program.levels(state)
        else:
            self._levels, self.min_support_ = program.levels(state), float(program.settings.min_support)
        self._counted = float(state.records)
        names = np.array(layout.names, dtype=object)
        self.itemsets_ = []
        for level in self._levels:
            order = np.argsort(-level.counts, kind="stable")
            supports = (level.counts[order] / max(self._counted, 1.0)).tolist()
            self.itemsets_ += list(zip(map(tuple, names[level.sets[order]].tolist()), supports))

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """PEM's loss over lengths from 2 on (its §7.2), and how many of the sets found are frequent and vice versa."""
        if len(test) == 0:
            raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
        program: BasisProgram | LevelsProgram = self._program
        items, settings = program.items, program.settings
        least = least_count(settings.min_support, len(test))
        truth = mine(items.present(test.features), items.block, least=least, longest=settings.max_length)
        scale = len(test) / max(self._counted, 1.0)
        found = [Level(sets=level.sets, counts=level.counts * scale) for level in self._levels]

        def unit(levels: list[Level]) -> list[Level]:
            return [Level(sets=level.sets, counts=np.ones(len(level))) for level in levels]

        # With counts of 1 the loss is 1 − 2·common/(found + true): from it, how many sets the two have in common.
        numbers = [sum(len(level) for level in side if level.sets.shape[1] > 1) for side in (found, truth)]
        common = (1 - itemset_loss(unit(found), unit(truth))) * sum(numbers) / 2
        return {
            "itemset_loss": itemset_loss(found, truth),
            "precision": common / numbers[0] if numbers[0] else 1.0,
            "recall": common / numbers[1] if numbers[1] else 1.0,
        }

    def _answer(self) -> Answer:
        rows = [{"items": " & ".join(map(str, s)), "length": len(s), "support": p} for s, p in self.itemsets_]
        notes = [
            f"Support is the share of the records that hold all items, at least {self.min_support_:g}.",
            "No noise intervals: which sets are here was itself decided by noisy supports, and those chosen for being "
            "large are no longer off evenly to both sides.",
        ]
        return Answer.of(
            rows, notes if self.plan_.differentially_private else notes[:1], ("items", "length", "support")
        )

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result: sets as positions in ``items``."""
        return {
            "type": type(self).__name__,
            "method": self.plan_.details["method"],
            "min_support": self.min_support_,
            "items": list(map(str, self._layout.names)),
            "itemsets": [row for level in self._levels for row in level.sets.tolist()],
            "supports": [x / max(self._counted, 1.0) for level in self._levels for x in level.counts.tolist()],
        }
