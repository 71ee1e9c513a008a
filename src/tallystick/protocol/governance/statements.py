"""Signed statements: everything anyone says about a study outside its rounds.

    statement = canonical JSON of {"kind", "signer", "body", "signature"}
    signed    = SHA-256 over ("tallystick/governance/1", canonical JSON of {"kind", "signer", "body"})
    ident     = SHA-256 over ("tallystick/governance/statement/1", the statement's bytes), written sha256:<hex>

Canonical JSON: keys sorted, no blanks, ASCII, finite numbers in Python's shortest form. A statement has exactly one
encoding and anything else is refused (``decode(raw).encode() == raw``), so that its bytes can be kept, compared, named
by their hash and passed on by parties that need not be trusted: the aggregator carries statements, it cannot make one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from tallystick.core.errors import RemoteProtocolError, StudyError, VerificationError
from tallystick.core.identifiers import canonical, check_party_name, digest, format_hash, parse_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.crypto.signing import SIGNATURE_BYTES, SigningKey, VerifyKey
from tallystick.protocol.governance.bodies import BodyError, check_body

MAX_BYTES = 8 << 20
_LABEL = b"tallystick/governance/1"
_IDENT = b"tallystick/governance/statement/1"
_KEYS = {"kind", "signer", "body", "signature"}
_SIGNATURE = re.compile(rf"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Who said what; made by :func:`make` or :func:`decode` only, so its body is always in order. Public."""

    kind: str
    signer: str
    body: Mapping[str, Any] = field(repr=False)
    signature: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Its one encoding."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        return canonical(
            {"kind": self.kind, "signer": self.signer, "body": self.body, "signature": self.signature.hex()}
        )

    @cached_property
    def ident(self) -> str:
        """The name of exactly this statement: ``sha256:<hex>``."""
        return ident_of(self._encoded)

    @cached_property
    def _verified(self) -> set[bytes]:
        """Keys under which this very object has been verified: it cannot change, so once is enough."""
        return set()

    @property
    def study_hash(self) -> bytes:
        """The study it is about."""
        return parse_hash(self.body["hash"])

    def __hash__(self) -> int:
        return hash(self.ident)


def ident_of(raw: bytes) -> str:
    """The name of the statement with these bytes, if it is one."""
    return format_hash(digest(_IDENT, raw))


def signed_bytes(kind: str, signer: str, body: Mapping[str, Any]) -> bytes:
    """What is signed."""
    return digest(_LABEL, canonical({"kind": kind, "signer": signer, "body": body}))


def make(kind: str, signer: str, body: Mapping[str, Any], key: SigningKey) -> Statement:
    """A statement of our own, signed; a ``StudyError`` says what cannot be said."""
    check_party_name(signer)
    try:
        body = json.loads(canonical(body))  # a copy nobody else holds, with lists for tuples
        check_body(kind, body)
    except BodyError as error:
        raise StudyError(f"this cannot be signed: {error}", rule="statement", remedy="Say it otherwise.") from None
    except (TypeError, ValueError, RecursionError):
        raise StudyError("this cannot be signed: it is not JSON", rule="statement", remedy="Report this.") from None
    made = Statement(kind=kind, signer=signer, body=body, signature=key.sign(signed_bytes(kind, signer, body)))
    if len(made.encode()) > MAX_BYTES:
        raise StudyError(
            f"a statement of {len(made.encode())} bytes is above the limit of {MAX_BYTES}",
            rule="statement",
            remedy="Declare fewer columns or categories, or a shorter program.",
        )
    return made


def decode(raw: bytes, *, party: str | None = None) -> Statement:
    """The statement in ``raw``, which is its one encoding, or ``RemoteProtocolError``; who signed is not checked here.

    ``party`` is who sent it, for the error.
    """
    if len(raw) > MAX_BYTES:
        _refuse(f"a statement of {len(raw)} bytes is above the limit of {MAX_BYTES}", party, "too-long")
    try:
        value = read_json(raw, limit=MAX_BYTES)
    except NotReadable:
        _refuse("a statement that is not JSON", party)
    if type(value) is not dict or set(value) != _KEYS:
        _refuse("a statement with other fields than kind, signer, body and signature", party)
    signer, signature = value["signer"], value["signature"]
    if type(signature) is not str or not _SIGNATURE.fullmatch(signature):
        _refuse(f"a signature that is not {2 * SIGNATURE_BYTES} hex digits", party)
    try:
        check_party_name(signer)
        check_body(value["kind"], value["body"])
    except StudyError:
        _refuse("a statement of a party with an impossible name", party, "readable-text")
    except BodyError as error:
        _refuse(str(error), party)
    statement = Statement(kind=value["kind"], signer=signer, body=value["body"], signature=bytes.fromhex(signature))
    if statement.encode() != raw:
        _refuse("a statement that is not in its one form", party)
    return statement


def verify(statement: Statement, identities: Mapping[str, VerifyKey]) -> None:
    """Return if its signer, as pinned, signed exactly this; raise ``VerificationError`` otherwise."""
    key = identities.get(statement.signer)
    if key is None:
        raise VerificationError(
            f"a {statement.kind} of a party that is not in the consortium",
            party=statement.signer,
            rule="unknown-signer",
            remedy="Do not use it. If the party belongs here, get the consortium's newest file.",
        )
    if key.encoded in statement._verified:
        return
    try:
        key.verify(signed_bytes(statement.kind, statement.signer, statement.body), statement.signature)
        statement._verified.add(key.encoded)
    except VerificationError:
        raise VerificationError(
            f"a {statement.kind} that its signer did not sign, or that was changed afterwards",
            party=statement.signer,
            rule="bad-signature",
            remedy="Do not use it; ask the signer for it again.",
        ) from None


def _refuse(cause: str, party: str | None, rule: str = "malformed") -> NoReturn:
    raise RemoteProtocolError(
        cause,
        party=party,
        rule=rule,
        remedy="It was not kept; let the sender run the same release of tallystick.",
    ) from None
