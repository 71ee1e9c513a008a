"""The keys that two clients share: one secret for a study, from it a key for each round's mask and each packet.

Two clients A and B, A's name before B's, agree once for a whole study, and derive what a round takes::

    pair secret  = HKDF-SHA256( X25519(own secret, other public),
                                info = digest("tallystick/mask-pair/v1", study, A, B, A's key, B's key) )
    round key    = HKDF-Expand-SHA256( pair secret, info = digest("tallystick/mask-round/v1", study, round, A, B) )
    packet key   = HKDF-Expand-SHA256( pair secret, info = digest("tallystick/mask-packet/v1", study, round, from, to) )

The round key gives the pair's mask (:mod:`tallystick.crypto.masking`). The packet key of a direction seals what one of
the two tells the other by way of the reducer, its shares above all: AES-256-GCM, a fresh random nonce of 12 bytes in
front, so that a client set back to an old state that seals again repeats no nonce (but for a chance of 2^-96).

**What may be revealed is of one round only.** HKDF-Expand is a pseudo-random function of its info [RFC 5869, Kra10]:
whoever is given some of its outputs cannot tell the others, of other rounds or for packets, from random bytes.
:class:`PairSecret` hands out round keys, seals and opens; it has no way to its own bytes and is not serialised, and
nothing here shares or wraps it. A client that comes back from a crash derives it again from its study key.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES, digest
from tallystick.core.randomness import WordSource
from tallystick.crypto import prg
from tallystick.crypto.key_agreement import AgreementKey, StudyKey

KEY_BYTES = 32
TAG_BYTES = 16
NONCE_BYTES = 12
_PAIR = b"tallystick/mask-pair/v1"
_ROUND = b"tallystick/mask-round/v1"
_PACKET = b"tallystick/mask-packet/v1"
_PAIR_MASK = b"tallystick/pair-mask/v1"

Vector = NDArray[np.uint64]


@dataclass(frozen=True, eq=False, slots=True)
class RoundKey:
    """The key of one pair for one round: what a drop-out's neighbours may help to reveal, and no more than that."""

    study_hash: bytes
    round: int
    first: str
    second: str
    _key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_round(self.study_hash, self.round)
        if not self.first < self.second:
            raise LocalProtocolError("the ends of a pair are named in order", remedy="Name the smaller one first.")
        if len(self._key) != KEY_BYTES:
            raise LocalProtocolError(
                f"a round key has {KEY_BYTES} bytes", remedy="Derive it with PairSecret.round_key."
            )

    def reveal(self) -> bytes:
        """The key bytes, for the cipher and the wrapping alone."""
        return self._key

    def other(self, party: str) -> str:
        """The other end."""
        return self.second if self._is_first(party) else self.first

    def add(self, acc: Vector, party: str) -> None:
        """acc + the mask if ``party`` is the first of the pair, acc − the mask if it is the second."""
        self._change(acc, negate=not self._is_first(party))

    def remove(self, acc: Vector, party: str) -> None:
        """Take off again what ``party`` added: for the reducer, where ``party`` survived and the other end did not."""
        self._change(acc, negate=self._is_first(party))

    def _change(self, acc: Vector, *, negate: bool) -> None:
        context = digest(_PAIR_MASK, *round_parts(self.study_hash, self.round, self.first, self.second))
        (prg.subtract_expanded if negate else prg.add_expanded)(acc, self._key, context)

    def _is_first(self, party: str) -> bool:
        if party not in (self.first, self.second):
            raise LocalProtocolError(
                f"{party} is no end of the pair {self.first} and {self.second}", remedy="Use the keys of its own pairs."
            )
        return party == self.first

    def __reduce__(self) -> NoReturn:
        raise TypeError("round keys are not serialised")


