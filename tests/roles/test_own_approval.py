"""A client's own approval is in force, or it is not: by its newest decision, its clock, its rules and its data set."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_hostile_proposals import KEYS, MEMBERS, NOW, Client, approval, changed, proposal

from tallystick.core.errors import NotApproved, PrivacyRefused, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.privacy.ledger import Budget
from tallystick.protocol.governance.policy import Rule
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.governance.own_approval import check_own_approval, check_own_rules
from tallystick.roles.governance.review import review
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.identity.role_config import Policy
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.seen_heads import SeenHeads
from tallystick.roles.steward.refusals import Refusal, Refusals
from tallystick.study import study_digest

STUDY = changed()
HASH = study_digest(STUDY)
ASKED = proposal(STUDY)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client whose rules have approved the study, as have two others."""
    with Client(tmp_path) as made:
        made.hear(ASKED)
        for other in ("c1", "c2"):
            made.hear(approval(ASKED, other))
        yield made


def own(client: Client, decision: str, sequence: int, **changes: Any) -> Statement:
    body = {**approval(ASKED, "c0").body, "decision": decision, "sequence": sequence, **changes}
    made = make("decision", "c0", body, KEYS["c0"])
    client.process.exchange.add(made)
    return made


def stale_start(client: Client) -> None:
    """What a malicious aggregator signs: the oldest approvals there were, and a date of its choice."""
    docket = client.process.exchange.docket(HASH)
    oldest = {name: docket.decisions(name)[0].ident for name in ("c0", "c1", "c2")}
    body = {
        "hash": format_hash(HASH),
        "proposal": ASKED.ident,
        "attempt": 1,
        "at": int(NOW) - 5,
        "parties": ["s0", "s1", *oldest],
        "approvals": oldest,
    }
    client.hear(make("start", "hub", body, KEYS["hub"]))


def check(client: Client) -> None:
    check_own_rules(HASH, client.process.exchange, client.ledger, client.config)


def refused(client: Client, rule: str, words: str) -> None:
    """Refused when it is asked, with nothing set aside; before and after the aggregator says that it runs."""
    for _ in range(2):
        with pytest.raises(TallystickError) as found:
            check(client)
        assert found.value.rule == rule
        assert words in found.value.cause
        with pytest.raises(TallystickError):
            client.decide(STUDY)
        assert client.untouched()
        stale_start(client)


def test_the_approval_is_in_force(client: Client) -> None:
    check(client)
    stale_start(client)
    check(client)  # a start is no reason to refuse what is in force
    client.decide(STUDY)
    assert client.ledger.standing(HASH) == "reserved"
    check(client)  # nor is what was set aside for it


def test_taken_back(client: Client) -> None:
    own(client, "reject", 2, reason="We changed our mind.")
    refused(client, "own-approval", "We changed our mind")
    own(client, "approve", 3, by="Dr. Abel")
    check(client)


def test_a_person_after_the_rule(client: Client) -> None:
    """The rule said yes, a person says no, and yes again: the newest word counts, whoever's it is."""
    own(client, "counter", 2, terms={"epsilon": 0.1}, by="Dr. Abel")
    refused(client, "own-approval", "counter-proposal, by Dr. Abel")


def test_expired_by_its_own_clock(client: Client) -> None:
    exchange = client.process.exchange
    exchange.wall = lambda: NOW + 1000.0
    refused(client, "study-expired", "expired")
    exchange.wall = lambda: NOW + 999.0  # the clock was set back: the proposal is open again
    check(client)


def test_a_stream_that_was_started_in_time_waits_for_its_first_tick(client: Client) -> None:
    """The first share leaves when the tick closes, perhaps after the expiry; a change of mind counts until then."""
    exchange = client.process.exchange
    exchange.wall = lambda: NOW + 1e7
    parts = (HASH, exchange, client.ledger, client.config)
    check_own_rules(*parts, in_time=True)
    own(client, "reject", 2)
    for look in (check_own_approval, check_own_rules):
        with pytest.raises(NotApproved, match="rejected"):
            look(*parts, in_time=True)


def test_for_another_data_set(client: Client) -> None:
    """The role file names other records since: what was approved for these is not spent from those."""
    mark = Fingerprint(location="/others.csv")
    other = DataSet(name="others", source=mark.location, fingerprint=mark, group="others")
    client.ledger.register(other, Budget(epsilon=9.0, delta=1e-6), by="steward")
    client.first = client.ledger.head().sequence
    client.config = client.process.parts.config = replace(client.config, dataset="others")
    refused(client, "own-approval", "another data set")
    own(client, "approve", 2, dataset=client.ledger.dataset("others").ident)
    check(client)


