"""Made-up records fit the columns a study declares."""

from __future__ import annotations

from tallystick.application.synthetic_records import made_up_table
from tallystick.study import Study


def test_made_up_records_fit_their_columns() -> None:
    study = Study.parse(
        """
        [study]
        name = "baskets"
        version = 1
        program = "summary"
        [privacy]
        epsilon = 1.0
        unit = "person"
        person = "who"
        max_records = 2
        [data.columns]
        age = { type = "integer", lower = 3, upper = 5 }
        dose = { type = "number", lower = -1.5, upper = 2 }
        bought = { type = "items", vocabulary = ["a", "b", "c"], max_per_record = 2 }
        """
    )
    table = made_up_table(study, 200).to_pydict()
    assert set(table["age"]) == {3, 4, 5}
    assert -1.5 <= min(table["dose"]) < -1 < 1.5 < max(table["dose"]) <= 2
    assert {len(set(b)) for b in table["bought"]} == {0, 1, 2} == {len(b) for b in table["bought"]}
    assert {x for b in table["bought"] for x in b} == {"a", "b", "c"}
    assert len(set(table["who"])) == 100
    assert made_up_table(study, 200).to_pydict() == table != made_up_table(study, 200, seed=2).to_pydict()
