"""The privacy receipt: one file with which anyone can check, offline and later, what was agreed, spent and released.

    schema, consortium (the file's text), study, privacy, rounds, participants (folded), result (digest), made,
    early        (of a study that waits for a lost party, or was ended so) what every noise maker has signed, by round
    statements   every signed statement about the study, in one order
    digests      one hash for each of the above
    signature    the aggregator's, over the digests

Canonical JSON throughout, so every byte is either structure, or in a section whose digest is signed, or the signature:
no byte can change unseen, and the digests tell which section did. The aggregator's signature only says who put the file
together. What it proves rests on the statements, each signed by its own party; ``receipt_check`` looks at them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import canonical, digest, format_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.crypto.signing import SIGNATURE_BYTES, SigningKey, VerifyKey
from tallystick.protocol.governance.docket import Docket, in_order
from tallystick.protocol.governance.plan_summary import fold
from tallystick.protocol.governance.statements import Statement
from tallystick.study.proposed import proposed_study

SCHEMA = "tallystick/receipt/1"
MAX_BYTES = 256 << 20
SECTIONS: dict[str, type] = {
    "schema": str,
    "consortium": str,
    "study": dict,
    "privacy": dict,
    "rounds": int,
    "participants": list,
    "result": str,
    "made": int,
    "statements": list,
}
EARLY = "early"
_SIGNED = b"tallystick/receipt/1"
_SECTION = b"tallystick/receipt/section/1"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_SIGNATURE = re.compile(rf"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}")


class Unreadable(Exception):  # noqa: N818
    """This is not a receipt at all; the message says where it stops being one."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A receipt taken apart; nothing in it is believed yet."""

    sections: Mapping[str, Any]
    digests: Mapping[str, str]
    signature: bytes
    out_of_form: int | None
    """The first byte that is not as canonical JSON would have it."""

    def changed(self) -> tuple[str, ...]:
        """The sections that are not those that were signed."""
        return tuple([name for name, value in self.sections.items() if self.digests[name] != _digest(name, value)])

    def verify(self, key: VerifyKey) -> None:
        """Whether the owner of this key put these digests together; raises otherwise."""
        key.verify(_signed(self.digests), self.signature)


def study_facts(proposal: Statement) -> dict[str, Any]:
    """What a receipt repeats of the study for its reader."""
    head = proposed_study(proposal.body["study"]).section("study")
    facts = {key: head.get(key) for key in ("name", "version", "program", "program_hash")}
    return {**facts, "hash": proposal.body["hash"], "purpose": proposal.body["purpose"]}


def make_receipt(
    docket: Docket,
    *,
    consortium: str,
    participants: Sequence[Sequence[str]],
    now: float,
    key: SigningKey,
    early: Mapping[str, Any] | None = None,
) -> bytes:
    """The receipt of a finished study; ``participants`` are the clients of each round, ``key`` is the aggregator's.

    With ``early``, that of what a paused study has released so far.
    """
    standing = docket.standing(now)
    ready = standing.state == "finished" or (early is not None and standing.state == "paused")
    if not ready or standing.proposal is None or not standing.result:
        raise LocalProtocolError(f"a study that is {standing.state} has no receipt", remedy="Wait for its result.")
    about = [s for s in docket.statements() if s.study_hash == docket.study_hash]
    sections = {
        "schema": SCHEMA,
        "consortium": consortium,
        "study": study_facts(standing.proposal),
        "privacy": standing.proposal.body["plan"].get("privacy", {}),
        "rounds": len(participants),
        "participants": fold([list(names) for names in participants]),
        "result": standing.result,
        "made": int(now),
        "statements": [json.loads(s.encode()) for s in in_order(about)],
        **({} if early is None else {EARLY: early}),
    }
    digests = {name: _digest(name, value) for name, value in sections.items()}
    return canonical({**sections, "digests": digests, "signature": key.sign(_signed(digests)).hex()})


def read_receipt(raw: bytes) -> Document:
    """Take a receipt apart, or say where it stops being one (:class:`Unreadable`)."""
    if len(raw) > MAX_BYTES:
        raise Unreadable(f"it has {len(raw)} bytes, more than any receipt")
    try:
        raw.decode("ascii")
        value = read_json(raw, limit=MAX_BYTES)
        again = canonical(value)
    except UnicodeDecodeError as error:
        raise Unreadable(f"byte {error.start} is not ASCII") from None
    except NotReadable as error:
        raise Unreadable(str(error).replace("at character", "at byte")) from None
    kinds = SECTIONS | ({EARLY: dict} if isinstance(value, dict) and EARLY in value else {})
    wanted = {*kinds, "digests", "signature"}
    if type(value) is not dict or set(value) != wanted:
        odd = sorted(set(value) ^ wanted) if isinstance(value, dict) else []
        raise Unreadable(f"these are missing or too many: {', '.join(map(ascii, odd))[:300] or 'everything'}")
    for name, kind in kinds.items():
        if type(value[name]) is not kind:
            raise Unreadable(f"{name} is not what it is in a receipt")
    if value["schema"] != SCHEMA:
        raise Unreadable(f"it is of the kind {ascii(value['schema'])[:60]}, not {SCHEMA}")
    digests, signature = value["digests"], value["signature"]
    if type(digests) is not dict or set(digests) != set(kinds):
        raise Unreadable("its digests are not those of its sections")
    if not all(type(d) is str and _HASH.fullmatch(d) for d in digests.values()):
        raise Unreadable("one of its digests is not a hash")
    if type(signature) is not str or not _SIGNATURE.fullmatch(signature):
        raise Unreadable("its signature is not one")
    return Document(
        sections={name: value[name] for name in kinds},
        digests=digests,
        signature=bytes.fromhex(signature),
        out_of_form=None if raw == again else _first_difference(raw, again),
    )


def _digest(name: str, value: Any) -> str:
    return format_hash(digest(_SECTION, name.encode(), canonical(value)))


def _signed(digests: Mapping[str, str]) -> bytes:
    return digest(_SIGNED, canonical(digests))


def _first_difference(one: bytes, other: bytes) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
