"""What a homomorphic sum asks of a scheme, whichever it is: vectors of integers, block by block.

A vector of ``size`` entries is cut into blocks of ``block_values``; every block is encrypted by itself to exactly
``block_bytes`` bytes, so that nothing longer than a block has to be in memory anywhere. Blocks of the same number are
added up under encryption; a total is *finished* by whoever adds up: its own integers (noise) go in, and everything that
could still tell of the addends apart from their sum is drowned (:mod:`~tallystick.crypto.homomorphic.flooding`) or
randomised away.

Room is checked when the scheme is made, from public facts: no total beyond ``limit`` in absolute value, no more than
``owners`` addends. A study that does not fit is refused before anything is encrypted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret

Integers = NDArray[np.int64]
SCHEMES = {"bfv": "bfv:Bfv", "paillier": "paillier:Paillier"}
_NEEDS = {"bfv": "seal-python", "paillier": "gmpy2"}


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a sum is: public facts that every party derives from the study by itself."""

    size: int
    """Entries of the vector."""
    limit: int
    """No entry of a total is larger in absolute value, noise included."""
    owners: int
    """At most so many encrypted vectors are added up, beside what the one who adds up puts in itself."""
    flood_bits: int = 0
    """Where the scheme has an error to drown: uniform in ±2^flood_bits."""


class Scheme(ABC):
    """A scheme made for sums of one extent."""

    name: ClassVar[str]
    block_values: int
    block_bytes: int
    public_bytes: int
    """How long a public key is."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self._known: EncryptingKey | None = None
        if extent.size < 1 or extent.limit < 1 or extent.owners < 1:
            raise LocalProtocolError("a sum has an entry, a limit and an owner at least")

    @cached_property
    def blocks(self) -> int:
        """How many blocks a vector has."""
        return -(-self.extent.size // self.block_values)

    def part(self, vector: Integers, block: int) -> Integers:
        """The entries of one block; the last may have fewer."""
        return vector[block * self.block_values : (block + 1) * self.block_values]

    @abstractmethod
    def generate(self, source: WordSource) -> DecryptingKey:
        """A fresh pair of keys."""

    def public_key(self, raw: bytes, *, party: str | None = None) -> EncryptingKey:
        """A key that somebody sent, with its proof, if it is well-formed as far as the scheme can tell."""
        if self._known is None or self._known.raw != raw:  # a simulation's parties share the scheme: checked once
            self._known = self._public_key(raw, party)
        return self._known

    @abstractmethod
    def _public_key(self, raw: bytes, party: str | None) -> EncryptingKey: ...

    @abstractmethod
    def secret_key(self, raw: Secret) -> DecryptingKey:
        """A key that was kept by its owner."""


class EncryptingKey(ABC):
    """The public half."""

    def __init__(self, scheme: Scheme, raw: bytes) -> None:
        self.scheme, self.raw = scheme, raw

    @cached_property
    def digest(self) -> bytes:
        """What names the key: bound into uploads, agreements and releases."""
        return digest(b"tallystick/homomorphic/key/v1", self.scheme.name.encode(), self.raw)

    def encrypt(self, values: Integers, source: WordSource) -> bytes:
        """One block, with fresh randomness: from ``source``, unless the library insists on its own."""
        if values.dtype != np.int64 or values.ndim != 1 or values.size > self.scheme.block_values:
            raise LocalProtocolError(f"a block has at most {self.scheme.block_values} 64-bit integers")
        if values.size and max(abs(int(values.max())), abs(int(values.min()))) > self.scheme.extent.limit:
            raise LocalProtocolError(
                "an entry is larger than the sum it would go into may be", remedy="It would wrap around; clip first."
            )
        return self._encrypt(values, source)

    @abstractmethod
    def _encrypt(self, values: Integers, source: WordSource) -> bytes: ...

    @abstractmethod
    def check(self, block: bytes, *, party: str | None = None) -> None:
        """Refuse bytes that are no ciphertext block under this key's parameters: wrong length, out of range."""

    @abstractmethod
    def total(self, blocks: Iterable[bytes], own: Integers, source: WordSource) -> bytes:
        """The sum of these checked blocks and of ``own``, with all but the sum itself drowned or randomised away."""

    def _whole(self, block: bytes, party: str | None) -> None:
        if len(block) != self.scheme.block_bytes:
            out_of_range(f"it has {len(block)} bytes instead of {self.scheme.block_bytes}", party)


class DecryptingKey(ABC):
    """The secret half; ``erase()`` ends it."""

    public: EncryptingKey

    @abstractmethod
    def decrypt(self, block: bytes) -> Integers:
        """All ``block_values`` integers of a block."""

    @abstractmethod
    def reveal(self) -> Secret:
        """The key as its owner keeps it (a file of mode 0600)."""

    @abstractmethod
    def erase(self) -> None:
        """Nothing can be decrypted any more; what the library holds in memory is dropped."""


def scheme_for(name: str, extent: Extent) -> Scheme:
    """The scheme of this name for such sums, or a ``StudyError`` that says why it cannot be."""
    if name not in SCHEMES:
        raise StudyError(f"there is no scheme {name[:40]!a}", remedy=f"There are: {', '.join(sorted(SCHEMES))}.")
    module, _, kind = SCHEMES[name].partition(":")
    try:
        loaded = import_module(f"tallystick.crypto.homomorphic.{module}")
    except ImportError:
        raise StudyError(
            f"the scheme {name} needs {_NEEDS[name]}, which is not installed here",
            rule="extra-not-installed",
            remedy='Install the extra of homomorphic encryption: pip install "tallystick[he]".',
        ) from None
    made: Scheme = getattr(loaded, kind)(extent)
    return made


def no_room(cause: str, remedy: str) -> NoReturn:
    """The sum does not fit the scheme; nothing was encrypted."""
    raise StudyError(cause, rule="homomorphic-headroom", remedy=remedy)


def out_of_range(cause: str, party: str | None) -> NoReturn:
    """Bytes that are no ciphertext under the study's parameters."""
    raise RemoteProtocolError(
        f"this is no ciphertext of the study's scheme: {cause}",
        rule="ciphertext-range",
        party=party,
        remedy="Nothing of it is kept; let the sender run the same release of tallystick.",
    )


def bad_key(cause: str, party: str | None, rule: str = "bad-public-key") -> NoReturn:
    """A public key nobody should encrypt under."""
    raise RemoteProtocolError(
        f"the data user's public key is refused: {cause}",
        rule=rule,
        party=party,
        remedy="Nothing was encrypted under it. The data user makes another key with a new version of the study.",
    )


def bad_key_size(found: int, wanted: int, party: str | None) -> NoReturn:
    """A public key of another length than the scheme's."""
    bad_key(f"it has {found} bytes instead of {wanted}", party, "key-too-small" if found < wanted else "bad-public-key")
