"""Statements written a second time, plainly and by hand: canonical JSON without ``json``, hashes, signatures."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
FIELDS = {
    "proposal": "consortium created expires hash plan program purpose study supersedes",
    "decision": "at by dataset decision hash proposal reason sequence terms",
    "withdrawal": "at hash reason",
    "start": "approvals at attempt hash parties proposal",
    "outcome": "at code hash result",
    "charge": "at dataset hash head ledger rho sequence spent_rho",
    "countersignature": "client hash head ledger sequence",
    "pause": "at code hash number party result rounds",
    "attestation": "boot hash noise partials participants plan rounds",
}


def plain_text(text: str) -> str:
    out = ['"']
    for c in text:
        if c in SHORT:
            out.append(SHORT[c])
        elif 32 <= ord(c) < 127:
            out.append(c)
        elif ord(c) < 0x10000:
            out.append(f"\\u{ord(c):04x}")
        else:  # a pair of surrogates
            low = ord(c) - 0x10000
            out.append(f"\\u{0xD800 + (low >> 10):04x}\\u{0xDC00 + (low & 0x3FF):04x}")
    return "".join(out) + '"'


def plain_canonical(value: Any) -> str:
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("not finite")
        return repr(value)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: [ord(c) for c in key])
        return "{" + ",".join(plain_text(k) + ":" + plain_canonical(value[k]) for k in keys) + "}"
    return "[" + ",".join(map(plain_canonical, value)) + "]"


def plain_digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()


def plain_ident(raw: bytes) -> str:
    return "sha256:" + plain_digest(b"tallystick/governance/statement/1", raw).hex()


def plain_verify(value: dict[str, Any], key: bytes) -> None:
    """Raises unless the owner of this key signed the statement."""
    said = plain_canonical({name: value[name] for name in ("kind", "signer", "body")}).encode()
    message = plain_digest(b"tallystick/governance/1", said)
    Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(value["signature"]), message)


def plain_check(value: dict[str, Any]) -> None:
    """The outer shape and the fields' names: no more than a reader of the documentation would know."""
    if sorted(value) != ["body", "kind", "signature", "signer"]:
        raise ValueError("fields")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}", value["signer"]):
        raise ValueError("signer")
    if not re.fullmatch(r"[0-9a-f]{128}", value["signature"]):
        raise ValueError("signature")
    if " ".join(sorted(value["body"])) != FIELDS[value["kind"]]:
        raise ValueError("body")
