"""Frequent itemsets between real processes: the sets of the simulation under the same seed, by either method."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from consortium_fixture import RECORDS, SCHEMA, Parties

import tallystick as ts


@pytest.mark.parametrize("method", ["levels", "basis"])
def test_real_processes_find_the_sets_of_the_simulation(parties: Parties, method: str) -> None:
    parties.start()

    def fitted(fed: Any) -> ts.FrequentItemsets:
        model = ts.FrequentItemsets(0.05, epsilon=1.0, method=method, classes=3)  # what clients allow by default
        study = model.study_for(parties.federation(), target=None, features=None, name="sets")
        parties.accept(study)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit_study(fed, study.replace("data", records=RECORDS))

    real = fitted(parties.federation())
    again = fitted(ts.Federation.simulate(parties.frames, names=parties.clients, schema=SCHEMA, seed=parties.seed))
    assert len(real.itemsets_) > 2, parties.logs()
    assert [items for items, _ in real.itemsets_] == [items for items, _ in again.itemsets_]
    assert [x for _, x in real.itemsets_] == pytest.approx([x for _, x in again.itemsets_], abs=1e-9)
    assert real.n_iter_ == again.n_iter_ > 1
    assert real.privacy_.epsilon == again.privacy_.epsilon
