"""Data sets: records are registered once, known again in any order and format, and used only as registered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_examples import BUDGET, KEY, PARTY, open_ledger

from tallystick.core.errors import DataError, PrivacyRefused, StudyError
from tallystick.data.content import content_digest
from tallystick.engines.setup import set_up
from tallystick.privacy.ledger import Budget
from tallystick.roles.governance.review import proposal_statement, review
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.ledger.datasets import check_fits, make_dataset
from tallystick.roles.ledger.fingerprints import fingerprint
from tallystick.study import Study
from tallystick.study.columns import Category, Number
from tallystick.study.schema import Schema

ROWS = [("61", "f", "1.5"), ("62", "m", ""), ("40", "f", "-0.0"), ("40", "f", "-0.0")]


def write_csv(path: Path, rows: list[tuple[str, ...]] = ROWS, names: tuple[str, ...] = ("age", "sex", "x")) -> Path:
    path.write_text("\n".join([",".join(names), *(",".join(row) for row in rows)]) + "\n")
    return path


def write_parquet(path: Path) -> Path:
    table = pa.table(
        {"x": [1.5, None, 0.0, 0.0], "sex": ["f", "m", "f", "f"], "age": pa.array([61, 62, 40, 40], pa.int8())}
    )
    pq.write_table(table, path)
    return path


# -- fingerprints ------------------------------------------------------------------------------------------------------


def test_the_same_records_in_another_order_and_format(tmp_path: Path) -> None:
    one = fingerprint(write_csv(tmp_path / "a.csv"))
    shuffled = fingerprint(write_csv(tmp_path / "b.csv", ROWS[::-1]))
    turned = fingerprint(write_csv(tmp_path / "c.csv", [r[::-1] for r in ROWS], ("x", "sex", "age")))
    parquet = fingerprint(write_parquet(tmp_path / "d.parquet"))
    assert one.content == shuffled.content == turned.content == parquet.content
    assert len({one.bytes, shuffled.bytes, turned.bytes, parquet.bytes}) == 4
    assert one.shared_with(parquet)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:3],
        [*ROWS, ROWS[0]],
        [ROWS[0], ROWS[1], ROWS[2], (*ROWS[2][:2], "1e-9")],
        [("62", "f", "1.5"), ("61", "m", ""), *ROWS[2:]],  # the same cells, dealt to other records
        [("61", "F", "1.5"), *ROWS[1:]],
    ],
)
def test_other_records_are_other_records(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    assert content_digest(write_csv(tmp_path / "a.csv")) != content_digest(write_csv(tmp_path / "b.csv", rows))


def test_names_belong_to_the_content(tmp_path: Path) -> None:
    one, other = write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "b.csv", names=("age", "sex", "y"))
    assert content_digest(one) != content_digest(other)
    # a column's cells under another column's name
    swapped = write_csv(tmp_path / "c.csv", names=("x", "sex", "age"))
    assert content_digest(one) != content_digest(swapped)


def test_lines_that_are_no_record_are_counted_wherever_they_stand(tmp_path: Path) -> None:
    """A peer publishes zeros for each of them: with one more or less it would publish something else."""
    head, *lines = write_csv(tmp_path / "a.csv").read_text().splitlines()

    def of(*some: str) -> str:
        made = tmp_path / "b.csv"
        made.write_text("\n".join([head, *some]) + "\n")
        return content_digest(made)

    assert of(*lines) == content_digest(tmp_path / "a.csv")
    assert len({of(*lines), of(*lines, "broken"), of(*lines, "broken", "1,2,3,4"), of(*lines[1:], "broken")}) == 4
    assert of("other", *lines) == of(*lines, "broken")  # what stands in it is no matter: zeros are published


def test_kinds_of_columns() -> None:
    """Categoricals, booleans, lists, dates, chunks and nothing at all."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.Categorical(["u", "v", "u"]), "b": [True, False, True]})
    table = pa.table({"a": ["u", "v", "u"], "b": ["True", "False", "True"]})
    assert content_digest(frame) == content_digest(table)
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1, 2)])
    assert content_digest(chunks) == content_digest(table)
    sliced = pa.concat_tables([table, table]).slice(3, 3)
    assert content_digest(sliced) == content_digest(table)
    lists = pa.table({"a": [["x"], [], None]})
    assert content_digest(lists) != content_digest(pa.table({"a": [["x"], None, None]}))
    assert content_digest(table.slice(0, 0)) != content_digest(table.slice(0, 1))
    content_digest(pa.table({"t": pa.array([0, 1], pa.timestamp("s")), "n": pa.nulls(2)}))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-5, 5), st.sampled_from(["a", "b", ""])), min_size=1, max_size=12), st.randoms())
