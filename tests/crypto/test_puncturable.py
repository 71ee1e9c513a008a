"""A key that forgets: the value at a name is always the same, until it was given up, and then nothing left tells it."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.puncturable import DEPTH, PuncturableKey

NAMES = [b"study %d" % i for i in range(20)]


def key(seed: bytes = b"a key") -> PuncturableKey:
    return PuncturableKey.generate(AesStream(derive(bytes(32), seed)))


def value(made: PuncturableKey, name: bytes) -> bytes | None:
    found = made.value(name)
    return None if found is None else found.reveal()


def test_the_value_is_the_leaf_of_the_tree_that_the_names_digest_leads_to() -> None:
    """By another program: HMAC-SHA256 level by level, with the labels as they are written down."""
    raw = key().to_secret().reveal()
    seed = raw[-32:]  # a new key is its root
    leaf = int.from_bytes(digest(b"tallystick/puncturable/leaf/1", NAMES[0])[:16], "big")
    for bit in f"{leaf:0{DEPTH}b}":
        label = b"tallystick/puncturable/right/1" if bit == "1" else b"tallystick/puncturable/left/1"
        seed = hmac.new(seed, digest(b"tallystick/derive/v1", label), hashlib.sha256).digest()
    assert value(key(), NAMES[0]) == seed


def test_names_and_keys_have_values_of_their_own() -> None:
    found = {value(key(k), name) for name in NAMES for k in (b"a key", b"another")}
    assert len(found) == 2 * len(NAMES)


def test_what_is_given_up_is_gone_and_all_else_stays() -> None:
    made = key()
    before = {name: value(made, name) for name in NAMES}
    for i, name in enumerate(NAMES):
        made = made.without(name)
        assert [value(made, n) for n in NAMES] == [None] * (i + 1) + [before[n] for n in NAMES[i + 1 :]]
        assert made.without(name) is made
    assert {name: value(key(), name) for name in NAMES} == before  # an older copy still has them, and the same ones


def test_no_node_that_is_left_lies_above_what_was_given_up() -> None:
    """So what is left computes nothing of it: every node of a tree leads to the leaves under it and to no other."""
    made, gone = key(), NAMES[:5]
    for name in gone:
        made = made.without(name)
    leaves = [int.from_bytes(digest(b"tallystick/puncturable/leaf/1", name)[:16], "big") for name in gone]
    for depth, way in made._nodes:
        assert way not in [leaf >> (DEPTH - depth) for leaf in leaves]
    covered = sum(1 << (DEPTH - depth) for depth, _ in made._nodes)
    assert covered == (1 << DEPTH) - len(gone)  # and every other leaf still has one


def test_bytes_read_back_and_changed_ones_are_refused() -> None:
    made = key().without(NAMES[3])
    raw = made.to_secret().reveal()
    again = PuncturableKey.from_secret(Secret(raw))
    assert again.ident == made.ident
    assert [value(again, n) for n in NAMES] == [value(made, n) for n in NAMES]
    for wrong in (raw[:-1], raw[:-49], raw + bytes(49), raw[:40] + b"x" + raw[41:], b"", bytes(100)):
        with pytest.raises(VerificationError) as caught:
            PuncturableKey.from_secret(Secret(wrong))
        assert caught.value.rule == "storage-corrupt"


def test_it_shows_nothing_of_itself() -> None:
    made = key()
    assert repr(made) == f"PuncturableKey({made.ident.hex()})"
    assert made.to_secret().reveal()[-32:].hex() not in repr(made)
