"""TOML and JSON from outside: whatever is in it, it is read or refused in a moment, and never anything else."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.outside_text import DEPTH, DIGITS, BeyondLimits, NotReadable, read_json, read_toml

MANY = 200_000
TOML = {
    "nested lists": "a = " + "[" * 3000 + "]" * 3000,
    "lists nested very deeply": "a = " + "[" * MANY + "]" * MANY,
    "lists that never close": "a = " + "[" * MANY,
    "nested tables": "a = " + "{a=" * 3000 + "1" + "}" * 3000,
    "lists and tables": "a = " + "[{a=" * 100 + "1" + "}]" * 100,
    "over many lines": "a = " + "[\n" * 3000 + "]\n" * 3000,
    "a dotted key": ".".join("a" * 20_000) + " = 1",
    "a dotted key with blanks": " . ".join("a" * 20_000) + " = 1",
    "a quoted dotted key": ".".join(['"a"'] * 20_000) + " = 1",
    "a dotted header": "[" + ".".join("a" * 20_000) + "]",
    "a header and a key, each within the limit": "[" + ".".join("a" * 50) + "]\n" + ".".join("b" * 50) + " = 1",
    "5,000 digits": "a = " + "9" * 5000,
    "400 digits": "a = " + "9" * 400,
    "digits with underscores": "a = " + "9_" * 400 + "9",
    "a hexadecimal number": "a = 0x" + "f" * 5000,
    "a binary number": "a = 0b" + "1" * 5000,
    "a long fraction": "a = 0." + "3" * 5000,
    "too long": "#" * (5 << 20),
}
NO_TOML = {
    "a key twice": "a = 1\na = 2",
    "a table twice": "[a]\n[a]",
    "NUL": "a = \x00",
    "NUL in a comment": "# \x00",
    "a surrogate": 'a = "\ud800"',
    "half a character escaped": 'a = "\\ud800"',
    "an open string": 'a = "' + '\\"' * MANY,
    "an open long string": 'a = """' + '\\"' * MANY,
    "an open literal": "a = '''" + "''x" * MANY,
    "quotes": '"' * MANY,
    "no date": "a = 2026-13-41",
}
JSON = {
    "nested lists": "[" * 3000 + "]" * 3000,
    "lists that never close": "[" * MANY,
    "nested objects": '{"a":' * 3000 + "1" + "}" * 3000,
    "5,000 digits": "9" * 5000,
    "309 digits": "-" + "9" * (DIGITS + 1),
    "a long fraction": "0." + "3" * 5000,
    "a long exponent": "1e" + "9" * 5000,
}
NO_JSON = {
    "a key twice": '{"epsilon": 0.1, "epsilon": 9}',
    "a key twice, spelt differently": '{"a": 1, "\\u0061": 2}',
    "NaN": "NaN",
    "infinity": '{"a": -Infinity}',
    "beyond float64": "1e400",
    "half a character": '"\\ud83d"',
    "half a character as a key": '{"\\udc00": 1}',
    "an open string": '"' + '\\"' * MANY,
    "quotes": '"' * MANY,
    "two values": "1 2",
    "nothing": "",
    "a byte order mark": "\ufeff1",
    "Latin-1": b'"\xe9"',
}


@pytest.mark.parametrize("text", TOML.values(), ids=TOML)
def test_absurd_toml_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(BeyondLimits) as refusal:
        read_toml(text)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("text", NO_TOML.values(), ids=NO_TOML)
def test_what_is_no_toml(text: str) -> None:
    with pytest.raises(NotReadable) as refusal:
        read_toml(text)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_absurd_json_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(BeyondLimits):
        read_json(text, limit=1 << 24)


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(NotReadable):
        read_json(text, limit=1 << 24)


def test_limits_are_reached() -> None:
    """The negative control: at the limit all is well."""
    deep = "[" * DEPTH + "]" * DEPTH
    assert read_json(deep, limit=1000) == read_toml("a = " + deep)["a"] == json.loads(deep)
    largest = 10**DIGITS - 1
    assert read_json(str(largest), limit=1000) == read_toml(f"a = {largest}")["a"] == largest
    assert float(largest) < float("inf")
    assert read_json('"\\ud83d\\ude00"', limit=20) == "😀"
    assert read_json("NaN", limit=3, constants=True) != 0
    assert read_toml("a" + ".a" * (DEPTH - 2) + " = 1")
    with pytest.raises(BeyondLimits):
        read_json("123", limit=2)
    with pytest.raises(BeyondLimits):
        read_json('"é"', limit=3)  # in bytes, not in letters


def test_brackets_quotes_and_digits_in_texts_are_no_structure() -> None:
    text = "'\"" + "[{" * 500 + "9" * 5000 + "a." * 500 + "# \"' \\"
    assert read_json(json.dumps({text: [text]}), limit=1 << 20) == {text: [text]}
    basic = json.dumps(text)
    literal = text.replace("'", "")
    toml = f"a = {basic}  # {text}\nb = '{literal}'\nc = '''\n{literal}'''\nd = \"\"\"\n{basic[1:-1]}\"\"\"\n"
    assert read_toml(toml) == {"a": text, "b": literal, "c": literal, "d": text}


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda p: p.name)
def test_examples_are_read_as_they_always_were(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert read_toml(text) == read_toml(text.encode()) == tomllib.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_read_as_json_reads_it(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert read_json(text, limit=1 << 20) == value


PIECES = st.sampled_from(
    ['"', "'", '"""', "'''", "\\", "[", "]", "{", "}", "#", "\n", "\r\n", "=", ".", ",", "a", "é", "1", "_", "e", "-",
     "0x", "inf", "nan", "\t", " ", "2026-01-01", "T10:00:00Z", "\\u0041", "\x00", "true", "[[", "]]", "a = 1\n"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_toml_is_read_as_tomllib_reads_it_or_refused(text: str) -> None:
    try:
        found = read_toml(text)
    except NotReadable:
        found = None
    try:
        assert found is None or repr(found) == repr(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        raise AssertionError(f"read what is no TOML: {text!r}") from None
    if found is None:
        with pytest.raises(ValueError):  # nothing that is short and flat is refused for its shape
            tomllib.loads(text)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=80) | st.binary(max_size=80))
def test_anything_is_read_or_refused(text: str | bytes) -> None:
    for read in (read_toml, lambda t: read_json(t, limit=1000)):
        with contextlib.suppress(NotReadable):
            read(text)
