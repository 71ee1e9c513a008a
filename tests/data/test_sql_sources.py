"""Records in a database: read like a file, in blocks, no password kept or told; PostgreSQL where it is installed."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.postgres_server import WORD, postgresql

from tallystick.core.errors import DataError, StudyError
from tallystick.data.addresses import parse_address, settled_source
from tallystick.data.encoding import encode
from tallystick.data.sources import column_names, read_blocks, read_table
from tallystick.study.columns import Category, Number
from tallystick.study.schema import Schema

sqlalchemy = pytest.importorskip("sqlalchemy", reason='SQLAlchemy is not installed: pip install "tallystick[sql]"')

ROWS = [(61, "f", 1.5), (62, "m", None), (40, "f", -0.0), (17, None, 2.25)]
SCHEMA = Schema(
    {"age": Number(17, 90), "sex": Category(["f", "m"], missing="flag"), "x": Number(0, 4, missing="centre")}
)


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    file = tmp_path / "clinic of mine.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE patients (age INTEGER, sex TEXT, x REAL)")
        database.executemany("INSERT INTO patients VALUES (?, ?, ?)", ROWS)
    database.close()
    return file


def address(file: Path, query: str = "SELECT age, sex, x FROM patients") -> str:
    return settled_source(f"sqlite:///{file}", query=query)


def test_a_query_a_table_and_a_file_give_the_same_records(clinic: Path, tmp_path: Path) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text("age,sex,x\n61,f,1.5\n62,m,\n40,f,0\n17,,2.25\n")
    expected = encode(str(csv), SCHEMA, features=["age", "sex", "x"])
    for query in (
        "SELECT age, sex, x FROM patients;",
        "patients",
        "WITH p AS (SELECT * FROM patients) SELECT * FROM p",
    ):
        found = encode(address(clinic, query), SCHEMA, features=["age", "sex", "x"])
        assert (found.features == expected.features).all()
    assert column_names(address(clinic)) == ("age", "sex", "x")


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_blocks_are_the_whole_in_order(clinic: Path, rows: int) -> None:
    blocks = list(read_blocks(address(clinic), ["x", "age"], rows=rows))
    assert all(block.num_rows <= rows for block in blocks)
    assert [r for block in blocks for r in block.to_pylist()] == [{"x": x, "age": age} for age, _, x in ROWS]
    assert read_table(address(clinic), ["age"]).column("age").to_pylist() == [61, 62, 40, 17]


def test_a_database_that_only_its_writers_can_read_is_told_in_words(
    clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(clinic) as database:
        database.execute("PRAGMA journal_mode=wal")
    database.close()
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda _path, _mode: False)  # root may write anywhere
        with pytest.raises(DataError, match="WAL mode, whose readers write beside it too") as caught:
            column_names(address(clinic))
    assert caught.value.rule == "database"
    assert read_table(address(clinic), ["age"]).num_rows == 4


def test_no_records_are_a_table_without_records(clinic: Path) -> None:
    (only,) = read_blocks(address(clinic, "SELECT * FROM patients WHERE age > 200"), rows=2)
    assert only.num_rows == 0
    assert only.column_names == ["age", "sex", "x"]


def test_signs_that_drivers_take_for_placeholders_are_the_query_s_own(clinic: Path) -> None:
    found = read_table(address(clinic, "SELECT age, '%s :name ? #1' AS text FROM patients WHERE sex LIKE '%f%'"))
    assert found.column("text").to_pylist() == ["%s :name ? #1"] * 2


def test_a_cell_that_is_no_text_spoils_itself_alone(clinic: Path) -> None:
    with sqlite3.connect(clinic) as database:
        database.execute("INSERT INTO patients VALUES ('forty', CAST(X'66FF' AS TEXT), ?)", (b"\x00",))
    database.close()
    found = encode(address(clinic), SCHEMA, features=["age", "sex", "x"], lenient=True)
    assert (found.tallies.records, found.tallies.dropped, len(found)) == (5, 1, 4)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://reader:hunter2@db/clinic#patients",
        "postgresql://reader:x${PW}hunter2@db/clinic#patients",
        "postgresql://reader@db/clinic?password=hunter2#patients",
        "postgresql://reader@db/clinic?sslpassword=hunter2#patients",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dhunter2%3B#patients",
    ],
)
def test_a_password_is_never_written_in_an_address(text: str) -> None:
    with pytest.raises(StudyError, match="holds a password") as caught:
        parse_address(text)
    assert caught.value.rule == "source-address"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("postgresql://db/clinic", "which records"),
        ("postgresql://db/clinic#DROP TABLE patients", "does not begin with SELECT"),
        ("://db#patients", "cannot be read"),
        ("sqlite://#patients", "cannot be read"),
    ],
)
def test_addresses_that_say_nothing_useful(text: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        parse_address(text)
    with pytest.raises(StudyError, match="a query is for a database"):
        settled_source("records.csv", query="SELECT 1")
    with pytest.raises(StudyError, match="written twice"):
        parse_address("sqlite:///a.db#t", query="SELECT 1")


def test_a_variable_is_filled_in_for_the_driver_and_for_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse_address("postgresql://reader:${CLINIC_PASSWORD}@DB:5432/clinic?application_name=t#SELECT a\n FROM t")
    assert found.location == "postgresql://db:5432/clinic#SELECT a FROM t"
    assert parse_address("postgresql+psycopg://u@db:54320/clinic#t").location == "postgresql://db:54320/clinic#t"
    with pytest.raises(DataError, match="CLINIC_PASSWORD, which is not set"):
        found.filled()
    monkeypatch.setenv("CLINIC_PASSWORD", "p@ss/wörd")
    assert found.filled().startswith("postgresql://reader:p%40ss%2Fw%C3%B6rd@DB:5432/clinic")
    assert "p@ss" not in f"{found!r}{found.text}{found.shown}{found.location}"


def test_relative_files_are_relative_to_the_role_s_folder(tmp_path: Path) -> None:
    settled = settled_source("sqlite:///clinic.db", query="patients", folder=tmp_path)
    assert parse_address(settled).sqlite_file == tmp_path / "clinic.db"
    assert settled_source(settled) == settled
    assert settled_source("a.csv", folder=tmp_path) == str(tmp_path / "a.csv")


def test_what_a_database_says_is_not_repeated(clinic: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_table(address(tmp_path / "none.db"))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(DataError, match=r"did not give the records \(OperationalError\)") as caught:
        read_table(address(clinic, "SELECT '" + "quoted".upper() + "' FROM nowhere"))
    assert "QUOTED" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(DataError, match=r"no address that SQLAlchemy knows|needs the driver"):
        read_table("nosuchdatabase://host/db#patients")


def test_writing_is_refused_by_the_database_too(clinic: Path) -> None:
    with pytest.raises(DataError):
        read_table(address(clinic, "WITH x AS (SELECT 1) INSERT INTO patients SELECT 1, 'f', 1 RETURNING age"))
    assert len(read_table(address(clinic))) == len(ROWS)


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a database on a socket."""
    pytest.importorskip("pg8000", reason="the driver pg8000 is not installed")
    with postgresql() as place:
        yield f"postgresql+pg8000://reader:${{{WORD}}}@/postgres?unix_sock={place}/.s.PGSQL.5432"


