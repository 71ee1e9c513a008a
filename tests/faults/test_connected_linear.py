"""A connected federation: fit, evaluate, regress and summarise over mutual TLS, each party a process of its own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from consortium_fixture import Parties

import tallystick as ts

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
SCHEMA = ts.Schema(
    {"x": ts.Number(0, 100), "g": ts.Category(["a", "b"]), "y": ts.Category(["no", "yes"]), "c": ts.Number(0, 400)}
)


def people(n: int = 600) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, n)
    return {
        "x": x,
        "g": rng.choice(["a", "b"], n),
        "y": np.where(x + rng.normal(0, 8, n) > 50, "yes", "no"),
        "c": np.clip(3 * x + rng.normal(0, 20, n), 0, 400),
    }


def test_a_model_is_fitted_and_evaluated_where_the_records_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = people()
    files = [tmp_path / f"hospital-{i}.parquet" for i in range(3)]
    for i, file in enumerate(files):
        pd.DataFrame({k: v[i::3] for k, v in data.items()}).to_parquet(file)
    parties = Parties(tmp_path / "linear", files=files)
    with contextlib.closing(parties):
        parties.start()
        fed = ts.Federation.connect(parties.home / "consortium.toml", schema=SCHEMA, records=600)
        parties.accept(ts.Summary(epsilon=0.3).study_for(fed))  # all columns, whatever a study uses them for
        model = ts.LinearSVC(epsilon=0.5, delta=1e-6, rounds=3).fit(
            fed, target="y", features=["x", "g"], name="who is ill", purpose="whom to invite"
        )
        assert (model.study_.study.name, model.study_.study.purpose) == ("who is ill", "whom to invite")
        told = capsys.readouterr().err
        assert "proposed 'who is ill'" in told
        assert "3 approved" in told
        assert "round 4 of 4" in told
        kernel = ts.LogisticRegression(epsilon=0.1, delta=1e-6, feature_map="rbf", n_features=16, rounds=2).fit(
            fed, target="y", features=["x", "g"]
        )
        assert kernel.coef_.shape == (1, 16)  # mapped where the records are
        found = ts.evaluate(model, fed, target="y", epsilon=0.3, delta=1e-6)
        exact = float(np.mean(model.predict({k: data[k] for k in ("x", "g")}) == data["y"]))
        assert abs(found.accuracy - exact) < 5 * found.accuracy_std
        assert found.contributors == ("client-1", "client-2", "client-3")
        ridge = ts.Ridge(epsilon=0.5, delta=1e-6).fit(fed, target="c", features=["x", "g"])
        assert np.isfinite(ridge.coef_).all()
        rows = ts.Summary(epsilon=0.3, delta=1e-6, columns=["x"]).fit(fed).table_
        mean = next(r for r in rows if r["statistic"] == "mean")
        assert abs(mean["estimate"] - data["x"].mean()) < 5 * mean["standard_error"]
        axes = ts.PCA(1, epsilon=0.3, delta=1e-6).fit(fed, features=["x", "g"])
        assert np.linalg.norm(axes.components_[0]) == pytest.approx(1)
        assert fed.spent.fits == 6
