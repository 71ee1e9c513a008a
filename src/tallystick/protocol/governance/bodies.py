"""What each kind of statement says, field by field: nothing missing, nothing more, every text fit to be shown.

A body is JSON. Its fields are listed below, one check per field; the same list checks what we say and what others said.
Texts are printable (no control, direction-changing or invisible characters), so that a steward's screen shows what
was signed and nothing else; a program's text may have line ends and tabs. Numbers are finite; times are whole seconds.

Values by round are *folded*: ``[[1, value], [7, other]]`` says value in rounds 1 to 6 and other from round 7 on.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tallystick.core.identifiers import format_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.core.readable_text import what_is_unreadable, what_is_wrong_with_name
from tallystick.study.proposed import MAX_NUMBER, check_value
from tallystick.study.study import study_digest

MAX_LIFE = 400 * 86400  # a proposal is open for at most so many seconds
MAX_TIME = 253_402_300_799  # the last second of the year 9999: later ones have no date that could be shown
MAX_STUDY = 4 << 20
MAX_DIGITS = 4000
DECISIONS = ("approve", "reject", "counter")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_LEDGER = re.compile(r"[0-9a-f]{32}")
_FRACTION = re.compile(r"(0|[1-9][0-9]*)/([1-9][0-9]*)")

_Check = Callable[[Any], str | None]
"""What is wrong with a value, in words; None if nothing is."""


class BodyError(Exception):
    """What is wrong with a body, in words; its callers know whose fault it is."""


# -- kinds of fields ---------------------------------------------------------------------------------------------------


def _text(most: int, *, least: int = 0, lines: bool = False) -> _Check:
    def check(value: Any) -> str | None:
        if type(value) is not str:
            return "is not a text"
        if not least <= len(value) <= most:
            return f"has {len(value)} characters; {least} to {most} are allowed"
        return "holds control or invisible characters" if what_is_unreadable(value, lines=lines) else None

    return check


def _pattern(pattern: re.Pattern[str], what: str) -> _Check:
    return lambda value: None if type(value) is str and pattern.fullmatch(value) else f"is not {what}"


def _count(least: int = 0, most: int = MAX_NUMBER - 1) -> _Check:
    def check(value: Any) -> str | None:
        return None if type(value) is int and least <= value <= most else f"is not a whole number from {least}"

    return check


def _fraction(value: Any) -> str | None:
    found = _FRACTION.fullmatch(value) if type(value) is str and len(value) <= 2 * MAX_DIGITS + 1 else None
    if found is None or max(map(len, found.groups())) > MAX_DIGITS:
        return "is not a fraction n/d"
    return None if math.gcd(int(found[1]), int(found[2])) == 1 else "is a fraction that can be reduced"


def _list(inner: _Check, most: int, *, distinct: bool = False) -> _Check:
    def check(value: Any) -> str | None:
        if type(value) is not list or len(value) > most:
            return f"is not a list of at most {most}"
        for entry in value:
            wrong = inner(entry)
            if wrong is not None:
                return f"has an entry that {wrong}"
        return "names something twice" if distinct and len(set(value)) != len(value) else None

    return check


def _folded(inner: _Check) -> _Check:
    """``[[first round, value], …]``: rounds rising from 1, neighbouring values different (one way to write it)."""

    def check(value: Any) -> str | None:
        if type(value) is not list:
            return "is not a list"
        last: Any = [0, None]
        for entry in value:
            if type(entry) is not list or len(entry) != 2 or _count(1)(entry[0]) is not None:
                return "is not a list of [round, value]"
            if entry[0] <= last[0] or (last[0] == 0 and entry[0] != 1) or entry[1] == last[1]:
                return "is not folded"
            wrong = inner(entry[1])
            if wrong is not None:
                return f"has a round {entry[0]} that {wrong}"
            last = entry
        return None

    return check


def _choice(*words: str) -> _Check:
    return lambda value: None if type(value) is str and value in words else f"is none of {', '.join(words)}"


def _either(empty: Any, other: _Check) -> _Check:
    return lambda value: None if value == empty and type(value) is type(empty) else other(value)


def _terms(value: Any) -> str | None:
    if type(value) is not dict or not set(value) <= {"epsilon", "columns"}:
        return "is not {}, or terms named epsilon and columns"
    if "epsilon" in value:
        epsilon = value["epsilon"]
        if type(epsilon) not in (int, float) or not 0 < epsilon < MAX_NUMBER:
            return "has an epsilon that is not a positive number"
    return _list(_text(200, least=1), 10_000, distinct=True)(value["columns"]) if "columns" in value else None


def check_plan(value: Any) -> str | None:
    """A plan's summary: its rounds, whole cost and noise in exact numbers, its words, and whatever else is shown."""
    if type(value) is not dict:
        return "is not an object"
    for field, check in _PLAN.items():
        if field not in value:
            return f"lacks {field}"
        wrong = check(value[field])
        if wrong is not None:
            return f"has {field} which {wrong}"
    if any(entry[0] > value["rounds"] for entry in value["noise"]):
        return "has noise for more rounds than it has"
    if "open" in value:  # what rounds of open prices may cost: read as numbers by whoever checks a receipt
        left = value["open"] if type(value["open"]) is dict else {}
        told = _OPEN | ({"rounding": _fraction} if "rounding" in left else {})
        if set(left) != set(told) or any(check(left[field]) is not None for field, check in told.items()):
            return "has prices left open without saying what they may cost"
    return check_value({key: v for key, v in value.items() if key not in _PLAN})


def _approvals(value: Any) -> str | None:
    if type(value) is not dict:
        return "is not an object"
    wrong = (_name(name) or _ident(ident) for name, ident in value.items())
    return next((f"has an entry that {w}" for w in wrong if w is not None), None)


