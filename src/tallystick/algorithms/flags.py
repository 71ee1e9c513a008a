"""A keyword that is true or false, and nothing that Python would take for one of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.core.errors import StudyError

__all__ = ["flag"]


def flag(name: str, value: Any) -> bool:
    """The value itself. ``--set program.fit_intercept=False`` is a text, and ``bool("False")`` would be true."""
    if not isinstance(value, (bool, np.bool_)):
        raise StudyError(
            f"{name} = {str(value)[:80]!r} is neither true nor false",
            rule="wrong-value",
            remedy=f"Write {name} = true or {name} = false, in small letters and without quotes.",
        )
    return bool(value)
