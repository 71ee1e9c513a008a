"""Hostile and broken parties against real roles: the result is right, or the failure is typed and names somebody.

The faults are those of docs/faults.md. Where a liar is merely left out, the
bits are those of a simulation in which the same clients are missing from the same rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from consortium_fixture import Parties, bits, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once

from tallystick import LogisticRegression
from tallystick.application import studies
from tallystick.core.errors import NotApproved, RoundAborted


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Four clients; the fourth, and the aggregator, are started by each test in the manner it needs."""
    made = Parties(tmp_path_factory.mktemp("hostile"), clients=4)
    try:
        made.start("server-1", "server-2", "aggregator", "client-1", "client-2", "client-3")
        yield made
    finally:
        made.close()


def with_fourth(four: Parties, behaviour: str | None, **spec: object) -> None:
    if "client-4" in four.pids:
        four.kill("client-4")
    four.start("client-4", hostile=behaviour, **spec)


def finish(four: Parties, **options: object) -> object:
    """Run a study to its end; the bits are those of a simulation with the same clients missing."""
    study = four.study(**{"round_timeout_s": 8, **options})
    model = four.fit(study)
    assert bits(model) == bits(four.simulated(study, model.dropped_)), four.logs()
    check_said_once(four, study, rounds=len(model.history_))
    return model


def test_shares_of_other_studies_rounds_and_shapes_change_nothing(four: Parties) -> None:
    with_fourth(four, "wrong_rounds")
    model = finish(four)
    assert all(names == () for names in model.dropped_)  # its one good share among the bad ones counts


def test_the_same_share_three_times_is_one_share(four: Parties) -> None:
    with_fourth(four, "twice")
    model = finish(four)
    assert all(names == () for names in model.dropped_)


def test_two_different_shares_and_neither_counts(four: Parties) -> None:
    """Caught before the list, it is out; after it, the first one stands for all servers. Never both; always named."""
    with_fourth(four, "equivocate")
    model = finish(four)
    assert "client-4 equivocates in round" in four.log("server-1")
    assert {name for names in model.dropped_ for name in names} <= {"client-4"}
    assert "client-4" not in model.contributors_[0] or len(model.history_) == 3


def test_unrelated_shares_are_left_out(four: Parties) -> None:
    """Their commitments differ from server to server, so they are in no intersection."""
    with_fourth(four, "unrelated_shares")
    model = finish(four)
    assert "client-4 equivocates in round 1: the servers hold different sharings" in four.log("server-2")
    assert all(names == ("client-4",) for names in model.dropped_)


def test_shares_that_reached_one_server_only_are_left_out_and_the_client_rejoins(four: Parties) -> None:
    with_fourth(four, "to_one_server")
    model = finish(four)
    assert model.dropped_ == ((), ("client-4",), ())


def test_values_no_record_can_have_are_withheld(four: Parties) -> None:
    with_fourth(four, "huge")
    error = four.fit_in_background(four.study()).error()
    assert isinstance(error, RoundAborted)
    assert error.rule == "out-of-range"
    assert "withheld" in error.cause


def test_another_version_of_the_protocol_is_left_out(four: Parties) -> None:
    with_fourth(four, "other_version", version_at=4)
    model = finish(four, round_timeout_s=4)
    assert all("client-4" in names for names in model.dropped_), four.log("client-4")


def test_lost_late_and_doubled_messages(four: Parties) -> None:
    """A client whose every third message is lost, every fourth comes twice and every fifth late."""
    with_fourth(four, "lossy")
    finish(four)


def test_an_aggregator_of_another_consortium_is_turned_down(four: Parties) -> None:
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator", hostile="other_consortium")
    error = four.fit_in_background(four.study()).error()
    assert "consortium" in str(error)


@pytest.mark.parametrize("behaviour", ["nan_model", "wrong_model_hash", "short_model"])
def test_a_bad_model_is_refused_by_everybody(four: Parties, behaviour: str) -> None:
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator", hostile=behaviour)
    study = four.study()
    error = four.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert error.round == 2
    assert error.rule == "bad-model", error
    check_said_once(four, study)
    for server in ("server-1", "server-2"):
        rounds = {line.split()[1] for line in four.noted("partials", server) if line.startswith(study.hash.hex())}
        assert rounds == {"1"}


