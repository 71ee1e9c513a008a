"""Encoding: known answers, bad cells by the stated policy, and rows that depend on nothing but themselves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.example_tables import clinic, clinic_schema, ties, ties_schema

from tallystick.core.caller import speaking_of_files
from tallystick.core.errors import BoundsError, DataError
from tallystick.data.encoding import Records, encode
from tallystick.data.examples import census, census_schema
from tallystick.study.columns import Category, Integer, Items, Missing, Number
from tallystick.study.schema import Schema

ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult.parquet"
SECRET = "Zebediah-1847"


def rows(source: Any, schema: Schema, **options: Any) -> list[list[float]]:
    return encode(source, schema, **options).features.tolist()


def test_numbers_scale_linearly_and_invert_by_centre_and_scale() -> None:
    schema = Schema({"age": Number(17, 90)})
    got = encode({"age": [17, 90, 53.5, 20]}, schema)
    assert got.features[:3, 0].tolist() == [-1.0, 1.0, 0.0]
    back = got.features[:, 0] * got.layout.scale[0] + got.layout.centre[0]
    assert back == pytest.approx([17, 90, 53.5, 20])


def test_log_numbers() -> None:
    schema = Schema({"gain": Number(-1, 99, log=True)})
    got = encode({"gain": [-1, 99, 9, 1000]}, schema)
    z = 2 * math.log1p(10) / math.log1p(100) - 1
    assert got.features[:, 0].tolist() == [-1.0, 1.0, pytest.approx(z), 1.0]
    back = np.expm1(got.features[:, 0] * got.layout.scale[0] + got.layout.centre[0]) + got.layout.offset[0]
    assert back == pytest.approx([-1, 99, 9, 99])


def test_bins_are_closed_on_the_left() -> None:
    schema = Schema({"age": Number(0, 90, bins=[25, 30, 65])})
    got = encode({"age": [24.999, 25, 29, 30, 64, 65, 500, -5]}, schema)
    assert got.layout.names == ("age<25", "25<=age<30", "30<=age<65", "age>=65")
    assert np.argmax(got.features, axis=1).tolist() == [0, 1, 1, 2, 2, 3, 3, 0]
    assert got.features.sum(axis=1).tolist() == [1.0] * 8


def test_integers_clamp_and_round_to_the_step() -> None:
    schema = Schema({"visits": Integer(0, 9, step=4)})
    got = encode({"visits": [0, 1, 2, 3, 6, 8, 9, 70]}, schema)  # on the grid 0, 4, 8; ties to even
    assert ((got.features[:, 0] + 1) * 4.5).tolist() == pytest.approx([0, 0, 0, 4, 8, 8, 8, 8])
    assert got.tallies.clamped == {"visits": 1}


def test_categories_unknown_and_merged() -> None:
    assert rows({"c": ["a", "b", "z"]}, Schema({"c": Category(["a", "b"])})) == [[1, 0], [0, 1], [0, 0]]
    merged = Schema({"c": Category(["a"], merge="other")})
    assert rows({"c": ["a", "b", "other"]}, merged) == [[1, 0], [0, 1], [0, 1]]
    got = encode({"c": ["a", "b", "z"]}, Schema({"c": Category(["a"])}))
    assert got.tallies.unknown == {"c": 2}


def test_categories_match_across_types() -> None:
    expected = [[1.0, 0.0], [0.0, 1.0]]
    for values in ([0, 1], ["0", "1"]):
        for cells in ([0, 1], [0.0, 1.0], ["0", "1"], [" 0", "1 "], [False, True], np.array([0, 1], dtype=np.uint8)):
            assert rows({"c": cells}, Schema({"c": Category(values)})) == expected
    for cells in ([False, True], ["false", "true"], ["False", "True"], [0, 1]):
        assert rows({"c": cells}, Schema({"c": Category([False, True])})) == expected
    assert rows({"c": ["a", 1]}, Schema({"c": Category(["a", 1])})) == expected
    assert rows({"c": np.array([b"a", b"b"])}, Schema({"c": Category(["a", "b"])})) == expected


def test_targets() -> None:
    schema = Schema({"x": Number(0, 1), "y": Category(["no", "yes"]), "w": Number(0, 10), "k": Integer(0, 9, 5)})
    data = {"x": [0.5] * 4, "y": ["yes", "no", "perhaps", "?"], "w": [3, -4, 99, 7], "k": [1, 3, 99, 0]}
    got = encode(data, schema, features=["x"], target="y", missing=Missing())
    assert got.target is not None
    assert (got.target.tolist(), got.rows.tolist()) == ([1.0, 0.0], [0, 1])
    assert got.layout.classes == ("no", "yes")
    assert (got.tallies.records, got.tallies.dropped) == (4, 2)
    assert (got.tallies.unknown, got.tallies.missing) == ({"y": 1}, {"y": 1})
    number = encode(data, schema, features=["x"], target="w")
    assert number.target is not None
    assert number.target.tolist() == [3.0, 0.0, 10.0, 7.0]
    whole = encode(data, schema, features=["x"], target="k")
    assert whole.target is not None
    assert whole.target.tolist() == [0.0, 5.0, 5.0, 0.0]
    assert whole.layout.target_bounds == (0.0, 5.0)
    merged = encode(
        data, Schema({"x": Number(0, 1), "y": Category(["no"], merge="rest")}), target="y", missing=Missing()
    )
    assert merged.target is not None
    assert merged.target.tolist() == [1.0, 0.0, 1.0]


MISSING_CELLS: list[Any] = [None, float("nan"), "", "  ", "?"]


@pytest.mark.parametrize("cell", MISSING_CELLS)
def test_missing_by_policy(cell: Any) -> None:
    schema = Schema({"c": Category(["a"]), "b": Number(0, 9, bins=[5]), "n": Number(0, 9), "k": Integer(0, 9)})
    data = {name: [first, cell] for name, first in (("c", "a"), ("b", 1), ("n", 9), ("k", 0))}
    assert rows(data, schema, missing=Missing()) == [
        [1, 0, 1, 0, 0, 1, 0, -1, 0],
        [0, 1, 0, 0, 1, 0, 1, 0, 1],
    ]
    dropped = encode(data, schema, missing=Missing(policy="drop"))
    assert dropped.features.tolist() == [[1, 1, 0, 1, -1]]
    assert dropped.tallies.dropped == 1
    for name in schema:
        with pytest.raises(DataError, match=f"column '{name}' has missing values"):
            encode(data, schema, features=[name], missing=Missing(policy="error"), party="north")
    if cell != "?":  # without a policy there is no marker
        with pytest.raises(DataError) as caught:
            encode(data, schema, party="north")
        assert "'c'" in str(caught.value)
        assert 'c": ts.Category(…, missing="flag")' in str(caught.value)
        with speaking_of_files(), pytest.raises(DataError) as caught:
            encode(data, schema, party="north")
        assert 'c = { type = "category", …, missing = "flag" }' in str(caught.value)
        assert 'missing = { marker = "?", policy = "category" }' in str(caught.value)
        assert caught.value.party == "north"


def test_a_declared_marker_is_a_value_and_nulls_join_it() -> None:
    schema = Schema({"c": Category(["a", "?"])})
    assert rows({"c": ["a", "?", None]}, schema, missing=Missing()) == [[1, 0], [0, 1], [0, 1]]
    assert rows({"c": ["a", "?", None]}, schema, missing=Missing(policy="drop")) == [[1, 0], [0, 1]]


def test_a_numeric_marker_is_found_as_text_and_as_number() -> None:
    schema = Schema({"n": Number(0, 10)})
    for cells in (["5", "-999", "10"], [5, -999, 10], [5.0, -999.0, 10.0]):
        assert rows({"n": cells}, schema, missing=Missing(marker="-999")) == [[0, 0], [0, 1], [1, 0]]


# --- numbers that are none, or extreme ------------------------------------------------------------------------------

EXTREMES = [math.inf, -math.inf, 1e308, -1e308, -0.0, 0.0, 5e-324, -5e-324, 2.2e-308, 1.0]


def test_infinite_huge_negative_zero_and_subnormal_numbers() -> None:
    schema = Schema({"x": Number(-1, 1)})
    for cells in (EXTREMES, [repr(v) for v in EXTREMES]):
        got = encode({"x": cells}, schema)
        assert got.features[:, 0].tolist() == [1.0, -1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
        assert got.tallies.clamped == {"x": 4}
    for column in (Number(-1, 1, log=True), Number(-1, 1, bins=[0]), Integer(-1, 1), Number(0.0, 1e-300)):
        got = encode({"x": EXTREMES}, Schema({"x": column}))
        assert np.isfinite(got.features).all()
        assert np.abs(got.features).max() <= 1.0
    target = encode({"x": EXTREMES, "y": EXTREMES}, Schema({"x": Number(-1, 1), "y": Number(-2, 2)}), target="y")
    assert target.target is not None
    assert np.abs(target.target).max() == 2.0


def test_nan_is_missing_and_refused_without_a_policy() -> None:
    schema = Schema({"x": Number(-1, 1), "y": Category(["a"])})
    for cells in ([0.5, math.nan], ["0.5", "nan"], pa.array([0.5, None])):
        with pytest.raises(DataError, match="'x' has missing values"):
            encode({"x": cells, "y": ["a", "a"]}, schema, target="y")
        kept = encode({"x": cells, "y": ["a", "a"]}, schema, target="y", missing=Missing(policy="drop"))
        assert kept.rows.tolist() == [0]


def test_text_in_a_number_column_is_named_and_never_quoted() -> None:
    schema = Schema({"x": Number(0, 1)})
    for cells in (["0.5", SECRET], ["0.5", "1_000"], ["0.5", "0x10"], ["0.5", "?"]):
        for source in ({"x": cells}, pl.DataFrame({"x": cells}, schema={"x": pl.Categorical})):
            with pytest.raises(DataError) as caught:
                encode(source, schema)
            assert "column 'x'" in str(caught.value)
            assert cells[1] not in caught.value.cause
            assert SECRET not in str(caught.value)
            assert caught.value.__context__ is None


def test_counts_stay_local() -> None:
    got = encode({"x": [5, math.inf]}, Schema({"x": Number(0, 1)}))
    assert got.tallies.clamped == {"x": 2}
    assert repr(got) == "Records(1 features, local)"
    assert repr(got.tallies) == str(got.tallies) == "Tallies(local)"


# --- constant, tied and empty data ----------------------------------------------------------------------------------


def test_constant_zero_tied_and_one_class() -> None:
    got = encode(ties(30), ties_schema(), target="label")
    assert np.isfinite(got.features).all()
    assert got.features[:, :2].tolist() == [[0.0, 0.0]] * 30
    assert got.target is not None
    assert set(got.target.tolist()) == {0.0}
    assert len(np.unique(got.features, axis=0)) == 3


@pytest.mark.parametrize("missing", [None, Missing(), Missing(policy="drop")])
def test_an_empty_client_has_the_public_shape(missing: Missing | None) -> None:
    frame = census(20)
    schema = Schema({**census_schema(), "basket": Items(["a"], 1)})
    empty = frame.head(0).with_columns(basket=pl.Series([], dtype=pl.List(pl.String)))
    nulls = {name: pa.array([], type=pa.null()) for name in schema}
    for source in (empty, empty.to_arrow(), empty.to_pandas(), {name: [] for name in schema}, nulls):
        got = encode(source, schema, target="income", missing=missing)
        assert got.features.shape == (0, len(schema.layout(target="income", missing=missing)))
        assert got.target is not None
        assert got.target.shape == (0,)
        assert got.features.flags.c_contiguous
    everything_missing = encode(
        {name: [None, None] for name in ("age", "sex")},
        Schema({"age": Number(0, 1), "sex": Category(["F"])}),
        missing=Missing(policy="drop"),
    )
    assert everything_missing.features.shape == (0, 2)


# --- records ------------------------------------------------------------------------------------------------------


def test_records_are_read_only_and_contiguous() -> None:
    got = encode(census(50), census_schema(), target="income", missing=Missing(policy="drop"))
    assert got.features.flags.c_contiguous
    assert got.features.dtype == np.float64
    for array in (got.features, got.target, got.rows):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    part = got.take([3, 1, 1])
    assert part.features.tolist() == got.features[[3, 1, 1]].tolist()
    assert part.features.flags.c_contiguous
    assert not part.features.flags.writeable
    assert len(got.take([])) == 0
    assert len(got.take(np.zeros(len(got), dtype=bool))) == 0


def mixed_schema() -> Schema:
    return Schema(
        {
            "a": Number(-3, 7),
            "l": Number(0, 1e6, log=True),
            "b": Number(0, 10, bins=[1, 2.5, 9]),
            "k": Integer(-4, 30, 3),
            "c": Category(["x", "y"], merge="rest"),
            "d": Category(["x", "z"]),
            "i": Items(["p", "q", "r", "s"], 2),
        }
    )


number = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.integers(-50, 50).map(float)
word = st.none() | st.sampled_from(["x", "y", "z", "w", "?", ""])
basket = st.none() | st.lists(st.sampled_from(["p", "q", "r", "s", "t"]), max_size=6)
record = st.tuples(number, number, number, number, word, word, basket)
SCHEMA_TYPES = {**dict.fromkeys("albk", pl.Float64), **dict.fromkeys("cd", pl.String), "i": pl.List(pl.String)}


def as_frame(records: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(records, schema=SCHEMA_TYPES, orient="row")


@settings(deadline=None, max_examples=60)
@given(records=st.lists(record, max_size=12), policy=st.sampled_from(["category", "drop"]))
def test_no_encodable_record_exceeds_the_public_norms(records: list[tuple[Any, ...]], policy: str) -> None:
    got = encode(as_frame(records), mixed_schema(), missing=Missing(policy=policy))
    assert np.isfinite(got.features).all()
    assert ((got.features**2).sum(axis=1) <= got.layout.max_l2_squared).all()
    assert (np.abs(got.features).sum(axis=1) <= got.layout.max_l1).all()
    for block in got.layout.blocks:
        part = got.features[:, block.start : block.stop]
        assert np.abs(part).max(initial=0.0) <= 1.0
        if block.kind == "onehot":
            assert (part.sum(axis=1) <= 1.0).all()


def test_the_public_norms_are_attained() -> None:
    full = as_frame([(7.0, 0.0, 5.0, 29.0, "x", "z", ["p", "q", "r"])])
    got = encode(full, Schema({**mixed_schema(), "k": Integer(-4, 29, 3)}), missing=Missing())
    assert float((got.features**2).sum()) == got.layout.max_l2_squared == 8.0
    assert float(np.abs(got.features).sum()) == got.layout.max_l1


def encode_part(frame: pl.DataFrame, policy: str = "category") -> Records:
    return encode(frame, mixed_schema(), missing=Missing(policy=policy))


def assert_row_independent(encoder: Any, frame: pl.DataFrame) -> None:
    """Blocks, singletons and permutations give equal bits."""
    whole = encoder(frame)
    n = len(frame)
    alone = [encoder(frame.slice(i, 1)) for i in range(n)]
    assert whole.tobytes() == b"".join(a.tobytes() for a in alone)
    for size in (2, 5):
        blocks = [encoder(frame.slice(i, size)) for i in range(0, n, size)]
        assert whole.tobytes() == b"".join(b.tobytes() for b in blocks)
    order = list(reversed(range(n)))
    assert encoder(frame[order]).tobytes() == whole[order].tobytes()


@settings(deadline=None, max_examples=25)
@given(records=st.lists(record, min_size=1, max_size=9))
def test_rows_depend_on_nothing_but_themselves(records: list[tuple[Any, ...]]) -> None:
    for policy in ("category", "drop"):
        frame = as_frame(records)
        frame = frame[encode_part(frame, policy).rows.tolist()]
        if len(frame):
            assert_row_independent(lambda f, p=policy: encode_part(f, p).features, frame)


def test_rows_of_census_and_clinic_are_independent() -> None:
    for frame, schema, target in ((census(40), census_schema(), "income"), (clinic(40), clinic_schema(), "readmitted")):
        categorical = frame.with_columns(pl.col(pl.String).cast(pl.Categorical))  # slices share their dictionary
        for form in (frame, categorical):
            assert_row_independent(
                lambda f, s=schema, t=target: encode(f, s, target=t, missing=Missing()).features, form
            )


def test_a_planted_block_mean_is_caught() -> None:
    def centred_by_the_block(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
        features = encode(frame, census_schema(), target="income", missing=Missing()).features
        return np.asarray(features - features.mean(axis=0))

    with pytest.raises(AssertionError):
        assert_row_independent(centred_by_the_block, census(10))


def test_a_foreign_dictionary_value_neither_fails_nor_counts() -> None:
    frame = pl.DataFrame({"x": ["1", SECRET, "2"]}).with_columns(pl.col("x").cast(pl.Categorical))
    got = encode(frame[[0, 2]], Schema({"x": Number(0, 2)}))
    assert got.features.tolist() == [[0.0], [1.0]]


@pytest.mark.data
@pytest.mark.skipif(not ADULT.exists(), reason=f"the Adult data are not at {ADULT}")
def test_adult_encodes_with_the_census_schema() -> None:
    got = encode(ADULT, census_schema(), target="income", missing=Missing())
    assert got.features.shape == (48_842, 86)
    assert got.target is not None
    assert int(got.target.sum()) == 11_687
    assert got.tallies.missing == {"workclass": 2_799, "occupation": 2_809, "native_country": 857}
    assert got.tallies.clamped == {}
    assert set(got.tallies.unknown) == {"native_country"}  # merged into one
    dropped = encode(ADULT, census_schema(), target="income", missing=Missing(policy="drop"))
    assert dropped.tallies.dropped == 3_620


@pytest.mark.data
@pytest.mark.skipif(not ADULT.exists(), reason=f"the Adult data are not at {ADULT}")
def test_adult_formats_agree(tmp_path: Path) -> None:
    frame = pl.read_parquet(ADULT)
    frame.write_csv(tmp_path / "adult.csv")
    expected = encode(ADULT, census_schema(), target="income", missing=Missing())
    for source in (frame, frame.to_pandas(), frame.to_arrow(), tmp_path / "adult.csv"):
        got = encode(source, census_schema(), target="income", missing=Missing())
        assert got.features.tobytes() == expected.features.tobytes()


def test_a_steeper_logarithm_tells_small_values_apart_and_is_undone_by_the_layout() -> None:
    schema = Schema({"gain": Number(1, 51, log=100)})
    found = encode({"gain": [1.0, 1.5, 6.0, 51.0, 99.0]}, schema).features[:, 0]
    wanted = [2 * math.log1p(100 * (v - 1)) / math.log1p(5000) - 1 for v in (1.0, 1.5, 6.0, 51.0, 51.0)]
    assert np.allclose(found, wanted)
    layout = schema.layout()
    back = [layout.offset[0] + math.expm1(layout.centre[0] + layout.scale[0] * x) for x in found]
    assert np.allclose(back, [1.0, 1.5, 6.0, 51.0, 51.0])
    assert np.array_equal(
        encode({"gain": [1.5, 6.0]}, Schema({"gain": Number(1, 51, log=1)})).features,
        encode({"gain": [1.5, 6.0]}, Schema({"gain": Number(1, 51, log=True)})).features,
    )


@pytest.mark.parametrize("log", [0, -1, math.nan, math.inf, "yes"])
def test_a_logarithm_that_is_none_is_refused(log: object) -> None:
    with pytest.raises(BoundsError, match="log is not"):
        Schema({"gain": Number(1, 51, log=log)})  # type: ignore[arg-type]
