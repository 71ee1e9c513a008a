"""Hostile studies, too few clients and odd data through the command line: typed refusals, nothing half-done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import STUDY, Run, clinic, study_file

Runner = Callable[..., Run]

HOSTILE = [
    ("privacy.epsilon=0", "epsilon-is-positive-and-finite"),
    ("privacy.epsilon=-1", "epsilon-is-positive-and-finite"),
    ("privacy.epsilon=inf", "epsilon-is-positive-and-finite"),
    ("privacy.epsilon=nan", "epsilon-is-positive-and-finite"),
    ("privacy.epsilon=1e9", "epsilon-means-something"),
    ("privacy.epsilon=5e-324", "epsilon-is-not-vanishing"),
    ("privacy.epsilon=1e-200", "epsilon-is-not-vanishing"),
    ("privacy.epsilon=1e308", "epsilon-means-something"),
    ("privacy.delta=5e-324", "delta-is-not-vanishing"),
    ("privacy.delta=1e-200", "delta-is-not-vanishing"),
    ("privacy.delta=0", "delta-is-a-small-probability"),
    ("privacy.delta=-1e-6", "delta-is-a-small-probability"),
    ("privacy.delta=1", "delta-is-a-small-probability"),
    ("privacy.delta=nan", "delta-is-a-small-probability"),
    ("privacy.delta=0.5", "delta-below-one-record"),
    ("privacy.delta=0.00833333333333333333", "delta-below-one-record"),  # exactly 1/120
    ("program.rounds=0", "rounds-are-bounded"),
    ("program.rounds=-3", "rounds-are-bounded"),
    ("program.rounds=1000000000", "rounds-are-bounded"),
    ("program.rounds=1e9", "rounds-are-bounded"),
    ("program.rounds=nan", "rounds-are-bounded"),
    ("privacy.neighbours=same", "neighbours-are-named"),
    ("privacy.mechanism=uniform", "mechanism-is-known"),
    ("privacy.unit=family", "unit-is-known"),
    ("trust.servers=1", "two-servers-at-least"),
    ("trust.servers=256", "two-servers-at-least"),
    ("trust.colluding=2", "one-honest-server"),
    ("trust.colluding=-1", "one-honest-server"),
    ("trust.min_clients=1", "a-sum-of-one-hides-nothing"),
    ("trust.min_clients=0", "a-sum-of-one-hides-nothing"),
]


@pytest.mark.parametrize("setting, rule", HOSTILE)
def test_a_hostile_study_is_refused_with_the_rules_name(
    run: Runner, study: Path, data: Path, tmp_path: Path, setting: str, rule: str
) -> None:
    out = tmp_path / "out"
    done = run("simulate", study, "--data", data, "--set", setting, "--out", out, "--format", "json")
    assert done.code == 3
    assert done.error["rule"] == rule
    assert done.error["remedy"]
    assert not out.exists()
    planned = run("plan", study, "--records", 120, "--set", setting, "--format", "json")
    assert (planned.code, planned.error["rule"]) == (3, rule)


@pytest.mark.parametrize(
    "settings, rule",
    [
        (("privacy.mechanism=laplace",), "pure-epsilon-has-no-delta"),  # the study states a delta
        (("privacy.unit=person", 'privacy.person="id"', "privacy.max_records=0"), "person-caps-are-positive"),
        (("privacy.unit=person", 'privacy.person="id"', "privacy.max_institutions=0"), "person-caps-are-positive"),
    ],
)
def test_settings_that_contradict_each_other(
    run: Runner, study: Path, data: Path, settings: tuple[str, ...], rule: str
) -> None:
    changes = [word for s in settings for word in ("--set", s)]
    done = run("simulate", study, "--data", data, *changes, "--format", "json")
    assert (done.code, done.error["rule"]) == (3, rule)


@pytest.mark.parametrize(
    "setting, words",
    [
        ("data.columns.age.lower=200", "is above upper"),
        ("data.columns.age.lower=100", "age"),
        ("data.columns.age.upper=inf", "not finite"),
        ("data.columns.age.lower=nan", "not finite"),
        ("data.columns.age.bins=[50, 20]", "bins"),
        ('data.columns.sex.values=["f", "f"]', "'f'"),
        ("program.clip=-1", "clip"),
        ("program.clip=0", "clip"),
        ("program.clip=nan", "clip"),
        ("program.learning_rate=-0.1", "learning_rate"),
        ("program.l2=inf", "l2"),
        ("program.rounds=1.5", "rounds"),
        ("program.fit_intercept=False", "neither true nor false"),  # a text, and every text is true to Python
        ("program.standardise=no", "neither true nor false"),
        ("program.average=0", "neither true nor false"),
        ("data.records=-5", "data.records"),
        ("trust.round_timeout_s=1e308", "time limit"),
        ("trust.round_timeout_s=5e-324", "time limit"),
        ("data.records=4611686018427387904", "data.records"),
        ("program.clip=18446744073709551616", "program.clip"),
        ("privacy.epsilon=true", "where a number belongs"),
        ('privacy.epsilon="1"', "where a number belongs"),
        ("privacy.epsilon=1979-05-27", "privacy.epsilon"),
        ("program.clip=1979-05-27", "a date"),
        ("program.rounds=true", "rounds"),
        ("privacy.epsilon=" + "9" * 5000, "digits"),
        ("program.clip=" + "[" * 3000 + "]" * 3000, "nesting"),
        ("program." + "a." * 3000 + "a=1", "section.key=value"),
        ("study.name=\u202eevil", "U+202E"),
        ("study.name=in\u200bcome", "U+200B"),
        ("study.purpose=\u2066for ever", "U+2066"),
        ('study.purpose="\\u001b[2J"', "U+001B"),
        ("study.program=\u202esummary", "U+202E"),
        ('study.program="a\\u0000b.py"', "U+0000"),
        ("study.target=ill\u200b", "U+200B"),
        ('data.columns.sex.values=["f", "m\u202e"]', "U+202E"),
        ('data.columns.sex.merge="other\u202e"', "merge"),
        ('data.columns.e\u0301t={ type = "number", lower = 0, upper = 1 }', "is not allowed"),
        ('results.visible_to=["ana\u200b"]', "U+200B"),
        ('privacy.groups=[{ name = "moments\u200b", share = 1.0 }]', "U+200B"),
        ("trust.round_timeout_s=-1", "time limit"),
        ("trust.round_timeout_s=nan", "time limit"),
    ],
)
def test_impossible_values_are_exit_2(run: Runner, study: Path, data: Path, setting: str, words: str) -> None:
    done = run("simulate", study, "--data", data, "--set", setting, "--format", "json")
    assert done.code == 2
    assert words in done.error["cause"]


@pytest.mark.parametrize("shares, rule", [((0.7, 0.7), "shares-sum-to-one"), ((-1.0, 2.0), None)])
def test_shares_that_overspend(
    run: Runner, study: Path, data: Path, shares: tuple[float, float], rule: str | None
) -> None:
    groups = ", ".join(f'{{ name = "{n}", share = {s} }}' for n, s in zip(("moments", "gradient"), shares))
    done = run("simulate", study, "--data", data, "--set", f"privacy.groups=[{groups}]", "--format", "json")
    assert done.code in (2, 3)
    assert rule is None or done.error["rule"] == rule


def test_bounds_as_wide_as_floats_go(run: Runner, study: Path, data: Path) -> None:
    wide = ("--set", "data.columns.age.lower=-1e307", "--set", "data.columns.age.upper=1e307")
    assert run("simulate", study, "--data", data, *wide, "--format", "json").code == 0


def test_too_few_clients_release_nothing(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ("--clients", 2, "--set", "trust.min_clients=3")
    done = run("simulate", study, "--data", data, *few, "--out", out, "--format", "json")
    assert (done.code, done.error["rule"], done.error["round"]) == (4, "too-few-clients", 1)
    assert not out.exists()


def test_drop_outs_below_the_minimum(run: Runner, study: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(
        "simulate", study, "--data", data, "--clients", 4, "--drop", 0.9, "--seed", 1, "--out", out, "--format", "json"
    )
    assert (done.code, done.error["rule"]) == (4, "too-few-clients")
    assert done.error["round"] is not None
    assert not out.exists()


def test_files_without_records(run: Runner, study: Path, tmp_path: Path, data: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("id,age,sex,site,ill\n", encoding="utf-8")
    alone = run("simulate", study, "--data", empty, "--format", "json")
    assert alone.code == 2
    assert "no record" in alone.error["cause"]
    beside = run(
        "simulate", study, "--data", data, "--data", empty, "--data", clinic(tmp_path, "b"), "--format", "json"
    )
    assert beside.json["participants"]["clients"] == 3


def test_one_label_and_constant_columns(run: Runner, study: Path, tmp_path: Path) -> None:
    path = tmp_path / "same.csv"
    path.write_text("age,sex,ill\n" + "50,f,yes\n" * 60, encoding="utf-8")
    done = run("simulate", study, "--data", path, "--clients", 3, "--holdout", 0.2, "--seed", 1, "--format", "json")
    assert done.code == 0
    evaluation = done.json["simulation"]["evaluation"]
    assert evaluation["majority_accuracy"] == evaluation["baseline_accuracy"] == 1.0


# -- the other ways to run a study ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, facts",
    [
        (("privacy.neighbours=add-remove",), {"neighbours": "add-remove"}),
        (("trust.servers=3", "trust.colluding=1"), {}),
        (
            ("privacy.unit=person", "privacy.person=id", "privacy.max_records=2", "privacy.max_institutions=1"),
            {"unit": "person"},
        ),
    ],
)
def test_a_study_may_be_run_otherwise(
    run: Runner, study: Path, data: Path, settings: tuple[str, ...], facts: dict[str, str]
) -> None:
    changes = [word for s in settings for word in ("--set", s)]
    done = run("simulate", study, "--data", data, "--clients", 3, *changes, "--seed", 1, "--format", "json")
    assert done.code == 0
    assert {k: done.json["privacy"][k] for k in facts} == facts
    assert done.json["privacy"]["trust"]["honest"] == (2 if "trust.colluding=1" in settings else 1)


def test_a_study_may_be_pure(run: Runner, tmp_path: Path, data: Path) -> None:
    study = study_file(tmp_path, STUDY.replace("delta = 1e-6", 'mechanism = "laplace"'))
    done = run("simulate", study, "--data", data, "--clients", 3, "--seed", 1, "--format", "json")
    privacy = done.json["privacy"]
    assert (privacy["mechanism"], privacy["delta"], privacy["epsilon"]) == ("laplace", 0.0, 10.0)
    assert "(pure)" in privacy["statement"]