def test_two_models_in_one_round_release_nothing(four: Parties) -> None:
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator", hostile="two_models")
    study = four.study()
    error = four.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert (error.round, error.rule) == (2, "two-models"), error
    for server in ("server-1", "server-2"):
        rounds = {line.split()[1] for line in four.noted("partials", server) if line.startswith(study.hash.hex())}
        assert rounds == {"1"}


def test_an_aggregator_that_asks_twice_gets_the_same_bytes_or_nothing(four: Parties) -> None:
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator", hostile="asks_again")
    study = four.study()
    ended = four.fit_in_background(study).end()
    assert isinstance(ended, (RoundAborted, LogisticRegression)), ended
    check_said_once(four, study)


def test_an_aggregator_that_tells_two_rosters_sums_nobody_alone(four: Parties) -> None:
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator", hostile="two_rosters")
    study = four.study(round_timeout_s=3)
    ended = four.fit_in_background(study).end()
    if isinstance(ended, LogisticRegression):  # the one told otherwise is left out; the others' set is the servers' own
        assert all("client-1" not in names for names in ended.contributors_)
        assert bits(ended) == bits(four.simulated(study, ended.dropped_))
    else:
        assert isinstance(ended, RoundAborted), ended
    check_said_once(four, study)


def test_honest_again(four: Parties) -> None:
    """After all that, the same processes run a study as if nothing had been."""
    with_fourth(four, None)
    four.kill("aggregator")
    four.start("aggregator")
    model = finish(four)
    assert all(names == () for names in model.dropped_)


@pytest.mark.audit  # 45 s of waiting for a good one, twice the agreement's time
def test_a_partial_whose_signature_does_not_hold_ends_the_round(parties: Parties) -> None:
    parties.start("server-1", "aggregator", *parties.clients)
    parties.start("server-2", hostile="wrong_partial")
    study = parties.study(round_timeout_s=3)
    error = parties.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert (error.party, error.rule, error.round) == ("server-2", "missing-server", 1), error


# -- policy ------------------------------------------------------------------------------------------------------------


def set_policy(parties: Parties, name: str, **changes: str) -> None:
    config = parties.configs[name][1]
    lines = []
    for line in config.read_text().splitlines():
        key = line.partition(" =")[0]
        lines.append(f"{key} = {changes[key]}" if key in changes else line)
    config.write_text("\n".join(lines) + "\n")


REFUSALS = {
    "max_epsilon": ("0.5", "epsilon = 1 is above this client's limit of 0.5 a study."),
    "min_clients": ("7", "min_clients = 3 is below this client's 7."),
}


def test_clients_refuse_by_their_policy(parties: Parties) -> None:
    """The reason reaches the analyst in words, nothing is drawn or charged, and the same study runs once allowed."""
    parties.start()
    study = parties.study()
    config = parties.configs["client-2"][1]
    allowed = config.read_text()
    for key, (strict, words) in REFUSALS.items():
        parties.kill("client-2")
        set_policy(parties, "client-2", **{key: strict})
        parties.start("client-2")
        study = parties.study()
        error = parties.fit_in_background(study).error()
        assert isinstance(error, NotApproved), error
        assert error.rule == "study-refused"
        assert [d["reason"] for d in studies.show(study.printed_hash, parties.analyst)["rejected"]] == [words]
        with pytest.raises(NotApproved, match="own rules"):  # not even its steward can say yes
            studies.decide(study.printed_hash, config, "approve")
        config.write_text(allowed)
    assert not parties.noted("noise", "server-1")
    parties.kill("client-2")
    parties.start("client-2")
    studies.decide(study.printed_hash, config, "approve")  # the limit is gone: its steward changes the decision
    wait_for(lambda: studies.show(study.printed_hash, parties.analyst)["state"] == "approved")
    assert bits(parties.fit(study)) == bits(parties.simulated(study)), parties.logs()


