"""Head-room and the way back to real numbers, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.crypto import field
from tallystick.crypto.field import HALF


@settings(deadline=None, max_examples=100)
@given(
    records=st.integers(0, 2**40),
    bound=st.one_of(st.integers(0, 2**50), st.floats(0, 2.0**50)),
    noise=st.one_of(st.floats(0, 2.0**60), st.fractions(0, 2**60)),
)
def test_headroom_is_the_exact_inequality(records: int, bound: float, noise: float | Fraction) -> None:
    fits = Fraction(records) * Fraction(bound) + 40 * Fraction(noise) < Fraction(P - 1, 2)
    if fits:
        field.check_headroom(records=records, bound=bound, noise_std_total=noise)
    else:
        with pytest.raises(StudyError, match="wrap around") as refusal:
            field.check_headroom(records=records, bound=bound, noise_std_total=noise, party="Hospital A")
        assert refusal.value.party == "Hospital A"
        assert refusal.value.rule == "headroom"


def test_headroom_at_the_edge() -> None:
    field.check_headroom(records=1, bound=HALF - 1, noise_std_total=0)
    field.check_headroom(records=1, bound=HALF - 41, noise_std_total=1)
    for bound, noise in ((HALF, 0), (HALF - 40, 1), (HALF - 1, Fraction(1, 40)), (HALF - 1, 0.025)):
        with pytest.raises(StudyError):
            field.check_headroom(records=1, bound=bound, noise_std_total=noise)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1, -0.5])
@pytest.mark.parametrize("name", ["records", "bound", "noise_std_total"])
def test_headroom_refuses_what_is_no_quantity(name: str, wrong: float) -> None:
    quantities = {"records": 1, "bound": 1, "noise_std_total": 1, name: wrong}
    with pytest.raises(StudyError, match=name):
        field.check_headroom(**quantities)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-(2**53), 2**53), max_size=50), st.integers(-60, 60))
def test_to_real_is_exact_below_2_to_53(totals: list[int], fraction_bits: int) -> None:
    real = field.to_real(np.array(totals, dtype=np.int64), fraction_bits)
    assert [Fraction(x) for x in real.tolist()] == [Fraction(v) / Fraction(2) ** fraction_bits for v in totals]


@settings(deadline=None, max_examples=60)
@given(st.integers(-HALF, HALF), st.integers(0, 60))
def test_to_real_rounds_once_above(total: int, fraction_bits: int) -> None:
    real = field.to_real(np.array([total], dtype=np.int64), fraction_bits)
    assert real[0] == float(Fraction(total, 2**fraction_bits))


def test_to_real_refuses_other_types_and_absurd_scales() -> None:
    with pytest.raises(LocalProtocolError):
        field.to_real(np.zeros(2, dtype=np.uint64), 3)
    for bits in (1000, -1000):
        with pytest.raises(StudyError, match="fraction bits"):
            field.to_real(np.zeros(2, dtype=np.int64), bits)


def test_into_the_field_and_back() -> None:
    totals = np.array([0, 1, -1, HALF, -HALF], dtype=np.int64)
    assert field.encode_signed(totals).tolist() == [0, 1, P - 1, HALF, HALF + 1]
    assert field.decode_signed(field.encode_signed(totals)).tolist() == totals.tolist()
