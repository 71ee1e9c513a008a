"""A stream study between real processes: kill -9 of each role, the bits of the simulation, one charge for it all."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consortium_fixture import SCHEMA, Parties, bits, fit, wait_for
from crash_point_list import CrashPoint

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.result_document import describe_result, write_canonical
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.roles.streams.batches import Watermark
from tallystick.study import Study
from tallystick.trust.servers.simulation import SimulatedServers

PER_TICK = 6
# who dies, right after which step, at which of its visits there (a tick or two each)
DEATHS = (
    ("client-2", CrashPoint.CLIENT_WATERMARK_KEPT, 3),
    ("server-1", CrashPoint.SERVER_NOISE_KEPT, 3),
    ("aggregator", CrashPoint.AGGREGATOR_ROUND_KEPT, 3),
    ("client-2", CrashPoint.CLIENT_SHARE_SENT, 5),
    ("server-2", CrashPoint.SERVER_PARTIAL_KEPT, 3),
    ("aggregator", CrashPoint.AGGREGATOR_MODEL_KEPT, 3),
    ("client-1", CrashPoint.CLIENT_CONTRIBUTION_KEPT, 3),
)


def timed_frames(clients: int, ticks: int) -> list[dict[str, Any]]:
    """Records with times over all ticks, in no order, and some from before and after."""
    rng = np.random.default_rng(17)
    n = PER_TICK * ticks
    x, z, when = rng.uniform(-1, 1, n), rng.uniform(0, 2, n), rng.uniform(-1, ticks + 1, n)
    y = np.where(x + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    whole = {"x": x, "z": z, "y": y, "when": when}
    return [{name: column[i::clients] for name, column in whole.items()} for i in range(clients)]


def write(path: Path, frame: dict[str, Any], *, mode: str = "w") -> None:
    rows = zip(*(column.tolist() for column in frame.values()))
    with path.open(mode) as file:
        if mode == "w":
            file.write(",".join(frame) + "\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def stream_study(parties: Parties, *, trust: dict[str, Any] | None = None, **stream: Any) -> Study:
    study = parties.study(**(trust or {})).replace("privacy", neighbours="add-remove").replace("data", records=None)
    stream = {"tick_seconds": 1.0, "records_per_tick": PER_TICK, **stream}
    study = study.replace("program", rounds="auto").replace("stream", **stream)
    parties.accept(study)
    return study


def charges(parties: Parties, name: str) -> list[Any]:
    """The charges on a stopped client's ledger."""
    config = load_role_config(parties.configs[name][1])
    identity = load_identity(config, read_consortium(config.consortium), wall_clock())
    ledger = LedgerStore(config.state / LEDGER, party=name, signing=identity.signing)
    try:
        return list(ledger.view(config.dataset).entries)
    finally:
        ledger.close()


def run_with_deaths(parties: Parties, ticks: int, deaths: tuple[tuple[str, CrashPoint, int], ...]) -> None:
    frames = timed_frames(len(parties.clients), ticks)
    for name, frame in zip(parties.clients, frames):
        write(parties.folder / f"{name}.csv", frame)
    parties.start()
    study = stream_study(parties, ticks=ticks, time="when", start=0.0)
    running = parties.fit_in_background(study)
    for name, point, visits in deaths:
        parties.die_at(name, point.value, visits)
        assert parties.wait_dead(name) == -9, f"{point.value} was never reached\n{parties.logs()}"
        assert parties.noted("died", name)[-1] == point.value
        parties.start(name)
    real = running.result()
    simulated = fit(ts.Federation.simulate(frames, names=parties.clients, schema=SCHEMA, seed=parties.seed), study)
    assert real.n_iter_ == ticks
    assert bits(real) == bits(simulated), parties.logs()
    assert real.dropped_ == ((),) * ticks
    draws = [line.split()[1] for line in parties.noted("noise", "server-1")]
    assert sorted(map(int, draws)) == list(range(1, ticks + 1))  # once a tick, whoever died
    for name in list(parties.pids):
        parties.kill(name)
    for name in parties.clients:
        (entry,) = charges(parties, name)
        assert float(entry.charge.rho) == pytest.approx(float(real.plan_.rho))
        assert float(entry.charge.rho) == max(float(r.rho) for r in real.plan_.rounds)


