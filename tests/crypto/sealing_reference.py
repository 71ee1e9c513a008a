"""Key agreement and sealing a second time: X25519, HKDF and GCM from their standards, in plain Python.

Shares no code with ``tallystick``. Only single AES blocks and Ed25519 signatures come from ``cryptography``. Run it to
write ``tests/vectors/sealing.json`` anew; a change there is a change of the wire format and needs a new version label.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from crypto_reference import sha256_parts
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

FILE = Path(__file__).resolve().parent.parent / "vectors" / "sealing.json"
CHUNK = 2**21 - 64
Q = 2**255 - 19


def x25519(scalar: bytes, u: bytes) -> bytes:
    """RFC 7748 §5, the Montgomery ladder."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(128 << 8 * 31) | 64 << 8 * 31
    x1 = int.from_bytes(u, "little") % 2**255 % Q
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % Q, b * b % Q, d * a % Q, c * b % Q
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % Q, x1 * (da - cb) ** 2 % Q
        x2, z2 = aa * bb % Q, e * (aa + 121665 * e) % Q
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, Q - 2, Q) % Q).to_bytes(32, "little")


def public_of(scalar: bytes) -> bytes:
    return x25519(scalar, (9).to_bytes(32, "little"))


def expand(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand for 32 bytes: RFC 5869 §2.3, one block."""
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def hkdf(secret: bytes, info: bytes) -> bytes:
    return expand(hmac.new(bytes(32), secret, hashlib.sha256).digest(), info)


def _aes(key: bytes, blocks: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)


def _shift(v: int) -> int:
    return v >> 1 ^ (0xE1 << 120 if v & 1 else 0)


def _ghash(h: int, data: bytes) -> int:
    """NIST SP 800-38D §6.4, with a table of h times every byte in every place."""
    tables = []
    v = h
    for _ in range(16):
        powers = []
        for _ in range(8):
            powers.append(v)
            v = _shift(v)
        table = [0] * 256
        for byte in range(256):
            for i in range(8):
                if byte & 128 >> i:
                    table[byte] ^= powers[i]
        tables.append(table)
    y = 0
    for at in range(0, len(data), 16):
        block = (y ^ int.from_bytes(data[at : at + 16], "big")).to_bytes(16, "big")
        y = 0
        for i in range(16):
            y ^= tables[i][block[i]]
    return y


def gcm(key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """NIST SP 800-38D §7.1."""
    blocks = -(-len(plain) // 16)
    stream = _aes(key, b"".join(nonce + i.to_bytes(4, "big") for i in range(1, blocks + 2)))
    body = (int.from_bytes(plain, "big") ^ int.from_bytes(stream[16 : 16 + len(plain)], "big")).to_bytes(
        len(plain), "big"
    )
    padded = [x + bytes(-len(x) % 16) for x in (aad, body)]
    sizes = (8 * len(aad)).to_bytes(8, "big") + (8 * len(body)).to_bytes(8, "big")
    h = int.from_bytes(_aes(key, bytes(16)), "big")
    tag = _ghash(h, b"".join(padded) + sizes) ^ int.from_bytes(stream[:16], "big")
    return body + tag.to_bytes(16, "big")


def study_key_signature(identity: bytes, study: bytes, party: str, role: str, public: bytes) -> bytes:
    statement = sha256_parts(b"tallystick/study-key/v1", study, party.encode(), role.encode(), public)
    return Ed25519PrivateKey.from_private_bytes(identity).sign(statement)


def channel_key(own: bytes, other: bytes, study: bytes, ends: tuple[str, str], publics: tuple[bytes, bytes]) -> bytes:
    names = [end.encode() for end in ends]
    return hkdf(x25519(own, other), sha256_parts(b"tallystick/channel/v1", study, *names, *publics))


def seal(key: bytes, study: bytes, ends: tuple[str, str], number: int, salt: bytes, plain: bytes) -> bytes:
    header = b"TSS1" + number.to_bytes(8, "big") + salt
    message_key = expand(key, b"tallystick/sealed-message/v1" + header)
    aad = sha256_parts(b"tallystick/sealed-chunk/v1", study, ends[0].encode(), ends[1].encode(), header)
    parts = [plain[i : i + CHUNK] for i in range(0, len(plain), CHUNK)] or [b""]
    out = header
    for i, part in enumerate(parts):
        last = (1 << 31) if i == len(parts) - 1 else 0
        out += gcm(message_key, number.to_bytes(8, "big") + (i | last).to_bytes(4, "big"), part, aad)
    return out


def _bytes(label: str, size: int = 32) -> bytes:
    return hashlib.shake_256(label.encode()).digest(size)


def case(name: str, size: int, number: int) -> dict[str, Any]:
    study, ends, roles = _bytes("study " + name), (f"Hospital {name}", "Server 1"), ("client", "server")
    secrets, identities = [_bytes(f"{e} x25519") for e in ends], [_bytes(f"{e} ed25519") for e in ends]
    publics = (public_of(secrets[0]), public_of(secrets[1]))
    key = channel_key(secrets[0], publics[1], study, ends, publics)
    assert key == channel_key(secrets[1], publics[0], study, ends, publics)
    salt, plain = _bytes("salt " + name, 16), _bytes("plain " + name, size)
    sealed = seal(key, study, ends, number, salt, plain)
    signed = [study_key_signature(*args) for args in zip(identities, [study] * 2, ends, roles, publics)]
    out: dict[str, Any] = {
        "study_hash": study.hex(),
        "parties": list(ends),
        "roles": list(roles),
        "secrets": [s.hex() for s in secrets],
        "identities": [i.hex() for i in identities],
        "publics": [p.hex() for p in publics],
        "signatures": [s.hex() for s in signed],
        "channel_key": key.hex(),
        "number": number,
        "salt": salt.hex(),
    }
    if size > 1000:  # too long to write out
        digest = hashlib.sha256(sealed).hexdigest()
        return out | {"plain_label": "plain " + name, "plain_size": size, "sealed_sha256": digest}
    return out | {"plain": plain.hex(), "sealed": sealed.hex()}


def bad_cases(good: dict[str, Any], other: dict[str, Any]) -> list[dict[str, str]]:
    """Changes of one good message that must all be refused."""
    raw = bytes.fromhex(good["sealed"])
    changed = {
        "empty": b"",
        "header alone": raw[:28],
        "one byte short": raw[:-1],
        "tag cut off": raw[:-16],
        "one byte more": raw + b"\0",
        "doubled body": raw + raw[28:],
        "other magic": b"TSS2" + raw[4:],
        "other number": raw[:11] + bytes([raw[11] ^ 1]) + raw[12:],
        "other salt": raw[:12] + bytes([raw[12] ^ 1]) + raw[13:],
        "first byte": raw[:28] + bytes([raw[28] ^ 1]) + raw[29:],
        "last byte of the tag": raw[:-1] + bytes([raw[-1] ^ 128]),
        "another pair's message": bytes.fromhex(other["sealed"]),
        "all zero": bytes(len(raw)),
    }
    return [{"why": why, "sealed": value.hex()} for why, value in changed.items()]


def all_cases() -> dict[str, Any]:
    good = [case("A", 0, 0), case("B", 1, 1), case("C", 100, 5 << 40), case("D", CHUNK + 1, 2**64 - 1)]
    return {"good": good, "bad": {"of": 2, "cases": bad_cases(good[2], good[1])}}


if __name__ == "__main__":
    FILE.write_text(json.dumps(all_cases(), indent=1) + "\n")
