"""zCDP conversion: a table of known values, dp-accounting's Rényi accountant, and the edges."""

from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import epsilon_from_rho, pure_rho, rho_for, rho_from_epsilon

# epsilon to rho by the conversion of [CKS20], delta = 1e-5
TABLE = {0.1: 0.00043, 0.5: 0.0085, 1: 0.0306, 2: 0.108, 4: 0.373, 8: 1.230}


@pytest.mark.parametrize(("epsilon", "rho"), TABLE.items())
def test_known_answers(epsilon, rho):
    assert float(rho_from_epsilon(epsilon, 1e-5)) == pytest.approx(rho, rel=0.02)


@pytest.mark.parametrize("rho", [1e-5, 1e-3, 0.03, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_agrees_with_dp_accounting(rho, delta):
    accountant = RdpAccountant(orders=[1 + 2 ** (k / 8) for k in range(-64, 200)])
    accountant.compose(dp_accounting.GaussianDpEvent((1 / (2 * rho)) ** 0.5))
    theirs = accountant.get_epsilon(delta)
    ours = epsilon_from_rho(rho, delta)
    # dp-accounting minimises over a finite list of orders, so it may only be above; by little, the list being dense.
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_the_wrong_conversion_is_told_apart():
    """Negative control: the loose textbook conversion ρ + 2√(ρ ln 1/δ) would fail the comparison above."""
    rho, delta = 0.03, 1e-6
    loose = rho + 2 * (rho * -__import__("math").log(delta)) ** 0.5
    assert loose > epsilon_from_rho(rho, delta) * 1.05


@settings(deadline=None, max_examples=60)
@given(st.floats(0.001, 1e4), st.floats(1e-12, 0.1))
def test_budget_never_promises_more_than_asked(epsilon, delta):
    rho = rho_from_epsilon(epsilon, delta)
    assert epsilon_from_rho(rho, delta) <= epsilon
    assert epsilon_from_rho(rho * Fraction(1001, 1000), delta) > epsilon  # and wastes less than a thousandth


def test_composition_is_addition():
    assert 10 * rho_for(2, Fraction(800)) == rho_for(2, Fraction(80))
    assert rho_for(2, Fraction(800)) == Fraction(4, 1600)
    assert pure_rho(Fraction(1, 10)) == Fraction(1, 200)


def test_edges():
    assert epsilon_from_rho(0, 1e-6) == 0
    for epsilon in (0, -1, float("inf"), float("nan")):
        with pytest.raises(PrivacyRefused):
            rho_from_epsilon(epsilon, 1e-6)
    for delta in (0, 1, -1e-6):
        with pytest.raises(PrivacyRefused):
            rho_from_epsilon(1.0, delta)