def test_order_never_matters_and_every_change_does(rows: list[tuple[int, str]], chance: object) -> None:
    def of(some: list[tuple[int, str]]) -> str:
        return content_digest({"n": [r[0] for r in some], "t": [r[1] for r in some]})

    mixed = list(rows)
    chance.shuffle(mixed)
    assert of(mixed) == of(rows)
    assert of(rows[1:]) != of(rows)
    assert of([(rows[0][0] + 1, rows[0][1]), *rows[1:]]) != of(rows)


def test_blocks_of_records_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.data import content

    table = pa.table({"a": np.arange(100) % 7, "b": [f"t{i % 5}" for i in range(100)]})
    whole = content_digest(table)
    monkeypatch.setattr(content, "_ROWS", 13)
    assert content_digest(table) == whole


# -- registration ------------------------------------------------------------------------------------------------------


def test_the_same_records_share_a_budget_or_are_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with open_ledger(tmp_path / "state") as ledger:
        ledger.register(make_dataset("patients", write_csv(tmp_path / "a.csv")), BUDGET)
        (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
        (tmp_path / "same.csv").write_bytes((tmp_path / "a.csv").read_bytes())
        sources = {
            tmp_path / "a.csv": "the same file",
            tmp_path / "link.csv": "the same file",
            tmp_path / "same.csv": "byte for byte",
            write_parquet(tmp_path / "a.parquet"): "another order or format",
        }
        for number, (source, words) in enumerate(sources.items()):
            with pytest.raises(StudyError, match=words) as caught:
                ledger.register(make_dataset(f"again {number}", source), BUDGET)
            assert caught.value.rule == "source-registered-once"
            assert "--group patients" in caught.value.remedy
        ledger.register(make_dataset("again", tmp_path / "a.parquet", group="patients"))
        assert ledger.view("again") == ledger.view("patients")
        assert ledger.view("again").datasets == ("patients", "again")
        with pytest.raises(StudyError) as caught:
            ledger.register(make_dataset("third", tmp_path / "link.csv", group="patients"), Budget(epsilon=5.0))
        assert caught.value.rule == "one-budget-a-group"
        other = write_csv(tmp_path / "other.csv", ROWS[:2])
        ledger.register(make_dataset("other", other), BUDGET)
        with pytest.raises(StudyError, match="needs a budget"):
            ledger.register(make_dataset("another", write_csv(tmp_path / "z.csv", ROWS[:1])))


def test_records_that_become_those_of_another_registration(tmp_path: Path) -> None:
    """A file overwritten with the records of another data set: its next start refuses."""
    (tmp_path / "state").mkdir()
    first, second = write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "b.csv", ROWS[:2])
    with open_ledger(tmp_path / "state") as ledger:
        ledger.register(make_dataset("a", first), BUDGET)
        ledger.register(make_dataset("b", second), BUDGET)
        write_csv(second, ROWS[::-1])
        with pytest.raises(StudyError, match="registered already as 'a'"):
            ledger.register(make_dataset("b", second), BUDGET)
        write_csv(second, ROWS[:1])
        assert ledger.register(make_dataset("b", second), BUDGET).changed_at is not None


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"name": "../etc"}, "data-set-name"),
        ({"name": ""}, "data-set-name"),
        ({"name": "a\nb"}, "data-set-name"),
        ({"group": "x" * 64}, "data-set-name"),
        ({"unit": "household"}, "unit-is-known"),
        ({"unit": "person"}, "unit-is-known"),
        ({"person": "age"}, "unit-is-known"),
        ({"unit": "person", "person": "id"}, "registered-columns-exist"),
        ({"schema": Schema({"weight": Number(0, 1)})}, "registered-columns-exist"),
    ],
)
def test_what_a_registration_must_say(tmp_path: Path, options: dict[str, object], rule: str) -> None:
    source = write_csv(tmp_path / "a.csv")
    with pytest.raises(StudyError) as caught:
        make_dataset(**{"name": "a", "source": source, **options})
    assert caught.value.rule == rule


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        make_dataset("a", tmp_path / "missing.csv")