def test_thirty_batches_survive_kill_9_of_each_role(parties: Parties) -> None:
    run_with_deaths(parties, 30, DEATHS[:4])


@pytest.mark.audit
def test_two_hundred_batches_survive_kill_9_of_each_role(parties: Parties) -> None:
    run_with_deaths(parties, 200, DEATHS * 3)


def test_a_tick_without_enough_clients_is_lost_and_the_stream_goes_on(parties: Parties) -> None:
    """Client 2 is away for tick 4. The aggregator is killed with the loss kept, and the stream ends as in simulation.

    The receipt holds, the loss is told, and the charge is what it was.
    """
    ticks, lost = 8, 4
    frames = timed_frames(len(parties.clients), ticks)
    for name, frame in zip(parties.clients, frames):
        write(parties.folder / f"{name}.csv", frame)
    parties.start()
    study = stream_study(parties, trust={"round_timeout_s": 4}, ticks=ticks, time="when", start=0.0)
    parties.die_at("client-2", CrashPoint.CLIENT_WATERMARK_KEPT.value, lost)
    parties.die_at("aggregator", CrashPoint.AGGREGATOR_LOSS_KEPT.value)
    studies.propose_study(study, parties.analyst)
    wait_approved(study, parties.analyst)
    made: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: made.append(studies.run(study.printed_hash, parties.analyst)))
    running.start()
    assert parties.wait_dead("client-2") == -9
    assert parties.wait_dead("aggregator") == -9, parties.logs()
    parties.start("client-2")
    parties.wait_up("client-2", times=2)
    parties.start("aggregator")
    running.join(120)
    assert made, parties.logs()
    assert made[0]["stream"] == {"ticks": ticks, "lost": [lost]}
    assert "1 tick(s) released nothing" in describe_result(made[0])
    file = write_canonical(made[0], parties.folder, "result.json")
    assert study_results.verify(file, parties.home / "consortium.toml")["sound"]

    fed = ts.Federation.simulate(frames, names=parties.clients, schema=SCHEMA, seed=parties.seed)
    with pytest.MonkeyPatch.context() as patch:
        gone = {lost: frozenset({"client-2"})}
        patch.setattr(SimulatedServers, "_absent", lambda _, round: gone.get(round, frozenset()))
        simulated = fit(fed, study)
    assert simulated.lost_ticks_ == (lost,)
    assert made[0]["model"]["coef"] == simulated.model_document()["coef"]
    for name in list(parties.pids):
        parties.kill(name)
    for name in parties.clients:
        (entry,) = charges(parties, name)
        assert float(entry.charge.rho) == max(float(r.rho) for r in simulated.plan_.rounds)


