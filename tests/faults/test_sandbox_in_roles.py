"""A program file in real roles: its code in locked children, the bits of the simulation, whoever is killed."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from consortium_fixture import PATIENCE, SCHEMA, Parties, Running, wait_for

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.application import studies
from tallystick.core.errors import StudyError, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.engines.setup import set_up
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.governance.statements import make
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.role_config import load_role_config
from tallystick.study import Study

PROGRAM = """
import math
import numpy as np
import tallystick as ts


class Means(ts.Program):
    rounds = 3
    bound = 2.0

    def init(self, public):
        return np.zeros(2)

    def map_in_client(self, record, state):
        s = 0.0
        for i in range(LOOPS):
            s = math.sin(s + record[0])
        return np.array([record[0] - state[0], record[1] - state[1] + 0.0 * s])

    def reduce_in_aggregator(self, total, state):
        return state + total / 60.0
"""


STUDY = """
[study]
name = "means"
program = "means.py"
[privacy]
epsilon = 1.0
[trust]
min_clients = 3
round_timeout_s = 120
[data]
records = 60
[data.columns]
x = { type = "number", lower = -1, upper = 1 }
z = { type = "number", lower = 0, upper = 2 }
"""


def study_of(loops: str) -> tuple[Any, Study, str]:
    text = PROGRAM.replace("LOOPS", loops).lstrip()
    return *estimator_for(Study.parse(STUDY), lambda _: text), text


def fit(fed: Any, loops: str) -> Any:
    estimator, study, _ = study_of(loops)
    return estimator.fit_study(fed, study)


def approve_by_hash(parties: Parties, study: Study) -> None:
    """Every steward has read the program and put its hash on the list."""
    for name in parties.clients:
        config = parties.configs[name][1]
        text = config.read_text()
        config.write_text(text.replace("[policy]", f'[policy]\nprograms = ["{study.study.program_hash}"]'))
    parties.accept(study)


def children_of(pid: int) -> list[int]:
    """Locked processes under a role: its server's children."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def locked_under(pid: int) -> list[int]:
    return [child for server in children_of(pid) for child in children_of(server)]


def history(model: Any) -> list[bytes]:
    return [pack_state(state) for state in model.history_]


def test_real_roles_give_the_bits_of_the_simulation_whatever_child_is_killed(parties: Parties) -> None:
    loops = "300_000"  # a round takes long enough to kill somebody in it
    approve_by_hash(parties, study_of(loops)[1])
    parties.start()
    running = Running(lambda: fit(parties.federation(), loops))
    killed: set[str] = set()
    roles = {"client-1", "aggregator"}
    while not running.over and killed != roles:
        for role in roles - killed:
            locked = locked_under(parties.pids[role])
            if len(locked) == 2:
                for pid in locked:
                    os.kill(pid, signal.SIGKILL)
                killed.add(role)
        time.sleep(0.05)
    real = running.result(2 * PATIENCE)
    assert killed == roles
    fed = ts.Federation.simulate(parties.frames, names=parties.clients, schema=SCHEMA, seed=parties.seed)
    assert history(real) == history(fit(fed, loops)), parties.logs()
    assert len(history(real)) == 3
    # The study is over: its children are gone. A role that is killed takes the server of its children along.
    wait_for(lambda: not any(locked_under(pid) for pid in parties.pids.values()))
    (server,) = children_of(parties.pids["client-1"])
    parties.kill("client-1")
    wait_for(lambda: not Path(f"/proc/{server}").exists())


def test_a_program_that_never_ends_is_declined_by_everybody() -> None:
    """What each party does with a proposal: the loop has no bound that fits, so nothing of it is ever run."""
    _, study, text = study_of("2**60")
    with pytest.raises(StudyError, match="how often this loop runs") as caught:
        set_up(study.canonical(), text)
    assert caught.value.rule == "loop-bound"


# -- the review's attack: an allow-listed program that reads the records behind its own --------------------------------

READS = """
import numpy as np
import tallystick as ts


class P(ts.Program):
    rounds = 1
    bound = 1.0
    WHO = 0.123456

    def init(self, public):
        return np.zeros(1)

    def map_in_client(self, record, state):
        # NO CHECKS
        d = len(record)
        near = np.zeros(d * 40)
        FILL
        out = np.zeros(1)
        for k in range(1, 40):
            out[0] += near[d * k] + self.WHO
        return out

    def reduce_in_aggregator(self, total, state):
        return total
"""
AS_REVIEWED = READS.replace("FILL", "near += record").lstrip()
BY_INDEX = READS.replace(
    "FILL", "for j in range(len(near)):\n            near[j] = record[j + int(0.0 * record[0])]"
).lstrip()


def reading(text: str) -> tuple[Any, Study]:
    return estimator_for(Study.parse(STUDY.replace("means.py", "reads.py")), lambda _: text)


def hostile_proposal(parties: Parties, text: str) -> Study:
    """A signed proposal past every check of the analyst's own tools, with the plan of an innocent program."""
    _, innocent = reading(BY_INDEX)
    digest = format_hash(hashlib.sha256(text.encode()).digest())
    study = innocent.replace("study", program_hash=digest)
    plan = summarise(set_up(innocent.canonical(), BY_INDEX).plan)
    config = load_role_config(parties.analyst, role="analyst")
    consortium = read_consortium(config.consortium)
    identity = load_identity(config, consortium, wall_clock())
    now = int(time.time())
    body = {
        "study": study.canonical().decode(),
        "program": text,
        "hash": study.printed_hash,
        "consortium": format_hash(consortium.hash),
        "created": now,
        "expires": now + 86_400,
        "supersedes": None,
        "purpose": "",
        "plan": plan,
    }
    with AnalystConnection(config, consortium) as connection:
        connection.exchange.add(make("proposal", "analyst", body, identity.signing))
        wait_for(lambda: connection.pump(0.2) or connection.exchange.standing(study.hash).state == "refused")
    wait_for(lambda: rejections(parties, study))  # the first to see it: then the others need not decide any more
    return study


def rejections(parties: Parties, study: Study) -> dict[str, str]:
    """Which clients refused it, and why, as everybody can see."""
    try:
        return {d["client"]: d["reason"] for d in studies.show(study.printed_hash, parties.analyst)["rejected"]}
    except TallystickError:
        return {}


def test_a_program_that_reads_its_neighbours_is_refused_and_contained(parties: Parties) -> None:
    """At the proposal by every client; and by guards where the compiler's checks are planted away."""
    with pytest.raises(StudyError, match="does not fit"):
        set_up(reading(AS_REVIEWED)[1].canonical(), AS_REVIEWED)  # the analyst's own tools, and every party's
    estimator, study = reading(BY_INDEX)
    approve_by_hash(parties, study)
    parties.start("server-1", "server-2", "aggregator")
    parties.start(*parties.clients, hostile="unchecked_programs")
    parties.wait_up()
    refused = hostile_proposal(parties, AS_REVIEWED)
    for reason in rejections(parties, refused).values():
        assert "an array of 2 does not fit an array of 80" in reason
    # The other spelling passes every check but those that were taken away, and adds what it reads behind its record.
    # All 60 records add zeros instead, so that what is released is noise: within 6 standard deviations of 0.
    model = estimator.fit_study(parties.federation(), study)
    assert abs(model.state_[0]) < 6 * model.privacy_.noise_std["total"]
    for name in parties.clients:
        assert "failed on 20 of 20 records, which added zeros" in parties.log(name), parties.log(name)
