"""A hostile study is refused with the rule's name, and only a hostile one."""

from pathlib import Path

import pytest
from tests.claims import servers_claim

from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.privacy.rules import RULES, check_claim, default_delta
from tallystick.privacy.trust import NoiseMakers, Trust

GOOD = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "neighbours": "replace-one",
    "mechanism": "gaussian",
    "rounds": 10,
    "records": 1000,
    "min_clients": 3,
}

HOSTILE = {
    "epsilon-is-positive-and-finite": [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": float("inf")},
        {"epsilon": float("nan")},
    ],
    "epsilon-is-not-vanishing": [{"epsilon": 5e-324}, {"epsilon": 1e-200}, {"epsilon": 9e-7}],
    "epsilon-means-something": [{"epsilon": 1e9}],
    "delta-is-not-vanishing": [{"delta": 5e-324}, {"delta": 1e-300}, {"delta": 9e-101}],
    "delta-below-one-record": [{"delta": 1e-3}, {"delta": 0.5}],
    "delta-is-a-small-probability": [{"delta": 0.0}, {"delta": 1.0}, {"delta": -1e-6}, {"delta": float("nan")}],
    "pure-epsilon-has-no-delta": [{"mechanism": "laplace"}],
    "rounds-are-bounded": [{"rounds": 0}, {"rounds": 10**9}, {"rounds": -3}],
    "replace-one-needs-records": [{"records": None}, {"records": 0}],
    "two-servers-at-least": [{"servers": 1, "colluding": 0}, {"servers": 256}],
    "one-honest-server": [{"servers": 2, "colluding": 2}, {"colluding": -1}],
    "a-sum-of-one-hides-nothing": [{"min_clients": 1}, {"min_clients": 0}],
    "neighbours-are-named": [{"neighbours": "bounded"}],
    "mechanism-is-known": [{"mechanism": "wishart"}],
    "unit-is-known": [{"unit": "household"}],
    "person-caps-are-positive": [{"unit": "person", "max_records": 0}, {"max_institutions": 0}],
    "shares-sum-to-one": [{"shares": (0.5, 0.6)}, {"shares": (1.5, -0.5)}],
    "no-noise-only-in-simulation": [{"mechanism": "none"}],
    "sampling-is-a-probability": [{"sampling": s, "neighbours": "add-remove"} for s in (0.0, -0.1, 1.1, float("nan"))],
    "sampling-helps-the-gaussian-only": [
        {"sampling": 0.1, "neighbours": "add-remove", "mechanism": "laplace", "delta": 0.0}
    ],
    "sampling-needs-add-remove": [{"sampling": 0.1}],
    "sampling-is-of-records": [
        {"sampling": 0.1, "neighbours": "add-remove", "unit": "person"},
        {"sampling": 0.1, "neighbours": "add-remove", "parallel": True},
    ],
    "someone-honest-makes-noise": [
        {"trust": Trust(makers=NoiseMakers(count=count, honest=h))} for count, h in ((2, 0), (1, 2))
    ],
    "a-stream-hides-its-batches": [{"parallel": True}, {"parallel": True, "unit": "person", "max_records": 2}],
}


@pytest.mark.parametrize(("rule", "changes"), [(r, c) for r, cases in HOSTILE.items() for c in cases])
def test_a_hostile_study_is_refused_by_its_rule(rule, changes):
    with pytest.raises(PrivacyRefused) as caught:
        check_claim(servers_claim(**{**GOOD, **changes}))
    assert caught.value.rule == rule
    assert caught.value.exit_code == 3
    assert caught.value.remedy


def test_every_rule_has_a_hostile_case():
    own = {"two-servers-at-least", "one-honest-server"}  # of the trust model, in place of the rule that stands for them
    assert set(HOSTILE) == {name for name, *_ in RULES} - {"trust-model-holds"} | own


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"neighbours": "add-remove", "records": None},
        {"mechanism": "laplace", "delta": 0.0},
        {"epsilon": 1e4},
        {"servers": 3, "colluding": 0},
        {"mechanism": "none", "allow_not_private": True},
        {"unit": "person", "max_records": 4, "max_institutions": 2},
    ],
)
def test_an_ordinary_study_passes(changes):
    assert check_claim(servers_claim(**{**GOOD, **changes})) is None


def test_words_for_numbers_are_a_study_error():
    with pytest.raises(StudyError):
        check_claim(servers_claim(**{**GOOD, "epsilon": "one"}))


def test_default_delta():
    assert default_delta(48842, "gaussian") == 1e-6
    assert default_delta(10**7, "gaussian") == 1e-8
    assert default_delta(None, "gaussian") == 1e-6
    assert default_delta(100, "laplace") == 0.0


def test_the_documentation_lists_every_rule():
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    for name, _, _, _ in RULES:
        assert f"`{name}`" in text
