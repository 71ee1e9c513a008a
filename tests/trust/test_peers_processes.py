"""Every peer its own reducer, between real processes: governed, charged, receipted; killed at every step.

The deployment is that of ``test_masks_processes``; the study has ``reducer = "every-peer"``.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.trust.masks_deployment import CLIENTS, MaskedDeployment, text
from tests.trust.test_masks_processes import AT_A_CLIENT, AT_THE_REDUCER, ROUNDS, run
from tests.trust.test_masks_processes import deployment as deployment

from tallystick.application import study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.core.errors import VerificationError
from tallystick.engines.setup import set_up
from tallystick.protocol.masked_sum.peer import kept_totals
from tallystick.protocol.study import decode
from tallystick.protocol.study.messages import StudyEnd
from tallystick.roles.identity.places import members_of
from tallystick.study import Study
from tallystick.trust.masks.parts import MaskingPart


def every_peer(name: str, **settings: float) -> Study:
    made = text(name, **settings).replace("min_clients = 3", 'min_clients = 4\nreducer = "every-peer"')
    return Study.parse(made)


def totals(deployment: MaskedDeployment, name: str, study: Study) -> list[bytes]:
    """The totals that a peer has kept of a study."""
    with sqlite3.connect(f"file:{deployment.state(name) / 'role.sqlite'}?mode=ro", uri=True) as db:
        rows = db.execute("SELECT key, value FROM records WHERE study = ? AND key LIKE 'total/%'", (study.hash,))
        return [found.to_bytes() for found in kept_totals(dict(rows))]


def refuses_another_result(deployment: MaskedDeployment, study: Study, made: dict[str, Any]) -> None:
    """By what it has kept, a peer vouches for this result and for no other; for none if it misses a total."""
    with PartyFiles.of(deployment.configs["north"][1]) as files:
        cast = members_of(files.consortium).cast(study.trust_model)
    setup = set_up(study.canonical(), "", allow_not_private=False)
    with sqlite3.connect(f"file:{deployment.state('north') / 'role.sqlite'}?mode=ro", uri=True) as db:
        records = dict(db.execute("SELECT key, value FROM records WHERE study = ?", (study.hash,)))
    said = decode(records["study/end"])
    assert isinstance(said, StudyEnd)
    assert MaskingPart.dispute(setup, cast, records, said.result) is None
    with pytest.raises(VerificationError, match="not what this client has come to itself"):
        MaskingPart.dispute(setup, cast, records, bytes(32))
    with pytest.raises(VerificationError, match="no further part"):  # it has met a second survivor set
        MaskingPart.dispute(setup, cast, {**records, "stopped": b"two sets"}, said.result)
    fewer = {key: kept for key, kept in records.items() if key != f"total/{ROUNDS}"}
    assert f"no total of round {ROUNDS}" in str(MaskingPart.dispute(setup, cast, fewer, said.result))


def test_every_peer_adds_up_and_vouches_whoever_is_killed(deployment: MaskedDeployment, tmp_path: Path) -> None:
    study = every_peer("among peers")
    deployment.order("north", *AT_A_CLIENT, "total/1-kept", "total/2-kept")
    deployment.order("south", f"total/{ROUNDS}-kept", "study/end-kept")
    deployment.order("reducer", *AT_THE_REDUCER, "outcome/1-kept", "evidence-sent")
    made = run(deployment, study)
    assert made["privacy"]["trust"]["reducer"] == "every-peer"
    assert made["privacy"]["trust"]["honest"] == 2
    assert "every client, who adds up itself, together with any 1 other client" in made["privacy"]["statement"]
    found = study_results.verify(write_canonical(made, tmp_path, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]
    assert tuple(sorted(found["participants"])) == CLIENTS
    kept = {name: totals(deployment, name, study) for name in CLIENTS}
    assert all(len(own) == ROUNDS for own in kept.values())
    assert len({tuple(own) for own in kept.values()}) == 1  # each has added up by itself, and all came to the same
    refuses_another_result(deployment, study, made)
    assert deployment.waiting("north") == []
    assert deployment.waiting("reducer") == []
