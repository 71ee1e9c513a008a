"""What a proxy's plan says, and when it is refused. Its bits are those of every trust model: ``test_same_bits``."""

from __future__ import annotations

from typing import Any

import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.gaussian_curve import gaussian_rho


def frames() -> list[dict[str, Any]]:
    return [{"x": [0.1 * i, -0.5, 0.3], "y": ["a", "b", "a"]} for i in range(4)]


def federation(**trust: Any) -> ts.Federation:
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    return ts.Federation.simulate(frames(), schema=schema, trust="proxy", seed=1, **trust)


@pytest.mark.filterwarnings("ignore")
def test_the_plan_sets_a_thousandth_of_delta_aside_and_prints_the_bound() -> None:
    model = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=3).fit(federation(), target="y")
    (note,) = [n for n in model.plan_.notes if "drowned" in n]
    assert "1 + e^epsilon" in note
    assert "bits of noise budget are left" in note
    assert model.plan_.rho <= gaussian_rho(1.0, 0.999e-6) < gaussian_rho(1.0, 1e-6)
    assert model.privacy_.trust == {"model": "proxy", "scheme": "bfv", "max_clients": 1000, "honest": 1}
    assert "do not collude" in model.privacy_.statement
    packed = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=3).fit(federation(scheme="paillier"), target="y")
    assert packed.plan_.rho > model.plan_.rho  # it has no error to hide, and all of delta for its noise
    assert packed.plan_.notes == ()
    for fitted in (model, packed):  # what is planned travels, beside heads of messages
        planned = fitted.study_.trust_model.upload_bytes(fitted.study_.trust, fitted.plan_, records=12)
        rounds = len(fitted.history_)
        assert planned * rounds < fitted.cost_["bytes_up_per_client"] < planned * rounds + 4000 * rounds


@pytest.mark.filterwarnings("ignore")
def test_pure_epsilon_needs_a_scheme_without_errors() -> None:
    pure = ts.LogisticRegression(epsilon=5.0, mechanism="laplace", rounds=2)
    with pytest.raises(PrivacyRefused) as error:
        pure.fit(federation(), target="y")
    assert error.value.rule == "flooding-needs-delta"
    model = pure.fit(federation(scheme="paillier"), target="y")
    assert model.privacy_.noise_std["total"] == pytest.approx(model.privacy_.noise_std["per_party"] * 2**0.5)


@pytest.mark.filterwarnings("ignore")
def test_a_noise_budget_that_is_used_up_is_refused_before_anything_is_encrypted() -> None:
    fed = federation()
    fed.trust["max_clients"] = 100_000
    with pytest.raises(ts.StudyError) as error:
        ts.LogisticRegression(epsilon=1.0, delta=1e-60, rounds=3).fit(fed, target="y")
    assert error.value.rule == "homomorphic-headroom"
    assert "paillier" in (error.value.remedy or "")
    fed.trust["max_clients"] = 1
    with pytest.raises((PrivacyRefused, ts.StudyError)) as refused:
        ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=3).fit(fed, target="y")
    assert refused.value.rule == "max-clients"


@pytest.mark.filterwarnings("ignore")
def test_an_absent_institution_is_left_out() -> None:
    fed = federation(drop=0.3, min_clients=2)
    model = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=4).fit(fed, target="y")
    assert any(model.dropped_)
