"""``tallystick simulate``: the result's shape, every option, exit codes and error objects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import STUDY, Run, clinic, study_file

import tallystick as ts
from tallystick.core.version import __version__

Runner = Callable[..., Run]

SHAPE: dict[str, Any] = {
    "schema": "tallystick/result/1",
    "version": __version__,
    "kind": "simulation",
    "study": {"name": str, "hash": str, "program": str},
    "privacy": {
        "epsilon": float,
        "delta": float,
        "neighbours": str,
        "unit": str,
        "mechanism": str,
        "rho": float,
        "rounds": int,
        "noise_std": {"per_server": float, "total": float},
        "trust": {"model": str, "servers": int, "colluding": int, "honest": int},
        "differentially_private": bool,
        "statement": str,
    },
    "participants": {"clients": int, "min_clients": int, "dropped": [{"round": int, "names": [str]}]},
    "model": {"type": str, "coef": [[float]], "intercept": [float], "classes": [str], "features": [str]},
    "cost": {"seconds": float, "rounds": int, "bytes_up_per_client": int, "bytes_down_per_client": int},
    "simulation": {
        "seed": int,
        "records": int,
        "not_for_release": True,
        "evaluation": {
            "method": str,
            "fraction": float,
            "accuracy": float,
            "f1_macro": float,
            "baseline_accuracy": float,
            "majority_accuracy": float,
        },
    },
}


def differences(found: Any, shape: Any, path: str = "result") -> list[str]:
    """Where a document departs from a shape: other keys, other types, other constants."""
    if isinstance(shape, dict):
        if not isinstance(found, dict) or list(found) != list(shape):
            return [f"{path}: keys {list(found)} where the contract has {list(shape)}"]
        return [d for key in shape for d in differences(found[key], shape[key], f"{path}.{key}")]
    if isinstance(shape, list):
        if not isinstance(found, list):
            return [f"{path}: not a list"]
        return [d for i, item in enumerate(found) for d in differences(item, shape[0], f"{path}[{i}]")]
    if isinstance(shape, type):
        return [] if type(found) is shape else [f"{path}: {found!r} is not a {shape.__name__}"]
    return [] if found == shape else [f"{path}: {found!r} where the contract has {shape!r}"]


def test_the_result_has_exactly_the_contracts_shape(run: Runner, study: Path, data: Path) -> None:
    done = run("simulate", study, "--data", data, "--clients", 4, "--holdout", 0.25, "--seed", 1, "--format", "json")
    assert (done.code, done.err) == (0, "")
    result = done.json
    assert differences(result, SHAPE) == []
    assert re.fullmatch("sha256:[0-9a-f]{64}", result["study"]["hash"])
    assert result["participants"] == {"clients": 4, "min_clients": 3, "dropped": [{"round": 1, "names": []}]}
    assert result["cost"]["rounds"] == result["privacy"]["rounds"] == 4
    assert result["simulation"]["records"] == 120
    assert result["model"]["classes"] == ["no", "yes"]
    assert result["model"]["features"] == ["age", "sex=f", "sex=m"]


def test_the_shape_test_can_fail() -> None:
    assert differences({"a": 1}, {"a": float}) == ["result.a: 1 is not a float"]
    assert differences({"a": 1, "b": 2}, {"a": int}) != []
    assert differences({"a": [{"b": "x"}, {"b": 0}]}, {"a": [{"b": str}]}) == ["result.a[1].b: 0 is not a str"]
    assert differences("one", "two") != []


def test_the_same_seed_gives_the_same_model_for_any_number_of_clients(run: Runner, study: Path, data: Path) -> None:
    models = []
    for clients in (1, 3, 40):
        done = run(
            "simulate", study, "--data", data, "--clients", clients, "--seed", 7, "--holdout", 0.1, "--format", "json"
        )
        models.append(done.json["model"])
    assert models[0] == models[1] == models[2]
    other = run("simulate", study, "--data", data, "--seed", 8, "--holdout", 0.1, "--format", "json").json["model"]
    assert other != models[0]


def test_without_a_seed_two_runs_differ(run: Runner, study: Path, data: Path) -> None:
    first, second = (run("simulate", study, "--data", data, "--format", "json").json for _ in range(2))
    assert first["model"]["coef"] != second["model"]["coef"]
    assert first["simulation"]["seed"] is None
    assert first["study"] == second["study"]


def test_folds_replace_the_holdout(run: Runner, study: Path, data: Path) -> None:
    done = run("simulate", study, "--data", data, "--folds", 3, "--seed", 1, "--format", "json")
    evaluation = done.json["simulation"]["evaluation"]
    assert evaluation["method"] == "folds"
    assert evaluation["folds"] == 3
    assert 0 <= evaluation["accuracy"] <= 1
    both = run("simulate", study, "--data", data, "--folds", 3, "--holdout", 0.1, "--format", "json")
    assert both.code == 2
    assert "at once" in both.error["cause"]


def test_without_an_evaluation_there_is_none(run: Runner, study: Path, data: Path) -> None:
    assert "evaluation" not in run("simulate", study, "--data", data, "--format", "json").json["simulation"]


def test_several_files_are_several_clients(run: Runner, study: Path, tmp_path: Path) -> None:
    files = [clinic(tmp_path, name, seed=i) for i, name in enumerate(("north", "south", "west", "east"))]
    arguments = [word for file in files for word in ("--data", file)]
    done = run("simulate", study, *arguments, "--drop", 0.3, "--seed", 4, "--set", "trust.min_clients=2")
    assert done.code == 0
    done = run(
        "simulate", study, *arguments, "--drop", 0.3, "--seed", 4, "--set", "trust.min_clients=2", "--format", "json"
    )
    dropped = done.json["participants"]["dropped"]
    assert done.json["participants"]["clients"] == 4
    assert {name for d in dropped for name in d["names"]} <= {"north", "south", "west", "east"}
    assert any(d["names"] for d in dropped)
    refused = run("simulate", study, *arguments, "--clients", 3, "--format", "json")
    assert refused.code == 2
    assert "One file is one client" in refused.error["remedy"]


@pytest.mark.parametrize(
    "partition, clients, expected", [("column:site", None, 3), ("column:sex", None, 2), ("dirichlet:0.5", 5, 5)]
)
def test_partitions(run: Runner, study: Path, data: Path, partition: str, clients: int | None, expected: int) -> None:
    count = [] if clients is None else ["--clients", clients]
    done = run("simulate", study, "--data", data, "--partition", partition, *count, "--seed", 1, "--format", "json")
    assert done.json["participants"]["clients"] == expected
    even = run("simulate", study, "--data", data, "--seed", 1, "--format", "json")
    assert done.json["model"] == even.json["model"]  # who holds a record does not matter


@pytest.mark.parametrize("partition", ["column:nowhere", "dirichlet:-1", "dirichlet:x", "halves", "column:"])
def test_impossible_partitions(run: Runner, study: Path, data: Path, partition: str) -> None:
    done = run("simulate", study, "--data", data, "--clients", 3, "--partition", partition, "--format", "json")
    assert done.code == 2
    assert done.error["remedy"]


def test_set_changes_the_study(run: Runner, study: Path, data: Path) -> None:
    changes = ("privacy.epsilon=2.5", "privacy.neighbours=add-remove", "program.rounds=2", "trust.servers=3")
    settings = [word for change in changes for word in ("--set", change)]
    result = run("simulate", study, "--data", data, *settings, "--format", "json").json
    assert result["privacy"]["epsilon"] == 2.5
    assert result["privacy"]["neighbours"] == "add-remove"
    assert result["privacy"]["rounds"] == 3
    assert result["privacy"]["trust"] == {"model": "servers", "servers": 3, "colluding": 2, "honest": 1}
    plain = run("simulate", study, "--data", data, "--format", "json").json
    assert plain["study"]["hash"] != result["study"]["hash"]


def test_out_holds_the_whole_result(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    done = run("simulate", study, "--data", data, "--out", out, "--format", "json")
    assert [p.name for p in out.iterdir()] == ["result.json"]
    written = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert set(written.pop("fitted")) == {"study", "program", "state", "contributors"}  # what ts.load needs besides
    assert written == done.json
    blocked = run("simulate", study, "--data", data, "--out", data, "--format", "json")
    assert blocked.code == 2
    assert "cannot write" in blocked.error["cause"]


def test_a_refused_study_leaves_no_result(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert run("simulate", study, "--data", data, "--out", out, "--set", "privacy.epsilon=0").code == 3
    assert not out.exists()


def test_the_words_for_people(run: Runner, study: Path, data: Path) -> None:
    done = run("simulate", study, "--data", data, "--clients", 3, "--holdout", 0.2, "--seed", 1)
    assert done.code == 0
    for words in (
        "illness: logistic_regression over 3 client(s)",
        "accuracy",
        "epsilon = 10, delta = 1e-06",
        "traffic",
    ):
        assert words in done.out
    assert "Differentially private with epsilon = 10" in done.out


def test_without_noise_the_result_says_so(run: Runner, study: Path, data: Path) -> None:
    changes = ("--set", "privacy.mechanism=none")
    result = run("simulate", study, "--data", data, *changes, "--format", "json").json
    assert result["privacy"]["differentially_private"] is False
    assert result["privacy"]["epsilon"] is None
    assert result["privacy"]["statement"].startswith("NOT differentially private")
    assert result["privacy"]["noise_std"] == {"per_server": 0.0, "total": 0.0}
    text = run("simulate", study, "--data", data, *changes).out
    assert "NOT differentially private" in text
    assert "privacy spent" not in text


def test_a_hopeless_study_is_refused_unless_noise_is_accepted(run: Runner, study: Path, data: Path) -> None:
    changes = ("--set", "privacy.epsilon=0.01")
    refused = run("simulate", study, "--data", data, *changes, "--format", "json")
    assert refused.code == 3
    assert refused.error["rule"] == "result-above-noise"
    with pytest.warns(ts.PrivacyWarning, match="little but noise"):
        done = run("simulate", study, "--data", data, *changes, "--set", "study.accept_noise=true", "--format", "json")
    assert done.code == 0
    assert "noise" in done.json["noise_warning"]


# -- what is wrong with the study or the data: exit 2 -----------------------------------------------------------------


@pytest.mark.parametrize(
    "setting, rule, words",
    [
        ("privacy.epsilom=1", "unknown-key", "Did you mean 'epsilon'?"),
        ("program.round=1", "unknown-key", "Did you mean 'rounds'?"),
        ("trust.min_client=3", "unknown-key", "Did you mean 'min_clients'?"),
        ("data.columns.age.uper=3", "unknown-key", "Did you mean 'upper'?"),
        ("study.program=logistic_regresion", "unknown-program", "Did you mean 'logistic_regression'?"),
        ("study.program=absent.py", "unknown-key", "class constants"),
        ("privacy.epsilon=much", "wrong-value", "JSON Schema"),
        ("trust.model=hope", "wrong-value", "JSON Schema"),
        ('trust.model=["servers"]', "wrong-value", "There are: gossip, masks, parties, proxy, servers"),
        ("trust.model=gossip", "TrustModelError", "It runs under: masks, proxy, servers"),
        ("study.target=age", "target-is-a-category", "declare this one as a category"),
        ("study.target=il", "StudyError", "ill"),
        ("data.columns.age.lower=101", "BoundsError", "Exchange them"),
        ("data.columns.sex.values=[]", "BoundsError", "at least one public value"),
        ("privacy.unit=person", "StudyError", "person ="),
        ("data.records=0", "wrong-value", "JSON Schema"),
        ("program.clip=-1", "StudyError", "positive number for clip"),
        ("epsilon=1", "StudyError", "section.key=value"),
        ("study.name.first=1", "StudyError", "is a value, not a table"),
    ],
)
def test_a_wrong_study_is_exit_2(run: Runner, study: Path, data: Path, setting: str, rule: str, words: str) -> None:
    done = run("simulate", study, "--data", data, "--set", setting, "--format", "json")
    assert done.code == 2
    assert done.error["rule"] == rule
    assert words in f"{done.error['cause']} {done.error['remedy']}"
    assert "Traceback" not in done.err


def test_an_absent_column_is_exit_2_and_named(run: Runner, tmp_path: Path, data: Path) -> None:
    study = study_file(tmp_path, STUDY + 'smoker = { type = "category", values = ["yes", "no"] }\n')
    done = run("simulate", study, "--data", data, "--format", "json")
    assert (done.code, done.error["party"]) == (2, "clinic.csv")
    assert "'smoker'" in done.error["cause"]


def test_columns_the_study_does_not_name_are_ignored(run: Runner, study: Path, data: Path) -> None:
    features = run("simulate", study, "--data", data, "--format", "json").json["model"]["features"]
    assert not [f for f in features if f.startswith(("id", "site"))]


@pytest.mark.parametrize(
    "text, words",
    [
        ("[study\n", "not valid TOML"),
        ("", "'study' is missing"),
        ('[study]\nname = "x"\n', "'study.program' is missing"),
        ('[study]\nname = ""\nprogram = "logistic_regression"\n', "study.name"),
        ('[study]\nname = "x"\nprogram = "logistic_regression"\n', "no feature column"),
    ],
)
def test_a_broken_study_file(run: Runner, tmp_path: Path, data: Path, text: str, words: str) -> None:
    done = run("simulate", study_file(tmp_path, text), "--data", data, "--format", "json")
    assert done.code == 2
    assert words in done.error["cause"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--data", "absent.csv"),
        ("--clients", "0"),
        ("--clients", "few"),
        ("--holdout", "1.5"),
        ("--folds", "1"),
        ("--drop", "1"),
        ("--seed", str(2**255)),
        ("--colour", "red"),
        ("--format", "xml"),
    ],
)
def test_wrong_usage_is_exit_2(run: Runner, study: Path, data: Path, arguments: tuple[str, ...]) -> None:
    done = run("simulate", study, "--data", data, "--format", "json", *arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_an_absent_study_is_exit_2(run: Runner, tmp_path: Path) -> None:
    done = run("simulate", tmp_path / "absent.toml", "--format=json")
    assert (done.code, done.error["rule"]) == (2, "StudyError")


def test_errors_for_people_go_to_stderr(run: Runner, study: Path, data: Path) -> None:
    done = run("simulate", study, "--data", data, "--set", "privacy.epsilon=0")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("tallystick: epsilon = 0")
    assert "[epsilon-is-positive-and-finite]" in done.err


def test_a_bug_is_exit_1(run: Runner, study: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("0/0 with a secret in it")

    monkeypatch.setattr("tallystick.application.simulation.simulate", broken)
    done = run("simulate", study, "--data", data, "--format", "json")
    assert (done.code, done.error["cause"]) == (1, "ZeroDivisionError: this is a bug")


def test_an_interruption_is_exit_130(run: Runner, study: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tallystick.application.simulation.simulate", interrupted)
    assert run("simulate", study, "--data", data, "--format", "json").code == 130
