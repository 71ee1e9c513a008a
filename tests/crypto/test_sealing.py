"""Sealed messages: known answers against a plain-Python cipher, round trips, and everything that must not open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sealing_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import SystemSource
from tallystick.crypto import sealing
from tallystick.crypto.key_agreement import AgreementKey, ChannelKey, StudyKey, derive_channel
from tallystick.crypto.prg import AesStream
from tallystick.crypto.sealing import (
    CHUNK_BYTES,
    HEADER_BYTES,
    PIECE_BYTES,
    TAG_BYTES,
    Opener,
    Sealer,
    opened_size,
    sealed_size,
)
from tallystick.crypto.signing import SigningKey

VECTORS = json.loads(reference.FILE.read_text())
STEP = CHUNK_BYTES + TAG_BYTES


class Salts:
    """A source that gives the salts of a vector."""

    def __init__(self, *values: bytes) -> None:
        self.values = list(values)

    def bytes(self, count: int) -> bytes:
        value = self.values.pop(0)
        assert len(value) == count
        return value

    def words(self, count: int) -> Any:
        raise AssertionError


def channel(sender: str = "Hospital A", receiver: str = "Server 1", study: bytes = digest(b"study")) -> ChannelKey:
    keys = {p: AgreementKey(digest(b"x25519", p.encode())) for p in (sender, receiver)}
    ends = {
        p: k.sign(SigningKey(digest(p.encode())), study_hash=study, party=p, role="client") for p, k in keys.items()
    }
    return derive_channel(keys[sender], sender=ends[sender], receiver=ends[receiver])


def sealer(**where: Any) -> Sealer:
    return Sealer(channel(**where), AesStream(digest(b"salts")))


def not_opened(sealed: bytes, opener: Opener | None = None, rule: str | None = None) -> None:
    """Refused in the sender's name by each way in, and nothing of it left anywhere."""
    opener = opener or Opener(channel())
    before = opener.after
    with pytest.raises(RemoteProtocolError) as refusal:
        opener.open(sealed)
    assert refusal.value.party == "Hospital A"
    assert rule in (None, refusal.value.rule)
    out = bytearray(b"\xaa" * CHUNK_BYTES)
    with pytest.raises(RemoteProtocolError):
        list(by_parts(opener, [sealed], out))
    assert not out.strip(b"\0\xaa")
    kept: list[bytes] = []
    with pytest.raises(RemoteProtocolError):
        kept.extend(by_parts(opener, cut(sealed)))
    assert opener.after == before


def by_parts(opener: Opener, pieces: list[bytes], into: bytearray | None = None) -> Iterator[bytes]:
    opening = opener.opening(sum(map(len, pieces)))
    for piece in pieces:
        yield from map(bytes, opening.take(piece, into))
    opening.finish()


def in_pieces(sending: Sealer, plain: bytes) -> list[bytes]:
    sealing, memory, pieces = sending.sealing(plain), bytearray(PIECE_BYTES), []
    while size := sealing.into(memory):
        pieces.append(bytes(memory[:size]))
    return pieces


def cut(sealed: bytes) -> list[bytes]:
    first = HEADER_BYTES + STEP
    return [sealed[:first], *(sealed[i : i + STEP] for i in range(first, len(sealed), STEP))]


def test_the_file_is_what_the_reference_gives() -> None:
    assert reference.all_cases() == VECTORS
    assert reference.FILE.stat().st_size < 50_000


def test_the_reference_cipher_is_gcm() -> None:
    """NIST's GCM test cases 13 to 16 with a 256-bit key, as the reference's own known answers."""
    assert reference.gcm(bytes(32), bytes(12), b"", b"").hex() == "530f8afbc74536b9a963b4f1c4cb738b"
    want = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    assert reference.gcm(bytes(32), bytes(12), bytes(16), b"").hex() == want


