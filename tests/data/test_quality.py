"""What a reading counts is explained column by column, the same however the records are split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.core.errors import DataWarning, StudyError
from tallystick.data.column_values import SHOWN_VALUES
from tallystick.data.encoding import encode
from tallystick.data.quality import DataQuality, quality_of, together
from tallystick.study.schema import Schema

SCHEMA = ts.Schema(
    {
        "age": ts.Number(0, 100),
        "sex": ts.Category(["f", "m"]),
        "town": ts.Category(["A"], merge="other"),
        "drugs": ts.Items(["x", "y"], 2),
        "ill": ts.Category(["no", "yes"]),
    }
)


def frame(rows: int = 60) -> dict[str, Any]:
    at = np.arange(rows)
    return {
        "age": at % 90 + 1.0,
        "sex": np.where(at % 2, "f", "m"),
        "town": np.where(at % 3, "A", "B"),
        "drugs": ["x;y" if i % 2 else "x" for i in at],
        "ill": np.where(at % 90 > 30, "yes", "no"),
    }


def found(data: dict[str, Any], schema: Schema = SCHEMA, target: str | None = "ill") -> DataQuality:
    records = encode(data, schema, target=target, lenient=True)
    return quality_of(records.tallies, schema, records.layout)


def of(quality: DataQuality, name: str) -> Any:
    return next(c for c in quality.columns if c.name == name)


def test_clean_records_are_fine() -> None:
    quality = found(frame())
    assert quality.fine
    assert quality.useless is None
    assert {c.rows for c in quality.columns} == {60}
    assert of(quality, "town").unknown == 20  # merged as declared: counted, and no finding


def test_unknown_values_are_named_with_their_numbers_and_a_guess() -> None:
    quality = found(frame() | {"ill": np.array(["YES", "NO", "NO"] * 20)})
    ill = of(quality, "ill")
    assert ill.values == (("NO", 40), ("YES", 20))
    assert ill.meaning.startswith("60 of 60 targets are NO/YES; the study declares no, yes.")
    assert "NO as no, YES as yes" in ill.remedy
    assert (quality.used, ill.dropped) == (0, 60)
    assert "none of the 60 records can be used" in str(quality.useless)
    items = of(found(frame() | {"drugs": ["x;q;q"] * 30 + [["z"]] * 30}), "drugs")
    assert items.values == (("q", 60), ("z", 30))
    many = of(found(frame() | {"sex": [f"s{i}" for i in range(60)]}), "sex")
    assert (many.unknown, len(many.values)) == (60, SHOWN_VALUES)


def test_unreadable_values_cannot_write_on_the_screen() -> None:
    sex = of(found(frame() | {"sex": ["\x1b[2J\u202e" + "a" * 500] * 60}), "sex")
    (value, count) = sex.values[0]
    assert count == 60
    assert "\x1b" not in value
    assert "\u202e" not in value
    assert len(value) <= 41


@pytest.mark.parametrize(
    ("change", "column", "note", "words"),
    [
        ({"age": [None] * 60}, "age", "empty", "the column is empty"),
        ({"age": [7] * 60}, "age", "constant", "All 60 values of 'age' are the same"),
        ({"age": [1e6] * 60}, "age", "constant", "60 of 60 values of 'age' lie outside 0 to 100"),
        ({"age": ["old"] * 60}, "age", "lost", "60 of 60 values of 'age' are no numbers, first in row 1"),
        ({"sex": ["?"] * 60}, "sex", "lost", "are ?; the study declares f, m"),
    ],
)
def test_a_column_that_says_nothing(change: dict[str, Any], column: str, note: str, words: str) -> None:
    quality = of(found(frame() | change), column)
    assert quality.note == note
    assert words in quality.meaning


def test_several_institutions_together_are_as_one() -> None:
    data = frame() | {"age": [None, 1e9, "old"] * 20, "sex": ["f", "F", "m"] * 20}
    parts = [{k: v[i::3] for k, v in data.items()} for i in range(3)]
    records = [encode(part, SCHEMA, target="ill", lenient=True) for part in parts]
    whole = encode(data, SCHEMA, target="ill", lenient=True)
    split = quality_of(together(r.tallies for r in records), SCHEMA, whole.layout)
    alone = quality_of(whole.tallies, SCHEMA, whole.layout).to_dict()
    got = split.to_dict()
    for one in (*alone["columns"], *got["columns"]):
        one["meaning"] = one["meaning"].replace(", first in row 3", "")  # of which file, is not said of several
    said = [set(told.pop("left_out").split(": ")[1].split(", ")) for told in (got, alone)]  # in whatever order
    assert said[0] == said[1] == {"'age' missing in 20", "'age' unusable in 20"}
    assert got == alone


def test_a_simulation_warns_with_the_table_and_refuses_what_is_useless() -> None:
    fine, odd = frame(), frame() | {"sex": np.array(["F", "M"] * 30)}
    fed = ts.Federation.simulate([fine, odd, fine], schema=SCHEMA, seed=1)
    model = ts.LogisticRegression(epsilon=9.0, rounds=1)
    with pytest.warns(DataWarning, match="60 of 180 values of 'sex' are F/M; .*at client-2") as told:
        model.fit(fed, target="ill", features=["age", "sex"])
    assert len([w for w in told if w.category is DataWarning]) == 1
    assert "column  used as" in str(told[0].message)
    check = fed.check(target="ill")
    assert not check.fine
    assert [name for name, quality in check.institutions.items() if not quality.fine] == ["client-2"]
    assert "F 30, M 30" in repr(check)
    lost = ts.Federation.simulate([frame() | {"sex": ["?"] * 60}] * 3, schema=SCHEMA, seed=1)
    with pytest.raises(StudyError, match="no column tells two records apart"):
        model.fit(lost, target="ill", features=["sex"])


def test_a_federation_without_a_schema_says_what_to_write() -> None:
    with pytest.raises(StudyError, match=r"fed\.check\(schema\)"):
        ts.Federation.simulate([frame()]).check()
