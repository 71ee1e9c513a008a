"""Field vectors: arithmetic, refusal in the sender's name, signed integers, canonical bytes, uniform elements."""

from __future__ import annotations

import numpy as np
import pytest
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto import field, kernels

canonical = hnp.arrays(np.uint64, st.integers(1, 300), elements=st.integers(0, P - 1))
signed = hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(-field.HALF, field.HALF))


class ListedWords:
    """A source that gives the words it was told to, and remembers how many were asked for."""

    def __init__(self, words: list[int]) -> None:
        self._words = words
        self.asked: list[int] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        self.asked.append(count)
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError


def test_constants() -> None:
    assert field.MODULUS == P == 2**64 - 2**32 + 1
    assert field.HALF == 2**63 - 2**31 == (P - 1) // 2


@settings(deadline=None, max_examples=40)
@given(a=canonical, data=st.data())
def test_add_subtract_and_their_oracle(a: NDArray[np.uint64], data: st.DataObject) -> None:
    b = data.draw(hnp.arrays(np.uint64, a.size, elements=st.integers(0, P - 1)))
    kept = a.copy(), b.copy()
    assert field.sum_vectors((a, b)).tolist() == [(x + y) % P for x, y in zip(a.tolist(), b.tolist())]
    difference = a.copy()
    assert kernels.subtract_checked(difference, b)
    assert difference.tolist() == [(x - y) % P for x, y in zip(a.tolist(), b.tolist())]
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


@settings(deadline=None, max_examples=40)
@given(count=st.integers(1, 9), size=st.integers(1, 300), seed=st.integers(0, 2**32), data=st.data())
def test_sum_of_vectors_in_any_order(count: int, size: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    vectors = list(rng.integers(0, P, (count, size), dtype=np.uint64))
    want = [sum(column) % P for column in zip(*(v.tolist() for v in vectors))]
    assert field.sum_vectors(vectors).tolist() == want
    assert field.sum_vectors(data.draw(st.permutations(vectors))).tolist() == want
    one_by_one = np.zeros(size, dtype=np.uint64)
    for v in vectors:
        field.add_into(one_by_one, v)
    assert one_by_one.tolist() == want


def test_refusal_names_the_sender_and_changes_nothing() -> None:
    acc = np.arange(700, dtype=np.uint64)
    bad = np.full(700, P - 1, dtype=np.uint64)
    bad[699] = P
    with pytest.raises(RemoteProtocolError, match="not below the modulus") as refusal:
        field.add_into(acc, bad, party="Hospital B")
    assert refusal.value.party == "Hospital B"
    assert acc.tolist() == list(range(700))
    with pytest.raises(RemoteProtocolError, match="699 elements arrived where 700"):
        field.add_into(acc, bad[:699], party="Hospital B")
    assert acc.tolist() == list(range(700))


@pytest.mark.parametrize("culprit", [0, 1, 2, 3, 4])
def test_a_bad_vector_among_many_is_refused_and_the_sum_is_as_before(culprit: int) -> None:
    rng = np.random.default_rng(culprit)
    vectors = list(rng.integers(0, P, (5, 400), dtype=np.uint64))
    vectors[culprit][300] = P + culprit
    acc = rng.integers(0, P, 400, dtype=np.uint64)
    before = acc.copy()
    with pytest.raises(RemoteProtocolError, match="not below the modulus"):
        field.add_all_into(acc, vectors)
    assert np.array_equal(acc, before)


def test_sums_that_are_our_own_mistake() -> None:
    v = np.zeros(4, dtype=np.uint64)
    with pytest.raises(LocalProtocolError, match="no size"):
        field.sum_vectors([])
    read_only = v.copy()
    read_only.flags.writeable = False
    with pytest.raises(LocalProtocolError, match="read-only"):
        field.add_into(read_only, v)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(4, dtype=np.int64),
        np.zeros(4, dtype=np.float64),
        np.zeros(4, dtype=">u8"),
        np.zeros((2, 2), dtype=np.uint64),
        np.zeros(8, dtype=np.uint64)[::2],
        np.frombuffer(bytes(33), dtype=np.uint64, count=4, offset=1),
        [0, 0, 0, 0],
    ],
    ids=["signed", "float", "big-endian", "matrix", "strided", "unaligned", "list"],
)
def test_only_field_vectors_are_taken(wrong: NDArray[np.uint64]) -> None:
    acc = np.zeros(4, dtype=np.uint64)
    with pytest.raises(LocalProtocolError):
        field.add_into(acc, wrong)
    with pytest.raises(LocalProtocolError):
        field.to_bytes(wrong)