_time, _number = _count(most=MAX_TIME), _count()
_hash = _ident = _pattern(_HASH, "a hash sha256:<64 hex digits>")
_name, _ledger = _pattern(_NAME, "a party's name"), _pattern(_LEDGER, "32 hex digits")
_names = _list(_name, 100_000, distinct=True)
check_folded_names = _folded(_names)
_short, _long = _text(200), _text(4000)

_PLAN: dict[str, _Check] = {
    "rounds": _count(1),
    "rho": _fraction,
    "noise": _folded(_list(_fraction, 10_000)),
    "words": _list(_text(2000), 100),
}

_OPEN: dict[str, _Check] = {"whole": _fraction, "costs": _list(_fraction, 10_000), "least": _fraction}

KINDS: dict[str, dict[str, _Check]] = {
    "proposal": {
        "study": _text(MAX_STUDY, least=2),
        "program": _text(1 << 20, lines=True),
        "hash": _hash,
        "consortium": _hash,
        "created": _time,
        "expires": _time,
        "supersedes": _either(None, _hash),
        "purpose": _long,
        "plan": check_plan,
    },
    "decision": {
        "hash": _hash,
        "proposal": _ident,
        "decision": _choice(*DECISIONS),
        "reason": _long,
        "terms": _terms,
        "by": _short,
        "dataset": _short,
        "sequence": _number,
        "at": _time,
    },
    "withdrawal": {"hash": _hash, "reason": _long, "at": _time},
    # ``approvals``: whose approval, by its ident, the study was started on; what is said later cannot change that
    "start": {
        "hash": _hash,
        "proposal": _ident,
        "attempt": _number,
        "at": _time,
        "parties": _names,
        "approvals": _approvals,
    },
    "outcome": {"hash": _hash, "result": _either("", _hash), "code": _short, "at": _time},
    # the study waits for ``party`` after so many ``rounds``, whose result may be released; "resumed": it goes on again
    "pause": {
        "hash": _hash,
        "number": _count(1),
        "result": _either("", _hash),
        "rounds": _number,
        "code": _short,
        "party": _short,
        "at": _time,
    },
    "charge": {
        "hash": _hash,
        "ledger": _ledger,
        "dataset": _short,
        "sequence": _number,
        "head": _hash,
        "rho": _fraction,
        "spent_rho": _fraction,
        "at": _time,
    },
    "countersignature": {"hash": _hash, "client": _name, "ledger": _ledger, "sequence": _number, "head": _hash},
    "attestation": {
        "hash": _hash,
        "plan": _hash,
        "rounds": _count(1),
        "noise": _folded(_list(_fraction, 10_000)),
        "participants": check_folded_names,
        "partials": _list(_either("", _hash), 100_000),  # "": a tick of a stream this server released nothing in
        "boot": _number,
    },
}


# -- what fields say together ------------------------------------------------------------------------------------------


def check_body(kind: str, body: Any) -> None:
    """Raise :class:`BodyError` unless this is exactly what a statement of this kind says."""
    fields = KINDS.get(kind) if type(kind) is str else None
    if fields is None:
        raise BodyError(f"the kind {ascii(kind)[:40]} is unknown")
    if type(body) is not dict or set(body) != set(fields):
        got = sorted(map(ascii, set(body) ^ set(fields))) if isinstance(body, dict) else ["the body"]
        raise BodyError(f"a {kind} with other fields than it has: {', '.join(got)[:200]}")
    for field, check in fields.items():
        wrong = check(body[field])
        if wrong is not None:
            raise BodyError(f"a {kind} whose {field} {wrong}")
    whole = _TOGETHER.get(kind)
    wrong = whole(body) if whole is not None else None
    if wrong is not None:
        raise BodyError(f"a {kind} {wrong}")


def _proposal(body: Mapping[str, Any]) -> str | None:
    if format_hash(study_digest(body["study"].encode())) != body["hash"]:
        return "whose hash is not that of its study"
    if not body["created"] < body["expires"] <= body["created"] + MAX_LIFE:
        return f"that does not expire within {MAX_LIFE // 86400} days after it was made"
    if body["supersedes"] == body["hash"]:
        return "that replaces itself"
    try:
        # Numbers that nobody could use are refused by whoever plans the study, with words; this only reads the names.
        study: Any = read_json(body["study"], limit=MAX_STUDY, constants=True, digits=MAX_DIGITS)
        head, columns = study["study"], study.get("data", {}).get("columns", {})
        stated, purpose = head.get("program_hash"), head.get("purpose")
        named = [*(v for k, v in head.items() if k != "purpose"), *(head.get("features") or ()), *columns]
    except (NotReadable, TypeError, KeyError, AttributeError):
        return "whose study is not readable"
    odd = any(what_is_wrong_with_name(name) for name in named if isinstance(name, str))
    if odd or (isinstance(purpose, str) and what_is_unreadable(purpose)):
        return "whose study's names hold control or invisible characters"
    found = format_hash(hashlib.sha256(body["program"].encode()).digest()) if body["program"] else None
    return None if stated == found else "whose program is not the file its study names"


def _decision(body: Mapping[str, Any]) -> str | None:
    if bool(body["terms"]) != (body["decision"] == "counter"):
        return "that states terms and is no counter-proposal, or is one and states none"
    return None


def _attestation(body: Mapping[str, Any]) -> str | None:
    if len(body["partials"]) != body["rounds"]:
        return "with another number of partial sums than rounds"
    if any(entry[0] > body["rounds"] for key in ("noise", "participants") for entry in body[key]):
        return "about more rounds than it has"
    return None if body["noise"] and body["participants"] else "that leaves out noise or participants"


_TOGETHER: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "proposal": _proposal,
    "decision": _decision,
    "attestation": _attestation,
}
