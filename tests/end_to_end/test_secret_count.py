"""Under add-remove the number of records is secret: nothing released may depend on it but through noise."""

from __future__ import annotations

import numpy as np
import pytest

import tallystick as ts

SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})


def fitted(records: int, neighbours: str) -> ts.LogisticRegression:
    x = np.linspace(-1, 1, records)
    frame = {"x": x, "y": np.where(x > 0, "b", "a").astype(object)}
    fed = ts.Federation.simulate([{k: v[i::3] for k, v in frame.items()} for i in range(3)], schema=SCHEMA, seed=1)
    return ts.LogisticRegression(epsilon=1.0, delta=1e-6, neighbours=neighbours, rounds=4).fit(fed, target="y")


def said(model: ts.LogisticRegression) -> tuple[object, ...]:
    """Everything released that is not a noisy number."""
    return model.study_.canonical(), model.privacy_, model.plan_.claim, model.n_iter_, model.contributors_


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_one_record_more_is_not_to_be_read_off_an_add_remove_study() -> None:
    assert said(fitted(300, "add-remove")) == said(fitted(301, "add-remove"))


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_under_replace_one_the_count_is_public_and_stated() -> None:
    assert fitted(300, "replace-one").study_.data.records == 300
