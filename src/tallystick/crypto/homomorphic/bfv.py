"""BFV by SEAL (the extra ``he``): 8,192 integers a ciphertext, 128-bit security, exact [Bra12; FV12; SEAL].

Parameters. N = 8192 and q of 218 bits, the most that is 128-bit secure for a ternary secret [HES18, Table 1; SEAL
checks it]: primes of 54, 54 and 55 bits for ciphertexts and one of 55 that encryption switches away. The plaintext
modulus t is a prime of at most 60 bits with t ≡ 1 (mod 2N), so that integers add up slot by slot; where 60 bits do not
hold the sum, two moduli do, each with ciphertexts of its own, and the total follows by the Chinese remainder theorem.

Bytes. A ciphertext is 2 × 3 × 8192 little-endian words, each below its prime: SEAL's own uncompressed form without its
head. So a ciphertext is checked, and ciphertexts are added, by NumPy at the speed of memory; SEAL is asked for what
needs its number theory. Coefficients are below 2^55: up to 256 of them are added before one reduction.

Randomness of keys and ciphertexts is SEAL's (its generator is seeded by the operating system's; the wrapper takes no
seed); what drowns the error comes from the caller's source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import seal
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.homomorphic.bfv_parameters import DEGREE, PRIME_BITS, check_budget, plain_bits
from tallystick.crypto.homomorphic.scheme import (
    DecryptingKey,
    EncryptingKey,
    Extent,
    Integers,
    Scheme,
    bad_key,
    bad_key_size,
    out_of_range,
)

_DATA = len(PRIME_BITS) - 1
_WORDS = 2 * _DATA * DEGREE
_KEY_WORDS = 2 * len(PRIME_BITS) * DEGREE
_SECRET_WORDS = len(PRIME_BITS) * DEGREE
_AT_ONCE = 256  # coefficients below 2^55 that a 64-bit word holds the sum of
_HALF = 18  # bits: half of a plaintext modulus, where there are two
_STEP = 8  # bits by which a residue below 2^55 is shifted before it is reduced again

Words = NDArray[np.uint64]


class _Modulus:
    """One plaintext modulus: SEAL's context of it."""

    def __init__(self, plain: seal.Modulus) -> None:
        parameters = seal.EncryptionParameters(seal.scheme_type.bfv)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, list(PRIME_BITS)))
        parameters.set_plain_modulus(plain)
        self.context = seal.SEALContext(parameters, True, seal.sec_level_type.tc128)
        if not self.context.parameters_set():
            raise LocalProtocolError(f"SEAL refuses the parameters: {self.context.parameter_error_message()}")
        self.t = int(plain.value())
        self.primes = [int(p.value()) for p in parameters.coeff_modulus()]
        self.encoder = seal.BatchEncoder(self.context)
        self.evaluator = seal.Evaluator(self.context)
        keys = seal.KeyGenerator(self.context)  # a throw-away pair: it shows what stands before the words
        public, secret = keys.create_public_key(), keys.secret_key()
        ciphertext = seal.Encryptor(self.context, public).encrypt_zero()
        self.heads = {
            count: whole[: len(whole) - 8 * count]
            for count, whole in (
                (_WORDS, ciphertext.to_string()),
                (_KEY_WORDS, public.to_string()),
                (_SECRET_WORDS, secret.to_string()),
            )
        }

    def words(self, made: Any, count: int) -> bytes:
        """What SEAL writes, without its head."""
        whole: bytes = made.to_string()
        if len(whole) != len(self.heads[count]) + 8 * count:
            raise LocalProtocolError("SEAL writes another format than this release knows", remedy="Pin seal-python.")
        return whole[-8 * count :]

    def ciphertext(self, words: bytes) -> Any:
        return self.context.from_cipher_str(self.heads[_WORDS] + words)

    def encode(self, values: Integers) -> Any:
        slots = np.zeros(DEGREE, dtype=np.int64)
        slots[: values.size] = values % np.int64(self.t)
        return self.encoder.encode(slots.view(np.uint64))


