"""No record's content decides whether its institution takes part, or is seen outside in any other way.

A consortium of real processes runs the same study on neighbouring data: one record of one client is replaced by one
with a bad or missing cell. Whoever took part and whoever dropped out must be the same, and the record must have added
zeros: to the bit what a simulation without that record gives. It is counted in that client's own log, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from consortium_fixture import RECORDS, SCHEMA, SEED, Parties, bits, fit, wait_for

import tallystick as ts
from tallystick.application import doctor, studies
from tallystick.application.studies import words as study_words
from tallystick.roles.identity.identity_files import wall_clock
from tallystick.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
SPOILT, PLACE = "client-2", 7
SAID = "of 15 records add nothing"


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Two servers, an aggregator and four clients whose records also name persons, each of two records."""
    made = Parties(tmp_path_factory.mktemp("records"), clients=4)
    for name, frame in zip(made.clients, made.frames):
        frame["who"] = [f"{name} {i // 2}" for i in range(RECORDS // 4)]
        write(made, name, [",".join(str(v) for v in row) for row in zip(*frame.values())])
    made.start()
    made.wait_up()
    try:
        yield made
    finally:
        made.close()


def file_of(parties: Parties, name: str) -> Path:
    return parties.folder / f"{name}.csv"


def write(parties: Parties, name: str, lines: list[str], header: str = "x,z,y,who") -> None:
    file_of(parties, name).write_bytes("\n".join([header, *lines, ""]).encode("latin-1"))


@pytest.fixture
def lines(consortium: Parties) -> Iterator[list[str]]:
    """The records of the client in question, as they stand in its file; they are put back afterwards."""
    before = file_of(consortium, SPOILT).read_text().splitlines()[1:]
    yield list(before)
    write(consortium, SPOILT, before)


def without_the_record(parties: Parties, study: Study) -> ts.LogisticRegression:
    """The simulation in which the record is not there."""
    frames = [dict(frame) for frame in parties.frames]
    one = frames[parties.clients.index(SPOILT)]
    for column, cells in one.items():
        one[column] = [cell for place, cell in enumerate(cells) if place != PLACE]
    return fit(ts.Federation.simulate(frames, names=parties.clients, schema=SCHEMA, seed=SEED), study)


def spoil(line: str, column: int, cell: str) -> str:
    cells = line.split(",")
    cells[column] = cell
    return ",".join(cells)


@pytest.mark.parametrize(
    ("policy", "column", "cell", "why"),
    [
        (None, 0, "", "'x' missing in 1"),
        ("error", 1, "maybe", "'z' unusable in 1"),
        ("drop", 1, "NaN", "'z' missing in 1"),
        ("category", 2, "perhaps", "'y' not declared in 1"),
        (None, 0, "0.5,0.5", "1 line(s) are no record"),
        (None, 1, '"1.0', "1 line(s) are no record"),
        (None, 0, "1\xe9", "'x' unusable in 1"),
    ],
)
def test_a_bad_cell_changes_nothing_but_its_record(
    consortium: Parties, lines: list[str], policy: str | None, column: int, cell: str, why: str
) -> None:
    missing = None if policy is None else ts.Missing(policy=policy)
    lines[PLACE] = spoil(lines[PLACE], column, cell)
    write(consortium, SPOILT, lines)
    study = consortium.study(missing=missing)
    heard = consortium.log(SPOILT).count(SAID)
    model = consortium.fit(study, missing=missing)
    assert model.contributors_ == tuple(consortium.clients)
    assert set(model.dropped_) == {()}
    assert bits(model) == bits(without_the_record(consortium, study))
    wait_for(lambda: consortium.log(SPOILT).count(SAID) == heard + 1)
    assert f"1 {SAID}: {why}" in consortium.log(SPOILT)
    for other in consortium.configs:
        assert other == SPOILT or "add nothing" not in consortium.log(other)


def test_a_record_that_names_no_person_adds_zeros(consortium: Parties, lines: list[str]) -> None:
    lines[PLACE] = spoil(lines[PLACE], 3, " ")
    write(consortium, SPOILT, lines)
    study = consortium.study().replace("privacy", unit="person", person="who", max_records=2)
    model = consortium.fit(study)
    assert model.contributors_ == tuple(consortium.clients)
    assert set(model.dropped_) == {()}
    assert bits(model) == bits(without_the_record(consortium, study))
    assert f"1 {SAID}: 'who' names nobody in 1" in consortium.log(SPOILT)


def test_what_no_record_decides_makes_a_client_unavailable(consortium: Parties, lines: list[str]) -> None:
    write(consortium, SPOILT, lines, header="x,other,y,who")
    model = consortium.fit(consortium.study())
    assert set(model.dropped_) == {(SPOILT,)}
    assert "has no column 'z'" in consortium.log(SPOILT)


def test_doctor_and_study_show_count_them_for_the_steward(consortium: Parties, lines: list[str]) -> None:
    """Of a study that may still run; the same command of another party knows nothing of it."""
    lines[PLACE] = spoil(lines[PLACE], 0, "?")
    write(consortium, SPOILT, lines)
    study = consortium.study(name="for the doctor")
    studies.propose_study(study, consortium.analyst)
    _, config = consortium.configs[SPOILT]

    def found() -> list[dict[str, str]]:
        return [
            f
            for f in doctor.examine(config, now=wall_clock())["findings"]
            if f["check"] == "records" and "for the doctor" in f["what"]
        ]

    (finding,) = wait_for(found)
    assert finding["status"] == "warning"
    assert f"1 {SAID}: 'x' unusable in 1" in finding["what"]
    shown = studies.show(study.printed_hash, config)
    assert f"1 {SAID}: 'x' unusable in 1" in study_words.show(shown).replace("\n  ", " ")
    assert "add nothing" not in str(studies.show(study.printed_hash, consortium.analyst))


def test_a_miscoded_hospital_is_told_and_waits_like_all_others(consortium: Parties, lines: list[str]) -> None:
    """Rules approve nothing that reads a column in a new way, whatever the data hold; a running client hears of it when
    a person has accepted the columns, and its records add zeros if nobody corrects them."""
    write(consortium, SPOILT, [line.replace("yes", "YES").replace("no", "NO") for line in lines])
    wider = consortium.study(name="miscoded").model_dump()
    wider["data"]["columns"]["x"]["upper"] = 2.0
    study = Study.from_dict(wider)
    studies.propose_study(study, consortium.analyst)
    for name in consortium.clients:
        wait_for(lambda n=name: "nobody has accepted how it reads x" in consortium.log(n))  # type: ignore[misc]
    assert studies.show(study.printed_hash, consortium.analyst)["waiting"] == consortium.clients
    _, config = consortium.configs[SPOILT]
    told = " ".join(study_words.show(studies.show(study.printed_hash, config)).split())
    assert "15 of 15 targets are" in told
    assert "the study declares no, yes" in told
    consortium.accept(study)
    wait_for(lambda: not studies.show(study.printed_hash, consortium.analyst)["waiting"])
    model = consortium.fit(study)
    assert model.contributors_ == tuple(consortium.clients)
    wait_for(lambda: "'y' (target): 15 rows" in consortium.log(SPOILT))
    for other in consortium.configs:
        assert other == SPOILT or "targets are" not in consortium.log(other)


def test_a_client_that_refuses_its_bad_record_is_caught(consortium: Parties, lines: list[str]) -> None:
    """The planted bug: the check of the simulation in a deployed client, as it was. Everybody sees who has the cell."""
    consortium.kill(SPOILT)
    consortium.start(SPOILT, hostile="refuses_bad_records")
    consortium.wait_up(SPOILT, times=2)
    intact = consortium.fit(consortium.study())
    lines[PLACE] = spoil(lines[PLACE], 0, "")
    write(consortium, SPOILT, lines)
    emptied = consortium.fit(consortium.study())
    assert intact.dropped_ != emptied.dropped_
    assert set(emptied.dropped_) == {(SPOILT,)}
