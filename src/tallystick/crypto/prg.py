"""Keystream: AES-128-CTR as a source of words, and seeds that expand to field vectors.

A 32-byte seed and a public context give key and first counter block::

    key (16) ‖ counter (16) = SHA-256( "tallystick/aes-128-ctr/v1", context, seed )

each part length-prefixed (:func:`tallystick.core.identifiers.digest`). The context names what the words are
for (study, round, client, server), so a seed replayed elsewhere expands to unrelated words. The keystream is
read as little-endian 64-bit words; expansion to the field keeps the words below p, in order, which makes the
elements exactly uniform. AES in counter mode is the standard pseudo-random generator [NIST SP 800-38A §6.5];
a stream ends long before 2^64 blocks.

Keystream is made 256 KB at a time into a buffer that stays in the second-level cache and is added to the
accumulator from there (:func:`tallystick.crypto.kernels.absorb`): the expanded share never exists in memory.
"""

from __future__ import annotations

import hmac
import sys
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import SystemSource
from tallystick.core.redaction import Secret
from tallystick.crypto import kernels
from tallystick.crypto.field import MODULUS, check_vector

SEED_BYTES = 32
_CHUNK_BYTES = 256 * 1024
_CHUNK_WORDS = _CHUNK_BYTES // 8
_SLACK_WORDS = 2  # update_into of older `cryptography` asks for a block more than it writes
_ZEROS = memoryview(bytes(_CHUNK_BYTES))

_STREAM_LABEL = b"tallystick/aes-128-ctr/v1"
_EXPAND_LABEL = b"tallystick/expand/v1"
_DERIVE_LABEL = b"tallystick/derive/v1"


def _seed_bytes(seed: Secret | bytes) -> bytes:
    raw = seed.reveal() if isinstance(seed, Secret) else seed
    if not isinstance(raw, bytes) or len(raw) != SEED_BYTES:
        raise LocalProtocolError(f"a seed has {SEED_BYTES} bytes", remedy="Draw seeds with source.bytes(SEED_BYTES).")
    return raw


class AesStream:
    """A :class:`~tallystick.core.randomness.WordSource` of AES-128-CTR keystream; its ``repr`` shows no key."""

    __slots__ = ("_encryptor",)

    def __init__(self, key: Secret | bytes, context: bytes = b"", *, skip: int = 0) -> None:
        """``skip`` words are passed over, in no time: counter mode starts at any block of two words."""
        material = digest(_STREAM_LABEL, context, _seed_bytes(key))
        counter = (int.from_bytes(material[16:], "big") + skip // 2) % 2**128  # [NIST SP 800-38A] §6.5, B.1
        self._encryptor = Cipher(algorithms.AES(material[:16]), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
        if skip % 2:
            self.words(1)

    def __repr__(self) -> str:
        return f"AesStream({SEED_BYTES}-byte key)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("key streams are not serialised")

    def read_into(self, buffer: NDArray[np.uint64], count: int) -> None:
        """Write the next ``count`` words to ``buffer[:count]``; ``buffer`` has at least two words more."""
        if buffer.size < count + _SLACK_WORDS:
            raise LocalProtocolError("the keystream buffer is too short", remedy="Allow two words beyond the count.")
        raw = buffer.view(np.uint8).data
        for start in range(0, 8 * count, _CHUNK_BYTES):
            length = min(_CHUNK_BYTES, 8 * count - start)
            self._encryptor.update_into(_ZEROS[:length], raw[start:])
        if sys.byteorder == "big":
            buffer[:count].byteswap(inplace=True)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words, as a fresh array the caller owns."""
        if count < 0:
            raise LocalProtocolError("a count of words is not negative", remedy="Ask for zero words or more.")
        buffer: NDArray[np.uint64] = np.empty(count + _SLACK_WORDS, dtype=np.uint64)
        self.read_into(buffer, count)
        return buffer[:count]

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes, taken from whole words; the rest of the last word is dropped."""
        return self.words(-(-count // 8)).astype("<u8", copy=False).tobytes()[:count]


def system_stream() -> AesStream:
    """A fast stream keyed once from the operating system's generator: what deployed roles draw noise from."""
    return AesStream(SystemSource().bytes(SEED_BYTES), b"tallystick/system/v1")


def derive(seed: Secret | bytes, *labels: bytes) -> bytes:
    """32 bytes for these labels: HMAC-SHA-256 under the seed, so keys for different labels are unrelated."""
    return hmac.digest(_seed_bytes(seed), digest(_DERIVE_LABEL, *labels), "sha256")


def accumulate(acc: NDArray[np.uint64], keystream: AesStream, *, negate: bool = False) -> None:
    """acc ± the first ``acc.size`` keystream words below p, in order."""
    check_vector(acc)
    if not acc.flags.writeable:
        raise LocalProtocolError("the accumulator is read-only", remedy="Accumulate into a vector of your own.")
    buffer: NDArray[np.uint64] = np.empty(min(acc.size, _CHUNK_WORDS) + _SLACK_WORDS, dtype=np.uint64)
    filled = 0
    while filled < acc.size:
        count = min(acc.size - filled, _CHUNK_WORDS)
        keystream.read_into(buffer, count)
        filled = kernels.absorb(acc, filled, buffer[:count], negate)


def _expansion(seed: Secret | bytes, context: bytes, skip: int = 0) -> AesStream:
    return AesStream(seed, digest(_EXPAND_LABEL, context), skip=skip)


def add_expanded(acc: NDArray[np.uint64], seed: Secret | bytes, context: bytes) -> None:
    """acc += the field vector that a seed stands for in a context, without that vector ever being in memory."""
    accumulate(acc, _expansion(seed, context))


def subtract_expanded(acc: NDArray[np.uint64], seed: Secret | bytes, context: bytes) -> None:
    """acc −= the same."""
    accumulate(acc, _expansion(seed, context), negate=True)


def add_words_at(
    acc: NDArray[np.uint64], seed: Secret | bytes, context: bytes, start: int, *, negate: bool = False
) -> bool:
    """acc ± keystream words start … start + acc.size − 1, each at its own place, a word ≥ p as zero; whether none was.

    If no word of a whole expansion is ≥ p (for 10^6 elements that is so but for 2.3 in 10,000 seeds), this is its
    part from ``start`` on. One that is shifts every later element; the caller then replaces the words by the expansion.
    """
    check_vector(acc)
    stream = _expansion(seed, context, start)
    buffer: NDArray[np.uint64] = np.empty(min(acc.size, _CHUNK_WORDS) + _SLACK_WORDS, dtype=np.uint64)
    change = kernels.subtract_checked if negate else kernels.add_checked
    whole = True
    for low in range(0, acc.size, _CHUNK_WORDS):
        part = acc[low : low + _CHUNK_WORDS]
        words = buffer[: part.size]
        stream.read_into(buffer, part.size)
        if not change(part, words):
            whole = False
            words[words >= np.uint64(MODULUS)] = 0
            change(part, words)
    return whole
