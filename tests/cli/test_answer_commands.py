"""The answer on the screen, in a file and loaded again: one table, the same model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from cli_runs import STUDY, Run, clinic

import tallystick as ts
from tallystick.application.result_document import readable, write_csv
from tallystick.application.studies.views import if_a_party_is_lost
from tallystick.engines import designs
from tallystick.estimators.answer import Answer

Runner = Callable[..., Run]
PROGRAM = """
import numpy as np
import tallystick as ts

class CountRecords(ts.Program):
    bound = 1.0
    def init(self, public):
        return np.zeros(1)
    def map_in_client(self, record, state):
        out = np.zeros(1)
        out[0] = 1.0
        return out
    def reduce_in_aggregator(self, total, state):
        return total
"""
NO_TARGET = STUDY.replace('target = "ill"\n', "").replace("rounds = 3\n", "")
STUDIES = {
    "LogisticRegression": STUDY,
    "LinearSVC": STUDY.replace("logistic_regression", "linear_svc"),
    "Ridge": STUDY.replace("logistic_regression", "ridge")
    .replace('"ill"', '"age"')
    .replace("rounds = 3", "alpha = 2.0"),
    "KMeans": NO_TARGET.replace("logistic_regression", "kmeans").replace("[program]", "[program]\nn_clusters = 2"),
    "GaussianNB": STUDY.replace("logistic_regression", "gaussian_nb").replace("rounds = 3\n", ""),
    "GaussianMixture": NO_TARGET.replace("logistic_regression", "gaussian_mixture").replace(
        "[program]", "[program]\nn_components = 2"
    ),
    "PCA": NO_TARGET.replace("logistic_regression", "pca").replace("[program]", "[program]\nn_components = 2"),
    "TruncatedSVD": NO_TARGET.replace("logistic_regression", "truncated_svd"),
    "Pipeline": STUDY.replace("logistic_regression", "pipeline").replace(
        "rounds = 3", 'steps = [{ program = "pca" }, { program = "logistic_regression", rounds = 3 }]'
    ),
    "FrequentItemsets": NO_TARGET.replace("logistic_regression", "frequent_itemsets"),
    "Summary": NO_TARGET.replace("logistic_regression", "summary"),
    "CountRecords": NO_TARGET.replace("logistic_regression", "count.py"),
}


@pytest.mark.parametrize("kind", STUDIES)
def test_an_answer_is_printed_written_and_loaded(run: Runner, tmp_path: Path, kind: str) -> None:
    (tmp_path / "study.toml").write_text(STUDIES[kind])
    (tmp_path / "count.py").write_text(PROGRAM)
    out, csv = tmp_path / "out", tmp_path / "answer.csv"
    data = clinic(tmp_path, records=300)
    words = ("simulate", tmp_path / "study.toml", "--data", data, "--clients", 3, "--seed", 1)
    done = run(*words, "--out", out, "--csv", csv)
    assert done.code == 0, done.err
    model = ts.load(out / "result.json")
    written = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert model.model_document() == written["model"]
    assert model.privacy_.as_dict() == written["privacy"]
    assert model.answer().text() in done.out
    assert all(note.split()[0] in done.out for note in model.answer().notes)
    frame = model.to_frame()
    assert csv.read_text(encoding="utf-8") == frame.write_csv()
    assert ts.load(out).model_document() == written["model"]  # the folder will do
    if hasattr(model, "predict_encoded"):
        table = pl.read_csv(data)
        assert len(model.predict(table)) == 300
        assert (ts.load(out).predict(table) == model.predict(table)).all()


def test_a_loaded_model_predicts_as_the_one_that_was_fitted(
    run: Runner, study: Path, data: Path, tmp_path: Path
) -> None:
    run("simulate", study, "--data", data, "--seed", 7, "--out", tmp_path)
    table = pl.read_csv(data)
    schema = ts.Study.parse(study.read_text()).schema_of_data()
    fed = ts.Federation.simulate([table], schema=schema, seed=7)
    fitted = ts.LogisticRegression(epsilon=10.0, delta=1e-6, rounds=3)
    fitted.fit_study(fed, ts.Study.parse(study.read_text()))
    loaded: Any = ts.load(tmp_path / "result.json")
    assert np.array_equal(loaded.predict_proba(table), fitted.predict_proba(table))
    assert loaded.contributors_ == fitted.contributors_
    found = ts.evaluate(loaded, ts.Federation.simulate([table], schema=schema, seed=8), target="ill", epsilon=5.0)
    assert 0 <= found.accuracy <= 1


def test_what_is_no_result_is_not_loaded(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ts.StudyError, match="not a result"):
        ts.load(study)
    printed = run("simulate", study, "--data", data, "--format", "json").json
    (tmp_path / "printed.json").write_text(json.dumps(printed))
    with pytest.raises(ts.StudyError, match="simulate --out"):
        ts.load(tmp_path / "printed.json")
    receipt = tmp_path / "receipt.json"
    receipt.write_text('{"schema": "tallystick/receipt/1"}')
    with pytest.raises(ts.StudyError, match="it is a receipt"):
        ts.load(receipt)


def test_a_picture_is_drawn_or_the_way_to_one_is_told(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ("simulate", study, "--data", data, "--seed", 1, "--plot")
    assert run(*words, tmp_path / "answer.svg").code == 0
    drawn = (tmp_path / "answer.svg").read_text()
    assert "<svg" in drawn
    refused = run(*words, tmp_path / "answer.gif")
    assert refused.code == 2
    assert ".png, .svg or .pdf" in refused.err


def test_a_readable_value_has_one_text() -> None:
    value = {"b": [1, 2.5, "x"], "a": {"z": [], "y": [[1], [2]], "x": {}}, "c": [{"k": None}]}
    text = readable(value)
    assert json.loads(text) == value
    assert text.startswith('{\n  "a": {\n    "x": {},\n    "y": [\n      [1],\n      [2]\n    ],\n    "z": []\n  },')
    assert readable(json.loads(text)) == text
    assert readable(dict(reversed(value.items()))) == text


# -- files of a stranger -----------------------------------------------------------------------------------------------


@pytest.fixture
def own_program(run: Runner, tmp_path: Path) -> dict[str, Any]:
    """The result of a simulated study with a program file."""
    (tmp_path / "study.toml").write_text(STUDIES["CountRecords"])
    (tmp_path / "count.py").write_text(PROGRAM)
    words = ("simulate", tmp_path / "study.toml", "--data", clinic(tmp_path, records=60), "--clients", 3)
    assert run(*words, "--out", tmp_path).code == 0
    return dict(json.loads((tmp_path / "result.json").read_text(encoding="utf-8")))


def no_code_here(*_arguments: Any) -> None:
    raise AssertionError("a stranger's code runs in this process")


def test_to_load_a_result_runs_no_program_in_this_process(
    own_program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(designs, "load_program", no_code_here)
    loaded: Any = ts.load(tmp_path / "result.json")
    assert loaded.model_document() == own_program["model"]  # its author's name for it, too
    study = ts.Study.from_dict(own_program["fitted"]["study"])
    proposal: Any = SimpleNamespace(body={"study": study.canonical(), "program": own_program["fitted"]["program"]})
    assert if_a_party_is_lost(proposal) != ""  # what a steward reads of a study that nobody has approved yet


@pytest.mark.parametrize(
    ("key", "value"), [("rounds", 10**15), ("rounds", -1), ("rounds", "1e9"), ("min_clients", 1e308), ("state", "AAAA")]
)
def test_a_made_up_result_neither_fills_the_memory_nor_fails_unnamed(
    own_program: dict[str, Any], tmp_path: Path, key: str, value: Any
) -> None:
    table = next(own_program[t] for t in ("cost", "participants", "fitted") if key in own_program[t])
    table[key] = value if key != "min_clients" else [value]
    (tmp_path / "hostile.json").write_text(json.dumps(own_program))
    with pytest.raises(ts.TallystickError):
        ts.load(tmp_path / "hostile.json")


def test_a_spreadsheet_finds_no_formula_in_a_table(tmp_path: Path) -> None:
    formula = "=1+cmd()"
    rows = [{"name": text, formula: -1.5} for text in (formula, "@SUM(1)", "-1+cmd", "-1.5", "age")]
    write_csv(Answer.of(rows), tmp_path / "answer.csv")
    read = pl.read_csv(tmp_path / "answer.csv", infer_schema=False)
    assert read.columns == ["name", f"'{formula}"]
    assert read["name"].to_list() == [f"'{formula}", "'@SUM(1)", "'-1+cmd", "-1.5", "age"]
    assert read[f"'{formula}"].to_list() == ["-1.5"] * 5