class Bfv(Scheme):
    """The scheme for sums of one extent."""

    name = "bfv"
    block_values = DEGREE

    def __init__(self, extent: Extent) -> None:
        super().__init__(extent)
        self.moduli = [_Modulus(t) for t in seal.PlainModulus.Batching(DEGREE, plain_bits(extent.limit))]
        self.block_bytes = 8 * _WORDS * len(self.moduli)
        self.public_bytes = 8 * _KEY_WORDS * len(self.moduli)
        product = 1
        for modulus in self.moduli:
            product *= modulus.t
        if product <= 2 * extent.limit:
            raise LocalProtocolError("the plaintext moduli do not hold the sum")
        check_budget(extent)
        self.primes: Words = np.array(self.moduli[0].primes[:_DATA], dtype=np.uint64)[:, None]
        self.key_primes: Words = np.array(self.moduli[0].primes, dtype=np.uint64)[:, None]

    def generate(self, source: WordSource) -> DecryptingKey:
        secrets, publics = [], []
        for modulus in self.moduli:
            keys = seal.KeyGenerator(modulus.context)
            secrets.append(modulus.words(keys.secret_key(), _SECRET_WORDS))
            publics.append(modulus.words(keys.create_public_key(), _KEY_WORDS))
        return BfvSecret(self, secrets, BfvPublic(self, b"".join(publics)))

    def _public_key(self, raw: bytes, party: str | None) -> EncryptingKey:
        """Range, and that neither polynomial is zero. What lies behind it cannot be seen: a data user can make a key
        under which the proxy reads, too, as it could hand its own key over. The two are assumed not to collude."""
        if len(raw) != self.public_bytes:
            bad_key_size(len(raw), self.public_bytes, party)
        for part in _parts(raw, len(self.moduli)):
            words = np.frombuffer(part, dtype="<u8").reshape(2, len(PRIME_BITS), DEGREE)
            if (words >= self.key_primes).any():
                bad_key("a coefficient is not below its prime", party)
            if not words.any(axis=-1).all():
                bad_key("it would encrypt nothing (one of its polynomials is zero)", party)
        return BfvPublic(self, raw)

    def secret_key(self, raw: Secret) -> DecryptingKey:
        whole = raw.reveal()
        cut = 8 * _SECRET_WORDS * len(self.moduli)
        return BfvSecret(self, _parts(whole[:cut], len(self.moduli)), BfvPublic(self, whole[cut:]))


class BfvPublic(EncryptingKey):
    """A public key for each plaintext modulus."""

    scheme: Bfv

    def __init__(self, scheme: Bfv, raw: bytes) -> None:
        super().__init__(scheme, raw)
        self._encryptors = [
            seal.Encryptor(modulus.context, modulus.context.from_public_str(modulus.heads[_KEY_WORDS] + part))
            for modulus, part in zip(scheme.moduli, _parts(raw, len(scheme.moduli)))
        ]

    def _encrypt(self, values: Integers, source: WordSource) -> bytes:
        return b"".join(
            [
                modulus.words(encryptor.encrypt(modulus.encode(values)), _WORDS)
                for modulus, encryptor in zip(self.scheme.moduli, self._encryptors)
            ]
        )

    def check(self, block: bytes, *, party: str | None = None) -> None:
        self._whole(block, party)
        if (self._polynomials(block) >= self.scheme.primes).any():
            out_of_range("a coefficient is not below its prime", party)

    def _polynomials(self, block: bytes) -> Words:
        shape = (len(self.scheme.moduli), 2, _DATA, DEGREE)
        return np.frombuffer(block, dtype="<u8").astype(np.uint64, copy=False).reshape(shape)

    def total(self, blocks: Iterable[bytes], own: Integers, source: WordSource) -> bytes:
        primes = self.scheme.primes
        acc: Words = np.zeros((len(self.scheme.moduli), 2, _DATA, DEGREE), dtype=np.uint64)
        since = 0
        for block in blocks:
            acc += self._polynomials(block)
            since += 1
            if since == _AT_ONCE - 1:
                acc %= primes
                since = 0
        acc %= primes
        return b"".join(
            [
                self._finished(modulus, encryptor, words, own, source)
                for modulus, encryptor, words in zip(self.scheme.moduli, self._encryptors, acc)
            ]
        )

    def _finished(self, modulus: _Modulus, encryptor: Any, words: Words, own: Integers, source: WordSource) -> bytes:
        """Own integers in, a fresh encryption of zero on top, the error drowned."""
        total = modulus.ciphertext(words.astype("<u8", copy=False).tobytes())
        total = modulus.evaluator.add(total, encryptor.encrypt_zero())
        total = modulus.evaluator.add_plain(total, modulus.encode(own))
        whole = np.frombuffer(modulus.words(total, _WORDS), dtype="<u8").astype(np.uint64).reshape(2, _DATA, DEGREE)
        whole[0] = (whole[0] + _flood(self.scheme, source)) % self.scheme.primes
        return whole.astype("<u8", copy=False).tobytes()


