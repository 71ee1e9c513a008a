"""Sealed messages given in parts and taken in parts: the same bytes as whole, whatever the cuts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto.key_agreement import AgreementKey, ChannelKey, StudyKey, derive_channel
from tallystick.crypto.prg import AesStream
from tallystick.crypto.sealing import CHUNK_BYTES, PIECE_BYTES, Opener, Sealer

SOURCE = AesStream(bytes(32), b"sealing by parts")
KEYS = {name: AgreementKey.generate(SOURCE) for name in ("a", "b")}
PUBLIC = {
    name: StudyKey(study_hash=bytes(32), party=name, role="", public=key.public, signature=b"")
    for name, key in KEYS.items()
}
RAW = SOURCE.bytes(2 * CHUNK_BYTES + 77)


def channel() -> ChannelKey:
    return derive_channel(KEYS["a"], sender=PUBLIC["a"], receiver=PUBLIC["b"])


def sealer() -> Sealer:
    return Sealer(channel(), AesStream(bytes(32), b"salt"))


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[a:b] for a, b in pairwise(ends)]


def opened(pieces: list[bytes], size: int) -> bytes:
    opening = Opener(channel()).opening(size)
    plain = b"".join(part for piece in pieces for part in opening.take(piece))
    opening.finish()
    return plain


SIZES = st.sampled_from([0, 1, 300, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, len(RAW)])
PLACES = st.lists(st.integers(0, 1 << 30), max_size=5)


@settings(deadline=None, max_examples=40)
@given(size=SIZES, places=PLACES, empty=st.booleans())
def test_parts_seal_to_the_same_bytes(size: int, places: list[int], empty: bool) -> None:
    raw = RAW[:size]
    parts = cut(raw, places) + [b""] * empty
    sealing, sealed, memory = sealer().sealing(*(parts or [b""])), b"", bytearray(PIECE_BYTES)
    while piece := sealing.into(memory):
        sealed += memory[:piece]
    assert sealed == sealer().seal(raw)


@settings(deadline=None, max_examples=40)
@given(size=SIZES, places=PLACES)
def test_any_cut_opens_to_the_same_bytes(size: int, places: list[int]) -> None:
    sealed = sealer().seal(RAW[:size])
    opener = Opener(channel())
    opening = opener.opening(len(sealed))
    assert b"".join(part for piece in cut(sealed, places) for part in opening.take(piece)) == RAW[:size]
    assert opener.after == -1  # not opened before it is whole
    opening.finish()
    assert opener.after == 0
    with pytest.raises(RemoteProtocolError, match="replayed"):
        opener.open(sealed)


@settings(deadline=None, max_examples=30)
@given(size=SIZES, place=st.integers(0, 1 << 30), places=PLACES)
def test_a_changed_bit_or_a_missing_end_does_not_open(size: int, place: int, places: list[int]) -> None:
    sealed = sealer().seal(RAW[:size])
    bad = bytearray(sealed)
    bad[place % len(bad)] ^= 1 << place % 8
    for pieces in (cut(bytes(bad), places), cut(sealed, places)[:-1]):
        with pytest.raises(RemoteProtocolError):
            opened(pieces, len(sealed))


@settings(deadline=None, max_examples=20)
@given(size=SIZES, places=PLACES)
def test_parts_open_into_the_same_memory(size: int, places: list[int]) -> None:
    sealed, memory = sealer().seal(RAW[:size]), bytearray(CHUNK_BYTES)
    opening = Opener(channel()).opening(len(sealed))
    plain = bytearray()
    for piece in cut(sealed, places):
        for part in opening.take(piece, memory):
            assert part.obj is memory
            plain += part
    opening.finish()
    assert plain == RAW[:size]


@settings(deadline=None, max_examples=15)
@given(size=SIZES, places=PLACES)
def test_sealing_gives_the_same_bytes_into_any_memory(size: int, places: list[int]) -> None:
    raw, memory = RAW[:size], bytearray(3 + PIECE_BYTES)
    parts = cut(raw, places) or [b""]
    sealing, sealed = sealer().sealing(*parts, prefix=b"abc"), bytearray()
    assert sealing.longest == sealing.next_size <= len(memory)
    while size := sealing.next_size:
        assert sealing.into(memory) == size <= sealing.longest
        sealed += memory[:size]
    assert sealing.into(memory) == 0
    assert sealed == b"abc" + sealer().seal(raw)


def test_sealing_needs_room() -> None:
    sealing = sealer().sealing(RAW[:5000], prefix=b"abc")
    with pytest.raises(LocalProtocolError, match="too small"):
        sealing.into(bytearray(5000))


def test_memory_holds_nothing_of_a_chunk_that_does_not_open() -> None:
    """The cipher has written the plaintext before it knows that the tag is wrong."""
    sealed, memory = bytearray(sealer().seal(RAW[:5000])), bytearray(CHUNK_BYTES)
    sealed[-1] ^= 1
    opening = Opener(channel()).opening(len(sealed))
    with pytest.raises(RemoteProtocolError):
        list(opening.take(sealed, memory))
    assert not any(memory)
    with pytest.raises(LocalProtocolError, match="too small"):
        list(opening.take(sealed, memory[:-1]))


def test_more_than_announced_and_impossible_lengths_are_refused() -> None:
    sealed = sealer().seal(RAW[:100])
    opening = Opener(channel()).opening(len(sealed))
    with pytest.raises(RemoteProtocolError, match="longer than was announced"):
        list(opening.take(sealed + b"x"))
    for size in (0, 10, 43):
        with pytest.raises(RemoteProtocolError, match="impossible length"):
            Opener(channel()).opening(size)


def test_a_message_that_was_overtaken_does_not_count() -> None:
    one = sealer()
    first, second = one.seal(RAW[:500]), one.seal(RAW[:50])
    opener = Opener(channel())
    opening = opener.opening(len(first))
    list(opening.take(first))
    opener.open(second)
    with pytest.raises(RemoteProtocolError, match="replayed or reordered"):
        opening.finish()
    assert opener.after == 1
