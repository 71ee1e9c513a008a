"""A client whose records are in a database: registered, fingerprinted and configured like one with a file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from ledger_examples import BUDGET, open_ledger

from tallystick.core.errors import StudyError
from tallystick.roles.identity.role_config import RoleConfig, parse_role_config
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.registration import register_own, source_of

pytest.importorskip("sqlalchemy", reason='SQLAlchemy is not installed: pip install "tallystick[sql]"')

HEAD = """
[role]
name = "clinic"
role = "client"
certificate = "c.pem"
key = "k.pem"
identity = "i.pem"
state = "state"
[data]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "clinic.db") as database:
        database.execute("CREATE TABLE patients (age INTEGER, sex TEXT)")
        database.executemany("INSERT INTO patients VALUES (?, ?)", [(61, "f"), (40, "m"), (17, None)])
    database.close()
    (tmp_path / "copy.csv").write_text("sex,age\nm,40\n,17\nf,61.0\n")
    (tmp_path / "state").mkdir()
    return tmp_path


def config_of(folder: Path, data: str) -> RoleConfig:
    return parse_role_config(HEAD + data, folder / "role.toml")


def test_a_role_file_names_a_database_and_the_client_registers_it(folder: Path) -> None:
    config = config_of(folder, 'source = "sqlite:///clinic.db"\nquery = """\nSELECT age, sex\nFROM patients"""\n')
    assert config.data == f"sqlite:///{folder}/clinic.db#SELECT age, sex\nFROM patients"
    with open_ledger(folder / "state") as ledger:
        made = register_own(config, ledger)
        assert made.fingerprint.location == f"sqlite:///{folder}/clinic.db#SELECT age, sex FROM patients"
        assert made.fingerprint.content
        assert register_own(config, ledger).changed_at is None
        assert source_of(config, ledger) == config.data
        with sqlite3.connect(folder / "clinic.db") as database:
            database.execute("INSERT INTO patients VALUES (30, 'f')")
        database.close()
        assert register_own(config, ledger).changed_at is not None


def test_the_same_records_in_a_file_and_in_a_table_are_registered_once(folder: Path) -> None:
    address = f"sqlite:///{folder}/clinic.db"
    with open_ledger(folder / "state") as ledger:
        ledger.register(make_dataset("file", folder / "copy.csv"), BUDGET)
        for query in ("patients", "SELECT * FROM patients ORDER BY age"):
            with pytest.raises(StudyError, match="registered already as 'file'") as caught:
                ledger.register(make_dataset("table", address, query=query), BUDGET)
            assert caught.value.rule == "source-registered-once"
        ledger.register(make_dataset("old", address, query="SELECT * FROM patients WHERE age > 30"), BUDGET)
        (folder / "link.db").symlink_to(folder / "clinic.db")
        again = make_dataset("again", f"sqlite:///{folder}/link.db", query="SELECT * FROM patients   WHERE age > 30")
        with pytest.raises(StudyError, match="the same file or address"):
            ledger.register(again, BUDGET)


def test_columns_of_a_registration_are_looked_for_in_the_query(folder: Path) -> None:
    with pytest.raises(StudyError, match="no column 'id'"):
        make_dataset("a", f"sqlite:///{folder}/clinic.db#patients", unit="person", person="id")


def test_a_role_file_that_maps_in_a_cluster(folder: Path) -> None:
    def parsed(source: str, spark: str = '[spark]\nmaster = "spark://m:7077"\nconf = { a = "b" }\n') -> RoleConfig:
        text = HEAD.replace('role = "client"', 'role = "client"\nengine = "spark"') + f"source = {source!r}\n{spark}"
        return parse_role_config(text, folder / "role.toml")

    assert parsed("table:clinic.patients").spark == ("spark://m:7077", {"a": "b"})
    assert parsed("table:clinic.patients").data == "table:clinic.patients"
    assert parsed("hdfs://node/patients").data == "hdfs://node/patients"
    assert parsed("patients.parquet").data == f"{folder}/patients.parquet"
    assert "spark://" not in repr(parsed("patients.parquet"))
    for text in (HEAD + 'source = "a.csv"\n[spark]\nmaster = "local"\n', None):
        with pytest.raises(StudyError, match="go together"):
            parse_role_config(text, folder / "role.toml") if text else parsed("a.csv", "")
    with pytest.raises(StudyError, match="holds a password"):
        parsed("postgresql://u:hunter2@db/clinic#t")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('source = "postgresql://reader:hunter2@db/clinic"\nquery = "patients"', "holds a password"),
        ('source = "postgresql://reader@db/clinic"', "which records"),
        ('source = "records.csv"\nquery = "patients"', "a query is for a database"),
        ('dataset = "a"\nquery = "patients"', "no 'query' beside dataset"),
        ('query = "patients"', "lacks source"),
    ],
)
def test_role_files_that_are_refused(folder: Path, data: str, words: str) -> None:
    with pytest.raises(StudyError, match=words) as caught:
        config_of(folder, data)
    assert "hunter2" not in str(caught.value)