def test_postgresql_streams_through_a_server_side_cursor(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORD, "hunter2")
    query = "SELECT i AS age, (i % 7)::numeric / 2 AS x, DATE '2020-01-01' + i AS day FROM generate_series(1, 5000) i"
    blocks = list(read_blocks(f"{postgres}#{query}", ["x", "age"], rows=1500))
    assert [block.num_rows for block in blocks] == [1500, 1500, 1500, 500]
    assert encode(blocks[0], Schema({"age": Number(1, 5000), "x": Number(0, 3)})).tallies.dropped == 0
    assert sum(sum(block.column("age").to_pylist()) for block in blocks) == 5000 * 5001 // 2
    with pytest.raises(DataError, match="SQLSTATE 42P01") as caught:
        read_table(f"{postgres}#nowhere")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "nowhere" not in str(caught.value)
    engine = sqlalchemy.create_engine(parse_address(f"{postgres}#t").filled())
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE counter")
    engine.dispose()  # a socket that is left open fails the whole run at its end
    with pytest.raises(DataError, match="SQLSTATE 25006"):  # the transaction is read only
        read_table(f"{postgres}#SELECT nextval('counter')")


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:pa#hunter2@h/c#t",  # cut at its own #: the rest of a password is no table
        "postgresql://u:12#hunter2@h/c#SELECT * FROM t",
        "postgresql://u:pa#hunter2@h/c#SELECT * FROM t",
        "postgresql://h/c#SELECT * FROM dblink('host=x password=hunter2', 'select 1') AS t(a int)",
    ],
)
def test_a_password_is_found_where_it_does_not_look_like_one(text: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)
    assert caught.value.rule == "source-address"


@pytest.mark.parametrize("query", ["SELECT 1; COMMIT; DELETE FROM t", "WITH a AS (SELECT 1) SELECT 1;DROP TABLE t"])
def test_a_second_statement_is_no_part_of_a_query(query: str) -> None:
    """After a COMMIT of its own it would not be read only any more."""
    with pytest.raises(StudyError, match="more than one statement"):
        parse_address(f"postgresql://h/c#{query}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 -- it's\n; COMMIT; DELETE FROM t; SELECT 'x'",
        "SELECT 1 /* it's */; COMMIT; DELETE FROM t; SELECT 'x'",
        "SELECT $$'$$; COMMIT; DELETE FROM t; SELECT 'x'",
        "SELECT 1 AS a # it's\n; DELETE FROM t; SELECT 'x'",
        "SELECT E'\\''; COMMIT; DELETE FROM t; SELECT 'x'",
    ],
)
def test_a_second_statement_is_found_behind_an_apostrophe_that_is_no_quote(query: str) -> None:
    with pytest.raises(StudyError, match="more than one statement"):
        parse_address(f"postgresql://h/c#{query}")


def test_a_semicolon_within_quotes_and_comments_are_fine() -> None:
    for fine in ("SELECT a -- the patient's age\nFROM t", "SELECT a /* ours */ FROM t"):
        parse_address(f"postgresql://h/c#{fine}")
    for fine in ("SELECT ';' AS a FROM t;", 'SELECT ";" FROM t', "SELECT a FROM t WHERE token = 5 AND b = 'it''s; so'"):
        parse_address(f"postgresql://h/c#{fine}")
