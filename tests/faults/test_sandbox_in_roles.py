"""A program file in real roles: its code in locked children, the bits of the simulation, whoever is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from consortium_fixture import PATIENCE, SCHEMA, Parties, Running, wait_for

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import StudyError
from tallystick.engines.sandbox.children import Limits, shared_children
from tallystick.engines.study import Study
from tallystick.estimators.from_study import estimator_for
from tallystick.roles.setup import set_up

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


def test_a_program_that_never_ends_is_declined_by_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shipped limits this takes half a minute a party; here the parties are one: what each would do."""
    monkeypatch.setattr(shared_children(), "limits", Limits(call_seconds=1.0))
    _, study, text = study_of("2**60")
    with pytest.raises(StudyError, match="did not answer within 1 s") as caught:
        set_up(study.canonical(), text)
    assert caught.value.rule == "program-contained"
