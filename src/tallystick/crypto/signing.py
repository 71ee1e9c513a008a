"""Ed25519 signatures [RFC 8032]: who said it, and that nobody changed it.

Verification raises or returns nothing, there is no flag to forget. A verify key of small order is refused when
it is made: under such a key one signature fits many messages, so it would bind its owner to nothing. Callers
sign messages that begin with their own domain label; this module adds none, so any Ed25519 tool can verify.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret

KEY_BYTES = 32
SIGNATURE_BYTES = 64

# y-coordinates of the eight points whose order divides 8 (the sign bit of x is ignored), and those of their
# encodings with y ≥ 2^255 − 19 that decoders accept: 0, 1, −1, two of order 8; then p, p + 1.
_SMALL_ORDER_Y = frozenset(
    bytes.fromhex(y)
    for y in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)


@dataclass(frozen=True, slots=True, repr=False)
class VerifyKey:
    """A party's public key; equal bytes are equal keys. Its ``repr`` is no fingerprint: print ``encoded``."""

    encoded: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.encoded, bytes) or len(self.encoded) != KEY_BYTES:
            raise VerificationError(
                f"a public key does not have {KEY_BYTES} bytes", remedy="Ask its owner for the key again."
            )
        if self.encoded[:-1] + bytes([self.encoded[-1] & 0x7F]) in _SMALL_ORDER_Y:
            raise VerificationError(
                "a public key of small order binds its owner to nothing", remedy="Ask its owner for a generated key."
            )

    def __bytes__(self) -> bytes:
        return self.encoded

    def __repr__(self) -> str:
        return f"VerifyKey({len(self.encoded)} bytes)"

    def verify(self, message: bytes, signature: bytes) -> None:
        """Return if the owner of this key signed exactly this message; raise otherwise."""
        try:
            Ed25519PublicKey.from_public_bytes(self.encoded).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise VerificationError(
                "a signature does not match its message and key",
                remedy="The message was changed, or signed with another key: do not use it, ask the sender.",
            ) from None


class SigningKey:
    """A party's private key: signs, tells its public half, and never shows itself."""

    __slots__ = ("_private", "_public")

    def __init__(self, seed: Secret | bytes) -> None:
        raw = seed.reveal() if isinstance(seed, Secret) else seed
        if len(raw) != KEY_BYTES:
            raise LocalProtocolError(f"a signing key has {KEY_BYTES} bytes", remedy="Use SigningKey.generate(source).")
        self._private = Ed25519PrivateKey.from_private_bytes(raw)
        self._public = VerifyKey(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, source: WordSource) -> SigningKey:
        """A fresh key from 32 bytes of ``source``."""
        return cls(source.bytes(KEY_BYTES))

    @property
    def public(self) -> VerifyKey:
        """The half that others may know."""
        return self._public

    def sign(self, message: bytes) -> bytes:
        """A 64-byte signature; the same message gives the same bytes."""
        return self._private.sign(message)

    def reveal(self) -> Secret:
        """The 32 private bytes, for the role that stores its own key (file mode 0600)."""
        return Secret(self._private.private_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({KEY_BYTES} bytes)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("signing keys are not serialised")
