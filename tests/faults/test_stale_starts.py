"""An aggregator that runs what the stewards have taken back, let expire, replaced or never seen: real processes.

It signs a ``start`` that names approvals which once were and dates it back, and opens the study. Nothing is computed,
nothing is charged, and the client says why: in its log, in its health, and in ``study show``. The last tests are about
the moment from which the client itself has started: until then its steward's newest word counts, after it the client
goes on, also after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from consortium_fixture import PATIENCE, Parties, Running, health, wait_for
from crash_point_list import CrashPoint
from test_governed_studies import config_of, decide, set_key, standing_of, stands, wait_known

from tallystick.application import studies
from tallystick.application.studies import words as study_words
from tallystick.core.errors import NotApproved, RoundAborted, StudyError, TallystickError, TooFewParties
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.identity.identity_files import read_consortium
from tallystick.roles.identity.role_config import load_role_config
from tallystick.study import Study

MONTHS = 100 * 86400.0
OUT = "client-1"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Parties, str]]:
    """Four clients whose stewards decide, three of whom a study needs, and the hostile aggregator."""
    made = Parties(tmp_path_factory.mktemp("stale"), clients=4)
    try:
        for name in made.clients:
            set_key(made, name, 'default = "approve"', 'default = "ask"')
        address = made.monitor(OUT)
        made.start("server-1", "server-2", *made.clients)
        made.start("aggregator", hostile="starts_anyway")
        yield made, address
    finally:
        made.close()


def propose(parties: Parties, study: Study, **options: Any) -> Study:
    studies.propose_study(study, parties.analyst, **options)
    wait_known(parties, study)
    return study


def approved(parties: Parties, **options: Any) -> Study:
    """A study that every client has approved, as the aggregator knows; its one round waits for who is gone."""
    study = parties.study(rounds=1, **{"round_timeout_s": 8, **options}).replace("program", standardise=False)
    propose(parties, study)
    for name in parties.clients:
        decide(parties, study, name, "approve")
    wait_for(lambda: len(stands(parties, study)["approved"]) == len(parties.clients))
    return study


def run(parties: Parties, study: Study) -> bytes:
    """What a colluding analyst does: its own tools would have refused."""
    config = load_role_config(parties.analyst, role="analyst")
    with AnalystConnection(config, read_consortium(config.consortium)) as connection:
        return connection.run(study.canonical(), "")


def contributors(packed: Any) -> set[str]:
    """Who took part, in every round the same."""
    rounds = {tuple(names) for names in json.loads(packed)["contributors"]}
    assert len(rounds) == 1
    return set(next(iter(rounds)))


def nothing_happened(parties: Parties, study: Study, *names: str) -> None:
    """No share, no charge at these clients; and if nobody takes part, no noise either."""
    for name in names:
        assert standing_of(parties, name, study) in (None, "voided"), parties.log(name)
    if len(names) == len(parties.clients):
        for server in ("server-1", "server-2"):
            assert not [line for line in parties.noted("noise", server) if line.startswith(study.hash.hex())]


def says_why(asked: tuple[Parties, str], study: Study, words: str, *, proposed: bool = True) -> None:
    parties, address = asked
    short = study.hash.hex()[:12]
    assert any(short in line and words in line for line in parties.log(OUT).splitlines() if "declined" in line)
    told = health(address)
    assert words in told["declined"][short]
    assert told["status"] == 200  # it is well: it was asked for something it does not do
    if not proposed:
        with pytest.raises(StudyError, match="no study"):  # there is nothing to show
            studies.show(study.printed_hash, config_of(parties, OUT))
        return
    shown = studies.show(study.printed_hash, config_of(parties, OUT))
    assert told["studies"][short] == "declined"
    assert words in shown["own"]["refused"]["cause"]
    screen = " ".join(study_words.show(shown).split())
    assert "Your client was asked to take part and declined" in screen
    assert "Nothing was computed or charged." in screen


def test_with_approvals_in_force_the_same_aggregator_gets_its_result(asked: tuple[Parties, str]) -> None:
    """The negative control: what the other tests refuse is not the start itself."""
    parties, _ = asked
    study = approved(parties)
    assert contributors(run(parties, study)) == set(parties.clients)
    wait_for(lambda: all(standing_of(parties, name, study) == "committed" for name in parties.clients))


def test_a_revoked_approval_is_not_used(asked: tuple[Parties, str]) -> None:
    """The quorum of the others still stands: they go on, and the one that took its approval back is left out."""
    parties, _ = asked
    study = approved(parties)
    decide(parties, study, OUT, "reject", reason="we changed our mind")
    wait_for(lambda: stands(parties, study)["rejected"])
    assert contributors(run(parties, study)) == {"client-2", "client-3", "client-4"}
    nothing_happened(parties, study, OUT)
    says_why(asked, study, "rejected the study, by a steward: we changed our mind")


def test_a_study_whose_quorum_was_taken_back_is_run_by_nobody(asked: tuple[Parties, str]) -> None:
    parties, _ = asked
    study = approved(parties)
    for name in (OUT, "client-2"):
        decide(parties, study, name, "reject", reason="we changed our mind")
    wait_for(lambda: stands(parties, study)["state"] == "refused")
    with pytest.raises(TallystickError) as failed:
        run(parties, study)
    assert isinstance(failed.value, (TooFewParties, RoundAborted))
    nothing_happened(parties, study, *parties.clients)
    says_why(asked, study, "changes nothing")
    assert "the study is refused" in parties.log("server-1")  # servers refuse by their own view, too


def test_neither_the_replaced_version_is_run_nor_the_new_one_nobody_approved(asked: tuple[Parties, str]) -> None:
    parties, _ = asked
    old = approved(parties)
    new = old.replace("study", version=2)
    propose(parties, new, supersedes=old.printed_hash)
    wait_for(lambda: stands(parties, old)["state"] == "superseded")
    for study, words in ((old, "the study is superseded"), (new, "0 of 3 approvals")):
        with pytest.raises(TallystickError):
            run(parties, study)
        nothing_happened(parties, study, *parties.clients)
        says_why(asked, study, words)


def test_a_study_nobody_proposed_is_not_run(asked: tuple[Parties, str]) -> None:
    parties, _ = asked
    study = parties.study(rounds=1)
    with pytest.raises(TallystickError):
        run(parties, study)
    nothing_happened(parties, study, *parties.clients)
    says_why(asked, study, "Nobody has proposed this study", proposed=False)


# -- until the client itself has started -------------------------------------------------------------------------------


def test_a_client_that_waits_for_the_start_takes_its_word_back(asked: tuple[Parties, str]) -> None:
    """It was ready, its charge was set aside; the aggregator lets time go by before it starts."""
    parties, _ = asked
    study = approved(parties)
    parties.hold_at("aggregator", CrashPoint.AGGREGATOR_START_KEPT.value)
    running = Running(lambda: run(parties, study))  # type: ignore[arg-type, return-value]
    parties.wait_held("aggregator")
    try:
        assert standing_of(parties, OUT, study) == "reserved"
        decide(parties, study, OUT, "reject", reason="not any more")
        wait_for(lambda: standing_of(parties, OUT, study) == "voided")
    finally:
        parties.let_go("aggregator")
    assert contributors(running.result()) == {"client-2", "client-3", "client-4"}
    nothing_happened(parties, study, OUT)
    says_why(asked, study, "not any more")


def test_a_client_killed_before_its_first_share_decides_anew(asked: tuple[Parties, str]) -> None:
    """The start is kept, everybody is told that the study runs; but nothing of this client has left yet."""
    parties, _ = asked
    study = approved(parties)
    parties.die_at(OUT, CrashPoint.CLIENT_START_KEPT.value)
    running = Running(lambda: run(parties, study))  # type: ignore[arg-type, return-value]
    assert parties.wait_dead(OUT) == -9
    assert standing_of(parties, OUT, study) == "reserved"
    decide(parties, study, OUT, "reject", reason="not any more")  # it runs, they say: it may still be taken back
    with pytest.raises(NotApproved, match="running"):
        decide(parties, study, OUT, "approve")
    parties.start(OUT)
    wait_for(lambda: standing_of(parties, OUT, study) == "voided")
    assert contributors(running.result()) == {"client-2", "client-3", "client-4"}
    says_why(asked, study, "not any more")


def test_a_client_that_has_started_goes_on_after_a_crash(asked: tuple[Parties, str]) -> None:
    """Its shares have left and are charged: neither its clock nor its steward undoes that, and it finishes."""
    parties, _ = asked
    study = approved(parties, round_timeout_s=PATIENCE)
    parties.die_at(OUT, CrashPoint.CLIENT_SHARE_SENT.value)
    running = Running(lambda: run(parties, study))  # type: ignore[arg-type, return-value]
    assert parties.wait_dead(OUT) == -9
    assert standing_of(parties, OUT, study) == "released"
    with pytest.raises(NotApproved, match="nothing is left to decide"):
        decide(parties, study, OUT, "reject")
    parties.start(OUT, wall_ahead=MONTHS)  # by its own clock the proposal has expired meanwhile
    assert contributors(running.result()) == set(parties.clients)
    wait_for(lambda: standing_of(parties, OUT, study) == "committed")
    shown = studies.show(study.printed_hash, config_of(parties, OUT))
    assert shown["own"]["refused"] is None


def test_an_expired_proposal_is_not_run_by_the_clients_own_clock(asked: tuple[Parties, str]) -> None:
    """Months later the aggregator dates its start before the expiry. (The clients' clocks are ahead, the rest is as it
    would be.) The last test here: the clients keep these clocks."""
    parties, _ = asked
    study = approved(parties)
    for name in parties.clients:
        parties.kill(name)
    parties.start(*parties.clients, wall_ahead=MONTHS)
    with pytest.raises(TooFewParties) as failed:
        run(parties, study)
    assert "the study is expired" in str(failed.value)
    nothing_happened(parties, study, *parties.clients)
    says_why(asked, study, "the study is expired")
