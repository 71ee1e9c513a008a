"""Pairwise masks and self-masks that cancel in a sum [BIK17], of keys that end with their round [MWAPR23].

With the round key of the clients A and B (:mod:`tallystick.crypto.mask_keys`), A's name before B's::

    pair mask    = expand( round key, digest("tallystick/pair-mask/v1", study, round, A, B) )      A adds, B subtracts
    self-mask    = expand( self seed, digest("tallystick/self-mask/v1", study, round, client) )    the client adds

``expand`` is :mod:`tallystick.crypto.prg`'s AES-128-CTR keystream taken into Z_p by rejection, added 256 KB at a time,
so a mask never exists in memory. The masked vectors of both ends of a pair sum to a vector without the pair's mask.

A client draws two fresh secrets a round (:class:`RoundSecrets`) and Shamir-shares both among its neighbours: the self
seed, rebuilt if the client is among the survivors, and a wrapping key, rebuilt if it is not. Under the wrapping key
lie its round keys with all neighbours (:func:`wrap_round_keys`), which the reducer holds sealed from the start. So a
drop-out needs no answer from every one of its neighbours, only from a threshold of them, as in [BIK17]; and what is
rebuilt opens this round's pair masks of a client whose self-mask stays closed. Never may both secrets of one client
be revealed in a round, and a round number masks one vector: two vectors under one number differ by their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto import prg
from tallystick.crypto.mask_keys import KEY_BYTES, TAG_BYTES, PairSecret, RoundKey, Vector, agree_pair, round_parts

__all__ = [
    "KEY_BYTES",
    "TAG_BYTES",
    "PairSecret",
    "RoundKey",
    "RoundSecrets",
    "add_self_mask",
    "agree_pair",
    "mask",
    "remove_self_mask",
    "unmask",
    "unwrap_round_keys",
    "wrap_round_keys",
]

_SELF_MASK = b"tallystick/self-mask/v1"
_WRAP = b"tallystick/mask-key-wrap/v1"
_NO_NONCE = bytes(12)  # a wrapping key seals once


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


def _self_context(study_hash: bytes, round: int, party: str) -> bytes:
    return digest(_SELF_MASK, *round_parts(study_hash, round, party))


def _wrap_context(study_hash: bytes, round: int, party: str, names: Sequence[str]) -> bytes:
    return digest(_WRAP, *round_parts(study_hash, round, party, *names))


def _check_same_round(key: RoundKey, study_hash: bytes, round: int) -> None:
    if key.round != round or key.study_hash != study_hash:
        raise LocalProtocolError(
            f"a key of round {key.round} was offered for round {round}",
            rule="round-key",
            remedy="Derive the keys of this study and round with PairSecret.round_key.",
        )
