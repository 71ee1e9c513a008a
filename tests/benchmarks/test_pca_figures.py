"""The PCA paper's figures: baselines are what they say, plots are their tables, everything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pca_baselines import central_analyze_gauss, gaussian_multiplier, passed_along, without_privacy

from benchmarks import pca_f1, pca_figures


def test_the_multiplier_is_that_of_the_exact_curve() -> None:
    """Balle and Wang's δ at the σ that is found, by integrating the densities."""
    epsilon, delta = 0.7, 1e-4
    sigma = gaussian_multiplier(epsilon, delta)
    x = np.linspace(-12 * sigma, 12 * sigma, 400_001)
    one, other = (np.exp(-((x - c) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi)) for c in (0.0, 1.0))
    assert np.trapezoid(np.maximum(other - np.exp(epsilon) * one, 0), x) == pytest.approx(delta, rel=1e-3)


def test_baselines_find_the_components_where_there_is_no_noise_to_speak_of() -> None:
    rows = pca_figures.generated(4000, 12, 2.0)
    best = without_privacy(rows, 3)
    central = central_analyze_gauss(rows, 3, epsilon=50.0, delta=1e-6, rng=np.random.default_rng(1))
    passed, seconds = passed_along(rows, 3, 4, epsilon=50.0, delta=1e-6, rng=np.random.default_rng(1))
    assert seconds > 0
    for found in (central, passed):
        assert np.linalg.svd(found @ best.T)[1].min() > 0.99


def test_generated_rows_have_the_spectrum_that_is_stated() -> None:
    rng = np.random.default_rng(0)
    rows = pca_figures.generated(20_000, 8, 1.0) * np.linalg.norm(rng.normal(size=(20_000, 8)), axis=1)[:, None]
    values = np.sort(np.linalg.eigvalsh(rows.T @ rows))[::-1]
    assert np.diff(values).max() < 0
    assert 0.7 < np.log(values[0] / values[-1]) / np.log(8) < 1.05  # scaled to length 1 it is flatter than 1/j


def test_f1_of_projected_rows() -> None:
    split = pca_figures.made_up()
    f1, precision, recall = pca_f1.f1_of(split, None)
    assert min(f1, precision, recall) > 0.8
    assert pca_f1.f1_of(split, np.eye(20)[-1:])[0] < f1


def test_a_quick_run_writes_tables_and_plots(tmp_path: Path) -> None:
    assert pca_figures.main(["--quick", "--out", str(tmp_path)]) == 0
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(written) == sorted(f"pca-figure-{n}.{kind}" for n in (3, 4, 5) for kind in ("csv", "svg"))
    pca_figures.main(["--quick", "--out", str(tmp_path)])  # nothing is left to run: the same bytes
    assert written == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    cells = (tmp_path / "pca-figure-4.csv").read_text(encoding="utf-8").splitlines()
    ours = [line.split(",", 3)[3] for line in cells if "two servers" in line]
    assert len(ours) == 2
    assert ours[0] == ours[1]  # however many records an owner holds


def test_the_plots_are_those_of_the_tables(tmp_path: Path) -> None:
    for number in pca_figures.FIGURES:
        name = f"pca-figure-{number}.csv"
        (tmp_path / name).write_bytes((pca_figures.RESULTS / name).read_bytes())
    pca_figures.draw(tmp_path)
    for number in pca_figures.FIGURES:
        name = f"pca-figure-{number}.svg"
        assert (tmp_path / name).read_bytes() == (pca_figures.RESULTS / name).read_bytes(), (
            f"{name}: run `make figures`"
        )
