"""The one way in for text from outside: TOML and JSON, held to limits before and after they are parsed.

Whoever wrote the text may want the reader to fall over. A parser that recurses runs out of stack on 3,000 brackets, a
number of 5,000 digits is a ``ValueError`` that no caller expects, a key with 100,000 dots keeps a TOML parser busy for
hours, and ``{"epsilon": 0.1, "epsilon": 9}`` says two things to two readers. So, before parsing: size, nesting, dots in
a key, digits of a number. While and after: no key twice, no NaN or infinity, no text that is not Unicode, no number
that a float64 cannot hold, no nesting by dotted keys either. Everything is linear in the size of the text.

Raises :class:`NotReadable`, or :class:`BeyondLimits` for what is well-formed but absurd; callers say whose text it was.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from itertools import accumulate
from typing import Any, NoReturn

TOML_BYTES = 4 << 20
"""A study of 4 MiB is the longest that can be proposed; every other TOML file here is much shorter."""
DEPTH = 64
"""Levels of lists and tables in each other; the deepest text of ours, a receipt, stays below 20."""
DIGITS = 308
"""Of a whole number: every such number is below 10^308 and so has a float64 (the largest is 1.8 · 10^308)."""
_NUMBER = 1000
"""Characters of a number of any kind: its value is known long before."""
_DOTS = DEPTH

# Possessive, and with an end of text as good as a closing quote: no input makes these go back over it (Python 3.11).
_JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.?)*+(?:"|\Z)', re.DOTALL)
_TOML_TEXT = re.compile(
    r'"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\.?)*+(?:"|\n|\Z)'
    r"|'[^'\n]*+(?:'|\n|\Z)"
    r"|#[^\n]*+",
    re.DOTALL,
)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = {ord(c): 1 for c in "[{"} | {ord(c): -1 for c in "]}"}
_NOT_BRACKETS = bytes(c for c in range(256) if c not in _BRACKETS)


class NotReadable(ValueError):  # noqa: N818 - an answer about somebody's text, not a malfunction
    """The text is not what it should be; the message says why, in words that can be shown."""


class BeyondLimits(NotReadable):
    """The text may be well-formed, and nobody who means well writes such a one."""


def read_json(
    raw: bytes | str, *, limit: int, constants: bool = False, depth: int = DEPTH, digits: int = DIGITS
) -> Any:
    """The value of a JSON text of at most ``limit`` bytes.

    ``constants`` lets NaN and Infinity through, where a rule of its own refuses them by name; ``digits`` longer whole
    numbers, up to the 4300 that Python reads, where nothing is computed with them.
    """
    text, encoded = _text_within(raw, limit)
    bare = _JSON_TEXT.sub(b'""', encoded)
    _check_nesting(bare, depth)
    _check_numbers(bare, digits)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_table,
            parse_float=_finite if not constants else float,
            parse_constant=None if constants else _no_constant,
        )
        if _HALF.search(encoded):  # "\ud83d" alone is half a character: a text that nobody can write down again
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except NotReadable:
        raise
    except json.JSONDecodeError as error:
        raise NotReadable(f"it stops being JSON at character {error.pos}: {error.msg}") from None
    except UnicodeEncodeError:
        raise NotReadable("a text in it is not Unicode") from None
    except (ValueError, RecursionError):
        raise BeyondLimits("it holds a number or nesting that is absurd") from None


def read_toml(raw: bytes | str, *, limit: int = TOML_BYTES, depth: int = DEPTH) -> dict[str, Any]:
    """The tables of a TOML text of at most ``limit`` bytes."""
    text, _ = _text_within(raw, limit)
    bare = _TOML_TEXT.sub(lambda found: "\n" if found[0].endswith("\n") else "", text)
    _check_nesting(bare.encode(), depth)
    _check_numbers(bare.encode())
    # A key's dots, and those of its inline tables: a line of a few kilobytes is a level a byte otherwise.
    if any(line.count(".") > _DOTS and re.search(rf"(?:\.[^.,=\]}}]*){{{_DOTS},}}", line) for line in bare.split("\n")):
        raise BeyondLimits(f"a key has more than {_DOTS} parts")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotReadable(f"it is not TOML: {error}") from None
    except (ValueError, RecursionError, OverflowError):
        raise BeyondLimits("it holds a number, a date or nesting that is absurd") from None
    _check_values(found, depth)
    return found


def _text_within(raw: bytes | str, limit: int) -> tuple[str, bytes]:
    """The text and its bytes, at most ``limit`` of them; what is no text, a surrogate for one, is refused."""
    if len(raw) <= limit:
        try:
            encoded = raw.encode() if isinstance(raw, str) else bytes(raw)
            text = encoded.decode()
        except UnicodeError:
            raise NotReadable("it is not UTF-8 text") from None
        if len(encoded) <= limit:
            return text, encoded
        raw = encoded
    raise BeyondLimits(f"it has {len(raw)} bytes, more than {limit}")


def _check_nesting(bare: bytes, depth: int) -> None:
    """``bare`` holds no strings; every bracket in it is structure."""
    brackets = bare.translate(None, _NOT_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") > depth and any(
        level > depth for level in accumulate(_BRACKETS[c] for c in brackets)
    ):
        raise BeyondLimits(f"its nesting is deeper than {depth} levels")


def _check_numbers(bare: bytes, digits: int = DIGITS) -> None:
    # Only from where a run of digits begins: a million numbers just short of the limit are looked at once each.
    most = max(_NUMBER, digits + 1)
    whole, any_kind = rb"(?<![0-9_.])[0-9_]{%d}" % (digits + 1), rb"(?<![0-9_])[0-9_]{%d}" % most
    if re.search(whole, bare) or re.search(any_kind, bare):
        raise BeyondLimits(f"a number has more than {digits} digits")


def _check_values(value: Any, depth: int) -> None:
    """Without recursion: dotted keys nest without a bracket, and 0x… is as long as it likes."""
    level = [value]
    while level:
        if depth < 0:
            raise BeyondLimits("its nesting is too deep")
        depth -= 1
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
            elif isinstance(part, int) and abs(part) >= 10**DIGITS:
                raise BeyondLimits(f"a number has more than {DIGITS} digits")
        level = inner


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotReadable("a key is there twice")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotReadable("it holds numbers beyond float64")
    return value


def _no_constant(_name: str) -> NoReturn:
    raise NotReadable("NaN and Infinity are no JSON")