def test_a_registration_comes_back_whole(tmp_path: Path) -> None:
    schema = Schema({"sex": Category(["f", "m"]), "age": Number(17, 90)})  # in the order of the features
    made = make_dataset("a", write_csv(tmp_path / "a.csv"), unit="person", person="x", schema=schema)
    with open_ledger(tmp_path) as ledger:
        kept = ledger.register(made, BUDGET)
    with open_ledger(tmp_path) as ledger:
        found = ledger.dataset("a")
        assert found == kept == ledger.register(made, BUDGET)
        assert (found.schema, found.unit, found.person, found.fingerprint) == (schema, "person", "x", made.fingerprint)
        assert len(found.ident) == 16


# -- studies -----------------------------------------------------------------------------------------------------------

STUDY = """
[study]
name = "s"
program = "logistic_regression"
target = "sex"
[privacy]
epsilon = 1.0
[data]
records = 4
[data.columns]
age = { type = "number", lower = 17, upper = 90 }
sex = { type = "category", values = ["f", "m"] }
"""


def test_a_proposal_that_does_not_fit_is_rejected_by_its_rule(tmp_path: Path) -> None:
    """The steward registered persons and one column; a study of records on another is turned down without a person."""
    study = Study.parse(STUDY)
    plan = set_up(study.canonical(), "", allow_not_private=False).plan
    proposal = proposal_statement(study, plan, "", analyst="analyst", key=KEY, consortium=bytes(32), now=1.0)
    names = ("path", "consortium", "certificate", "key", "identity", "state")
    config = RoleConfig(**dict.fromkeys(names, tmp_path), name=PARTY, role="client", dataset="a")
    source = write_csv(tmp_path / "a.csv")
    for number, (options, rule) in enumerate(
        (
            ({}, None),
            ({"unit": "person", "person": "x"}, "unit-of-the-data-set"),
            ({"schema": Schema({"age": Number(0, 120)})}, "columns-of-the-data-set"),
        )
    ):
        state = tmp_path / str(number)
        state.mkdir()
        with open_ledger(state) as ledger:
            ledger.register(make_dataset("a", source, **options), BUDGET)
            verdict = review(proposal, config, ledger).verdict
        assert (verdict.decision, verdict.rule) == (("reject", rule) if rule else ("ask", "default"))


def test_records_registered_for_persons_under_another_name_are_still_for_persons(tmp_path: Path) -> None:
    study = Study.parse(STUDY)
    plan = set_up(study.canonical(), "", allow_not_private=False).plan
    proposal = proposal_statement(study, plan, "", analyst="analyst", key=KEY, consortium=bytes(32), now=1.0)
    names = ("path", "consortium", "certificate", "key", "identity", "state")
    config = RoleConfig(**dict.fromkeys(names, tmp_path), name=PARTY, role="client", dataset="a")
    source = write_csv(tmp_path / "a.csv")
    with open_ledger(tmp_path) as ledger:
        ledger.register(make_dataset("by person", source, unit="person", person="x", group="a"), BUDGET)
        ledger.register(make_dataset("a", source))
        verdict = review(proposal, config, ledger).verdict
    assert (verdict.decision, verdict.rule) == ("reject", "unit-of-the-data-set")


def test_a_study_fits_what_was_registered(tmp_path: Path) -> None:
    source, study = write_csv(tmp_path / "a.csv"), Study.parse(STUDY)
    check_fits(make_dataset("a", source), study)
    person = make_dataset("a", source, unit="person", person="x")
    with pytest.raises(PrivacyRefused) as caught:
        check_fits(person, study)
    assert (caught.value.rule, caught.value.exit_code) == ("unit-of-the-data-set", 3)
    check_fits(person, study.replace("privacy", unit="person", person="x", max_records=2))
    with pytest.raises(PrivacyRefused):
        check_fits(person, study.replace("privacy", unit="person", person="age", max_records=2))
    check_fits(make_dataset("a", source), study.replace("privacy", unit="person", person="x"))  # more than asked for
    narrow = make_dataset("a", source, schema=Schema({"age": Number(0, 120)}))
    with pytest.raises(PrivacyRefused) as caught:
        check_fits(narrow, study)
    assert caught.value.rule == "columns-of-the-data-set"
    assert "Registered are: age" in caught.value.remedy
