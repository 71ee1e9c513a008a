"""Pairwise masks and self-masks that cancel in a sum [BIK17], with keys that end with their round [MWAPR23].

Two clients A and B, A's name before B's, agree once for a whole study, and derive a key for every round::

    pair secret  = HKDF-SHA256( X25519(own secret, other public),
                                info = digest("tallystick/mask-pair/v1", study, A, B, A's key, B's key) )
    round key    = HKDF-Expand-SHA256( pair secret, info = digest("tallystick/mask-round/v1", study, round, A, B) )
    pair mask    = expand( round key, digest("tallystick/pair-mask/v1", study, round, A, B) )      A adds, B subtracts
    self-mask    = expand( self seed, digest("tallystick/self-mask/v1", study, round, client) )    the client adds

``expand`` is :mod:`tallystick.crypto.prg`'s AES-128-CTR keystream taken into Z_p by rejection, added 256 KB at a time,
so a mask never exists in memory. Masked vectors of both ends of a pair sum to a vector without the pair's mask.

**What may be revealed is of one round only.** HKDF-Expand is a pseudo-random function of its info [RFC 5869, Kra10]:
the round keys of other rounds stay indistinguishable from random to whoever is given one. :class:`PairSecret` hands
out round keys and nothing else; it has no way to its own bytes, is not serialised, and there is nothing here that
shares or wraps it. A client that comes back from a crash derives it again from its study key.

A client draws two fresh secrets a round (:class:`RoundSecrets`) and Shamir-shares both among its neighbours: the self
seed, rebuilt if the client is among the survivors, and a wrapping key, rebuilt if it is not. Under the wrapping key
lie its round keys with all neighbours (:func:`wrap_round_keys`), which the reducer holds sealed from the start. So a
drop-out needs no answer from every one of its neighbours, only from a threshold of them, as in [BIK17]; and what is
rebuilt opens this round's pair masks of a client whose self-mask stays closed. Never may both secrets of one client
be revealed in a round, and a round number masks one vector: two vectors under one number differ by their values.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
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
from tallystick.core.redaction import Secret
from tallystick.crypto import prg
from tallystick.crypto.key_agreement import AgreementKey, StudyKey

KEY_BYTES = 32
TAG_BYTES = 16
_PAIR = b"tallystick/mask-pair/v1"
_ROUND = b"tallystick/mask-round/v1"
_PAIR_MASK = b"tallystick/pair-mask/v1"
_SELF_MASK = b"tallystick/self-mask/v1"
_WRAP = b"tallystick/mask-key-wrap/v1"
_NO_NONCE = bytes(12)  # a wrapping key seals once

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
        _check_round(self.study_hash, self.round)
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
        context = digest(_PAIR_MASK, *_ends(self.study_hash, self.round, self.first, self.second))
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
        """HKDF-Expand to one block, T(1) = HMAC(pair secret, info ‖ 1) [RFC 5869 §2.3]."""
        if not self._key:
            raise LocalProtocolError("this pair's secret was erased", remedy="Keys end with their study.")
        _check_round(self.study_hash, round)
        info = digest(_ROUND, *_ends(self.study_hash, round, self.first, self.second))
        key = hmac.digest(self._key, info + b"\x01", "sha256")
        return RoundKey(self.study_hash, round, self.first, self.second, key)

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


@dataclass(frozen=True, eq=False, slots=True)
class RoundSecrets:
    """A client's own two secrets of one round. Their shares are dealt together; only one of them is ever rebuilt."""

    self_seed: Secret
    wrapping_key: Secret

    @classmethod
    def generate(cls, source: WordSource) -> RoundSecrets:
        """Fresh ones, 32 bytes of ``source`` each."""
        return cls(Secret(source.bytes(KEY_BYTES)), Secret(source.bytes(KEY_BYTES)))


def add_self_mask(acc: Vector, seed: Secret, *, study_hash: bytes, round: int, party: str) -> None:
    """acc += the client's own mask of this round."""
    prg.add_expanded(acc, seed, _self_context(study_hash, round, party))


def remove_self_mask(acc: Vector, seed: Secret, *, study_hash: bytes, round: int, party: str) -> None:
    """acc −= the same: for the reducer, once a survivor's seed is rebuilt."""
    prg.subtract_expanded(acc, seed, _self_context(study_hash, round, party))


