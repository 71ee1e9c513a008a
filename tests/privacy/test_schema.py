"""The schema: what may be declared, what is refused and in which words, and the layout that follows."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.caller import speaking_of_files
from tallystick.core.errors import BoundsError, StudyError
from tallystick.study.columns import Category, Integer, Items, Missing, Number
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout, Schema

CONTRACT = """
age = { type = "number", lower = 17, upper = 90 }
hours_per_week = { type = "number", lower = 1, upper = 99, bins = [20, 35, 40, 50] }
native_country = { type = "category", values = ["United-States"], merge = "other" }
visits = { type = "integer", lower = 0, upper = 30, step = 5 }
basket = { type = "items", vocabulary = ["milk", "bread"], max_per_record = 1 }
income = { type = "category", values = ["<=50K", ">50K"] }
"""


def contract_schema() -> Schema:
    return Schema(
        {
            "age": Number(17, 90),
            "hours_per_week": Number(1, 99, bins=[20, 35, 40, 50]),
            "native_country": Category(["United-States"], merge="other"),
            "visits": Integer(0, 30, 5),
            "basket": Items(["milk", "bread"], 1),
            "income": Category(["<=50K", ">50K"]),
        }
    )


def test_the_study_file_and_python_say_the_same() -> None:
    table = tomllib.loads(CONTRACT)
    assert Schema.from_dict(table) == contract_schema()
    assert contract_schema().to_dict() == table
    assert hash(Schema.from_dict(table)) == hash(contract_schema())


def test_a_schema_is_an_ordered_mapping_that_prints_as_it_was_written() -> None:
    schema = contract_schema()
    assert list(schema)[:2] == ["age", "hours_per_week"]
    assert len(schema) == 6
    assert schema["age"] == Number(lower=17, upper=90)
    names = {t.__name__: t for t in (Schema, Number, Category, Integer, Items)}
    assert eval(repr(schema), names) == schema
    other = Schema(dict(reversed(list(schema.items()))))
    assert other != schema  # the order is that of the features
    assert schema != "schema"
    with pytest.raises(AttributeError):
        schema["age"].lower = 3  # type: ignore[misc]


def test_layout_names_kinds_blocks_and_scaling() -> None:
    layout = contract_schema().layout(target="income")
    assert layout.names == (
        "age",
        "hours_per_week<20",
        "20<=hours_per_week<35",
        "35<=hours_per_week<40",
        "40<=hours_per_week<50",
        "hours_per_week>=50",
        "native_country=United-States",
        "native_country=other",
        "visits",
        "basket=milk",
        "basket=bread",
    )
    assert layout.blocks == (
        ("age", 0, 1, "number"),
        ("hours_per_week", 1, 6, "onehot"),
        ("native_country", 6, 8, "onehot"),
        ("visits", 8, 9, "number"),
        ("basket", 9, 11, "items"),
    )
    assert layout.kinds == ("number", *["bin"] * 5, *["category"] * 2, "number", "item", "item")
    assert (layout.max_l2_squared, layout.max_l1) == (5.0, 5.0)
    assert (layout.centre[0], layout.scale[0]) == (53.5, 36.5)
    assert set(zip(layout.centre[1:8], layout.scale[1:8])) == {(0.0, 1.0)}
    assert (layout.target, layout.classes, layout.target_bounds) == ("income", ("<=50K", ">50K"), None)
    assert len(layout) == 11
    assert layout.columns == ("age", "hours_per_week", "native_country", "visits", "basket")


def test_missing_as_a_category_adds_a_mark_and_no_norm() -> None:
    plain = contract_schema().layout(target="income")
    marked = contract_schema().layout(target="income", missing=Missing())
    assert [n for n in marked.names if n not in plain.names] == [f"{c}=?" for c in plain.columns]
    assert (marked.max_l2_squared, marked.max_l1) == (plain.max_l2_squared, plain.max_l1)
    for policy in ("drop", "error"):
        assert contract_schema().layout(target="income", missing=Missing(policy=policy)) == plain
    declared = Schema({"work": Category(["a", "?"])})
    assert declared.layout(missing=Missing()).names == ("work=a", "work=?")


def test_layout_of_chosen_features_keeps_their_order() -> None:
    layout = contract_schema().layout(["visits", "age"])
    assert layout.names == ("visits", "age")
    assert layout.target is None


@pytest.mark.parametrize(
    "features, target, words",
    [
        (["aeg"], None, "Did you mean 'age'?"),
        (None, "incme", "Did you mean 'income'?"),
        (["income", "age"], "income", "also a feature"),
        (["age", "age"], None, "twice"),
        ([], None, "no feature"),
        ("age", None, "one string"),
        (["age"], "hours_per_week", "bins"),
        (["age"], "basket", "vocabulary"),
    ],
)
def test_impossible_layouts_are_refused(features: list[str] | None, target: str | None, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        contract_schema().layout(features, target=target)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_encoded_names_that_collide_are_refused() -> None:
    with pytest.raises(StudyError, match="x=y=z"):
        Schema({"x": Category(["y=z"]), "x=y": Category(["z"])}).layout()


@pytest.mark.parametrize(
    "column, words",
    [
        (Number(90, 17), "Exchange them: lower = 17, upper = 90"),
        (Number(5, 5), "equal"),
        (Number(0.0, 5e-324), "nearly"),
        (Number(math.nan, 1), "lower is not finite"),
        (Number(0, math.inf), "upper is not finite"),
        (Number(-math.inf, 0), "lower is not finite"),
        (Number(0, 10**400), "upper is not finite"),
        (Number(-1.7e308, 1.7e308), "wider"),
        (Number("0", 1), "lower is not a number"),  # type: ignore[arg-type]
        (Number(True, 2), "lower is not a number"),
        (Number(0, 10, bins=[]), "no cut point"),
        (Number(0, 10, bins=[5, 3]), "bins = [3, 5]"),
        (Number(0, 10, bins=[5, 5]), "increase strictly"),
        (Number(0, 10, bins=[0, 5]), "strictly between"),
        (Number(0, 10, bins=[5, 10]), "strictly between"),
        (Number(0, 10, bins=[math.nan]), "not a finite number"),
        (Number(0, 10, bins=[5], log=True), "bins and log"),
        (Number(0, 10, log="yes"), "log is not"),  # type: ignore[arg-type]
        (Integer(0.5, 3), "whole number"),  # type: ignore[arg-type]
        (Integer(0, 3, step=0), "step"),
        (Integer(0, 3, step=4), "step"),
        (Integer(0, 2**60), "2^53"),
        (Category([]), "empty"),
        (Category("abc"), "not a list"),
        (Category(["a", "b", "a"]), "'a' twice"),
        (Category([1, "1"]), "'1' twice"),
        (Category(["a", " "]), "empty value"),
        (Category([None]), "NoneType"),  # type: ignore[list-item]
        (Category(["a", "other"], merge="other"), "also one of the values"),
        (Category(["a"], merge=""), "merge"),
        (Items(["a"], 0), "max_per_record"),
        (Items(["a"], 1.5), "max_per_record"),  # type: ignore[arg-type]
        (Items([], 2), "empty"),
    ],
)
def test_impossible_declarations_name_the_column_and_the_remedy(column: Number, words: str) -> None:
    with pytest.raises(BoundsError) as caught:
        Schema({"fine": Number(0, 1), "wrong": column})
    assert "'wrong'" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "line, error, words",
    [
        ({"type": "number", "lower": 0, "uper": 1}, StudyError, "unknown key 'uper'"),
        ({"type": "number", "lower": 0, "uper": 1}, StudyError, "Did you mean 'upper'?"),
        ({"type": "nubmer", "lower": 0, "upper": 1}, StudyError, "Did you mean 'number'?"),
        ({"lower": 0, "upper": 1}, StudyError, "no type"),
        ("number", StudyError, "no type"),
        ({"type": "number"}, BoundsError, "ts.Number(lower, upper)"),
        ({"type": "integer", "lower": 1}, BoundsError, "ts.Integer(lower, upper)"),
        ({"type": "category"}, BoundsError, "values is not declared"),
        ({"type": "items", "vocabulary": ["a"]}, BoundsError, "max_per_record is not declared"),
        ({"type": "category", "values": ["a"], "bins": [1]}, StudyError, "unknown key 'bins'"),
    ],
)
def test_wrong_lines_of_the_study_file(line: object, error: type[StudyError], words: str) -> None:
    with pytest.raises(error) as caught:
        Schema.from_dict({"age": line})  # type: ignore[dict-item]
    assert "'age'" in str(caught.value)
    assert words in str(caught.value)


def test_whoever_writes_a_file_is_told_the_line_of_the_file() -> None:
    with speaking_of_files(), pytest.raises(BoundsError) as caught:
        Schema.from_dict({"age": {"type": "number"}})
    assert 'age = { type = "number", lower = ..., upper = ... } under [data.columns]' in str(caught.value)
    assert "ts." not in str(caught.value)


@pytest.mark.parametrize("columns", [{"": Number(0, 1)}, {"a\nb": Number(0, 1)}, {3: Number(0, 1)}, {"a": 3}, [1]])
def test_what_is_not_a_schema(columns: object) -> None:
    with pytest.raises(StudyError):
        Schema(columns)  # type: ignore[arg-type]


def test_missing_policy() -> None:
    assert Missing() == Missing("?", "category")
    assert Missing(policy="drop").to_dict() == {"marker": "?", "policy": "drop"}
    with pytest.raises(StudyError, match="Did you mean 'category'"):
        Missing(policy="categroy")


def test_from_bounds() -> None:
    same = Schema.from_bounds(["a", "b"], -1, 1)
    assert same == Schema({"a": Number(-1, 1), "b": Number(-1, 1)})
    each = Schema.from_bounds(["a", "b"], np.array([0, 1]), [2, 3.5])
    assert each == Schema({"a": Number(0, 2), "b": Number(1, 3.5)})
    for lower, upper, words in [([0, 0, 0], 1, "2 features"), (1, -1, "'a'"), ("low", 1, "lower"), (0, [[1]], "shape")]:
        with pytest.raises(BoundsError, match=words):
            Schema.from_bounds(["a", "b"], lower, upper)


def test_a_category_is_one_value_however_a_file_spells_it() -> None:
    assert {label_text(v) for v in (1, 1.0, "1", " 1 ", np.int8(1), np.float32(1), b"1")} == {"1"}
    assert label_text(True) == label_text(np.True_) == "true"
    assert label_text(0.5) == "0.5"
    assert Category([False, True]).codes()["True"] == 1
    assert Category(["a"], merge="rest").classes == ("a", "rest")


bound = st.integers(-(10**6), 10**6)
text = st.text("abcxyz=<>? ", min_size=1, max_size=6).map(str.strip).filter(bool)


@st.composite
def column_types(draw: st.DrawFn) -> Number | Integer | Category | Items:
    kind = draw(st.sampled_from(["number", "integer", "category", "items"]))
    if kind in ("category", "items"):
        values = draw(st.lists(text | st.integers(0, 9), min_size=1, max_size=5, unique_by=label_text))
        if kind == "items":
            return Items(values, draw(st.integers(1, 6)))
        return Category(values, draw(st.none() | st.just("the others")))
    low = draw(bound)
    high = low + draw(st.integers(2, 1000))
    if kind == "integer":
        return Integer(low, high, draw(st.integers(1, high - low)))
    cuts = draw(st.none() | st.lists(st.integers(low + 1, high - 1), min_size=1, max_size=4, unique=True).map(sorted))
    return Number(low, high, bins=cuts, log=cuts is None and draw(st.booleans()))


@settings(deadline=None, max_examples=80)
@given(columns=st.lists(column_types(), min_size=1, max_size=5), policy=st.sampled_from(Missing.POLICIES))
def test_schema_round_trip_and_layout_arithmetic(columns: list[Number], policy: str) -> None:
    schema = Schema({f"column {i}": c for i, c in enumerate(columns)})
    assert Schema.from_dict(schema.to_dict()) == schema
    layout = schema.layout(missing=Missing(policy=policy))
    assert isinstance(layout, FeatureLayout)
    assert [b.start for b in layout.blocks] == [0, *[b.stop for b in layout.blocks[:-1]]]
    assert layout.blocks[-1].stop == len(layout.names) == len(layout.kinds) == len(layout.centre) == len(layout.scale)
    assert all(s > 0 for s in layout.scale)
