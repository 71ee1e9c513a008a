"""What a data user attests of totals that tell of single people confirms no guess of them; else it is their hash."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from tallystick.algorithms.vertical_svm.program import VerticalLocalDesign
from tallystick.core.identifiers import digest, format_hash
from tallystick.engines.totals import NoisyTotal
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.governance import attestation
from tallystick.roles.processes import coordinator
from tallystick.roles.processes.coordinated_rounds import pack_total

STUDY = bytes(range(32))


class Said:
    """An exchange, as far as an attestation asks it."""

    name = "data-user"

    def __init__(self) -> None:
        self.store = SimpleNamespace(statements=lambda _study: list[Statement]())
        self.body: dict[str, Any] = {}

    def say(self, _kind: str, body: dict[str, Any]) -> None:
        self.body = body


def attested(monkeypatch: Any, design: Any, body: bytes) -> dict[str, Any]:
    """What a coordinator that has been started anew says of a study that had ended."""
    said = Said()
    setup = SimpleNamespace(design=design, plan=SimpleNamespace(noise_parameters=lambda _rounds: ()))
    monkeypatch.setattr(coordinator, "set_up", lambda *_, **__: setup)
    for name in ("plan_digest", "summarise", "noise_of"):
        monkeypatch.setattr(attestation, name, lambda *_: "")
    store = SimpleNamespace(
        releases=lambda _study: ((1, body),),
        study=lambda _study: SimpleNamespace(canonical=b"", program=b""),
        records=lambda _study: {},
        boot="boot",
    )
    session: Any = object.__new__(coordinator.CoordinatorSession)
    session.study_hash, session.setup = STUDY, None
    session.cast = SimpleNamespace(model=SimpleNamespace(maker_roles=("data-user",)))
    session.process = SimpleNamespace(
        store=store,
        exchange=said,
        role="data-user",
        parts=SimpleNamespace(streams=lambda *_: SimpleNamespace(bytes=os.urandom)),
    )
    session._vouch()
    return said.body


def test_no_hash_of_a_total_that_tells_of_people_is_attested(monkeypatch: Any) -> None:
    values = np.array([3, 0, 7, -7], dtype=np.int64)
    body = pack_total(NoisyTotal(values=values, participants=("a", "b"), dropped=(), makers=None))
    secret, plain = object.__new__(VerticalLocalDesign), SimpleNamespace(tells_of_people=False)
    said = attested(monkeypatch, secret, body)
    assert len(said["partials"]) == said["rounds"] == 1
    assert format_hash(digest(body)) not in json.dumps(said)
    assert said["partials"] != attested(monkeypatch, secret, body)["partials"]
    assert attested(monkeypatch, plain, body)["partials"] == [format_hash(digest(body))]
