"""Tests here draw noise from a seeded stream, a new one for every use: none passes or fails by luck."""

from __future__ import annotations

import itertools

import pytest

import tallystick.engines.federation as federation
from tallystick.crypto.prg import AesStream, derive


@pytest.fixture
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stream is another one, the same in every run of the tests."""
    numbers = itertools.count()

    def stream() -> AesStream:
        return AesStream(derive(bytes(32), b"tests/estimators", next(numbers).to_bytes(8, "little")))

    monkeypatch.setattr(federation, "system_stream", stream)


@pytest.fixture
def equal_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit draws the same noise, as if a simulation were seeded: what is random otherwise becomes comparable."""

    def stream(self: federation.SimulatedFederation, *labels: bytes) -> AesStream:
        return AesStream(derive(bytes(32), b"tests/equal-noise", *labels[1:]))  # labels[0] is the study's hash

    monkeypatch.setattr(federation.SimulatedFederation, "_stream", stream)
