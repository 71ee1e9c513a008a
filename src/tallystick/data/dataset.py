"""A data set with a budget: plain data whose fits are counted."""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import StudyError
from tallystick.privacy.ledger import Budget, Ledger
from tallystick.privacy.spent import Spent
from tallystick.study.schema import Schema


class Dataset:
    """Records in one place, and the most that may ever be spent on them.

    ``budget`` is an ε (at δ = 10⁻⁶) or a :class:`tallystick.privacy.ledger.Budget`. Every estimator fitted on the data
    set is charged to it; a fit that the rest does not cover raises ``BudgetExceeded`` and reads nothing.

    Fits for records and fits for persons are stated for each, never added as they stand. ``max_records`` says that
    nobody has more records here; it is a public fact, agreed on and not counted, with which a fit for records counts
    for persons too: k² times its ρ, k times a pure ε.
    """

    def __init__(
        self, frame: Any, *, budget: float | Budget, schema: Schema | None = None, max_records: int | None = None
    ) -> None:
        if max_records is not None and (type(max_records) is not int or max_records < 1):
            raise StudyError(
                "max_records is how many records nobody has more of: a whole number, 1 or more",
                rule="person-caps-are-positive",
                remedy="State it only where it is a public fact; leave it out otherwise.",
            )
        self.frame = frame
        self.schema = schema
        whole = budget if isinstance(budget, Budget) else Budget(epsilon=float(budget))
        self.ledger = Ledger(whole, person_records=max_records)

    @property
    def spent(self) -> Spent:
        """The composed statement of all fits so far."""
        return self.ledger.spent()

    def __repr__(self) -> str:
        return f"Dataset(budget={self.ledger.budget}, fits={len(self.ledger.entries)})"
