"""Found by attacking gossip: each test is named after what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust.gossip_deployment import frame, text
from tests.trust.test_gossip_publishing import members, source

import tallystick as ts
from tallystick.core.errors import StudyError
from tallystick.data.encoding import study_records
from tallystick.data.record_blocks import open_records
from tallystick.engines.setup import Setup, set_up
from tallystick.study import Study
from tallystick.trust.gossip.parts import PeerPart
from tallystick.trust.gossip.publishing import Publishing

PERSONS = text(peers=3, each=10).replace(
    "epsilon = 4.0", 'epsilon = 4.0\nunit = "person"\nperson = "id"\nmax_records = 2'
)
GOOD = ["0.1,0.2,a,ann", "0.3,0.2,b,bob", "0.1,-0.2,a,bob", "0.7,0.2,b,cyd"]


def of_program(program: str) -> tuple[Study, Setup]:
    study = Study.parse(text(peers=3, each=10) + f"[program]\n{program}\n")
    return study, set_up(study.canonical(), "", allow_not_private=True)


# -- persons: whether the only record of a person can be read is not seen ----------------------------------------------


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("bad", ["oops,0.2,b,cyd", "0.7,,b,cyd", "0.7,0.2,nobody,cyd", "0.7,0.2,b,", "0.7,0.2,b,cyd,x"])
def test_a_person_whose_only_record_cannot_be_read_is_still_published(
    tmp_path: Path, bad: str, rows: int | None
) -> None:
    study = Study.parse(PERSONS)
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    counts = []
    for lines in (GOOD, [bad, *GOOD[:3]], [*GOOD[:3], bad], [*GOOD[:2], bad, GOOD[2]]):
        file = tmp_path / "lines.csv"
        file.write_text("\n".join(["x,z,y,id", *lines]) + "\n")
        records = open_records(study, file, lenient=True, rows=rows).whole()
        counts.append(len(publishing.unpack(publishing.draw(records, "peer-01", source()))))
    assert counts == [6, 6, 6, 6]  # two of each of three persons


def test_a_bad_record_of_a_person_who_has_others_is_no_further_person() -> None:
    study = Study.parse(PERSONS)
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    data = {k: v[:4] for k, v in frame(4, 1).items()} | {"id": np.array(["a", "b", "b", "c"])}
    data["x"][2] = np.nan
    records = study_records(study, data, lenient=True)
    assert len(publishing.unpack(publishing.draw(records, "peer-01", source()))) == 6