def use(client: Client, policy: Policy) -> None:
    """The client was started anew with other rules."""
    client.config = client.process.parts.config = replace(client.config, policy=policy)


def test_limits_made_stricter_hold_for_rules_and_for_persons(client: Client) -> None:
    wide = client.config.policy
    assert wide is not None
    for sequence in (1, 2):
        for stricter, rule in (
            (replace(wide, max_epsilon=0.4), "policy-max-epsilon"),
            (replace(wide, programs=()), "policy-programs"),
            (replace(wide, rules=(Rule(when={"epsilon_above": 0.1}, then="reject", name="small only"),)), "small only"),
        ):
            use(client, stricter)
            with pytest.raises(PrivacyRefused) as found:
                check(client)
            assert found.value.rule == rule
        own(client, "approve", sequence + 1, by="Dr. Abel")
    use(client, wide)
    check(client)


def test_what_a_rule_has_approved_is_as_good_as_the_rule(client: Client) -> None:
    """The rules would ask a person today: so a person is asked. What a person has approved stays approved."""
    wide = client.config.policy
    assert wide is not None
    use(client, replace(wide, default="ask"))
    refused(client, "own-approval", "its rules do so no more")
    own(client, "approve", 2, by="Dr. Abel")
    check(client)


def test_the_share_of_the_budget_is_the_same_before_and_after_it_is_set_aside(client: Client) -> None:
    """Otherwise a rule on ``budget_share_above`` would change its mind by its own reservation."""
    before = review(ASKED, client.config, client.ledger).effect
    client.decide(STUDY)
    after = review(ASKED, client.config, client.ledger).effect
    assert before is not None
    assert after is not None
    assert after.share == pytest.approx(before.share)
    assert 0.2 < before.share < 0.5


def test_only_statements_and_ledger_are_read_while_it_waits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked every few seconds: no plan is made and no program is started for that."""
    monkeypatch.setattr("tallystick.roles.governance.review.set_up", None)
    found = check_own_approval(HASH, client.process.exchange, client.ledger, client.config)
    assert found == ASKED
    own(client, "reject", 2)
    with pytest.raises(NotApproved):
        check_own_approval(HASH, client.process.exchange, client.ledger, client.config)


# -- what the steward's screen is told ---------------------------------------------------------------------------------


def test_refusals_are_kept_and_cleared_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.roles.steward.refusals.MAX_KEPT", 9)
    path = tmp_path / "governance.sqlite"
    book, screen = Refusals(path, party="c0"), Refusals(path, party="c0")  # the role's, and a command's
    assert path.stat().st_mode & 0o777 == 0o600
    study = bytes(32)
    assert screen.get(study) is None
    book.note(study, at=NOW, rule="own-approval", cause="taken\nback")
    book.note(study, at=NOW + 1.5, rule="study-expired", cause="expired")
    assert screen.get(study) == Refusal(at=int(NOW) + 1, rule="study-expired", cause="expired")
    book.clear(study)
    assert screen.get(study) is None
    for i in range(9 + 3):
        book.note(i.to_bytes(32, "big"), at=NOW + i, rule="r", cause="a\x1b[2J\n" + "c" * 9000)
    assert [screen.get(i.to_bytes(32, "big")) is None for i in (0, 1, 2, 3)] == [True, True, True, False]
    kept = screen.get((9).to_bytes(32, "big"))
    assert kept is not None
    assert kept.cause.isprintable()
    assert len(kept.cause) <= 2000
    book.close()
    screen.close()


@pytest.mark.parametrize("beside", [Refusals, SeenHeads])
def test_a_table_beside_the_statements_leaves_their_file_locked(tmp_path: Path, beside: Any) -> None:
    """Opened and closed once more in one process, SQLite's file lost its locks: a steward's command then took itself
    for the last user and removed the log of changes under the running role, which heard nothing any more."""
    path = tmp_path / "governance.sqlite"
    store = GovernanceStore(path, party="c0", identities=MEMBERS.identities)
    store.add(ASKED.encode())
    table = beside(path, party="c0")
    assert store.statements() == (ASKED,)
    said = approval(ASKED, "c1")
    row = (said.ident, HASH, "c1", KEYS["c1"].public.encoded, len(said.encode()), said.encode())
    other = "INSERT INTO statements (ident, study, signer, key, size, raw) VALUES (?, ?, ?, ?, ?, ?)"
    code = (
        f"import sqlite3; db = sqlite3.connect({str(path)!r}); db.execute({other!r}, {row!r}); db.commit(); db.close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ""})
    assert path.with_name(path.name + "-wal").exists()
    assert store.statements() == (ASKED, said)
    table.close()
    store.close()
    assert sqlite3.connect(path).execute("PRAGMA quick_check").fetchone() == ("ok",)
