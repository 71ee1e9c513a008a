"""The plan: honest noise alone carries the claim, budgets never add up to more than the whole."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims import servers_claim

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.gaussian_curve import gaussian_epsilon, gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.sum_plan import make_plan
from tallystick.trust.servers import honest_servers


def claim(**changes):
    facts = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "neighbours": "replace-one",
        "mechanism": "gaussian",
        "rounds": 1,
        "servers": 2,
        "colluding": 1,
        "records": 1000,
    }
    if changes.get("mechanism") == "laplace":
        facts["delta"] = 0.0
    return servers_claim(**{**facts, **changes})


ONE = (Group(name="all", size=10, bound=1.0),)

# (servers, tolerated t) → honest h and total variance over ideal
TABLE = {(2, 1): (1, 2.0), (3, 1): (2, 1.5), (3, 2): (1, 3.0), (5, 3): (2, 2.5), (4, 0): (3, 4 / 3)}


@pytest.mark.parametrize(("setting", "expected"), TABLE.items())
def test_noise_per_server_follows_the_table(setting, expected):
    servers, colluding = setting
    honest, ratio = expected
    assert honest_servers(servers, colluding) == honest
    plan = make_plan(claim(servers=servers, colluding=colluding), [ONE])
    noise = plan.rounds[0].noise[0]
    ideal = noise.sensitivity**2 / (2 * float(gaussian_rho(1.0, 1e-6)))
    assert servers * noise.variance / ideal == pytest.approx(ratio, rel=1e-3)


def test_laplace_is_full_at_every_server_whatever_collusion():
    for servers, colluding in TABLE:
        plan = make_plan(claim(mechanism="laplace", servers=servers, colluding=colluding), [ONE])
        noise = plan.rounds[0].noise[0]
        assert noise.parameter >= Fraction(noise.sensitivity)
        assert float(noise.parameter) == pytest.approx(noise.sensitivity, rel=1e-6)


def test_pem_noise_is_t_times_l_over_epsilon():
    """PEM's λ = T·L/ε with L = 2·14, in real units."""
    groups = [(Group(name="gradient", size=108, bound=14.0),)] * 1000
    plan = make_plan(claim(mechanism="laplace", rounds=1000, epsilon=1.0), groups)
    scale = float(plan.rounds[0].noise[0].parameter) / plan.rounds[0].grid.scale
    assert scale == pytest.approx(1000 * 28 / 1.0, rel=1e-6)
    assert plan.spent_epsilon() <= 1.0


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.05, 100),
    st.lists(st.floats(0.1, 3), min_size=1, max_size=6),
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from(["replace-one", "add-remove"]),
    st.integers(2, 4),
    st.data(),
)
def test_the_spent_budget_never_exceeds_the_claim(epsilon, weights, mechanism, neighbours, servers, data):
    colluding = data.draw(st.integers(0, servers - 1))
    share = data.draw(st.floats(0.1, 0.9))
    groups = (Group(name="a", size=3, bound=2.0, share=share), Group(name="b", size=1, bound=0.5, share=1 - share))
    c = claim(
        epsilon=epsilon,
        mechanism=mechanism,
        neighbours=neighbours,
        servers=servers,
        colluding=colluding,
        rounds=len(weights),
    )
    plan = make_plan(c, [groups] * len(weights), weights=weights)
    assert plan.spent_epsilon() <= epsilon
    assert plan.spent_epsilon() >= 0.97 * epsilon  # and little is wasted
    if mechanism == "gaussian":
        assert plan.gaussian_distance is not None or epsilon > 20  # where e^ε times the distance is no longer small
        exact = plan.gaussian_distance is not None
        assert plan.rho <= (gaussian_rho if exact else rho_from_epsilon)(epsilon, 1e-6)
        assert (gaussian_epsilon if exact else epsilon_from_rho)(plan.rho, 1e-6) <= epsilon


def test_add_remove_needs_half_the_noise():
    r1 = make_plan(claim(), [ONE]).rounds[0]
    ar = make_plan(claim(neighbours="add-remove"), [ONE]).rounds[0]
    assert r1.per_maker_std == pytest.approx(2 * ar.per_maker_std, rel=1e-6)


def test_bound_per_round_and_weights():
    groups = [(Group(name="g", size=2, bound=b),) for b in (4.0, 2.0, 1.0)]
    plan = make_plan(claim(rounds=3), groups, weights=[1, 1, 2])
    stds = [r.per_maker_std for r in plan.rounds]
    assert stds[0] == pytest.approx(2 * stds[1], rel=1e-6)
    assert stds[1] == pytest.approx(2 * 2**0.5 * stds[2], rel=1e-6)
    assert [float(r.rho / plan.rho) for r in plan.rounds] == pytest.approx([0.25, 0.25, 0.5], rel=1e-6)


def test_unit_person_multiplies_bound_and_sensitivity():
    record = make_plan(claim(), [ONE]).rounds[0]
    person = make_plan(claim(unit="person", max_records=4, max_institutions=2), [ONE]).rounds[0]
    assert person.grid.groups[0].bound == 4.0
    assert person.per_maker_std == pytest.approx(8 * record.per_maker_std, rel=1e-6)


def test_planted_bug_noise_split_over_all_servers_is_refused_by_the_table():
    """If h were m (noise split over all, the observer's own counted), the honest remainder would overspend."""
    plan = make_plan(claim(servers=2, colluding=1), [ONE])
    noise = plan.rounds[0].noise[0]
    halved = Fraction(noise.sensitivity) ** 2 / (2 * (noise.parameter / 2))
    assert gaussian_epsilon(halved, 1e-6) > 1.4


def test_none_has_no_noise_and_says_so():
    plan = make_plan(claim(mechanism="none", allow_not_private=True), [ONE])
    assert plan.rounds[0].per_maker_std == 0
    assert not plan.differentially_private
    assert plan.spent_epsilon() is None


def test_wrong_splits_are_refused():
    with pytest.raises(PrivacyRefused):
        make_plan(claim(rounds=2), [ONE])
    with pytest.raises(PrivacyRefused):
        make_plan(claim(rounds=1), [ONE], weights=[0])
    with pytest.raises(PrivacyRefused, match="sum to 1"):
        make_plan(claim(), [(Group(name="a", size=1, bound=1.0, share=0.5),)])