class PairSecret:
    """What two clients share for a whole study; gives round keys, never itself. ``erase()`` ends it."""

    __slots__ = ("_key", "first", "second", "study_hash")

    def __init__(self, *, study_hash: bytes, first: str, second: str, key: bytes) -> None:
        self.study_hash, self.first, self.second = study_hash, first, second
        self._key = bytearray(key)

    def round_key(self, round: int) -> RoundKey:
        """The key of this pair's mask in one round."""
        key = self._expand(digest(_ROUND, *round_parts(self.study_hash, round, self.first, self.second)))
        return RoundKey(self.study_hash, round, self.first, self.second, key)

    def seal(self, payload: bytes, *, round: int, sender: str, source: WordSource) -> bytes:
        """What ``sender`` tells the other end in this round: 12 bytes of nonce, the payload under it, 16 of tag."""
        nonce = source.bytes(NONCE_BYTES)
        return nonce + AESGCM(self._packet_key(round, sender)).encrypt(nonce, payload, None)

    def open(self, sealed: bytes, *, round: int, sender: str) -> bytes:
        """What ``sender`` sealed; refused, in its name, if it was sealed otherwise, elsewhere or changed."""
        try:
            return AESGCM(self._packet_key(round, sender)).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            raise RemoteProtocolError(
                "a packet does not open: it is of another round or client, or was changed",
                rule="bad-packet",
                party=sender,
                remedy="Nothing of it was used; the client takes part again in the next round.",
            ) from None

    def _packet_key(self, round: int, sender: str) -> bytes:
        if sender not in (self.first, self.second):
            raise LocalProtocolError(f"{sender} is no end of this pair", remedy="Use the secret of its own pair.")
        ends = (self.first, self.second) if sender == self.first else (self.second, self.first)
        return self._expand(digest(_PACKET, *round_parts(self.study_hash, round, *ends)))

    def _expand(self, info: bytes) -> bytes:
        """HKDF-Expand to one block, T(1) = HMAC(pair secret, info ‖ 1) [RFC 5869 §2.3]."""
        if not self._key:
            raise LocalProtocolError("this pair's secret was erased", remedy="Keys end with their study.")
        return hmac.digest(self._key, info + b"\x01", "sha256")

    def erase(self) -> None:
        """Overwrite the secret; no round key can be derived any more."""
        self._key[:] = bytes(len(self._key))
        self._key = bytearray()

    def __repr__(self) -> str:
        return f"PairSecret({self.first}, {self.second}{'' if self._key else ', erased'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("pair secrets are not serialised")


def agree_pair(own: AgreementKey, *, mine: StudyKey, theirs: StudyKey) -> PairSecret:
    """The secret of a pair for a whole study; one X25519 agreement. Verify both study keys first.

    Refused: a key of low order or in a second spelling, one's own key sent back, a key of another study.
    """
    if own.public != mine.public:
        raise LocalProtocolError("a pair needs the key of one of its ends", remedy="Pass this party's own key.")
    if mine.study_hash != theirs.study_hash or mine.party == theirs.party:
        raise RemoteProtocolError(
            "a study key is of another study" if mine.party != theirs.party else "a pair has two different ends",
            rule="bad-study-key",
            party=theirs.party,
            remedy="The key was not used; let that party draw a fresh one for this study.",
        )
    shared = own.agree(theirs.public, party=theirs.party)
    first, second = sorted((mine, theirs), key=lambda key: key.party)
    ends = (first.party.encode(), second.party.encode(), first.public, second.public)
    info = digest(_PAIR, mine.study_hash, *ends)
    key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(shared.reveal())
    return PairSecret(study_hash=mine.study_hash, first=first.party, second=second.party, key=key)


def round_parts(study_hash: bytes, round: int, *names: str) -> tuple[bytes, ...]:
    """What every key and mask of a round is bound to; the caller's digest puts a label in front."""
    check_round(study_hash, round)
    return (study_hash, round.to_bytes(8, "little"), *[name.encode() for name in names])


def check_round(study_hash: bytes, round: int) -> None:
    """Raise unless this can be a round of a study."""
    if len(study_hash) != HASH_BYTES or not 0 <= round < 2**63:
        raise LocalProtocolError(
            "masks belong to a study's hash of 32 bytes and a round of zero or more",
            remedy="Pass the SHA-256 of the study and the number of the round.",
        )