@settings(deadline=None, max_examples=60)
@given(values=signed)
def test_signed_round_trip(values: NDArray[np.int64]) -> None:
    encoded = field.encode_signed(values)
    assert encoded.tolist() == [v % P for v in values.tolist()]
    assert encoded.dtype == np.uint64
    assert np.array_equal(field.decode_signed(encoded), values)


@settings(deadline=None, max_examples=40)
@given(vector=canonical)
def test_every_element_has_one_signed_integer(vector: NDArray[np.uint64]) -> None:
    decoded = field.decode_signed(vector)
    assert decoded.dtype == np.int64
    assert all(abs(v) <= field.HALF and v % P == u for v, u in zip(decoded.tolist(), vector.tolist()))


@pytest.mark.parametrize("value", [field.HALF + 1, -field.HALF - 1, 2**63 - 1, -(2**63)])
def test_integers_beyond_the_field_are_refused(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="signed range"):
        field.encode_signed(np.array([0, value], dtype=np.int64))


def test_other_types_are_not_encoded() -> None:
    for wrong in (np.zeros(2), np.zeros((2, 2), dtype=np.int64), [1, 2]):
        with pytest.raises(LocalProtocolError, match="64-bit signed"):
            field.encode_signed(wrong)
    strided = np.arange(10, dtype=np.int64)[::-2]
    assert field.decode_signed(field.encode_signed(strided)).tolist() == strided.tolist()


def test_a_vector_that_is_not_canonical_is_neither_decoded_nor_written() -> None:
    bad = np.array([P], dtype=np.uint64)
    with pytest.raises(LocalProtocolError):
        field.decode_signed(bad)
    with pytest.raises(LocalProtocolError):
        field.to_bytes(bad)


@settings(deadline=None, max_examples=60)
@given(vector=canonical)
def test_bytes_round_trip(vector: NDArray[np.uint64]) -> None:
    raw = field.to_bytes(vector)
    assert raw == b"".join(v.to_bytes(8, "little") for v in vector.tolist())
    assert np.array_equal(field.from_bytes(raw, vector.size), vector)
    for other in (bytearray(raw), memoryview(raw), memoryview(b"x" + raw)[1:]):
        assert field.to_bytes(field.from_bytes(other, vector.size)) == raw


@settings(deadline=None, max_examples=40)
@given(vector=canonical, word=st.integers(P, 2**64 - 1), where=st.integers(0, 299))
def test_bytes_with_an_element_too_large_are_refused(vector: NDArray[np.uint64], word: int, where: int) -> None:
    vector[where % vector.size] = word
    with pytest.raises(RemoteProtocolError, match="not below") as refusal:
        field.from_bytes(vector.astype("<u8").tobytes(), vector.size, party="Hospital C")
    assert refusal.value.party == "Hospital C"


def test_received_vectors_do_not_change_under_us() -> None:
    raw = bytearray(field.to_bytes(np.arange(5, dtype=np.uint64)))
    vector = field.from_bytes(raw, 5)
    raw[0] = 77
    assert vector.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


def test_uniform_rejects_in_order_and_asks_for_what_is_missing() -> None:
    source = ListedWords([5, P, 6, 2**64 - 1, P - 1, P + 3, 7, 8, 9])
    assert field.uniform(5, source).tolist() == [5, 6, P - 1, 7, 8]
    assert source.asked == [5, 2, 1]
    assert field.uniform(0, ListedWords([])).size == 0
