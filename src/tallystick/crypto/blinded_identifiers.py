"""Identifiers as points of P-256, blinded by secret exponents: what private set intersection compares.

An identifier becomes a point by hashing with a counter until the hash is the x-coordinate of one ("try and increment":
one in two is), within a public context, so that lists of two studies do not match. Only x-coordinates travel: P and −P
have the same, and so have k·P and k·(−P). Blinding is the x-coordinate of k·P, a Diffie-Hellman exchange, constant in
time in OpenSSL; k·(l·P) = l·(k·P), so whoever's keys come first, the same people end as the same 32 bytes. To whoever
lacks k the values of people it does not know are random points, by the decisional Diffie-Hellman assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric import ec

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource

POINT_BYTES = 32
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_TRIES = 256


class BlindingKey:
    """A secret exponent; its ``repr`` shows nothing of it."""

    __slots__ = ("_key", "_scalar")

    def __init__(self, scalar: int) -> None:
        if not 1 <= scalar < _ORDER:
            raise LocalProtocolError("a blinding key is from 1 to the order of the curve")
        self._scalar = scalar
        self._key = ec.derive_private_key(scalar, _CURVE)

    @classmethod
    def generate(cls, source: WordSource) -> BlindingKey:
        """Uniform, by rejection."""
        while True:
            scalar = int.from_bytes(source.bytes(32), "big")
            if 1 <= scalar < _ORDER:
                return cls(scalar)

    def __repr__(self) -> str:
        return "BlindingKey(secret)"

    def to_bytes(self) -> bytes:
        """For the one record that a restart needs."""
        return self._scalar.to_bytes(32, "big")

    def blind(self, points: Iterable[bytes], *, party: str | None = None) -> list[bytes]:
        """Every point times the key; a value that is no point is refused in its sender's name."""
        algorithm, exchange = ec.ECDH(), self._key.exchange
        out = []
        for point in points:
            try:
                other = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + point)
            except ValueError:
                raise RemoteProtocolError(
                    "a blinded identifier is no point of the curve",
                    party=party,
                    remedy="Nothing was compared; let the sender run the same release of tallystick.",
                ) from None
            out.append(exchange(algorithm, other))
        return out


def points_of(identifiers: Sequence[str], context: bytes) -> list[bytes]:
    """The point of every identifier in this context, as its x-coordinate."""
    return [_point(identifier.encode(), context) for identifier in identifiers]


def _point(identifier: bytes, context: bytes) -> bytes:
    for counter in range(_TRIES):
        x = digest(b"tallystick/identifier/1", context, identifier, bytes([counter]))
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + x)
        except ValueError:
            continue
        return x
    raise LocalProtocolError("no point was found for an identifier")  # once in 2^256