@pytest.mark.parametrize("case", VECTORS["good"], ids=lambda case: case["parties"][0])
def test_known_answers(case: dict[str, Any]) -> None:
    study = bytes.fromhex(case["study_hash"])
    keys = [AgreementKey(bytes.fromhex(secret)) for secret in case["secrets"]]
    identities = [SigningKey(bytes.fromhex(raw)) for raw in case["identities"]]
    signed: list[StudyKey] = [
        key.sign(identity, study_hash=study, party=party, role=role)
        for key, identity, party, role in zip(keys, identities, case["parties"], case["roles"])
    ]
    assert [key.public.hex() for key in signed] == case["publics"]
    assert [key.signature.hex() for key in signed] == case["signatures"]
    there = derive_channel(keys[0], sender=signed[0], receiver=signed[1])
    here = derive_channel(keys[1], sender=signed[0], receiver=signed[1])
    assert there.reveal().hex() == here.reveal().hex() == case["channel_key"]
    salt = bytes.fromhex(case["salt"])
    if "sealed" in case:
        plain, want = bytes.fromhex(case["plain"]), hashlib.sha256(bytes.fromhex(case["sealed"])).hexdigest()
    else:
        plain = hashlib.shake_256(case["plain_label"].encode()).digest(case["plain_size"])
        want = case["sealed_sha256"]
    sealed = Sealer(there, Salts(salt), first=case["number"]).seal(plain)
    assert hashlib.sha256(sealed).hexdigest() == want
    pieces = in_pieces(Sealer(there, Salts(salt), first=case["number"]), plain)
    assert b"".join(pieces) == sealed
    assert Opener(here).open(sealed) == plain


@pytest.mark.parametrize("case", VECTORS["bad"]["cases"], ids=lambda case: case["why"])
def test_known_answers_that_are_refused(case: dict[str, Any]) -> None:
    good = VECTORS["good"][VECTORS["bad"]["of"]]
    held = ChannelKey(
        study_hash=bytes.fromhex(good["study_hash"]),
        sender="Hospital A",
        receiver="Server 1",
        _key=bytearray.fromhex(good["channel_key"]),
    )
    not_opened(bytes.fromhex(case["sealed"]), Opener(held))


SIZES = st.one_of(
    st.integers(0, 300),
    st.sampled_from([CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]),
)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=4),
    first=st.integers(0, 2**63),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_round_trips(sizes: list[int], first: int, kind: Any) -> None:
    sending = Sealer(channel(), SystemSource(), first=first)
    whole, parted = Opener(channel()), Opener(channel(), after=first - 1)
    for i, size in enumerate(sizes):
        plain = hashlib.shake_128(b"%d" % i).digest(size)
        sealed = sending.seal(kind(plain))
        assert len(sealed) == sealed_size(size)
        assert opened_size(len(sealed)) == size
        opened = whole.open(kind(sealed))
        assert type(opened) is bytes
        assert opened == plain == b"".join(by_parts(parted, cut(sealed)))
        assert whole.after == parted.after == first + i
        back = bytearray(CHUNK_BYTES + 3)
        assert b"".join(by_parts(whole, in_pieces(sending, plain), back)) == plain
        assert back[CHUNK_BYTES:] == bytes(3)
        parted = Opener(channel(), after=whole.after)
        first += 1


