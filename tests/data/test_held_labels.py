"""Labels and rows of people who are not there, or of whom a cell cannot be used: absent, and of neither class."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.trust.learners_deployment import RECORDS, frames, study

from tallystick.core.errors import DataError
from tallystick.data.held_columns import read_held


def test_who_has_no_label_that_can_be_used_is_of_neither_class() -> None:
    wanted, frame = study("held"), frames()["clinic"]
    rows = np.arange(len(frame))
    held = read_held(wanted, "clinic", frame, rows, lenient=True)
    bad = frame.with_row_index().filter(pl.col("dose").is_null() | pl.col("ill").is_null())["index"].to_list()
    labels = held.labels
    assert labels is not None
    assert len(bad) == 2
    assert set(np.flatnonzero(labels == 0).tolist()) == set(bad)  # and not -1, the first class
    known = [i for i in range(len(frame)) if i not in bad]
    assert [labels[i] for i in known] == [1.0 if frame["ill"][i] == "yes" else -1.0 for i in known]
    wider = held.among(len(frame) + 5)
    assert (wider.labels == np.append(labels, np.zeros(5))).all()
    assert (wider.features[-5:] == 0).all()
    assert (wider.features[: len(frame)] == held.features).all()
    assert read_held(wanted, "bank", frames()["bank"], rows[:3], lenient=True).labels is None


def test_more_people_than_the_study_states_are_refused() -> None:
    held = read_held(study("held"), "bank", frames()["bank"], np.arange(45), lenient=True)
    with pytest.raises(DataError) as caught:
        held.among(RECORDS)
    assert caught.value.rule == "records-as-stated"