def mask(acc: Vector, keys: Iterable[RoundKey], seed: Secret, *, study_hash: bytes, round: int, party: str) -> None:
    """Turn a client's encoded values, in place, into what it may send: all its pair masks and its self-mask added."""
    add_self_mask(acc, seed, study_hash=study_hash, round=round, party=party)
    for key in keys:
        _check_same_round(key, study_hash, round)
        key.add(acc, party)


def unmask(
    acc: Vector,
    *,
    study_hash: bytes,
    round: int,
    seeds: Mapping[str, Secret],
    dropped: Mapping[str, Mapping[str, RoundKey]],
) -> None:
    """Turn the sum of the survivors' masked vectors, in place, into the sum of their values.

    ``seeds``: every survivor's self seed. ``dropped``: for every client that dropped after the keys were wrapped, its
    round keys by neighbour (:func:`unwrap_round_keys`); those of neighbours that did not survive are passed over.
    """
    if seeds.keys() & dropped.keys():
        raise LocalProtocolError(
            "a client's self-mask and pair masks are never removed in the same round",
            rule="both-secrets",
            remedy="A client either survived the round or dropped out of it.",
        )
    for party, seed in seeds.items():
        remove_self_mask(acc, seed, study_hash=study_hash, round=round, party=party)
    for keys in dropped.values():
        for survivor, key in keys.items():
            if survivor in seeds:
                _check_same_round(key, study_hash, round)
                key.remove(acc, survivor)


def wrap_round_keys(
    keys: Sequence[RoundKey], wrapping_key: Secret, *, study_hash: bytes, round: int, party: str
) -> bytes:
    """The client's round keys, in order of the neighbours' names, under AES-256-GCM with this round's wrapping key."""
    ordered = sorted(keys, key=lambda key: key.other(party))
    names = [key.other(party) for key in ordered]
    if len(set(names)) != len(names):
        raise LocalProtocolError("a neighbour has two round keys", remedy="Derive one key for each neighbour.")
    for key in ordered:
        _check_same_round(key, study_hash, round)
    plain = b"".join(key.reveal() for key in ordered)
    return AESGCM(wrapping_key.reveal()).encrypt(_NO_NONCE, plain, _wrap_context(study_hash, round, party, names))


def unwrap_round_keys(
    wrapped: bytes, wrapping_key: Secret, *, study_hash: bytes, round: int, party: str, neighbours: Sequence[str]
) -> dict[str, RoundKey]:
    """A drop-out's round keys by neighbour, from what it wrapped and the key that its neighbours rebuilt."""
    names = sorted(neighbours)
    try:
        context = _wrap_context(study_hash, round, party, names)
        plain = AESGCM(wrapping_key.reveal()).decrypt(_NO_NONCE, wrapped, context)
    except InvalidTag:
        plain = b""
    if len(plain) != KEY_BYTES * len(names):
        raise RemoteProtocolError(
            "the wrapped round keys do not open with the key that was rebuilt",
            rule="bad-wrapped-keys",
            party=party,
            remedy="The round cannot be unmasked without this client; run it again without the client.",
        )
    found = {}
    for at, name in enumerate(names):
        first, second = sorted((party, name))
        key = plain[KEY_BYTES * at : KEY_BYTES * (at + 1)]
        found[name] = RoundKey(study_hash, round, first, second, key)
    return found


def _ends(study_hash: bytes, round: int, *names: str) -> tuple[bytes, ...]:
    return (study_hash, round.to_bytes(8, "little"), *(name.encode() for name in names))


def _self_context(study_hash: bytes, round: int, party: str) -> bytes:
    _check_round(study_hash, round)
    return digest(_SELF_MASK, *_ends(study_hash, round, party))


def _wrap_context(study_hash: bytes, round: int, party: str, names: Sequence[str]) -> bytes:
    _check_round(study_hash, round)
    return digest(_WRAP, *_ends(study_hash, round, party, *names))


def _check_round(study_hash: bytes, round: int) -> None:
    if len(study_hash) != HASH_BYTES or not 0 <= round < 2**63:
        raise LocalProtocolError(
            "masks belong to a study's hash of 32 bytes and a round of zero or more",
            remedy="Pass the SHA-256 of the study and the number of the round.",
        )


def _check_same_round(key: RoundKey, study_hash: bytes, round: int) -> None:
    if key.round != round or key.study_hash != study_hash:
        raise LocalProtocolError(
            f"a key of round {key.round} was offered for round {round}",
            rule="round-key",
            remedy="Derive the keys of this study and round with PairSecret.round_key.",
        )