@settings(deadline=None, max_examples=60)
@given(size=st.integers(0, 4 * CHUNK_BYTES))
def test_sizes_have_one_meaning(size: int) -> None:
    assert opened_size(sealed_size(size)) == size
    back = opened_size(size)
    assert back is None or sealed_size(back) == size


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_every_changed_bit_is_refused(size: int) -> None:
    sealed = sealer().seal(bytes(size))
    for where in {*range(HEADER_BYTES + 4), *range(len(sealed) - 18, len(sealed)), len(sealed) // 2}:
        changed = bytearray(sealed)
        changed[where] ^= 1 << where % 8
        not_opened(bytes(changed))
    assert Opener(channel()).open(sealed) == bytes(size)


def test_a_vector_is_sealed_as_it_lies_in_memory() -> None:
    vector = np.arange(1000, dtype=np.uint64)
    assert Opener(channel()).open(sealer().seal(vector.data)) == vector.tobytes()


def test_truncated_at_every_chunk_and_between() -> None:
    sealed = sealer().seal(bytes(3 * CHUNK_BYTES))
    ends = [HEADER_BYTES + i * STEP for i in range(4)]
    for end in {
        0,
        1,
        HEADER_BYTES - 1,
        *ends[:3],
        *(e + 1 for e in ends[:3]),
        *(e - 1 for e in ends[1:]),
        ends[1] + TAG_BYTES,
    }:
        not_opened(sealed[:end], rule="malformed")


def test_extended_reordered_doubled_and_missing_chunks() -> None:
    sealed = sealer().seal(bytes(range(256)) * (3 * CHUNK_BYTES // 256))
    header, chunks = sealed[:HEADER_BYTES], [sealed[HEADER_BYTES + i * STEP :][:STEP] for i in range(3)]
    assert b"".join([header, *chunks]) == sealed
    for order in ([1, 0, 2], [0, 2, 1], [0, 0, 2], [0, 2], [2], [1, 2], [0, 1, 1, 2], [0, 1, 2, 2], [2, 1, 0]):
        not_opened(b"".join([header, *(chunks[i] for i in order)]), rule="malformed")
    other = sealer()
    other.seal(b"")
    foreign = other.seal(bytes(3 * CHUNK_BYTES))
    not_opened(b"".join([header, chunks[0], foreign[HEADER_BYTES + STEP :]]), rule="malformed")
    not_opened(sealed + b"\0", rule="malformed")


def test_streams_show_no_part_before_it_is_genuine() -> None:
    sealed = sealer().seal(b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"c")
    changed = bytearray(sealed)
    changed[HEADER_BYTES + STEP + 5] ^= 1
    opener = Opener(channel())
    parts = by_parts(opener, cut(bytes(changed)))
    assert next(parts) == b"a" * CHUNK_BYTES
    with pytest.raises(RemoteProtocolError):
        next(parts)
    assert opener.after == -1
    with pytest.raises(RemoteProtocolError, match="impossible length"):
        list(by_parts(opener, []))
    with pytest.raises(RemoteProtocolError):  # an empty last chunk would be a second spelling
        list(by_parts(opener, [*cut(sealed)[:2], cut(sealed)[2][:TAG_BYTES]]))
    assert b"".join(by_parts(opener, cut(sealed))).endswith(b"bc")


def test_a_message_has_one_spelling_even_from_who_holds_the_key() -> None:
    """A full chunk, then an empty last one: genuine tags, but not how that message is written."""
    header = b"TSS1" + bytes(24)
    message = sealing._Message(channel(), header, 0)
    full = message.cipher.encrypt(message.nonce(0, False), bytes(CHUNK_BYTES), message.aad)
    empty = message.cipher.encrypt(message.nonce(1, True), b"", message.aad)
    not_opened(header + full + empty, rule="malformed")
    last = message.cipher.encrypt(message.nonce(1, True), b"x", message.aad)
    assert Opener(channel()).open(header + full + last) == bytes(CHUNK_BYTES) + b"x"  # the control
    short = message.cipher.encrypt(message.nonce(0, False), bytes(9), message.aad)
    not_opened(header + short + last, rule="malformed")


def test_replayed_and_reordered_messages() -> None:
    sending, opener = sealer(), Opener(channel())
    messages = [sending.seal(b"%d" % i) for i in range(4)]
    assert opener.open(messages[0]) == b"0"
    not_opened(messages[0], opener, rule="replayed")
    assert opener.open(messages[2]) == b"2"  # 1 was lost on its way
    not_opened(messages[1], opener, rule="replayed")
    not_opened(messages[2], opener, rule="replayed")
    assert opener.open(messages[3]) == b"3"
    restarted = Opener(channel(), after=opener.after)
    for message in messages:
        not_opened(message, restarted, rule="replayed")


def test_two_streams_of_one_message_end_in_one_message() -> None:
    opener, pieces = Opener(channel()), cut(sealer().seal(bytes(CHUNK_BYTES + 1)))
    slow = by_parts(opener, pieces)
    next(slow)
    assert len(list(by_parts(opener, pieces))) == 2
    with pytest.raises(RemoteProtocolError, match="replayed"):
        list(slow)


def test_a_forged_message_does_not_use_up_its_number() -> None:
    sending, opener = sealer(), Opener(channel())
    good = sending.seal(b"good")
    not_opened(good[:11] + b"\xff" + good[12:], opener)
    assert opener.open(good) == b"good"


@pytest.mark.parametrize(
    "where",
    [
        {"receiver": "Server 2"},
        {"sender": "Server 1", "receiver": "Hospital A"},
        {"study": digest(b"another study")},
        {"sender": "Hospital B"},
    ],
    ids=str,
)
def test_for_another_party_direction_or_study(where: dict[str, Any]) -> None:
    not_opened(sealer(**where).seal(b"secret"), rule="malformed")


def test_names_are_bound_even_under_one_key() -> None:
    """The associated data alone: same channel key bytes, other names."""
    own = channel()
    renamed = ChannelKey(
        study_hash=own.study_hash, sender="Hospital A", receiver="Server 2", _key=bytearray(own.reveal())
    )
    not_opened(Sealer(renamed, SystemSource()).seal(b"secret"), rule="malformed")


def test_a_sender_restored_from_a_snapshot_repeats_no_keystream() -> None:
    """Two messages under one number, as after a restored backup: their keystreams have nothing in common."""
    one, two = (Sealer(channel(), SystemSource(), first=7).seal(bytes(64)) for _ in range(2))
    assert one[:12] == two[:12]
    assert one[HEADER_BYTES : HEADER_BYTES + 64] != two[HEADER_BYTES : HEADER_BYTES + 64]
    fixed = [Sealer(channel(), Salts(bytes(16)), first=7).seal(bytes(64)) for _ in range(2)]
    assert fixed[0] == fixed[1]  # the control: it is the salt that does it


def test_nonces_never_repeat() -> None:
    message = sealing._Message(channel(), bytes(HEADER_BYTES), 3)
    nonces = {message.nonce(i, last) for i in (0, 1, 2, 2**31 - 1) for last in (False, True)}
    assert len(nonces) == 8
    assert {len(nonce) for nonce in nonces} == {12}


def test_pieces_fit_a_frame() -> None:
    assert PIECE_BYTES <= 1 << 21
    assert max(map(len, in_pieces(sealer(), bytes(2 * CHUNK_BYTES + 1)))) == PIECE_BYTES


def test_numbers_end() -> None:
    sending = Sealer(channel(), SystemSource(), first=2**64 - 1)
    sending.seal(b"last")
    with pytest.raises(LocalProtocolError, match="used"):
        sending.seal(b"one more")
    for first in (-1, 2**64):
        with pytest.raises(LocalProtocolError, match="64 bits"):
            Sealer(channel(), SystemSource(), first=first)


def test_small_buffers_are_an_error_here() -> None:
    sending, opener = sealer(), Opener(channel())
    with pytest.raises(LocalProtocolError, match="too small"):
        sealer().sealing(b"abc").into(bytearray(sealed_size(3) - 1))
    sealed = sending.seal(b"abc")
    with pytest.raises(LocalProtocolError, match="too small"):
        list(by_parts(opener, [sealed], bytearray(2)))
    assert opener.open(sealed) == b"abc"


def test_erased_at_the_end() -> None:
    sending, opener = sealer(), Opener(channel())
    sealed = sending.seal(b"abc")
    sending.erase()
    opener.erase()
    with pytest.raises(LocalProtocolError, match="erased"):
        sending.seal(b"abc")
    with pytest.raises(LocalProtocolError, match="erased"):
        opener.open(sealed)
    assert "abc" not in repr(sending) + repr(opener)
