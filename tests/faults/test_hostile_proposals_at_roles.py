"""Real processes: an analyst proposes what no plan can be made of. Clients say no, and stay well."""

from __future__ import annotations

import json
import time
from typing import Any

from consortium_fixture import Parties, health, wait_for

from tallystick.core.identifiers import format_hash
from tallystick.engines.setup import set_up
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.governance.statements import make
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.role_config import load_role_config
from tallystick.study import study_digest

HOSTILE: dict[str, tuple[str, str, Any]] = {
    "the smallest epsilon": ("privacy", "epsilon", 5e-324),
    "a tiny epsilon": ("privacy", "epsilon", 1e-200),
    "the smallest delta": ("privacy", "delta", 5e-324),
    "a large epsilon": ("privacy", "epsilon", 1e308),
    "too many records": ("data", "records", 2**62),
    "a round for ever": ("trust", "round_timeout_s", 1e308),
    "a number too large": ("program", "clip", 10**400),
    "a nest": ("program", "clip", json.loads("[" * 50 + "]" * 50)),
}


def test_hostile_proposals_are_answered_and_nobody_falls_ill(parties: Parties) -> None:
    monitors = [parties.monitor(name) for name in ("client-1", "server-1", "aggregator")]
    parties.start()
    parties.wait_up()
    config = load_role_config(parties.analyst, role="analyst")
    consortium = read_consortium(config.consortium)
    signing = load_identity(config, consortium, wall_clock()).signing
    good = parties.study()
    plan = summarise(set_up(good.canonical(), "").plan)
    asked = []
    with AnalystConnection(config, consortium) as connection:
        for name, (section, key, value) in HOSTILE.items():
            raw = json.loads(good.canonical())
            raw[section][key] = value
            raw["study"]["name"] = name
            raw["program"] = dict(sorted(raw["program"].items()))
            text = json.dumps(raw, separators=(",", ":"))
            body = {
                "study": text,
                "program": "",
                "hash": format_hash(study_digest(text.encode())),
                "consortium": format_hash(consortium.hash),
                "created": int(time.time()),
                "expires": int(time.time()) + 86_400,
                "supersedes": None,
                "purpose": "",
                "plan": plan,
            }
            asked.append(make("proposal", "analyst", body, signing))
            connection.exchange.add(asked[-1])

        def all_refused() -> bool:
            connection.pump(0.2)
            return all(connection.exchange.standing(s.study_hash).state == "refused" for s in asked)

        wait_for(all_refused)  # a client that is slower than the others need not decide any more
        assert not any(connection.exchange.standing(s.study_hash).approvals for s in asked)
    assert [health(monitor)["green"] for monitor in monitors] == [True] * 3
    parties.fit(parties.study())  # and go on with their work
    assert "Traceback" not in parties.logs()
