"""Runs of the command line in this process, on a small study of made-up clinics."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.cli.main import main

STUDY = """
[study]
name = "illness"
version = 1
program = "logistic_regression"
target = "ill"
[program]
rounds = 3
[privacy]
epsilon = 10.0
delta = 1e-6
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
ill = { type = "category", values = ["no", "yes"] }
"""


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be one JSON document and nothing else."""
        return json.loads(self.out, parse_constant=_refuse)

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        found = self.json
        assert list(found) == ["error"]
        assert list(found["error"]) == ["code", "rule", "party", "round", "cause", "remedy"]
        assert found["error"]["code"] == self.code
        return dict(found["error"])


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def runner(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """``run("plan", "study.toml")`` in this process."""

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Run(int(left.value.code or 0), captured.out, captured.err)

    return run


def clinic(folder: Path, name: str = "clinic", records: int = 120, seed: int = 1) -> Path:
    """A CSV file of patients: id (two visits each), age, sex, site and whether ill."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 90, records)
    ill = np.where(age + rng.normal(0, 8, records) > 55, "yes", "no")
    sex, site = rng.choice(["f", "m"], records), rng.choice(["north", "south", "west"], records)
    path = folder / f"{name}.csv"
    lines = [f"p{i // 2},{a},{s},{where},{i_}" for i, (a, s, where, i_) in enumerate(zip(age, sex, site, ill))]
    path.write_text("\n".join(["id,age,sex,site,ill", *lines]) + "\n", encoding="utf-8")
    return path


def study_file(folder: Path, text: str = STUDY) -> Path:
    """The study beside its data."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path
