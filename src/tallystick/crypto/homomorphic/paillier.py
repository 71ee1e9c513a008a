"""Packed Paillier on GMP (the extra ``he``): additive, exact, without an error term to hide [Pai99; DJN10].

Keys: n = p·q of 3,072 bits (128-bit security, [SP800-57]), p ≡ q ≡ 3 (mod 4), gcd(p − 1, q − 1) = 2. Encryption is that
of Damgård, Jurik and Nielsen: h = −x² mod n, hn = h^n mod n², and E(m) = (1 + m·n)·hn^α with α of |n|/2 bits
[DJN10, §4.2]. The base hn is the same for every ciphertext, so its powers stand in a table: one multiplication per
eight bits of α, those of zero bytes included, so that neither the number nor the order of operations depends on the
secret. (Which lines of the table are read does: whoever shares the owner's processor caches could see it. Exponents of
keys go through ``powmod_sec``, which is constant-time.)

Slots (:mod:`~tallystick.crypto.homomorphic.packing`) share one plaintext; the sum of all slots stays below n/2.

Proof that n is good. Encrypting is injective, and its randomness is hidden, if gcd(n, φ(n)) = 1. The key's maker shows
n-th roots modulo n of eleven numbers that the key's hash fixes; with no prime factor below 6,370, a wrong n has such
roots with probability below 6370^−11 < 2^−128 [GRSB19, Thm. 3]. That h is a fresh −x² is not shown: who makes it
otherwise decrypts worse, and sees nothing it would not see anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import gmpy2
from gmpy2 import mpz

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.homomorphic.packing import KEY_BITS, pack, slot_bytes, slots_for, unpack
from tallystick.crypto.homomorphic.scheme import (
    DecryptingKey,
    EncryptingKey,
    Extent,
    Integers,
    Scheme,
    bad_key,
    bad_key_size,
    no_room,
    out_of_range,
)

_BYTES = KEY_BITS // 8
_RANDOM_BYTES = _BYTES // 2  # of α: half of |n| [DJN10]
_ROOTS = 11
_NO_FACTOR_BELOW = 6370
_PROOF_LABEL = b"tallystick/paillier/roots/v1"


class Paillier(Scheme):
    """The scheme for sums of one extent."""

    name = "paillier"
    block_bytes = 2 * _BYTES
    public_bytes = (2 + _ROOTS) * _BYTES

    def __init__(self, extent: Extent) -> None:
        super().__init__(extent)
        self.width = slot_bytes(extent.limit)
        self.block_values = slots_for(extent.limit)
        if self.block_values < 1:
            no_room("one entry of the sum does not fit a Paillier plaintext", "Use fewer fraction bits.")

    def generate(self, source: WordSource) -> DecryptingKey:
        p = _prime(source, None)
        q = _prime(source, p)
        n = p * q
        x = _below(source, n)
        h = (-x * x) % n
        order = (p - 1) * (q - 1)
        root = gmpy2.invert(n, order)
        challenges = _challenges(n, h)
        proof = [gmpy2.powmod_sec(c, root, n) for c in challenges]
        raw = b"".join([_written(v, _BYTES) for v in (n, h, *proof)])
        return PaillierSecret(self, p, q, PaillierPublic(self, raw))

    def _public_key(self, raw: bytes, party: str | None) -> EncryptingKey:
        if len(raw) != self.public_bytes:
            bad_key_size(len(raw), self.public_bytes, party)
        n, h, *proof = [_read(raw[i : i + _BYTES]) for i in range(0, len(raw), _BYTES)]
        if n.bit_length() != KEY_BITS:
            bad_key(f"its modulus has {n.bit_length()} bits instead of {KEY_BITS}", party, "key-too-small")
        if not 1 < h < n or gmpy2.gcd(h, n) != 1 or h * h % n == 1:  # of order 2: hardly any encryptions of a value
            bad_key("its base is out of range", party)
        if gmpy2.gcd(n, gmpy2.primorial(_NO_FACTOR_BELOW)) != 1 or gmpy2.is_prime(n) or gmpy2.is_power(n):
            bad_key("its modulus is no product of two large primes", party)
        for challenge, root in zip(_challenges(n, h), proof):
            if not 0 < root < n or gmpy2.powmod(root, n, n) != challenge:
                bad_key("the proof that its modulus is good does not verify", party)
        return PaillierPublic(self, raw)

    def secret_key(self, raw: Secret) -> DecryptingKey:
        whole = raw.reveal()
        half = _BYTES // 2
        return PaillierSecret(
            self, _read(whole[:half]), _read(whole[half:_BYTES]), PaillierPublic(self, whole[_BYTES:])
        )


class PaillierPublic(EncryptingKey):
    """n and h."""

    scheme: Paillier

    def __init__(self, scheme: Paillier, raw: bytes) -> None:
        super().__init__(scheme, raw)
        self.n = _read(raw[:_BYTES])
        self.square = self.n * self.n

    @cached_property
    def _table(self) -> list[list[mpz]]:
        """hn^(v·256^i) for every byte v of α at every place i: 37 MB, made in a third of a second when first used."""
        base = gmpy2.powmod(_read(self.raw[_BYTES : 2 * _BYTES]), self.n, self.square)
        table = []
        for _ in range(_RANDOM_BYTES):
            row = [mpz(1)]
            for _ in range(255):
                row.append(row[-1] * base % self.square)
            table.append(row)
            base = row[-1] * base % self.square
        return table

    def randomiser(self, source: WordSource) -> mpz:
        """hn^α: an encryption of zero."""
        found, square = mpz(1), self.square
        for row, byte in zip(self._table, source.bytes(_RANDOM_BYTES)):
            found = found * row[byte] % square
        return found

    def fresh(self, plain: int, source: WordSource) -> mpz:
        """E(plain)."""
        return (1 + plain % self.n * self.n) * self.randomiser(source) % self.square

    def _encrypt(self, values: Integers, source: WordSource) -> bytes:
        return _written(self.fresh(pack(values, self.scheme.block_values, self.scheme.width), source), 2 * _BYTES)

    def check(self, block: bytes, *, party: str | None = None) -> None:
        self._whole(block, party)
        value = _read(block)
        if not 0 < value < self.square or gmpy2.gcd(value, self.n) != 1:
            out_of_range("it is not a unit modulo the square of the key", party)

    def total(self, blocks: Iterable[bytes], own: Integers, source: WordSource) -> bytes:
        found = self.fresh(pack(own, self.scheme.block_values, self.scheme.width), source)
        for block in blocks:
            found = found * _read(block) % self.square
        return _written(found, 2 * _BYTES)


class PaillierSecret(DecryptingKey):
    """p and q; decryption modulo p² and q² by themselves, put together [Pai99, §7]."""

    public: PaillierPublic

    def __init__(self, scheme: Paillier, p: mpz, q: mpz, public: PaillierPublic) -> None:
        if p * q != public.n:
            raise LocalProtocolError("this secret key is not that of the public key it is kept with")
        self._scheme, self.public = scheme, public
        self._primes: tuple[mpz, ...] = (p, q)
        self._inverses: tuple[mpz, ...] = tuple(
            gmpy2.invert(_log(gmpy2.powmod_sec(1 + p * q, r - 1, r * r), r), r) for r in (p, q)
        )

    def decrypt(self, block: bytes) -> Integers:
        if not self._primes:
            raise LocalProtocolError("this study's key was erased", remedy="Keys end with their study.")
        value = _read(block)
        (p, q), (hp, hq) = self._primes, self._inverses
        mp = _log(gmpy2.powmod_sec(value % (p * p), p - 1, p * p), p) * hp % p
        mq = _log(gmpy2.powmod_sec(value % (q * q), q - 1, q * q), q) * hq % q
        plain = mp + p * ((mq - mp) * gmpy2.invert(p, q) % q)
        n = p * q
        return unpack(int(plain - n if plain > n // 2 else plain), self._scheme.block_values, self._scheme.width)

    def raw_costs(self, seconds: Callable[[Callable[[], object]], float]) -> dict[str, float]:
        """What one ciphertext costs at the least, in GMP's own calls; for the bench."""
        (p, q), square = self._primes, self.public.square
        value, other = square // 3, square // 7
        power = gmpy2.powmod_sec
        return {
            "encrypt": _RANDOM_BYTES * seconds(lambda: value * other % square),
            "add": seconds(lambda: value * other % square),
            "decrypt": seconds(lambda: (power(value, p - 1, p * p), power(value, q - 1, q * q))),
        }

    def reveal(self) -> Secret:
        half = _BYTES // 2
        return Secret(b"".join([*[_written(r, half) for r in self._primes], self.public.raw]))

    def erase(self) -> None:
        self._primes, self._inverses = (), ()


