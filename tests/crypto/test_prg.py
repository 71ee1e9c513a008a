"""Keystream and seed expansion: equal to one-shot AES, chunk edges, forced rejection, contexts that separate."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import crypto_reference as reference
import numpy as np
import pytest
import sharing
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto import field, prg

SEED = bytes(range(32))
CHUNK = 32 * 1024  # words in the 256 KB that are made at a time


class InjectedKeystream:
    """Keystream with chosen words, to reach what AES gives once in 2^32 words."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, dtype=np.uint64)
        self.reads: list[int] = []

    def read_into(self, buffer: NDArray[np.uint64], count: int) -> None:
        at = sum(self.reads)
        if at + count > self._words.size:
            raise EOFError("the test's keystream is used up")
        buffer[:count] = self._words[at : at + count]
        self.reads.append(count)


def ordinary_words(count: int) -> list[int]:
    return np.random.default_rng(7).integers(0, P, count, dtype=np.uint64).tolist()


@settings(deadline=None, max_examples=30)
@given(seed=st.binary(min_size=32, max_size=32), context=st.binary(max_size=50), counts=st.lists(st.integers(0, 50)))
def test_the_stream_is_one_shot_aes_however_it_is_read(seed: bytes, context: bytes, counts: list[int]) -> None:
    stream = prg.AesStream(seed, context)
    got = [word for count in counts for word in stream.words(count).tolist()]
    assert got == reference.keystream(seed, context, sum(counts))


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_the_stream_across_chunks(count: int) -> None:
    stream = prg.AesStream(Secret(SEED), b"c")
    assert [*stream.words(count).tolist(), *stream.words(3).tolist()] == reference.keystream(SEED, b"c", count + 3)


def test_bytes_come_from_whole_words() -> None:
    stream = prg.AesStream(SEED)
    assert [stream.bytes(n) for n in (3, 8, 0, 33)] == reference.source_bytes(SEED, b"", [3, 8, 0, 33])


def test_words_belong_to_the_caller() -> None:
    stream = prg.AesStream(SEED)
    first = stream.words(4)
    kept = first.tolist()
    stream.words(4)
    assert first.tolist() == kept
    first[:] = 0
    assert stream.words(2).tolist() == reference.keystream(SEED, b"", 10)[8:]


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), "x" * 32])
def test_a_seed_has_32_bytes(seed: bytes) -> None:
    for use in (prg.AesStream, prg.derive, lambda s: sharing.expand(s, 1, b"")):
        with pytest.raises(LocalProtocolError, match="32 bytes"):
            use(seed)


def test_misuse_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="negative"):
        prg.AesStream(SEED).words(-1)
    with pytest.raises(LocalProtocolError, match="too short"):
        prg.AesStream(SEED).read_into(np.zeros(5, dtype=np.uint64), 4)
    read_only = np.zeros(3, dtype=np.uint64)
    read_only.flags.writeable = False
    with pytest.raises(LocalProtocolError, match="read-only"):
        prg.add_expanded(read_only, SEED, b"")


@settings(deadline=None, max_examples=30)
@given(seed=st.binary(min_size=32, max_size=32), context=st.binary(max_size=50), size=st.integers(0, 300))
def test_expansion_equals_the_reference(seed: bytes, context: bytes, size: int) -> None:
    assert sharing.expand(seed, size, context).tolist() == reference.expand(seed, size, context)


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 77])
def test_expansion_across_chunks_is_the_uniform_vector_of_its_stream(size: int) -> None:
    vector = sharing.expand(SEED, size, b"here")
    stream = prg.AesStream(SEED, digest(b"tallystick/expand/v1", b"here"))
    assert np.array_equal(vector, field.uniform(size, stream))
    assert vector.tolist() == reference.expand(SEED, size, b"here")


@settings(deadline=None, max_examples=20)
@given(values=st.lists(st.integers(0, P - 1), min_size=1, max_size=200), context=st.binary(max_size=20))
def test_add_and_subtract_of_an_expansion(values: list[int], context: bytes) -> None:
    acc = np.array(values, dtype=np.uint64)
    mask = reference.expand(SEED, len(values), context)
    prg.add_expanded(acc, SEED, context)
    assert acc.tolist() == [(a + b) % P for a, b in zip(values, mask)]
    prg.subtract_expanded(acc, Secret(SEED), context)
    prg.subtract_expanded(acc, SEED, context)
    assert acc.tolist() == [(a - b) % P for a, b in zip(values, mask)]


def test_contexts_and_seeds_separate() -> None:
    contexts = [b"", b"a", b"b", b"ab", b"a" + (0).to_bytes(4, "little"), b"a" + (1).to_bytes(4, "little")]
    vectors = [sharing.expand(seed, 16, context).tolist() for context in contexts for seed in (SEED, SEED[::-1])]
    elements = {element for vector in vectors for element in vector}
    assert len(elements) == 16 * len(vectors)
    assert prg.AesStream(SEED, b"a").words(16).tolist() not in vectors


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(
    "rejected",
    [
        [0],
        [CHUNK - 1],
        [CHUNK],
        [CHUNK - 1, CHUNK],
        [5, 6, 7, 8000, 20000, 20001, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK],
        [2 * CHUNK + 99],
        [2 * CHUNK + 98, 2 * CHUNK + 99, 2 * CHUNK + 100, 2 * CHUNK + 102, 2 * CHUNK + 103],
        list(range(CHUNK)),
    ],
    ids=["first", "chunk-end", "chunk-start", "both", "many", "last", "last-repeatedly", "whole-chunk"],
)
def test_forced_rejection(rejected: list[int], negate: bool) -> None:
    size = 2 * CHUNK + 100
    stream = ordinary_words(size + CHUNK + 50)
    for turn, where in enumerate(rejected):
        stream[where] = [P, 2**64 - 1, P + 1][turn % 3]
    start = ordinary_words(size)[::-1]
    acc = np.array(start, dtype=np.uint64)
    keystream = InjectedKeystream(stream)
    prg.accumulate(acc, keystream, negate=negate)
    kept = reference.keep_below_p(stream, size)
    sign = -1 if negate else 1
    assert acc.tolist() == [(a + sign * b) % P for a, b in zip(start, kept)]
    assert sum(keystream.reads) == stream.index(kept[-1]) + 1  # and not a word more


def test_forced_rejection_can_fail() -> None:
    """The oracle tells rejection from the usual mistakes: reducing mod p, and leaving a gap."""
    stream = [1, P + 5, 3, 4]
    reduced = [word % P for word in stream][:3]
    gap = [word if word < P else 0 for word in stream][:3]
    assert reference.keep_below_p(stream, 3) == [1, 3, 4]
    assert reference.keep_below_p(stream, 3) not in (reduced, gap)


def test_derived_keys() -> None:
    keys = {prg.derive(SEED, *labels) for labels in [(), (b"",), (b"a",), (b"a", b"b"), (b"ab",), (b"a", b"", b"b")]}
    assert len(keys) == 6
    assert {len(key) for key in keys} == {32}
    assert prg.derive(Secret(SEED), b"a", b"b") == reference.derive(SEED, b"a", b"b")


def test_system_streams_differ() -> None:
    assert prg.system_stream().words(4).tolist() != prg.system_stream().words(4).tolist()


@pytest.mark.parametrize("show", [repr, str, "{}".format])
def test_a_stream_does_not_show_its_key(show: Callable[[object], str]) -> None:
    assert show(prg.AesStream(SEED)) == "AesStream(32-byte key)"
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(prg.AesStream(SEED))
