"""The crypto room a second time, in plain Python integers: what the vectors are made from and checked with.

Shares no code with ``tallystick``: hashlib, one-shot AES from ``cryptography`` and ``int``. Run it to write
``tests/vectors/crypto/*.json`` anew; a change there is a change of the wire format and needs a new version label.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

P = 18446744069414584321  # 2^64 - 2^32 + 1
VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "crypto"


def sha256_parts(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()


def keystream(seed: bytes, context: bytes, count: int) -> list[int]:
    material = sha256_parts(b"tallystick/aes-128-ctr/v1", context, seed)
    raw = Cipher(algorithms.AES(material[:16]), modes.CTR(material[16:])).encryptor().update(bytes(8 * count))
    return [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 8 * count, 8)]


def keep_below_p(words: list[int], size: int) -> list[int]:
    return [word for word in words if word < P][:size]


def expand(seed: bytes, size: int, context: bytes) -> list[int]:
    return keep_below_p(keystream(seed, sha256_parts(b"tallystick/expand/v1", context), size + 8), size)


def derive(seed: bytes, *labels: bytes) -> bytes:
    return hmac.new(seed, sha256_parts(b"tallystick/derive/v1", *labels), hashlib.sha256).digest()


def context_for(study_hash: bytes, round: int, client: str) -> bytes:
    return sha256_parts(b"tallystick/share/v1", study_hash, round.to_bytes(8, "little"), client.encode("utf-8"))


def vector_server_for(study_hash: bytes, round: int, client: str, servers: int) -> int:
    first = sha256_parts(b"tallystick/vector-server/v1", study_hash, client.encode("utf-8"))[:8]
    return (int.from_bytes(first, "little") + round) % servers


def split(values: list[int], servers: int, vector_server: int, seeds: list[bytes], context: bytes) -> list[Any]:
    """Seeds for all servers but one, and the list of elements for that one."""
    shares: list[Any] = []
    remaining = iter(seeds)
    rest = list(values)
    for server in range(servers):
        if server == vector_server:
            shares.append(None)
            continue
        seed = next(remaining)
        mask = expand(seed, len(values), context + server.to_bytes(4, "little"))
        rest = [(a - b) % P for a, b in zip(rest, mask)]
        shares.append(seed)
    shares[vector_server] = rest
    return shares


def encode_signed(value: int) -> int:
    return value % P


def to_bytes(vector: list[int]) -> bytes:
    return b"".join(element.to_bytes(8, "little") for element in vector)


def source_bytes(key: bytes, context: bytes, calls: list[int]) -> list[bytes]:
    """What a WordSource over this stream answers to consecutive bytes(n) calls: whole words each time."""
    stream = to_bytes(keystream(key, context, sum(-(-n // 8) for n in calls)))
    out, at = [], 0
    for n in calls:
        out.append(stream[at : at + n])
        at += 8 * -(-n // 8)
    return out


def _hex(data: bytes) -> str:
    return data.hex()


def expansion_cases() -> list[dict[str, Any]]:
    cases = []
    for index, (size, context) in enumerate([(1, b""), (5, b"a"), (33, b"study|1|hospital"), (3, bytes(range(40)))]):
        seed = hashlib.sha256(b"seed %d" % index).digest()
        cases.append(
            {"seed": _hex(seed), "context": _hex(context), "vector": _hex(to_bytes(expand(seed, size, context)))}
        )
    seed = hashlib.sha256(b"long").digest()
    long = to_bytes(expand(seed, 100_000, b"long"))  # several chunks: only the digest is kept
    cases.append(
        {"seed": _hex(seed), "context": _hex(b"long"), "size": 100_000, "sha256": hashlib.sha256(long).hexdigest()}
    )
    return cases


def share_cases() -> list[dict[str, Any]]:
    cases = []
    for servers in (2, 3, 5):
        for round in (0, 7):
            study, client = hashlib.sha256(b"study").digest(), f"Hospital {servers}"
            context, chosen = context_for(study, round, client), vector_server_for(study, round, client, servers)
            key = hashlib.sha256(b"source %d %d" % (servers, round)).digest()
            seeds = source_bytes(key, b"", [32] * (servers - 1))
            integers = [0, 1, -1, 12345, -(2**62), (P - 1) // 2, -(P - 1) // 2]
            shares = split([encode_signed(v) for v in integers], servers, chosen, seeds, context)
            cases.append(
                {
                    "study_hash": _hex(study),
                    "round": round,
                    "client": client,
                    "servers": servers,
                    "source_key": _hex(key),
                    "integers": integers,
                    "context": _hex(context),
                    "vector_server": chosen,
                    "shares": [_hex(s) if isinstance(s, bytes) else {"vector": _hex(to_bytes(s))} for s in shares],
                }
            )
    return cases


def encoding_cases() -> dict[str, Any]:
    half = (P - 1) // 2
    good = [0, 1, -1, half, -half, 2**53 + 1, -(2**31)]
    top = 2**64 - 1
    return {
        "good": [{"integer": v, "bytes": _hex(to_bytes([encode_signed(v)]))} for v in good],
        "bad": [
            {"why": "element equal to p", "size": 1, "bytes": _hex(to_bytes([P]))},
            {"why": "largest word", "size": 1, "bytes": _hex(to_bytes([top]))},
            {"why": "last element too large", "size": 3, "bytes": _hex(to_bytes([0, P - 1, P + 1]))},
            {"why": "big-endian 2^33 - 1", "size": 1, "bytes": _hex((2**33 - 1).to_bytes(8, "big"))},
            {"why": "one byte short", "size": 2, "bytes": _hex(to_bytes([1, 2])[:-1])},
            {"why": "one element too many", "size": 1, "bytes": _hex(to_bytes([1, 2]))},
            {"why": "empty", "size": 1, "bytes": ""},
            {"why": "no elements agreed", "size": 0, "bytes": ""},
        ],
        "unrepresentable": [half + 1, -half - 1, 2**63 - 1, -(2**63)],
    }


def derivation_cases() -> list[dict[str, Any]]:
    seed = hashlib.sha256(b"root").digest()
    labels = [[], [b""], [b"a", b"bc"], [b"ab", b"c"], [b"noise", (3).to_bytes(8, "little")]]
    return [{"seed": _hex(seed), "labels": [_hex(x) for x in ls], "key": _hex(derive(seed, *ls))} for ls in labels]


def all_cases() -> dict[str, Any]:
    return {
        "expansion": expansion_cases(),
        "shares": share_cases(),
        "encoding": encoding_cases(),
        "derivation": derivation_cases(),
    }


if __name__ == "__main__":
    for name, cases in all_cases().items():
        (VECTORS / f"{name}.json").write_text(json.dumps(cases, indent=1) + "\n")
