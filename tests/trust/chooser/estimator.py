"""The scikit-learn face of the toy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.estimators.base import PrivateEstimator

__all__ = ["MostFrequent"]


@dataclass(kw_only=True, eq=False, repr=False)
class MostFrequent(PrivateEstimator):
    """``mode_``: the value that is there most often."""

    program_name: ClassVar[str] = "most_frequent"

    def _accept(self, state: Any, layout: Any) -> None:
        self.mode_ = layout.names[int(state[0])]

    def model_document(self) -> dict[str, Any]:
        return {"type": "MostFrequent", "mode": self.mode_}
