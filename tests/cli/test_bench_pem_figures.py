"""``bench pem-figures``: pooled runs are the product's bits, noises add up, roles are timed, files are written."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks import pem_figures as bench
from benchmarks.pem_role_times import measure_round
from benchmarks.pem_runs import data_file, noise_of, pooled
from benchmarks.svg_plot import Panel, chart
from cli_runs import Run

from tallystick.application.simulation import simulate
from tallystick.application.study_files import load_study
from tallystick.application.synthetic_records import made_up_table
from tallystick.core.errors import DataError
from tallystick.crypto.prg import AesStream
from tallystick.study import Study

Runner = Callable[..., Run]
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
    settings = ("study.accept_noise=true", "program.rounds=3")
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
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("bench", "pem-figures", "--quick", "--out", tmp_path, "--format", "json").json
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
    bench.figure_2(True, tmp_path)
    assert read(tmp_path / "pem-quick-figure-2.csv") == table
    (tmp_path / "pem-quick-figures-runs.csv").write_text("figure\n2\n", encoding="utf-8")
    with pytest.raises(Exception, match="is not a list of runs"):
        bench.figure_2(True, tmp_path)


def test_absent_data_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"adult\.parquet is not here.*--quick needs none") as failed:
        data_file("adult.parquet")
    assert failed.value.rule == "bench-data"
    with pytest.raises(DataError, match="is not here"):
        bench.rows(False, tmp_path / "out")


def test_made_up_records_fit_their_columns() -> None:
    study = Study.parse(
        """
        [study]
        name = "baskets"
        version = 1
        program = "summary"
        [privacy]
        epsilon = 1.0
        unit = "person"
        person = "who"
        max_records = 2
        [data.columns]
        age = { type = "integer", lower = 3, upper = 5 }
        dose = { type = "number", lower = -1.5, upper = 2 }
        bought = { type = "items", vocabulary = ["a", "b", "c"], max_per_record = 2 }
        """
    )
    table = made_up_table(study, 200).to_pydict()
    assert set(table["age"]) == {3, 4, 5}
    assert -1.5 <= min(table["dose"]) < -1 < 1.5 < max(table["dose"]) <= 2
    assert {len(set(b)) for b in table["bought"]} == {0, 1, 2} == {len(b) for b in table["bought"]}
    assert {x for b in table["bought"] for x in b} == {"a", "b", "c"}
    assert len(set(table["who"])) == 100
    assert made_up_table(study, 200).to_pydict() == table != made_up_table(study, 200, seed=2).to_pydict()


def test_a_chart_puts_larger_values_higher() -> None:
    panel = Panel(
        title="<a & b>", x="x", y="y", lines={"one": [(1, 1.0), (10, 100.0)], "zero": [(1, -3.0)]}, log_y=True
    )
    root = ElementTree.fromstring(chart([panel], caption="c"))
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles[0][0] < circles[1][0]
    assert circles[0][1] > circles[1][1]
    assert circles[2][1] > circles[0][1]  # below the least value of a logarithmic axis: drawn there
    flat = Panel(title="", x="", y="", lines={"flat": [(1, 2.0), (2, 2.0)]})
    assert "nan" not in chart([flat], caption="")
