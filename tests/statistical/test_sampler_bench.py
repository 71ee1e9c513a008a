"""``bench noise`` has the rows the contract names, and says so when opendp is absent."""

from __future__ import annotations

import pytest

from tallystick.bench import noise as bench_noise

CASES = ["laplace-1.5", "laplace-1e3", "laplace-1e6", "gaussian-1.5", "gaussian-1e3", "gaussian-1e6"]


def test_rows_with_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_noise, "_opendp", lambda law, scale: lambda size: sum(range(100 * size)))
    table = bench_noise.rows(quick=True)
    assert [row["case"] for row in table] == CASES
    for row in table:
        assert set(row) == {"case", "value", "unit", "reference", "ratio"}
        assert row["value"] > 0
        assert row["ratio"] > 0


def test_rows_without_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_noise, "_opendp", lambda law, scale: None)
    for row in bench_noise.rows(quick=True):
        assert row["reference"] is None
        assert row["ratio"] is None
        assert "opendp" in row["note"]
