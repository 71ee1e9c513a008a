"""Ed25519: the standard's own vectors, every changed byte refused, keys that bind nobody refused, nothing printed."""

from __future__ import annotations

import json
import pickle

import pytest
from crypto_reference import VECTORS
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto import signing
from tallystick.crypto.prg import AesStream
from tallystick.crypto.signing import SigningKey, VerifyKey

RFC8032 = json.loads((VECTORS / "ed25519.json").read_text())["good"]
KEY = SigningKey.generate(AesStream(digest(b"signing")))

Q = 2**255 - 19
D = -121665 * pow(121666, -1, Q) % Q


def edwards_add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % Q
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, Q) % Q, (y1 * y2 + x1 * x2) * pow(1 - k, -1, Q) % Q


def point_of(encoded: bytes) -> tuple[int, int]:
    """Some point with this y-coordinate (either x will do: both have the same order)."""
    y = int.from_bytes(encoded, "little") % 2**255 % Q
    xx = (y * y - 1) * pow(D * y * y + 1, -1, Q) % Q
    x = pow(xx, (Q + 3) // 8, Q)
    if x * x % Q != xx:
        x = x * pow(2, (Q - 1) // 4, Q) % Q
    if x * x % Q != xx:
        raise ValueError("not on the curve")
    return x, y


@pytest.mark.parametrize("case", RFC8032)
def test_rfc8032(case: dict[str, str]) -> None:
    secret, public, message, signature = (bytes.fromhex(case[k]) for k in ("secret", "public", "message", "signature"))
    key = SigningKey(Secret(secret))
    assert key.public.encoded == bytes(key.public) == public
    assert key.sign(message) == signature
    VerifyKey(public).verify(message, signature)


@settings(deadline=None, max_examples=60)
@given(message=st.binary(max_size=100), where=st.integers(0, 63), bit=st.integers(0, 7), extra=st.binary(min_size=1))
def test_anything_changed_is_refused(message: bytes, where: int, bit: int, extra: bytes) -> None:
    signature = KEY.sign(message)
    KEY.public.verify(message, signature)
    changed = bytearray(signature)
    changed[where] ^= 1 << bit
    other = SigningKey(digest(b"other")).public
    for key, text, signed in (
        (KEY.public, message, bytes(changed)),
        (KEY.public, message + extra, signature),
        (KEY.public, message, signature + extra),
        (KEY.public, message, signature[:-1]),
        (KEY.public, message, b""),
        (other, message, signature),
    ):
        with pytest.raises(VerificationError, match="does not match") as refusal:
            key.verify(text, signed)
        assert refusal.value.__cause__ is None


def test_keys_come_from_the_source_alone() -> None:
    stream = AesStream(digest(b"signing"))
    first, second = SigningKey.generate(stream), SigningKey.generate(stream)
    assert first.public == KEY.public
    assert hash(first.public) == hash(KEY.public)
    assert second.public != first.public
    assert SigningKey(first.reveal()).public == first.public


@pytest.mark.parametrize("length", [0, 31, 33])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        SigningKey(bytes(length))
    with pytest.raises(VerificationError, match="32 bytes"):
        VerifyKey(bytes(length))


def test_a_key_that_is_no_point_verifies_nothing() -> None:
    no_point = (2).to_bytes(32, "little")
    with pytest.raises(ValueError, match="not on the curve"):
        point_of(no_point)
    with pytest.raises(VerificationError, match="does not match"):
        VerifyKey(no_point).verify(b"m", KEY.sign(b"m"))


def test_keys_of_small_order_are_refused() -> None:
    assert {int.from_bytes(y, "little") % Q for y in signing._SMALL_ORDER_Y} == all_small_order_y()
    for y in signing._SMALL_ORDER_Y:
        for sign in (0, 0x80):
            with pytest.raises(VerificationError, match="small order"):
                VerifyKey(y[:-1] + bytes([y[-1] | sign]))


def all_small_order_y() -> set[int]:
    """The eight points of order dividing 8, by arithmetic: multiples L·P of any point P."""
    order = 2**252 + 27742317777372353535851937790883648493
    found: set[int] = set()
    y = 3
    while len(found) < 5:
        try:
            base = point_of(y.to_bytes(32, "little"))
        except ValueError:
            base = (0, 1)
        total, k = (0, 1), order
        while k:
            if k & 1:
                total = edwards_add(total, base)
            base, k = edwards_add(base, base), k >> 1
        multiple = total
        for _ in range(8):
            found.add(multiple[1])
            multiple = edwards_add(multiple, total)
        assert multiple == total  # nine times is once: the order divides 8
        y += 1
    return found


def test_keys_do_not_print() -> None:
    assert repr(KEY) == str(KEY) == "SigningKey(32 bytes)"
    assert repr(KEY.public) == "VerifyKey(32 bytes)"
    assert repr(KEY.reveal()) == "Secret(32 bytes)"
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(KEY)