def test_the_same_study_again_is_the_stored_result(parties: Parties) -> None:
    """No second round, draw or charge; also after every process was started anew."""
    parties.start()
    study = parties.study()
    first = parties.fit(study)
    draws = parties.noted("noise", "server-1")
    second = parties.fit(study)
    for name in list(parties.pids):
        parties.kill(name)
    parties.start()
    third = parties.fit(study)
    assert bits(first) == bits(second) == bits(third)
    assert parties.noted("noise", "server-1") == draws
    with_one = parties.federation()
    assert with_one.spent.epsilon == 0


# -- who is there ------------------------------------------------------------------------------------------------------


def test_k_of_n_clients_one_down_from_the_start_one_killed_and_back(tmp_path: object) -> None:
    """Five clients, one never started, one killed in round 2 and started again: the rounds go on with who is there."""
    from pathlib import Path

    parties = Parties(Path(str(tmp_path)), clients=5)
    try:
        parties.start("server-1", "server-2", "aggregator", "client-1", "client-2", "client-3", "client-4")
        study = parties.study(rounds=3, round_timeout_s=6)
        parties.die_at("client-4", CrashPoint.CLIENT_CONTRIBUTION_KEPT.value, 2)
        running = parties.fit_in_background(study)
        assert parties.wait_dead("client-4") == -9
        wait_for(lambda: any(line.split()[1] == "2" for line in parties.noted("partials", "server-1")))
        parties.start("client-4")
        model = running.result()
        assert "client-4" in model.dropped_[1]
        assert "client-4" in model.contributors_[-1], model.contributors_
        # client-5 is not in the roster; the simulation has it miss every round
        dropped = tuple((*names, "client-5") for names in model.dropped_)
        assert bits(model) == bits(parties.simulated(study, dropped)), parties.logs()
    finally:
        parties.close()


def test_too_few_clients_release_nothing(parties: Parties) -> None:
    """Three are asked for, one dies for good in round 2: the round ends typed, nothing of it leaves."""
    parties.start()
    study = parties.study(round_timeout_s=3)
    parties.die_at("client-3", CrashPoint.CLIENT_CONTRIBUTION_KEPT.value, 2)
    error = parties.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert (error.rule, error.round) == ("too-few-clients", 2)
    assert (error.party, "Start client-3" in str(error.remedy)) == ("client-3", True)  # not the server that counted
    for server in ("server-1", "server-2"):
        assert {line.split()[1] for line in parties.noted("partials", server)} == {"1"}


def test_not_enough_clients_to_start_costs_nothing(parties: Parties) -> None:
    parties.start("server-1", "server-2", "aggregator", "client-1", "client-2")
    fed = parties.federation(round_timeout_s=3, approval_timeout_s=8)
    from consortium_fixture import fit

    with pytest.raises(NotApproved, match="client-3") as failed:  # who is not there approves nothing
        fit(fed, parties.study(round_timeout_s=3))
    assert failed.value.rule == "study-open"
    assert fed.spent.epsilon == 0
    assert not parties.noted("noise", "server-1")


def test_a_server_that_is_down_is_named_before_the_start(parties: Parties) -> None:
    parties.start("server-1", "aggregator", *parties.clients)
    study = parties.study(round_timeout_s=3)
    error = parties.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert (error.party, error.rule) == ("server-2", "missing-helper"), error
    assert "run the study again" in str(error.remedy)
    parties.start("server-2")  # and the very same study is run again
    assert bits(parties.fit(study)) == bits(parties.simulated(study))


def test_a_server_lost_for_good_in_a_round_is_named_in_bounded_time(parties: Parties) -> None:
    parties.start()
    study = parties.study(round_timeout_s=3)
    parties.die_at("server-2", CrashPoint.SERVER_NOISE_KEPT.value, 2)
    error = parties.fit_in_background(study).error()  # bounded: error() waits two minutes at most
    assert isinstance(error, RoundAborted)
    assert (error.party, error.rule, error.round) == ("server-2", "missing-server", 2), error
