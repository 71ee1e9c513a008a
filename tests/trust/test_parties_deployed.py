"""Draws between real processes: governed, charged, receipted; a party killed before a draw, and in the middle of one.

One deployment for all tests here, in order; the last ones disturb it most.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trust.parties_deployment import PARTIES, Deployment, study

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.result_document import write_canonical
from tallystick.core.errors import RoundAborted, VerificationError
from tallystick.study import Study

MODE, MEDIAN = 'column = "blood"', 'q = [0.5]\ncolumn = ["age"]\nmethod = "exponential"'


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("parties"))
    made.start()
    made.connected()
    yield made
    made.close()


def test_it_is_governed_charged_and_receipted(deployment: Deployment, tmp_path: Path) -> None:
    asked = study("blood", "mode", MODE)
    deployment.approve(asked)
    shown = json.dumps(studies.show(asked.printed_hash, deployment.analyst))
    assert "step 1 draws one of 4 places and costs epsilon = 0.99" in shown
    thread, made = deployment.run(asked)
    thread.join(60)
    assert "result" in made, deployment.log()
    result = made["result"]
    assert result["model"]["mode"] in ("0", "A", "B", "AB")
    assert result["privacy"]["mechanism"] == "exponential"
    assert "semi-honest" in result["privacy"]["statement"]
    file = write_canonical(result, tmp_path, "result.json")
    found = study_results.verify(file, deployment.home / "consortium.toml")
    assert found["sound"]
    assert found["noise_recomputed"]
    assert deployment.charged(asked) == ["committed"] * 3
    # The receipt holds what was drawn and its exact cost; another cost in it is found.
    text = file.read_text()
    assert '"weights":"sha256:' in text.replace("\\", "").replace(" ", "")
    other = tmp_path / "other.json"
    other.write_text(text.replace('\\"clamp\\":', '\\"clamp\\":1').replace('"clamp":', '"clamp":1'))
    with pytest.raises(VerificationError):
        study_results.verify(other, deployment.home / "consortium.toml")


def test_counts_are_compared_with_a_threshold(deployment: Deployment, tmp_path: Path) -> None:
    raw = study("above", "above_threshold", 'column = "blood"\nthreshold = 20\nmost = 2').model_dump()
    raw["privacy"]["mechanism"] = "laplace"
    raw["study"]["accept_noise"] = True  # 45 and 30 of 90 records, noise of some ten
    asked = Study.from_dict(raw)
    deployment.approve(asked)
    thread, made = deployment.run(asked)
    thread.join(60)
    assert "result" in made, deployment.log()
    model = made["result"]["model"]
    assert len(model["above"]) <= 2
    assert {value for _, value in model["above"]} <= {"0", "A", "B", "AB"}
    file = write_canonical(made["result"], tmp_path, "result.json")
    assert study_results.verify(file, deployment.home / "consortium.toml")["noise_recomputed"]
    assert ts.load(file, consortium=deployment.home / "consortium.toml").above_ == [tuple(p) for p in model["above"]]
    other = tmp_path / "other.json"  # a receipt that claims another threshold is found out
    other.write_text(
        file.read_text().replace('\\"threshold\\":20', '\\"threshold\\":21').replace('"threshold":20', '"threshold":21')
    )
    with pytest.raises(VerificationError):
        study_results.verify(other, deployment.home / "consortium.toml")


def test_groups_are_drawn_for_in_one_round(deployment: Deployment) -> None:
    """Counts of the groups, then draws for all of them at once; few records, so most groups have no value."""
    asked = study("groups", "quantiles", 'q = [0.5]\ncolumn = ["age"]\nby = "blood"\nmethod = "exponential"')
    deployment.approve(asked)
    thread, made = deployment.run(asked)
    thread.join(60)
    assert "result" in made, deployment.log()
    table = made["result"]["model"]["table"]
    assert [row["group"] for row in table] == ["0", "A", "B", "AB"]
    assert all(row["estimate"] is None or 0 <= row["estimate"] <= 120 for row in table)
    assert deployment.charged(asked) == ["committed"] * 3


def test_counts_and_draws_in_one_study_and_a_party_killed_before_the_draw(deployment: Deployment) -> None:
    deployment.restart("party-2", point="agreement-kept")
    asked = study("age", "quantiles", MEDIAN)
    deployment.approve(asked)
    thread, made = deployment.run(asked)
    deployment.died("party-2")
    deployment.restart("party-2")
    thread.join(90)
    assert "result" in made, deployment.log()
    assert 0 <= made["result"]["model"]["table"][0]["estimate"] <= 120
    assert deployment.charged(asked) == ["committed"] * 3


def test_nothing_that_was_drawn_from_is_on_a_disk(deployment: Deployment) -> None:
    looked = 0
    for name in PARTIES:
        noted = deployment.configs[name][1].parent / "secrets-noted"
        secrets = [bytes.fromhex(line) for line in noted.read_text().split()]
        assert len(secrets) >= 4
        for file in deployment.state(name).rglob("*"):
            if file.is_file():
                held = file.read_bytes()
                looked += 1
                assert not any(secret in held for secret in secrets), file
    assert looked


def test_a_party_killed_in_the_middle_of_a_draw_never_draws_again(deployment: Deployment) -> None:
    deployment.restart("party-2", point="draw-message-sent")
    noted = deployment.configs["party-2"][1].parent / "secrets-noted"
    asked = study("killed", "mode", MODE)
    deployment.approve(asked)
    thread, made = deployment.run(asked)
    deployment.died("party-2")
    began = noted.read_text()
    deployment.restart("party-2")
    since = time.monotonic()
    thread.join(60)
    assert isinstance(made.get("error"), RoundAborted), deployment.log()
    assert made["error"].rule == "draw-failed"
    assert "never made twice" in made["error"].cause
    assert time.monotonic() - since < 30
    assert deployment.charged(asked) == ["released"] * 3  # reserved and let out: it stays charged
    assert noted.read_text() == began  # neither its word nor its share was used a second time
    thread, again = deployment.run(asked)  # asked again, the same study has the same end
    thread.join(60)
    assert "draw-failed" in str(again.get("error"))
    assert noted.read_text() == began


def test_a_restored_copy_of_a_party_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    state, old, newest = deployment.state("party-3"), tmp_path / "old", tmp_path / "newest"

    def swapped(keep: Path, put: Path) -> None:
        deployment.kill("party-3")
        shutil.copytree(state, keep)
        shutil.rmtree(state)
        shutil.copytree(put, state)
        deployment.restart("party-3")

    deployment.kill("party-3")
    shutil.copytree(state, old)
    deployment.restart("party-3")
    for name, put in (("met", None), ("copied", old)):  # its peers meet the start after the copy, then the copy's
        if put is not None:
            swapped(newest, put)
        asked = study(name, "mode", MODE)
        deployment.approve(asked)
        thread, made = deployment.run(asked)
        thread.join(90)
        assert ("error" in made) == (put is not None), made
    assert made["error"].rule == "stale-server"
    swapped(tmp_path / "copy", newest)


def test_a_silent_party_is_given_up_in_bounded_time(deployment: Deployment) -> None:
    deployment.restart("party-2", point="draw-message-sent:freeze")
    asked = study("frozen", "mode", MODE, timeout=8)
    deployment.approve(asked)
    since = time.monotonic()
    thread, made = deployment.run(asked)
    thread.join(60)
    assert isinstance(made.get("error"), RoundAborted), deployment.log()
    assert (made["error"].rule, made["error"].party) == ("draw-failed", "party-2")
    assert "silent" in made["error"].cause
    assert time.monotonic() - since < 45
    assert deployment.charged(asked) == ["released"] * 3
