"""The plan of locally perturbed records: what is promised, charged, refused and said; and the bytes of a record."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_laws import public_words

from tallystick.core.errors import LocalProtocolError, PrivacyRefused, RemoteProtocolError
from tallystick.privacy.ledger import Budget, Ledger, charge_of
from tallystick.privacy.local.added_noise import AddedNoise
from tallystick.privacy.local.plan import LocalPlan, make_local_plan
from tallystick.privacy.local.records import PerturbedRecord, RecordShape, record_identity
from tallystick.privacy.release import state_privacy
from tallystick.privacy.rules import Claim
from tallystick.privacy.trust import NoiseMakers, Trust
from tallystick.protocol.governance.plan_summary import summarise

NOBODY = Trust(makers=NoiseMakers(count=1, honest=1), facts=(("model", "gossip"),), words="holds.", maker="peer")
CLAIM = Claim(
    epsilon=5.0, delta=1e-6, neighbours="replace-one", mechanism="gaussian", rounds=1, trust=NOBODY, records=1000
)


def planned(claim: Claim = CLAIM, **options: Any) -> LocalPlan:
    given: dict[str, Any] = {"randomiser": "subset", "dimension": 9, "classes": 3, "public_words": public_words}
    return make_local_plan(claim, **{**given, **options})


def test_a_plan_is_pure_and_charged_as_such() -> None:
    plan = planned()
    assert (plan.claim.mechanism, plan.claim.delta) == ("subset", 0.0)
    assert plan.pure_epsilon == 5 and plan.rho == Fraction(25, 2)  # noqa: PT018
    assert plan.spent_epsilon() == 5.0
    assert plan.randomiser is not None
    assert plan.randomiser.pure_epsilon == 5
    charge = charge_of(bytes(32), plan)
    assert (charge.pure_epsilon, charge.neighbours) == (5, "replace-one")
    ledger = Ledger(Budget(epsilon=5.0))
    ledger.reserve(charge)
    with pytest.raises(PrivacyRefused, match="budget"):
        ledger.reserve(charge)
    assert summarise(plan)["privacy"]["mechanism"] == "subset"


@pytest.mark.parametrize(
    "randomiser, label", [("laplace", "per-class"), ("laplace", "sign"), ("laplace", "randomised")]
)
def test_laplace_costs_what_is_asked_for(randomiser: str, label: str) -> None:
    plan = planned(randomiser=randomiser, label=label)
    assert plan.randomiser is not None
    assert plan.randomiser.pure_epsilon == 5
    assert isinstance(plan.randomiser.vector, AddedNoise)
    copies = plan.randomiser.label.copies
    whole = copies * Fraction(2 * plan.randomiser.vector.bound) / plan.randomiser.vector.parameter
    assert whole + plan.randomiser.label.epsilon <= 5  # sensitivity over scale, all copies, and the label


def test_gaussian_noise_has_a_delta_and_pays_in_zcdp() -> None:
    plan = planned(randomiser="gaussian")
    assert plan.pure_epsilon is None
    assert plan.claim.delta == 1e-6
    spent = plan.spent_epsilon()
    assert spent is not None
    assert 4.9 < spent <= 5.0
    per_class = planned(randomiser="gaussian", label="per-class")
    assert per_class.randomiser is not None
    assert per_class.randomiser.moments.b > 2.9 * planned(randomiser="gaussian").randomiser.moments.b  # type: ignore[union-attr]


@pytest.mark.parametrize("randomiser", ["subset", "laplace", "gaussian"])
def test_a_person_with_several_records_pays_for_each_of_them(randomiser: str) -> None:
    claim = replace(CLAIM, unit="person", person="id", max_records=2, max_institutions=2, records=None)
    plan, alone = planned(claim, randomiser=randomiser), planned(randomiser=randomiser)
    assert plan.randomiser is not None and alone.randomiser is not None  # noqa: PT018
    if randomiser == "gaussian":
        assert plan.rho <= alone.rho * (1 + Fraction(1, 10**6))
        assert plan.randomiser.vector.rho * 4 == plan.rho  # type: ignore[union-attr]
    else:
        assert plan.randomiser.pure_epsilon == Fraction(5, 4)
        assert plan.pure_epsilon == 5
    assert plan.randomiser.moments.b > 2 * alone.randomiser.moments.b


def test_the_statement_says_local_and_gives_the_odds() -> None:
    words = state_privacy(planned()).statement
    assert "epsilon = 5 (pure)" in words
    assert "Nobody is trusted" in words
    assert "e^5 = 149 to 1" in words


def test_an_epsilon_above_ten_is_refused_unless_it_is_overridden_and_the_result_says_so() -> None:
    claim = replace(CLAIM, epsilon=10.5)
    with pytest.raises(PrivacyRefused, match="no protection") as refused:
        planned(claim)
    assert (refused.value.rule, refused.value.exit_code) == ("local-epsilon-means-something", 3)
    said = state_privacy(planned(claim, weak_epsilon=True))
    assert "OVERRIDDEN" in said.statement
    assert said.as_dict()["trust"]["weak_epsilon"] is True
    assert "weak_epsilon" not in state_privacy(planned(weak_epsilon=True)).as_dict()["trust"]


@pytest.mark.parametrize(
    "changed, rule",
    [
        ({"epsilon": 0.0}, "epsilon-is-positive-and-finite"),
        ({"epsilon": -1.0}, "epsilon-is-positive-and-finite"),
        ({"epsilon": float("nan")}, "epsilon-is-positive-and-finite"),
        ({"neighbours": "add-remove"}, "a-peer-is-seen"),
        ({"mechanism": "laplace"}, "randomiser-is-the-mechanism"),
        ({"parallel": True}, "a-record-is-published-once"),
        ({"sampling": 0.1}, "a-record-is-published-once"),
        ({"mechanism": "none"}, "no-noise-only-in-simulation"),
    ],
)
def test_claims_that_cannot_hold_are_refused(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(PrivacyRefused) as refused:
        planned(replace(CLAIM, **changed))
    assert refused.value.rule == rule


@pytest.mark.parametrize("randomiser, label", [("subset", "per-class"), ("gaussian", "randomised")])
def test_labels_that_do_not_go_with_the_randomiser_are_refused(randomiser: str, label: str) -> None:
    with pytest.raises(PrivacyRefused, match="does not go with"):
        planned(randomiser=randomiser, label=label)


def test_every_party_derives_the_same_plan() -> None:
    assert summarise(planned()) == summarise(planned())
    assert planned().noise_parameters() == planned().noise_parameters()


# -- bytes ---------------------------------------------------------------------------------------------------------

SHAPES = [
    RecordShape(classes=0, values=1, least=0, most=255),
    RecordShape(classes=7, values=3, least=0, most=4095),
    RecordShape(classes=300, values=1, least=0, most=65_535),
    RecordShape(classes=2, values=2, least=-(1 << 48), most=1 << 48),
]


@pytest.mark.parametrize("shape, size", list(zip(SHAPES, (1, 7, 4, 17))))
def test_a_record_takes_few_bytes(shape: RecordShape, size: int) -> None:
    assert shape.size == size


@given(st.sampled_from(SHAPES), st.data())
def test_bytes_are_canonical(shape: RecordShape, data: st.DataObject) -> None:
    label = data.draw(st.integers(0, max(0, shape.classes - 1)))
    values = tuple(
        data.draw(st.lists(st.integers(shape.least, shape.most), min_size=shape.values, max_size=shape.values))
    )
    record = PerturbedRecord(label, values)
    assert PerturbedRecord.from_bytes(record.to_bytes(shape), shape) == record


@given(st.sampled_from(SHAPES), st.binary(max_size=20))
def test_other_bytes_are_refused(shape: RecordShape, raw: bytes) -> None:
    try:
        found = PerturbedRecord.from_bytes(raw, shape)
    except RemoteProtocolError:
        found = None
    assert found is None or found.to_bytes(shape) == raw


def test_what_is_out_of_range_is_refused_both_ways() -> None:
    shape = SHAPES[1]
    good = PerturbedRecord(6, (1, 2, 4095)).to_bytes(shape)
    for bad in (b"\x07" + good[1:], good[:-1] + b"\x10", good + b"\0", good[:-1], b""):
        with pytest.raises(RemoteProtocolError):
            PerturbedRecord.from_bytes(bad, shape)
    for wrong in (PerturbedRecord(7, (1, 2, 3)), PerturbedRecord(0, (1, 2)), PerturbedRecord(0, (1, 2, 4096))):
        with pytest.raises(LocalProtocolError):
            wrong.to_bytes(shape)


def test_an_identity_is_the_records_own_and_says_nothing_of_it() -> None:
    made = {
        record_identity(study, peer, number)
        for study in (bytes(32), bytes([1]) * 32)
        for peer in ("a", "b")
        for number in (0, 1)
    }
    assert len(made) == 8
