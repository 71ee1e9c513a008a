"""PEM's figures: pooled runs are the product's bits, noises add up, roles are timed, files are written."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.pem_role_times import measure_round
from benchmarks.pem_runs import data_file, noise_of, pooled

from benchmarks import pem_figures as bench
from benchmarks import pem_time_figure
from tallystick.application.simulation import simulate
from tallystick.application.study_files import load_study
from tallystick.application.synthetic_records import made_up_table
from tallystick.core.errors import DataError
from tallystick.crypto.prg import AesStream

EXAMPLES = Path(__file__).parents[2] / "examples"


def made_up(tmp_path: Path, study: str, rows: int = 600) -> Path:
    import pyarrow.parquet as pq

    path = tmp_path / "made-up.parquet"
    pq.write_table(made_up_table(load_study(EXAMPLES / study)[0], rows), path)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("clients", [1, 7])
def test_a_pooled_run_is_the_simulation_to_the_bit(tmp_path: Path, clients: int) -> None:
    data = made_up(tmp_path, "nursery.toml")
    settings = ("study.accept_noise=true", "program.rounds=3", "privacy.epsilon=4")  # less is all shrunk away
    here = pooled(EXAMPLES / "nursery.toml", data, settings=settings, seed=5)
    done = simulate(EXAMPLES / "nursery.toml", data=(data,), clients=clients, seed=5, settings=settings)
    assert here["loss"] == done["simulation"]["evaluation"]["loss"]
    other = pooled(EXAMPLES / "nursery.toml", data, settings=settings, seed=6)
    assert here["loss"] != other["loss"]


def test_folds_are_those_of_the_simulation(tmp_path: Path) -> None:
    data = made_up(tmp_path, "adult_pem.toml")
    settings = ("program.rounds=2",)
    folds = [pooled(EXAMPLES / "adult_pem.toml", data, settings=settings, fold=i, folds=3) for i in range(3)]
    done = simulate(EXAMPLES / "adult_pem.toml", data=(data,), clients=4, seed=1, folds=3, settings=settings)
    assert np.mean([f["accuracy"] for f in folds]) == done["simulation"]["evaluation"]["accuracy"]


def fake_plan(scale: int, size: int) -> Any:
    noise = SimpleNamespace(group=SimpleNamespace(size=size), parameter=Fraction(scale), variance=2.0 * scale**2)
    return SimpleNamespace(mechanism="laplace", noise=(noise,))


@pytest.mark.parametrize("noises", [1, 2, 32, 100, 1000])
def test_n_noises_have_n_times_the_variance(noises: int) -> None:
    sources: list[Any] = [AesStream(bytes([i]) * 32) for i in range(32)]
    drawn = noise_of(fake_plan(1000, 20_000), noises, sources)
    assert np.var(drawn) == pytest.approx(noises * 2e6, rel=0.06)
    # The law: a Laplace alone has an excess kurtosis of 3, the sum of n of them 3/n.
    kurtosis = np.mean(drawn**4.0) / np.var(drawn) ** 2 - 3
    assert kurtosis == pytest.approx(3 / noises, abs=0.6 if noises == 1 else 0.3)


def test_a_round_is_charged_to_its_roles() -> None:
    few, many = measure_round(5, 3, repeat=1), measure_round(50, 3, repeat=1)
    assert (few.clients, many.clients, many.dimension) == (5, 50, 3)
    assert few.client_bytes == many.client_bytes
    # Bytes are exact: a server's and the aggregator's grow by the same amount with every further client.
    middle = measure_round(20, 3, repeat=1)
    for part in ("server_bytes", "aggregator_bytes"):
        low, mid, high = (getattr(c, part) for c in (few, middle, many))
        assert (mid - low) / 15 == pytest.approx((high - mid) / 30, rel=0.1)
    assert all(seconds > 0 for name, seconds in vars(many).items() if name.endswith("seconds"))


def test_quick_writes_every_file_and_goes_on_where_it_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.main(["--quick", "--out", str(tmp_path), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    cases = [row["case"] for row in result["rows"]]
    assert {"2a ours e=1", "2b noise-only n=40 e=1", "2c ours e=10", "3a server-time", "3c computation"} <= set(cases)
    assert all(set(row) == {"case", "value", "unit", "reference", "ratio"} for row in result["rows"])
    table = read(tmp_path / "pem-quick-figure-2.csv")
    assert {r["approach"] for r in table} == {"no privacy", "noise-only", "ours", "PEM"}
    assert {(r["figure"], r["runs"]) for r in table} == {("2a", "2"), ("2b", "2"), ("2c", "2")}
    assert len(read(tmp_path / "pem-quick-figure-3.csv")) == 6
    for name in ("figure-2a", "figure-2b", "figure-2c", "figure-3"):
        assert ElementTree.parse(tmp_path / f"pem-quick-{name}.svg").getroot().tag.endswith("svg")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a finished run was run again")

    monkeypatch.setattr(bench, "pooled", never)
    monkeypatch.setattr(pem_time_figure, "measure_round", never)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert bench.main(["--quick", "--out", str(tmp_path)]) == 0
    assert "3a server-time" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written  # plots too, to the byte
    (tmp_path / "pem-quick-figures-runs.csv").write_text("figure\n2\n", encoding="utf-8")
    with pytest.raises(Exception, match="is not a list of runs"):
        bench.figure_2(True, tmp_path)
    (tmp_path / "pem-quick-figure-3.csv").write_text("figure\n2\n", encoding="utf-8")
    with pytest.raises(Exception, match="is not a table of rounds"):
        pem_time_figure.figure_3(True, tmp_path)


def test_absent_data_are_said_to_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"adult\.parquet is not here.*--quick needs none") as failed:
        data_file("adult.parquet")
    assert failed.value.rule == "bench-data"
    with pytest.raises(DataError, match="is not here"):
        bench.rows(False, tmp_path / "out")
    assert bench.main(["--out", str(tmp_path / "out")]) == 2
    assert "is not here" in capsys.readouterr().err
