"""Text that a person can read: what is refused, what is not, and what becomes of the rest on a screen."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.core.errors import StudyError
from tallystick.core.readable_text import (
    MOST_MARKS,
    check_name,
    check_readable,
    escaped,
    one_line,
    what_is_unreadable,
    what_is_wrong_with_name,
)

UNREADABLE = {
    "right-to-left override": "income\u202e05>",
    "right-to-left mark": "a\u200fb",
    "isolate": "\u2066a\u2069",
    "Arabic letter mark": "a\u061cb",
    "zero-width space": "in\u200bcome",
    "zero-width joiner": "in\u200dcome",
    "word joiner": "in\u2060come",
    "byte order mark": "\ufeffincome",
    "soft hyphen": "in\u00adcome",
    "tag letters": "income\U000e0041",
    "escape sequence": "\x1b[2Jincome",
    "NUL": "in\x00come",
    "bell": "income\x07",
    "line end": "income\napproved",
    "carriage return": "income\rapproved",
    "tab": "a\tb",
    "next line": "a\u0085b",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "surrogate": "a\ud800b",
    "private use": "a\ue000b",
    "unassigned": "a\u0378b",
    "no character": "a\uffffb",
    "no-break space": "a\u00a0b",
    "Hangul filler": "income\u3164",
    "half-width Hangul filler": "\uffa0",
    "combining grapheme joiner": "in\u034fcome",
    "variation selector": "income\ufe0f",
    "rare variation selector": "income\U000e0100",
    "blank of braille": "\u2800",
    "flood of marks": "a" + "\u0301\u0323" * 20,
}
READABLE = [
    "",
    "income",
    "Größe (cm)",
    "état civil",
    "年齢",
    "Ηλικία",
    "возраст",
    "العمر",
    "आयु",
    "tuổi",
    "<=50K",
    "α₁²",
    "🙂",
]


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_text_is_refused_and_spelt_out(text: str) -> None:
    wrong = what_is_unreadable(text)
    assert wrong is not None
    assert what_is_wrong_with_name(text) == wrong
    assert wrong.isprintable()
    for check in (check_readable, check_name):
        with pytest.raises(StudyError) as refusal:
            check("the purpose", text)
        assert refusal.value.rule == "readable-text"
        assert refusal.value.remedy
        assert str(refusal.value).isprintable()
    for shown in (escaped(text), one_line(text)):
        assert what_is_unreadable(shown) is None


@pytest.mark.parametrize("text", READABLE)
def test_what_people_write_is_readable(text: str) -> None:
    assert check_readable("the purpose", text) == check_name("the column", text) == text
    assert escaped(text) == one_line(text) == text


def test_a_name_has_one_spelling_and_a_text_need_not() -> None:
    apart = unicodedata.normalize("NFD", "état")
    assert what_is_unreadable(apart) is None
    assert "composed" in (what_is_wrong_with_name(apart) or "")
    assert "beginning" in (what_is_wrong_with_name("\u0323a") or "")


def test_lines_and_wide_blanks_where_they_belong() -> None:
    assert what_is_unreadable("def f():\n\treturn 1\n", lines=True) is None
    assert what_is_unreadable("a\rb", lines=True) is not None
    assert what_is_unreadable("1\u202f000", blanks=True) is None
    assert what_is_unreadable("a\u200bb", blanks=True) is not None


def test_as_many_marks_as_allowed() -> None:
    assert what_is_unreadable("q" + "\u0323" * MOST_MARKS) is None
    assert what_is_unreadable("q" + "\u0323" * (MOST_MARKS + 1)) is not None


@given(st.text(st.characters(exclude_categories=()), max_size=60), st.integers(1, 50))
def test_whatever_it_is_it_can_be_shown(text: str, most: int) -> None:
    for shown in (escaped(text), one_line(text, most)):
        assert what_is_unreadable(shown) is None
        assert shown.isprintable()
        shown.encode()
    assert len(one_line(text, most)) <= most
    assert one_line(one_line(text, most), most) == one_line(text, most)
    if what_is_unreadable(text) is None:
        assert escaped(text) == text
        assert text.isprintable()