def test_a_client_restored_from_a_backup_takes_no_part_in_the_stream(parties: Parties) -> None:
    """By arrival, ticks an hour apart, each run at once when the aggregator's clock says so.

    The whole state of client 2 is put back to what it was before tick 2: its own disk tells it nothing. The servers do.
    """
    frames = timed_frames(len(parties.clients), 10)
    for name, frame in zip(parties.clients, frames):
        write(parties.folder / f"{name}.csv", frame)
    parties.start()
    began = time.time() - 3700
    study = stream_study(
        parties, trust={"round_timeout_s": 4}, ticks=4, tick_seconds=3600.0, start=began, records_per_tick=60
    )
    studies.propose_study(study, parties.analyst)
    wait_approved(study, parties.analyst)
    with pytest.raises(Left):
        studies.run(study.printed_hash, parties.analyst, progress=leave_after(1))
    parties.kill("client-2")
    backup = parties.folder / "backup"
    shutil.copytree(parties.state("client-2"), backup)
    parties.start("client-2")
    parties.wait_up("client-2", times=2)
    parties.kill("aggregator")
    parties.start("aggregator", wall_ahead=3600.0)
    with pytest.raises(Left):
        studies.run(study.printed_hash, parties.analyst, progress=leave_after(2))
    parties.kill("client-2")
    shutil.rmtree(parties.state("client-2"))
    backup.rename(parties.state("client-2"))
    parties.start("client-2")
    parties.wait_up("client-2", times=3)
    parties.kill("aggregator")
    parties.start("aggregator", wall_ahead=10800.0)
    done = studies.run(study.printed_hash, parties.analyst)
    assert done["stream"] == {"ticks": 4, "lost": [3, 4]}  # three clients are the least, and one refuses
    assert "[watermark-rolled-back]" in parties.log("client-2")
    assert watermark(parties, "client-2").tick == 1  # nothing was made of it
    assert watermark(parties, "client-1").tick == 4


def wait_approved(study: Study, config: Path) -> None:
    wait_for(lambda: studies.show(study.printed_hash, config)["state"] == "approved")


class Left(Exception):  # noqa: N818 - the analyst has gone home
    pass


def leave_after(tick: int) -> Callable[[int, int], None]:
    def leave(done: int, rounds: int) -> None:
        if done >= tick:
            raise Left

    return leave


def watermark(parties: Parties, name: str) -> Watermark:
    with sqlite3.connect(parties.state(name) / "role.sqlite") as db:
        (kept,) = db.execute("SELECT value FROM records WHERE key = 'stream'").fetchone()
    db.close()
    return Watermark.from_bytes(kept)


def test_what_is_released_so_far_is_shown_while_the_stream_runs(parties: Parties) -> None:
    """By arrival: the second tick has what was appended after the first; the aggregator dies with its clock kept.

    The second tick is due in an hour. An aggregator that was away for so long runs it at once.
    """
    frames = timed_frames(len(parties.clients), 10)
    files = {name: parties.folder / f"{name}.csv" for name in parties.clients}
    for file, frame in zip(files.values(), frames):
        write(file, frame)
    sizes = {name: file.stat().st_size for name, file in files.items()}
    parties.start()
    parties.die_at("aggregator", CrashPoint.AGGREGATOR_CLOCK_KEPT.value)
    study = stream_study(parties, ticks=2, tick_seconds=3600.0, start=time.time() - 3700, records_per_tick=60)
    studies.propose_study(study, parties.analyst)
    wait_approved(study, parties.analyst)

    back = threading.Thread(target=lambda: (parties.wait_dead("aggregator"), parties.start("aggregator")))
    back.start()
    with pytest.raises(Left):
        studies.run(study.printed_hash, parties.analyst, progress=leave_after(1))
    back.join()
    assert parties.noted("died", "aggregator") == [CrashPoint.AGGREGATOR_CLOCK_KEPT.value]
    seen = studies.result(study.printed_hash, parties.analyst)
    assert seen["interim"] is True
    assert seen["receipt"] is None
    assert seen["cost"]["rounds"] == 1
    assert "still running" in describe_result(seen)
    write(files["client-1"], {name: column[:7] for name, column in frames[1].items()}, mode="a")
    parties.kill("aggregator")
    parties.start("aggregator", wall_ahead=3600.0)
    done = studies.run(study.printed_hash, parties.analyst)
    assert "interim" not in done
    assert done["cost"]["rounds"] == 2
    assert done["receipt"] is not None
    for name, file in files.items():
        assert watermark(parties, name) == Watermark(tick=2, first=sizes[name], last=file.stat().st_size)
        assert (file.stat().st_size > sizes[name]) == (name == "client-1")
