"""kill -9 at every enumerated crash point of every role; the study ends with the bits of the simulation.

One consortium, one study per point. The role kills itself right after the step the point is named for, is started
again, and the study must end as if nothing had happened: the same bits, every round's noise drawn once, every partial
ever handed to the network for a round the same bytes. Points that an undisturbed study never passes (an equivocating
client, an aborted round) have a scenario of their own.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from consortium_fixture import Parties, bits, wait_for
from crash_point_list import CrashPoint

from tallystick.core.errors import RoundAborted
from tallystick.study import Study

VICTIMS = {"server": "server-1", "client": "client-2", "aggregator": "aggregator"}
EQUIVOCATION = CrashPoint.SERVER_EQUIVOCATORS_KEPT
ABORTS = (CrashPoint.SERVER_ABORT_KEPT, CrashPoint.AGGREGATOR_ABORT_KEPT)
BOOTS = {
    CrashPoint.SERVER_BOOTED: CrashPoint.SERVER_NOISE_KEPT,
    CrashPoint.CLIENT_BOOTED: CrashPoint.CLIENT_CONTRIBUTION_KEPT,
    CrashPoint.AGGREGATOR_BOOTED: CrashPoint.AGGREGATOR_ROUND_KEPT,
}
PRICES = CrashPoint.SERVER_PRICES_KEPT  # of rounds left open: tests/roles/test_open_price_server.py
MEMORY = CrashPoint.CLIENT_MEMORY_KEPT  # of a local program: tests/faults/test_local_program_processes.py
LEDGER = [p for p in CrashPoint if p.value.startswith("client:ledger-void-")]  # tests/faults/test_ledger_crashes.py
STREAM = [  # tests/faults/test_stream_roles.py
    CrashPoint.CLIENT_WATERMARK_KEPT,
    CrashPoint.AGGREGATOR_CLOCK_KEPT,
    CrashPoint.AGGREGATOR_LOSS_KEPT,
]
PAUSES = [p for p in CrashPoint if "study/paused" in p.value or "study/why" in p.value]  # test_paused_studies.py
ORDINARY = [
    p for p in CrashPoint if p not in (EQUIVOCATION, PRICES, MEMORY, *ABORTS, *BOOTS, *LEDGER, *STREAM, *PAUSES)
]
# Steps of the second round or later, where there is a past to come back to.
SECOND_ROUND = {
    CrashPoint.SERVER_DRAW_KEPT: 2,
    CrashPoint.SERVER_NOISE_KEPT: 2,
    CrashPoint.SERVER_PARTIAL_KEPT: 2,
    CrashPoint.SERVER_SHARE_SYNCED: 2,  # one fsync may serve all shares of a round
    CrashPoint.CLIENT_SHARE_SENT: 3,
    CrashPoint.AGGREGATOR_ROUND_KEPT: 2,
    CrashPoint.AGGREGATOR_MODEL_KEPT: 2,
}


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("crashes"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def check_said_once(parties: Parties, study: Study, *, rounds: int | None = None) -> None:
    """Noise drawn once a round and server; one body per partial, however often it was sent."""
    for server in ("server-1", "server-2"):
        draws = [line.split()[1] for line in parties.noted("noise", server) if line.startswith(study.hash.hex())]
        assert len(draws) == len(set(draws)), f"{server} drew noise twice: {draws}"
        sent = defaultdict(set)
        for line in parties.noted("partials", server):
            hashed, round, boot, body = line.split()
            if hashed == study.hash.hex():
                sent[int(round)].add((boot, body))
        assert all(len(bodies) == 1 for bodies in sent.values()), f"{server} sent two partials for a round: {sent}"
        if rounds is not None:
            assert sorted(sent) == sorted(map(int, draws)) == list(range(1, rounds + 1))


def die_and_come_back(parties: Parties, name: str, point: CrashPoint, **spec: object) -> None:
    """The role has killed itself at this point; start it again."""
    assert parties.wait_dead(name) == -9, f"{point.value} was never reached\n{parties.logs()}"
    assert parties.noted("died", name)[-1] == point.value
    parties.start(name, **spec)


@pytest.mark.parametrize("point", ORDINARY, ids=lambda p: p.value)
def test_killed_at(consortium: Parties, point: CrashPoint) -> None:
    victim = VICTIMS[point.role]
    study = consortium.study()
    expected = consortium.simulated(study)
    consortium.die_at(victim, point.value, SECOND_ROUND.get(point, 1))
    running = consortium.fit_in_background(study)
    die_and_come_back(consortium, victim, point)
    model = running.result()
    assert bits(model) == bits(expected), consortium.logs()
    assert model.contributors_ == expected.contributors_
    check_said_once(consortium, study, rounds=len(expected.history_))


@pytest.mark.parametrize("point", BOOTS, ids=lambda p: p.value)
def test_killed_while_starting_again(consortium: Parties, point: CrashPoint) -> None:
    """Two crashes in a row: in the middle of a round, and right after the boot that followed."""
    victim = VICTIMS[point.role]
    study = consortium.study()
    expected = consortium.simulated(study)
    consortium.die_at(victim, BOOTS[point].value)
    running = consortium.fit_in_background(study)
    assert consortium.wait_dead(victim) == -9
    consortium.die_at(victim, point.value)
    consortium.start(victim)
    die_and_come_back(consortium, victim, point)
    assert bits(running.result()) == bits(expected), consortium.logs()
    check_said_once(consortium, study, rounds=len(expected.history_))


def test_nothing_is_left_behind(consortium: Parties) -> None:
    """After all that: every study is over at every party, every study key erased, no share left in a spool."""
    study = consortium.study()
    assert bits(consortium.fit(study)) == bits(consortium.simulated(study))

    def over(name: str) -> bool:
        with sqlite3.connect(consortium.state(name) / "role.sqlite") as db:
            open_ones = db.execute("SELECT count(*) FROM studies WHERE status != 'finished'").fetchone()[0]
        db.close()
        return not open_ones

    wait_for(lambda: all(over(name) for name in consortium.configs))
    for name in consortium.configs:  # a study's folder holds what must not outlast it: keys, noise, seeds, shares
        assert not [folder for folder in consortium.state(name).iterdir() if len(folder.name) == 64], name


@pytest.fixture
def fourth(tmp_path: Path) -> Iterator[Parties]:
    """Four clients: one may misbehave and the study still has three."""
    made = Parties(tmp_path, clients=4)
    try:
        yield made
    finally:
        made.close()


def test_killed_after_keeping_an_equivocator(fourth: Parties) -> None:
    """Equivocation and a crash: the client caught with two sharings is still out after the restart."""
    fourth.start("server-1", "server-2", "aggregator", "client-1", "client-2", "client-3")
    fourth.start("client-4", hostile="equivocate")
    study = fourth.study(rounds=12)  # in a round whose last share is client-4's first it is not caught: many tries
    fourth.die_at("server-1", EQUIVOCATION.value)
    running = fourth.fit_in_background(study)
    die_and_come_back(fourth, "server-1", EQUIVOCATION)
    model = running.result()
    # Out of the round in which it was caught; in another, its second share may have come after the list was signed.
    assert ("client-4",) in model.dropped_, (model.dropped_, fourth.logs())
    assert set(model.dropped_) <= {(), ("client-4",)}
    assert bits(model) == bits(fourth.simulated(study, model.dropped_))
    check_said_once(fourth, study)


@pytest.mark.parametrize("point", ABORTS, ids=lambda p: p.value)
def test_killed_after_keeping_an_abort(parties: Parties, point: CrashPoint) -> None:
    """A round that was given up stays given up, and the study ends with the reason and the name."""
    victim = VICTIMS[point.role]
    parties.start("server-1", "server-2", "aggregator", "client-1", "client-2")
    parties.start("client-3", hostile="object_in_round_two")
    study = parties.study()
    parties.die_at(victim, point.value)
    running = parties.fit_in_background(study)
    die_and_come_back(parties, victim, point)
    error = running.error()
    assert isinstance(error, RoundAborted)
    assert (error.round, error.rule) == (2, "bad-model"), error
    check_said_once(parties, study)
    again = parties.fit_in_background(study).error()  # the stored end, not another try
    assert (again.cause, again.round) == (error.cause, error.round)


def test_every_point_has_a_test() -> None:
    """Each test above fails if its point is never reached, so this is the whole list."""
    assert {*ORDINARY, *BOOTS, *ABORTS, *LEDGER, *STREAM, *PAUSES, EQUIVOCATION, PRICES, MEMORY} == set(CrashPoint)
