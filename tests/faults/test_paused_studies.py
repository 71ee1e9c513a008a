"""A party is lost half-way: what was released goes out with its receipt, the rest waits, goes on, or is closed.

Real processes, killed with SIGKILL. Four clients, so that one may leave and there are still three.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consortium_fixture import RECORDS, Parties, Running, bits, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once

import tallystick as ts
from tallystick.application import studies
from tallystick.application.result_document import write_canonical
from tallystick.application.study_results import verify
from tallystick.core.errors import RoundAborted, VerificationError
from tallystick.study import Study

STEPS = 3  # of descent, after a round of moments
ROUNDS = STEPS + 1
HASTE: dict[str, Any] = {"patience": 3.0}  # seconds a server has to come back


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("pauses"), clients=4)
    try:
        made.start(**HASTE)
        yield made
    finally:
        made.close()


def all_connected(parties: Parties) -> bool:
    """Whether each client has a line to each server: rounds are short here, and the last test has restarted some."""
    for client in parties.clients:
        said = parties.log(client)
        for server in ("server-1", "server-2"):
            lost = max(said.rfind(f"disconnected from {server}"), said.rfind(f"not connected to {server}"))
            if said.rfind(f" connected with {server}") <= lost:
                return False
    return True


def lose(parties: Parties, name: str, point: CrashPoint, round: int = ROUNDS - 1) -> Study:
    """A study that loses this server in a round; it is paused when this returns."""
    wait_for(lambda: all_connected(parties))
    study = parties.study(rounds=STEPS, round_timeout_s=2)
    parties.die_at(name, point.value, round)
    error = parties.fit_in_background(study).error()
    assert (error.party, error.rule, error.round) == (name, "missing-server", round), (error, parties.logs())
    assert parties.wait_dead(name) == -9
    charged = "The whole study stays charged at client-1, client-2, client-3, client-4"
    done = f"Paused after round {round - 1} of {ROUNDS}: the state after it is released, marked as ended early"
    assert all(words in error.cause for words in (charged, done)), error
    assert all(words in str(error.remedy) for words in (f"Start {name}", "study resume", "study close")), error
    for client in parties.clients:  # the analyst is told first: a steward may act once the client has heard of it
        config = parties.configs[client][1]
        wait_for(lambda config=config: studies.show(study.printed_hash, config)["state"] == "paused")
    return study


def go_on(parties: Parties, study: Study, wish: str = "resume") -> dict[str, Any]:
    return studies.run(study.printed_hash, parties.analyst, wish=wish)


def took_part(made: dict[str, Any]) -> list[list[str]]:
    """The clients of each round; nobody in one that was spent."""
    names: list[list[str]] = json.loads(base64.b64decode(made["released"]))["contributors"]
    return names


def state_of(parties: Parties, study: Study) -> str:
    return str(studies.show(study.printed_hash, parties.analyst)["state"])


def nothing_left(parties: Parties, study: Study) -> bool:
    return not [name for name in parties.configs if (parties.state(name) / study.hash.hex()).exists()]


def test_a_server_lost_before_the_last_round_and_back_again(consortium: Parties, tmp_path: Path) -> None:
    """The interim release verifies offline; the resumed study has the bits of an undisturbed one."""
    study = lose(consortium, "server-2", CrashPoint.SERVER_NOISE_KEPT)
    found = studies.result(study.printed_hash, consortium.analyst)
    assert found["ended_early"] == {"rounds": ROUNDS - 2, "of": ROUNDS}
    file, own = write_canonical(found, tmp_path, "result.json"), consortium.home / "consortium.toml"
    verdict = verify(file, own)
    assert (verdict["sound"], verdict["ended_early"]) == (True, True)
    assert verdict["participants"] == consortium.clients
    assert verify(write_canonical(found["receipt"], tmp_path, "receipt.json"), own)["sound"]
    forged = json.loads(json.dumps(found["receipt"]))
    forged["early"]["vouchers"][0]["signatures"]["server-2"] = "00" * 64  # the lost one's own word is needed
    with pytest.raises(VerificationError, match="server-2 has not signed for round 1"):
        verify(write_canonical(forged, tmp_path, "forged.json"), own)
    assert state_of(consortium, study) == "paused"

    with pytest.raises(RoundAborted, match="no answer from server-2"):
        go_on(consortium, study)  # it is not back
    consortium.start("server-2", **HASTE)
    made = go_on(consortium, study)
    assert "ended_early" not in made
    assert verify(write_canonical(made, tmp_path, "whole.json"), own)["ended_early"] is False
    model, expected = consortium.fit(study), consortium.simulated(study)
    assert bits(model) == bits(expected), consortium.logs()
    assert model.contributors_ == expected.contributors_
    check_said_once(consortium, study, rounds=ROUNDS)
    wait_for(lambda: nothing_left(consortium, study))


def test_closed_by_its_analyst(consortium: Parties) -> None:
    """What was released becomes the result, every charge is committed with it, and nothing secret is left."""
    study = lose(consortium, "server-1", CrashPoint.SERVER_AGREEMENT_KEPT)
    assert (consortium.state("server-2") / study.hash.hex()).exists()
    interim = studies.result(study.printed_hash, consortium.analyst)
    made = go_on(consortium, study, "close")
    assert made["released"] == interim["released"]
    assert made["ended_early"] == {"rounds": ROUNDS - 2, "of": ROUNDS}
    assert state_of(consortium, study) == "finished"
    consortium.start("server-1", **HASTE)
    wait_for(lambda: nothing_left(consortium, study))
    assert go_on(consortium, study)["released"] == interim["released"]  # it is over: the stored result, no more
    for name in consortium.clients:
        config = consortium.configs[name][1]
        wait_for(lambda config=config: studies.show(study.printed_hash, config)["own"]["charge"] == "committed")


def test_a_client_that_takes_its_approval_back_in_the_pause(consortium: Parties) -> None:
    """It goes on no further; the round it had shared in is spent and skipped, and the others go on."""
    study = lose(consortium, "server-2", CrashPoint.SERVER_LIST_KEPT)
    studies.decide(study.printed_hash, consortium.configs["client-4"][1], "reject", reason="no more", by="steward")
    consortium.start("server-2", **HASTE)
    made = go_on(consortium, study)
    everybody, others = consortium.clients, consortium.clients[:3]
    assert took_part(made) == [everybody, everybody, [], others], consortium.logs()
    assert "ended_early" not in made
    check_said_once(consortium, study)
    wait_for(lambda: nothing_left(consortium, study))


def test_a_server_that_has_lost_what_it_kept_of_the_round(consortium: Parties, tmp_path: Path) -> None:
    study = lose(consortium, "server-1", CrashPoint.SERVER_LIST_KEPT)
    (consortium.state("server-1") / study.hash.hex() / "noise.secret").unlink()
    consortium.start("server-1", **HASTE)
    made = go_on(consortium, study)
    everybody = consortium.clients
    assert took_part(made) == [everybody, everybody, [], everybody], consortium.logs()
    assert verify(write_canonical(made, tmp_path, "result.json"), consortium.home / "consortium.toml")["sound"]
    check_said_once(consortium, study)  # above all: no second draw for the round that was spent


def test_a_search_whose_open_round_is_spent_ends_with_what_it_had_counted(consortium: Parties, tmp_path: Path) -> None:
    """A round whose price was admitted and that nobody heard cannot be asked again; what came before is an answer."""
    wait_for(lambda: all_connected(consortium))
    fed = consortium.federation(round_timeout_s=2)
    model = ts.Quantiles(column="x", epsilon=1.0)
    study = model.study_for(fed, name="a search").replace("data", records=RECORDS)
    consortium.accept(study)
    assert study.privacy.mechanism == "laplace"
    consortium.die_at("server-2", CrashPoint.SERVER_LIST_KEPT.value, 3)
    error = Running(lambda: model.fit_study(fed, study)).error()
    assert (error.party, error.rule, error.round) == ("server-2", "missing-server", 3), (error, consortium.logs())
    assert "the state after it is released, marked as ended early" in error.cause
    assert consortium.wait_dead("server-2") == -9
    config = consortium.configs["client-4"][1]
    wait_for(lambda: studies.show(study.printed_hash, config)["state"] == "paused")
    shown = json.dumps(studies.show(study.printed_hash, config), default=str)
    assert "laplace at epsilon = 1 weighs rho = 0.5, gaussian at delta = 1e-06 rho = 0.028" in shown
    studies.decide(study.printed_hash, config, "reject", reason="no more", by="steward")
    consortium.start("server-2", **HASTE)
    made = go_on(consortium, study)
    assert made["ended_early"] == {"rounds": 2, "of": 15}, consortium.logs()
    assert made["model"]["table"][0]["estimate"] is not None
    assert verify(write_canonical(made, tmp_path, "result.json"), consortium.home / "consortium.toml")["sound"]
    wait_for(lambda: nothing_left(consortium, study))


def test_killed_at_every_step_of_a_pause(consortium: Parties) -> None:
    """Everybody dies right after it has kept a pause or its end, and comes back: the bits are those of no fault."""
    wait_for(lambda: all_connected(consortium))
    study = consortium.study(rounds=STEPS, round_timeout_s=2)
    consortium.die_at("server-2", CrashPoint.SERVER_PARTIAL_KEPT.value, ROUNDS - 1)
    consortium.die_at("server-1", CrashPoint.SERVER_PAUSE_KEPT.value)
    consortium.die_at("client-2", CrashPoint.CLIENT_PAUSE_KEPT.value, 2)  # of going on
    consortium.die_at("aggregator", CrashPoint.AGGREGATOR_REASON_KEPT.value)
    running = consortium.fit_in_background(study)
    assert consortium.wait_dead("aggregator") == -9, consortium.logs()
    consortium.die_at("aggregator", CrashPoint.AGGREGATOR_PAUSE_KEPT.value)
    consortium.start("aggregator", **HASTE)
    for again in ("aggregator", "server-1"):
        assert consortium.wait_dead(again) == -9, consortium.logs()
        consortium.start(again, **HASTE)
    assert isinstance(running.end(), RoundAborted)
    consortium.start("server-2", **HASTE)
    consortium.die_at("aggregator", CrashPoint.AGGREGATOR_PAUSE_KEPT.value)  # of asking who goes on
    resumed = Running(lambda: go_on(consortium, study))  # type: ignore[arg-type, return-value]
    for again in ("aggregator", "client-2"):
        assert consortium.wait_dead(again) == -9, consortium.logs()
        consortium.start(again, **HASTE)
    resumed.result()
    assert bits(consortium.fit(study)) == bits(consortium.simulated(study)), consortium.logs()
    check_said_once(consortium, study, rounds=ROUNDS)


def test_after_a_week_it_is_closed_and_nothing_is_left(consortium: Parties) -> None:
    study = lose(consortium, "server-2", CrashPoint.SERVER_NOISE_KEPT)
    for name in list(consortium.pids):
        consortium.kill(name)
    consortium.start("aggregator", "client-1", wall_ahead=7 * 86400 + 60, **HASTE)
    consortium.start("client-2", "server-2", wall_ahead=8 * 86400 + 60, **HASTE)  # without a word from the aggregator
    consortium.start("server-1", "client-3", "client-4", **HASTE)
    wait_for(lambda: nothing_left(consortium, study))
    assert state_of(consortium, study) == "finished"
    assert studies.result(study.printed_hash, consortium.analyst)["ended_early"]["of"] == ROUNDS
