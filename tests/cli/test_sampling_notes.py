"""``tallystick plan`` of a sampled study says what sampling does to the noise, in text and in JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import STUDY, Run, study_file

Runner = Callable[..., Run]
ADD_REMOVE = STUDY.replace("delta = 1e-6\n", 'delta = 1e-6\nneighbours = "add-remove"\n')


@pytest.mark.parametrize("rates", ["0.1", "{ no = 0.02, yes = 0.1 }"])  # the larger rate is charged
def test_the_ratio_is_noted(run: Runner, tmp_path: Path, rates: str) -> None:
    sampled = study_file(tmp_path, ADD_REMOVE.replace("rounds = 3", "rounds = 50"))
    whole = run("plan", sampled, "--records", 2000, "--format", "json").json
    assert not any("sampled" in note for note in whole["notes"])
    sampled.write_text(sampled.read_text().replace("[data.columns]", f"sampling = {rates}\n[data.columns]"))
    made = run("plan", sampled, "--records", 2000, "--format", "json").json
    note = next(note for note in made["notes"] if "sampled at 0.1" in note)
    ratio = float(re.findall(r"is ([\d.]+) times", note)[0])
    last = -1  # the rounds of descent, which have the same bound in both
    noise = [m["rounds"][last]["noise_std_total"] / m["rounds"][last]["bound"] for m in (made, whole)]
    shares = [m["rounds"][last]["rho"] / m["privacy"]["rho"] for m in (made, whole)]
    assert ratio == pytest.approx(noise[0] / 0.1 / noise[1] * (shares[0] / shares[1]) ** 0.5, rel=0.01)
    assert ratio > 1
    assert note in run("plan", sampled, "--records", 2000).out