def _flood(scheme: Bfv, source: WordSource) -> Words:
    """For each coefficient an integer uniform in [−2^b, 2^b), by its residues: b + 1 fair bits, minus 2^b."""
    bits, primes = scheme.extent.flood_bits + 1, scheme.primes
    residues: Words = np.zeros((_DATA, DEGREE), dtype=np.uint64)
    for done in range(0, bits, 48):
        some = min(48, bits - done)
        for _ in range(0, some - some % _STEP, _STEP):
            residues = (residues << np.uint64(_STEP)) % primes
        residues = (residues << np.uint64(some % _STEP)) % primes
        residues = (residues + (source.words(DEGREE) >> np.uint64(64 - some))) % primes
    shift = np.array([[pow(2, bits - 1, int(p))] for p in primes[:, 0]], dtype=np.uint64)
    return (residues + (primes - shift)) % primes


class BfvSecret(DecryptingKey):
    """A secret key for each plaintext modulus."""

    def __init__(self, scheme: Bfv, words: list[bytes], public: BfvPublic) -> None:
        self._scheme, self._words, self.public = scheme, words, public
        self._decryptors = [
            seal.Decryptor(modulus.context, modulus.context.from_secret_str(modulus.heads[_SECRET_WORDS] + part))
            for modulus, part in zip(scheme.moduli, words)
        ]

    def decrypt(self, block: bytes) -> Integers:
        if not self._decryptors:
            raise LocalProtocolError("this study's key was erased", remedy="Keys end with their study.")
        found = []
        for modulus, decryptor, part in zip(
            self._scheme.moduli, self._decryptors, _parts(block, len(self._scheme.moduli))
        ):
            found.append(np.asarray(modulus.encoder.decode_uint64(decryptor.decrypt(modulus.ciphertext(part)))))
        return _signed(found, [modulus.t for modulus in self._scheme.moduli])

    def noise_budget(self, block: bytes) -> int:
        """Bits that are left before a block no longer decrypts; for benches and tests."""
        parts = _parts(block, len(self._scheme.moduli))
        left = [
            decryptor.invariant_noise_budget(modulus.ciphertext(part))
            for modulus, decryptor, part in zip(self._scheme.moduli, self._decryptors, parts)
        ]
        return int(min(left))

    def reveal(self) -> Secret:
        return Secret(b"".join([*self._words, self.public.raw]))

    def erase(self) -> None:
        self._words, self._decryptors = [], []


def _parts(raw: bytes, count: int) -> list[bytes]:
    step = len(raw) // count
    return [raw[i * step : (i + 1) * step] for i in range(count)]


def _signed(residues: list[Words], moduli: list[int]) -> Integers:
    """The integers with these residues, next to 0; with two moduli cut at ±2^62, far beyond any study's limit.

    Cut, and not wrapped: a total is judged once its last noise is in it, and one beyond the range stays beyond it.
    """
    if len(moduli) == 1:
        found, half = residues[0].astype(np.int64), moduli[0] // 2
        return np.where(found > half, found - np.int64(moduli[0]), found)
    # Garner: v = a + t1·k with k = (b − a)·t1⁻¹ mod t2 of least absolute value. The moduli have 35 bits at most, so the
    # product is taken in two halves.
    (a, b), (t1, t2) = [r.astype(np.int64) for r in residues], [np.int64(t) for t in moduli]
    inverse = pow(moduli[0], -1, moduli[1])
    difference = (b - a) % t2
    high, low = np.int64(inverse >> _HALF), np.int64(inverse & ((1 << _HALF) - 1))
    k = (((difference * high) % t2) * np.int64(1 << _HALF) + difference * low) % t2
    k = np.where(k > t2 // 2, k - t2, k)
    most = np.int64((1 << 62) // moduli[0] + 1)
    return a + t1 * np.clip(k, -most, most)