def _log(value: mpz, prime: mpz) -> mpz:
    """L(u) = (u − 1)/p."""
    return (value - 1) // prime


def _prime(source: WordSource, other: mpz | None) -> mpz:
    """A random prime of half the key's length, ≡ 3 (mod 4), its two top bits set; with ``other``, both fit DJN."""
    half = KEY_BITS // 2
    while True:
        start = _read(source.bytes(half // 8)) % (mpz(1) << (half - 2)) | (mpz(3) << (half - 2)) | 3
        if gmpy2.is_prime(start, 40) and (
            other is None or (gmpy2.gcd(start - 1, other - 1) == 2 and abs(start - other).bit_length() > half - 100)
        ):
            return start


def _below(source: WordSource, bound: mpz) -> mpz:
    """A unit below ``bound``, up to a distance of 2^−128 uniform."""
    while True:
        found = _read(source.bytes(_BYTES + 16)) % bound
        if gmpy2.gcd(found, bound) == 1:
            return found


def _challenges(n: mpz, h: mpz) -> list[mpz]:
    """Eleven numbers that the key's own bytes fix, of 256 bits more than n."""
    seed = digest(_PROOF_LABEL, _written(n, _BYTES), _written(h, _BYTES))
    found = []
    for i in range(_ROOTS):
        parts = [digest(_PROOF_LABEL, seed, bytes((i, j))) for j in range(_BYTES // 32 + 1)]
        found.append(_read(b"".join(parts)) % n)
    return found


def _read(raw: bytes) -> mpz:
    return mpz(int.from_bytes(raw, "big"))


def _written(value: mpz, size: int) -> bytes:
    return int(value).to_bytes(size, "big")
