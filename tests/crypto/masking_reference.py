"""Shares, masks and the circle a second time, in plain Python integers: what the vectors are made from.

Shares no code with ``tallystick``. Run it to write ``tests/vectors/masks/*.json`` anew; a change there is a change of
the wire format and needs a new version label.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from crypto_reference import P, expand, keep_below_p, keystream, sha256_parts, source_bytes, to_bytes
from sealing_reference import expand as hkdf_expand
from sealing_reference import gcm, hkdf, public_of, x25519

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "masks"


def limbs_of(secret: bytes) -> list[int]:
    return [int.from_bytes(secret[at : at + 7], "little") for at in range(0, 32, 7)]


def shamir_share(secret: bytes, coefficients: list[list[int]], x: int) -> bytes:
    """One row of five coefficients for each power from 1 on."""
    powers = [limbs_of(secret), *coefficients]
    return to_bytes([sum(row[limb] * x**power for power, row in enumerate(powers)) % P for limb in range(5)])


def shamir_rebuild(shares: list[tuple[int, bytes]]) -> bytes | None:
    limbs = []
    for limb in range(5):
        value = 0
        for x, share in shares:
            weight = int.from_bytes(share[8 * limb : 8 * limb + 8], "little")
            for other, _ in shares:
                if other != x:
                    weight = weight * other * pow(other - x, -1, P) % P
            value += weight
        limbs.append(value % P)
    if any(v >= 2**56 for v in limbs[:4]) or limbs[4] >= 2**32:
        return None
    return b"".join(v.to_bytes(7, "little") for v in limbs[:4]) + limbs[4].to_bytes(4, "little")


def ends(study: bytes, round: int, *names: str) -> list[bytes]:
    return [study, round.to_bytes(8, "little"), *(name.encode() for name in names)]


def pair_secret(own: bytes, other: bytes, study: bytes, names: tuple[str, str], publics: tuple[bytes, bytes]) -> bytes:
    """``names`` and ``publics`` with the smaller name first."""
    encoded = [name.encode() for name in names]
    return hkdf(x25519(own, other), sha256_parts(b"tallystick/mask-pair/v1", study, *encoded, *publics))


def round_key(secret: bytes, study: bytes, round: int, first: str, second: str) -> bytes:
    return hkdf_expand(secret, sha256_parts(b"tallystick/mask-round/v1", *ends(study, round, first, second)))


def pair_mask(key: bytes, size: int, study: bytes, round: int, first: str, second: str) -> list[int]:
    return expand(key, size, sha256_parts(b"tallystick/pair-mask/v1", *ends(study, round, first, second)))


def self_mask(seed: bytes, size: int, study: bytes, round: int, party: str) -> list[int]:
    return expand(seed, size, sha256_parts(b"tallystick/self-mask/v1", *ends(study, round, party)))


def masked(values: list[int], keys: dict[str, bytes], seed: bytes, study: bytes, round: int, party: str) -> list[int]:
    """``keys``: round keys by neighbour."""
    result = [(v + m) % P for v, m in zip(values, self_mask(seed, len(values), study, round, party))]
    for other, key in keys.items():
        first, second = sorted((party, other))
        sign = 1 if party == first else -1
        mask = pair_mask(key, len(values), study, round, first, second)
        result = [(v + sign * m) % P for v, m in zip(result, mask)]
    return result


def wrapped(keys: dict[str, bytes], wrapping_key: bytes, study: bytes, round: int, party: str) -> bytes:
    names = sorted(keys)
    context = sha256_parts(b"tallystick/mask-key-wrap/v1", *ends(study, round, party, *names))
    return gcm(wrapping_key, bytes(12), b"".join(keys[name] for name in names), context)


def packet(secret: bytes, nonce: bytes, payload: bytes, study: bytes, round: int, sender: str, to: str) -> bytes:
    key = hkdf_expand(secret, sha256_parts(b"tallystick/mask-packet/v1", *ends(study, round, sender, to)))
    return nonce + gcm(key, nonce, payload, b"")


def circle(names: list[str], seed: bytes) -> list[str]:
    return sorted(names, key=lambda name: sha256_parts(b"tallystick/mask-graph-order/v1", seed, name.encode()))


def shamir_cases() -> list[dict[str, Any]]:
    cases = []
    for threshold, shares in ((2, 2), (2, 5), (3, 5), (13, 24)):
        key = hashlib.sha256(b"shamir %d %d" % (threshold, shares)).digest()
        secrets = [hashlib.sha256(b"secret %d" % i).digest() for i in range(2)]
        secrets[1] = bytes([255] * 32) if threshold == 3 else secrets[1]
        count = 5 * (threshold - 1)
        words = keep_below_p(keystream(key, b"", 2 * count + 4), 2 * count)
        rows = [words[at : at + 5] for at in range(0, len(words), 5)]
        halves = [rows[: threshold - 1], rows[threshold - 1 :]]
        dealt = [
            [shamir_share(secret, half, x).hex() for x in range(1, shares + 1)] for secret, half in zip(secrets, halves)
        ]
        cases.append(
            {
                "threshold": threshold,
                "shares": shares,
                "source_key": key.hex(),
                "secrets": [secret.hex() for secret in secrets],
                "dealt": dealt,
            }
        )
    return cases


def masking_cases() -> list[dict[str, Any]]:
    cases = []
    study = hashlib.sha256(b"masked study").digest()
    names = ["Hospital B", "Hospital A", "hospital a", "Hospital 10"]
    private = {name: hashlib.sha256(b"x25519 " + name.encode()).digest() for name in names}
    public = {name: public_of(key) for name, key in private.items()}
    for round in (0, 7):
        secrets = source_bytes(hashlib.sha256(b"round %d" % round).digest(), b"", [32] * 8)
        for at, party in enumerate(names):
            keys, packets = {}, {}
            source = hashlib.sha256(b"nonces %d %d" % (round, at)).digest()
            nonces = iter(source_bytes(source, b"", [12] * 3))
            for other in sorted(names):
                if other != party:
                    first, second = sorted((party, other))
                    shared = pair_secret(
                        private[party], public[other], study, (first, second), (public[first], public[second])
                    )
                    keys[other] = round_key(shared, study, round, first, second)
                    packets[other] = packet(shared, next(nonces), other.encode(), study, round, party, other).hex()
            seed, wrapping = secrets[2 * at : 2 * at + 2]
            values = [at, -1, 2**40 + round, 0, -(2**62)]
            sent = masked([v % P for v in values], keys, seed, study, round, party)
            cases.append(
                {
                    "study_hash": study.hex(),
                    "round": round,
                    "party": party,
                    "private": private[party].hex(),
                    "publics": {name: public[name].hex() for name in names},
                    "round_keys": {name: key.hex() for name, key in sorted(keys.items())},
                    "source_key": source.hex(),
                    "packets_of_the_names": packets,
                    "self_seed": seed.hex(),
                    "wrapping_key": wrapping.hex(),
                    "values": values,
                    "masked": to_bytes(sent).hex(),
                    "wrapped": wrapped(keys, wrapping, study, round, party).hex(),
                }
            )
    return cases


def graph_cases() -> list[dict[str, Any]]:
    study = hashlib.sha256(b"masked study").digest()
    names = [f"Clinic {i}" for i in range(12)]
    given = {name: hashlib.sha256(name.encode()).digest() for name in names}
    parts = [part for name in sorted(names) for part in (name.encode(), given[name])]
    seed = sha256_parts(b"tallystick/mask-graph-seed/v1", study, *parts)
    order = circle(names, seed)
    near = {name: sorted(order[(at + step) % len(order)] for step in (-2, -1, 1, 2)) for at, name in enumerate(order)}
    return [
        {
            "study_hash": study.hex(),
            "contributions": {name: part.hex() for name, part in given.items()},
            "seed": seed.hex(),
            "degree": 4,
            "circle": order,
            "neighbours": near,
        }
    ]


def all_cases() -> dict[str, Any]:
    return {"graph": graph_cases(), "masking": masking_cases(), "shamir": shamir_cases()}


if __name__ == "__main__":
    VECTORS.mkdir(parents=True, exist_ok=True)
    for name, cases in all_cases().items():
        (VECTORS / f"{name}.json").write_text(json.dumps(cases, indent=1) + "\n")
