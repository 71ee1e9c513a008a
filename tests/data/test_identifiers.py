"""One person has one name, however a file writes it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallystick as ts
from tallystick.data.cell_rules import canonical_identifier
from tallystick.study import Study

SEVEN = [7, 7.0, np.int8(7), np.float32(7), Decimal("7.00"), "7", "7 ", " 7", "\t7\n", "7\u00a0", "\ufeff7", "7\u200b"]
SEVEN += ["7.0", "7.", "+7.0", "7e0", b"7", b"7 "]


def test_seven_is_one_person_in_every_spelling() -> None:
    assert {canonical_identifier(cell) for cell in SEVEN} == {"7"}


def test_unicode_has_one_form_and_other_names_stay_apart() -> None:
    assert canonical_identifier("Ren\u00e9e") == canonical_identifier("Rene\u0301e ")
    apart = [
        "7",
        "07",
        "007",
        "7.5",
        "-7",
        "77",
        "7 7",
        "seven",
        "Seven",
        "true",
        "9007199254740993",
        "9007199254740992",
    ]
    assert len({canonical_identifier(cell) for cell in apart}) == len(apart)
    assert canonical_identifier(2**70 + 1) == str(2**70 + 1) == canonical_identifier(str(2**70 + 1))
    assert canonical_identifier(0.1) == canonical_identifier("0.10") == "0.1"
    assert canonical_identifier(-0.0) == canonical_identifier("-0.0") == canonical_identifier(0) == "0"


@pytest.mark.parametrize(
    "cell", [None, float("nan"), Decimal("nan"), pd.NA, pd.NaT, "", " ", "\u200b", b" ", [7], (7,)]
)
def test_what_names_nobody(cell: Any) -> None:
    assert canonical_identifier(cell) is None


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
def test_a_name_is_its_own_name(cell: Any) -> None:
    """Written out and read again it is the same person; so a source that stores text names the same ones."""
    name = canonical_identifier(cell)
    assert name is None or canonical_identifier(name) == canonical_identifier(f" {name}\n") == name


# -- in a study --------------------------------------------------------------------------------------------------------

N = 60
SCHEMA = ts.Schema({"x": ts.Number(0, 1), "y": ts.Number(0, 1)})


def released(persons: Any) -> list[float]:
    """Ridge regression without noise, a person's records clipped together: whose they are shows."""
    x = np.linspace(0, 1, N)
    frame = {"x": x, "y": x**2, "pid": persons}
    fed = ts.Federation.simulate([frame, frame], schema=SCHEMA, seed=1)
    estimator = ts.Ridge(mechanism="none")
    raw = estimator.study_for(fed, target="y", features=None).model_dump()
    raw["privacy"] |= {"unit": "person", "person": "pid", "max_records": 2, "max_institutions": 2}
    raw["data"]["records"] = 2 * N
    model = estimator.fit_study(fed, Study.from_dict(raw))
    return [*np.ravel(model.coef_), *np.ravel(model.intercept_)]


def test_two_spellings_of_one_person_are_clipped_together() -> None:
    """Before, "7" and "7 " were two persons, and gave twice what one may."""
    one = released(["7"] * N)
    assert released(["7", "7 "] * (N // 2)) == one
    assert released([7, 7.0, "7", "7.0", " 7 ", "7e0"] * (N // 6)) == one
    assert released(pa.chunked_array([["7"] * 20, ["7 "] * 20, [" 7"] * 20])) == one
    assert released(pa.array(["7", "7\u00a0"] * (N // 2)).dictionary_encode()) == one
    assert released(pd.Series([7.0] * N)) == one
    assert released(["7", "8"] * (N // 2)) != one
