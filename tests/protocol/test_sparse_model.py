"""A model on its way: every bit comes back, one encoding each, and nothing is made of what does not fit."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sum_examples import STUDY, opening, parameters

from tallystick.core.errors import RemoteProtocolError
from tallystick.protocol.instructions import Compute
from tallystick.protocol.secure_sum import decode, encode
from tallystick.protocol.secure_sum.client import ClientMachine
from tallystick.protocol.sparse_model import expand, sparse_parts, travelling_bytes

AWKWARD = [0x8000000000000000, 0x7FF8000000000001, 0xFFF0000000000000, 0x7FF0000000000000, 1, 2**64 - 1]
"""As bits: −0.0, a NaN with a payload, −∞, ∞, the smallest number, a NaN of all ones."""
WORDS = st.one_of(st.just(0), st.just(0), st.just(0), st.sampled_from(AWKWARD), st.integers(0, 2**64 - 1))
MODELS = st.lists(WORDS, max_size=40).map(lambda words: struct.pack(f"<{len(words)}Q", *words))


def written(model: bytes) -> bytes | None:
    """The sparse form by its description, entry by entry."""
    entries = [(i, model[8 * i : 8 * i + 8]) for i in range(len(model) // 8) if any(model[8 * i : 8 * i + 8])]
    raw = struct.pack("<I", len(entries)) + b"".join(struct.pack("<I", i) for i, _ in entries)
    raw += b"".join(entry for _, entry in entries)
    return raw if len(raw) < len(model) else None


@settings(deadline=None, max_examples=400)
@given(model=MODELS)
def test_every_bit_comes_back_and_the_shorter_form_is_the_one(model: bytes) -> None:
    parts = sparse_parts(model)
    expected = written(model)
    assert (None if parts is None else b"".join(parts)) == expected
    assert travelling_bytes(model) == len(model if expected is None else expected)
    if expected is not None:
        assert expand(memoryview(expected), len(model)) == model


@settings(deadline=None, max_examples=300)
@given(model=MODELS)
def test_a_message_carries_the_dense_model_whatever_travelled(model: bytes) -> None:
    message = opening(parameters(), model=model)
    raw = encode(message)
    assert decode(raw) == message
    dense = len(encode(replace(message, model=b"\x01" * len(model))))
    assert len(raw) == dense - len(model) + travelling_bytes(model)


@settings(deadline=None, max_examples=600)
@given(
    indices=st.lists(st.integers(0, 12), max_size=8),
    entries=st.lists(WORDS, max_size=8),
    count=st.integers(0, 9),
    size=st.integers(0, 120),
)
def test_what_expands_is_what_would_have_been_written(indices: list[int], entries: list[int], count: int, size: int):
    raw = struct.pack("<I", count) + struct.pack(f"<{len(indices)}I", *indices)
    raw += struct.pack(f"<{len(entries)}Q", *entries)
    try:
        model = expand(memoryview(raw), size)
    except RemoteProtocolError:
        return
    assert len(model) == size
    assert written(model) == raw


@pytest.mark.parametrize("value", [-0.0, float("nan"), float("inf")])
def test_only_plus_zero_is_left_out(value: float) -> None:
    model = np.array([0.0] * 9 + [value]).tobytes()
    raw = b"".join(sparse_parts(model) or [])
    assert len(raw) == 16
    assert expand(memoryview(raw), 80) == model


def test_a_model_of_odd_length_travels_as_it_is() -> None:
    for model in (b"", b"\0", bytes(7), bytes(801)):
        assert sparse_parts(model) is None
        assert travelling_bytes(model) == len(model)
        message = opening(parameters(), model=model)
        assert decode(encode(message)) == message


def test_a_short_message_does_not_become_a_long_model() -> None:
    """The study's limit holds for what a message stands for, before anything of that size is made."""
    p = parameters(model_size=1000)
    longer = encode(opening(p, model=bytes(8 * 4_000_000)))
    assert len(longer) < 100
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(longer, limit=p.message_limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refusal.value.rule == "too-long"
    assert peak < 50_000
    assert decode(longer).model == bytes(8 * 4_000_000)  # for a party that states no limit


def test_a_client_computes_at_the_same_model_and_binds_the_same_hash() -> None:
    model = np.zeros(100)
    model[7] = 2.5
    p = parameters(model_size=100)
    message = opening(p, model=model.tobytes())
    raw = encode(message)
    assert len(raw) < 150
    (step,) = ClientMachine(p, "c1").receive_bytes("aggregator", raw, 0.0)
    assert isinstance(step, Compute)
    assert step.model == model.tobytes()
    assert message.study_hash == STUDY


def test_a_client_refuses_a_sparse_model_that_is_not_finite_or_too_short() -> None:
    """What the machines check is the dense model, as before."""
    for model, cause in (
        (np.array([0.0] * 99 + [np.nan]), "NaN or infinity"),
        (np.zeros(99), "bytes instead of"),
    ):
        p = parameters(model_size=100)
        out = ClientMachine(p, "c1").receive_bytes("aggregator", encode(opening(p, model=model.tobytes())), 0.0)
        assert not any(isinstance(step, Compute) for step in out)
        assert any(cause in getattr(getattr(step, "message", None), "cause", "") for step in out)
