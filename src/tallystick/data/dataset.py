"""A data set with a budget: plain data whose fits are counted."""

from __future__ import annotations

from typing import Any

from tallystick.privacy.ledger import Budget, Ledger, Spent
from tallystick.privacy.schema import Schema

__all__ = ["Dataset"]


class Dataset:
    """Records in one place, and the most that may ever be spent on them.

    ``budget`` is an ε (at δ = 10⁻⁶) or a :class:`tallystick.privacy.ledger.Budget`. Every estimator fitted on the data
    set is charged to it; a fit that the rest does not cover raises ``BudgetExceeded`` and reads nothing.
    """

    def __init__(self, frame: Any, *, budget: float | Budget, schema: Schema | None = None) -> None:
        self.frame = frame
        self.schema = schema
        self.ledger = Ledger(budget if isinstance(budget, Budget) else Budget(epsilon=float(budget)))

    @property
    def spent(self) -> Spent:
        """The composed statement of all fits so far."""
        return self.ledger.spent()

    def __repr__(self) -> str:
        return f"Dataset(budget={self.ledger.budget}, fits={len(self.ledger.entries)})"
