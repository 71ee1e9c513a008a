"""A client's ledger: its life, its cap, and races for it. Tampering is in test_ledger_tampering.py."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_examples import (
    BUDGET,
    IDENTITIES,
    KEY,
    PARTY,
    WHOLE,
    charge,
    countersign,
    dataset,
    open_ledger,
    small_ledger,
    study,
)

from tallystick.core.errors import BudgetExceeded, LocalProtocolError, RoundAborted, StudyError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.privacy.accountant import epsilon_from_rho
from tallystick.privacy.chain import extend, genesis
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.ledger import Budget, Entry
from tallystick.privacy.totals import STEPS
from tallystick.protocol.governance.statements import make, verify
from tallystick.roles.ledger import turn_lock
from tallystick.roles.ledger.countersignatures import kept
from tallystick.roles.ledger.report import check_export, export
from tallystick.roles.ledger.store import LedgerStore
from tallystick.study.columns import Number
from tallystick.study.schema import Schema


@pytest.fixture
def ledger(tmp_path: Path):
    with open_ledger(tmp_path) as made:
        made.register(dataset(), BUDGET, by="steward")
        yield made


def test_a_study_is_reserved_released_and_committed(ledger: LedgerStore) -> None:
    assert ledger.standing(study(1)) is None
    entry = ledger.reserve("default", charge(1), study_name="one")
    assert isinstance(entry, Entry)
    assert (entry.number, entry.charge, entry.committed) == (3, charge(1), False)
    assert ledger.standing(study(1)) == "reserved"
    assert not ledger.release(study(1)).committed
    assert ledger.standing(study(1)) == "released"
    assert ledger.commit(study(1), b"r" * 32).committed
    assert ledger.standing(study(1)) == "committed"
    assert ledger.view("default").spent.epsilon == pytest.approx(epsilon_from_rho(WHOLE / 8, 1e-6))


def test_every_step_again_changes_nothing(ledger: LedgerStore) -> None:
    first = ledger.reserve("default", charge(1))
    assert ledger.reserve("default", charge(1)) == first
    ledger.release(study(1))
    ledger.release(study(1))
    done = ledger.commit(study(1), b"r" * 32)
    assert ledger.commit(study(1), b"r" * 32) == done == ledger.reserve("default", charge(1))
    assert ledger.head().sequence == 5
    with pytest.raises(VerificationError, match="one result"):
        ledger.commit(study(1), b"s" * 32)


def test_what_was_released_is_spent_and_what_was_not_may_be_given_back(ledger: LedgerStore) -> None:
    ledger.reserve("default", charge(1, WHOLE))
    with pytest.raises(BudgetExceeded):
        ledger.reserve("default", charge(2))
    ledger.void(study(1))
    ledger.void(study(1))
    assert ledger.standing(study(1)) == "voided"
    with pytest.raises(LocalProtocolError):
        ledger.release(study(1))
    with pytest.raises(LocalProtocolError):
        ledger.charge_body(study(1))
    assert ledger.reserve("default", charge(1, WHOLE / 2)).number == 5  # anew, and even for another charge
    ledger.release(study(1))
    with pytest.raises(LocalProtocolError) as caught:
        ledger.void(study(1))
    assert caught.value.rule == "released-stays-spent"
    assert ledger.view("default").spent.fits == 1


def test_steps_out_of_order_are_refused(ledger: LedgerStore) -> None:
    for step in (ledger.release, ledger.commit, ledger.void, ledger.charge_body):
        with pytest.raises(LocalProtocolError, match="not on the ledger"):
            step(study(9))
    ledger.reserve("default", charge(1))
    with pytest.raises(VerificationError, match="reserved cannot be committed"):
        ledger.commit(study(1), b"r" * 32)
    with pytest.raises(StudyError, match="no data set is called"):
        ledger.reserve("other", charge(2))


def test_a_study_has_one_charge_on_one_data_set(ledger: LedgerStore) -> None:
    ledger.register(dataset("second"), BUDGET)
    ledger.reserve("default", charge(1))
    for name, asked in (("default", charge(1, WHOLE / 9)), ("second", charge(1))):
        with pytest.raises(VerificationError) as caught:
            ledger.reserve(name, asked)
        assert caught.value.rule == "one-charge-a-study"


def test_everything_survives_closing(ledger: LedgerStore, tmp_path: Path) -> None:
    ledger.reserve("default", charge(1), study_name="one")
    ledger.release(study(1))
    body, view, head = ledger.charge_body(study(1)), ledger.view("default"), ledger.head()
    ledger.close()
    ledger.close()
    with open_ledger(tmp_path) as again:
        assert (again.charge_body(study(1)), again.view("default"), again.head()) == (body, view, head)
        assert again.view("default").entries[0].name == "one"
        assert again.verify().links == 4
    for file in tmp_path.glob("ledger.*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_one_ledger_seen_from_two_connections(ledger: LedgerStore, tmp_path: Path) -> None:
    """The client's process and its steward's command line."""
    with open_ledger(tmp_path) as steward:
        ledger.reserve("default", charge(1))
        assert steward.standing(study(1)) == "reserved"
        steward.grant("default", epsilon=2.0, delta=1e-6, by="steward", reason="a second year")
        assert ledger.view("default").budget == Budget(epsilon=2.0)
        ledger.release(study(1))
        assert steward.head() == ledger.head()


def test_preview_says_what_it_would_cost_and_changes_nothing(ledger: LedgerStore) -> None:
    before, after = ledger.preview("default", charge(1, WHOLE / 2))
    assert (before.fits, after.fits) == (0, 1)
    assert after.epsilon == pytest.approx(epsilon_from_rho(WHOLE / 2, 1e-6))
    with pytest.raises(BudgetExceeded):
        ledger.preview("default", charge(1, WHOLE * 2))
    assert ledger.head().sequence == 2
    ledger.reserve("default", charge(1, WHOLE))
    assert [s.fits for s in ledger.preview("default", charge(1, WHOLE))] == [0, 1]  # its own charge does not stop it


def test_exact_studies_only_where_the_owner_allows_them(ledger: LedgerStore) -> None:
    exact = charge(1, Fraction(0), private=False)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("default", exact)
    ledger.reserve("default", exact, allow_not_private=True)
    view = ledger.view("default")
    assert view.spent.epsilon is None
    assert "exact sums" in view.words
    ledger.reserve("default", charge(2, WHOLE))
    ledger.verify()


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_a_grant_states_the_new_total(ledger: LedgerStore) -> None:
    ledger.reserve("default", charge(1, WHOLE))
    with pytest.raises(BudgetExceeded):
        ledger.reserve("default", charge(2, WHOLE / 2))
    view = ledger.grant("default", epsilon=2.0, delta=1e-6, by="Dr. A", reason="renewed consent")
    assert view.budget.epsilon == 2.0
    ledger.reserve("default", charge(2, WHOLE / 2))
    with ledger.file.reading() as account:
        first, second = account.groups["default"].grants
    assert (first.by, second.by, second.reason) == ("steward", "Dr. A", "renewed consent")


def test_a_grant_is_never_below_what_is_spent(ledger: LedgerStore) -> None:
    ledger.reserve("default", charge(1, WHOLE / 2))
    with pytest.raises(BudgetExceeded, match="below what is spent") as caught:
        ledger.grant("default", epsilon=0.5, delta=1e-6, by="")
    assert caught.value.rule == "grant-covers-spent"
    assert ledger.grant("default", epsilon=0.9, delta=1e-6, by="").budget.epsilon == 0.9  # lower, yet enough


@pytest.mark.parametrize(
    "figures", [(0.0, 0), (-1, 0), (float("nan"), 0), (float("inf"), 0), (1, 1), (1, -0.1), (1e9, 0)]
)
def test_impossible_budgets_are_refused(ledger: LedgerStore, figures: tuple[float, float]) -> None:
    with pytest.raises(StudyError, match="no budget"):
        ledger.grant("default", epsilon=figures[0], delta=figures[1], by="")


def test_words_for_a_steward(ledger: LedgerStore) -> None:
    assert ledger.view("default").words == (
        "The budget is epsilon = 1, delta = 1e-06. Nothing has been spent. One more study of up to epsilon = 1 fits."
    )
    ledger.reserve("default", charge(1, WHOLE / 2))
    words = ledger.view("default").words
    assert "1 study has spent epsilon = 0.69" in words
    assert "what is reserved counts as spent" in words
    ledger.reserve("default", charge(2, WHOLE / 8, neighbours="add-remove"))
    words = ledger.view("default").words
    assert "Nothing is left." in words
    assert "different things" in words


def test_what_is_said_to_fit_fits(ledger: LedgerStore) -> None:
    """The ε named as left can really be asked for, and little more."""
    ledger.reserve("default", charge(1, WHOLE / 3))
    left = ledger.view("default").left_epsilon
    with pytest.raises(BudgetExceeded):
        ledger.preview("default", charge(2, gaussian_rho(left * 1.001, 1e-6)))
    ledger.reserve("default", charge(2, gaussian_rho(left * 0.999999, 0.999e-6)))


# -- cap and races -----------------------------------------------------------------------------------------------------


def test_the_cap_is_reached_exactly_and_not_passed(ledger: LedgerStore) -> None:
    for number in range(7):
        ledger.reserve("default", charge(number, WHOLE / 7))
    for over in (Fraction(1, 2**300), WHOLE / 7):
        with pytest.raises(BudgetExceeded) as caught:
            ledger.reserve("default", charge(99, over))
        assert caught.value.exit_code == 3
    assert ledger.head().sequence == 9, "a refusal writes nothing"


def test_one_study_from_many_threads_is_charged_once(ledger: LedgerStore) -> None:
    start = threading.Barrier(8)

    def ask(_: int) -> int:
        start.wait()
        return ledger.reserve("default", charge(1, WHOLE)).number

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {3}
    assert ledger.head().sequence == 3


def test_a_forked_process_opens_the_ledger_anew(ledger: LedgerStore) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger.reserve("default", charge(1))
        except LocalProtocolError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_turn_that_is_kept_is_told_in_words(ledger: LedgerStore, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(turn_lock, "PATIENCE_SECONDS", 0.05)
    with open_ledger(tmp_path) as other, other.file.turn(), pytest.raises(RoundAborted) as caught:
        ledger.reserve("default", charge(1))
    assert caught.value.rule == "storage-in-use"
    ledger.reserve("default", charge(1))


def test_a_full_disk_keeps_nothing_by_halves(ledger: LedgerStore) -> None:
    pages = ledger.file.db.execute("PRAGMA page_count").fetchone()[0]
    ledger.file.db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in range(40):
            ledger.reserve("default", charge(number, WHOLE / 1000))

    with pytest.raises(RoundAborted) as caught:
        fill()
    assert caught.value.rule == "storage-full"
    kept = ledger.head().sequence - 2
    ledger.file.db.execute("PRAGMA max_page_count = 1000000")
    assert ledger.view("default").spent.fits == kept
    ledger.reserve("default", charge(kept, WHOLE / 1000))
    assert ledger.verify().links == kept + 3


def test_an_anchor_that_cannot_be_written_is_made_up_for(ledger: LedgerStore, monkeypatch) -> None:
    """The link is kept, the caller hears of the disk; asking again finds it and anchors it."""
    anchor = ledger.file.anchor
    with monkeypatch.context() as failing:
        failing.setattr(type(anchor), "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(RoundAborted) as caught:
            ledger.reserve("default", charge(1))
    assert caught.value.rule == "storage-full"
    assert anchor.read().sequence == 2
    assert ledger.reserve("default", charge(1)).number == 3
    assert anchor.read() == ledger.head()


# -- the chain ---------------------------------------------------------------------------------------------------------


def test_a_server_can_follow(ledger: LedgerStore) -> None:
    ledger.reserve("default", charge(1))
    middle = ledger.head()
    ledger.reserve("default", charge(2))
    head, start = ledger.head(), genesis(ledger.head().ledger, PARTY)
    assert extend(start, ledger.links(0))[-1] == head.hash
    assert extend(middle.hash, ledger.links(middle.sequence))[-1] == head.hash
    assert extend(start, ledger.links(0, middle.sequence))[-1] == middle.hash
    assert (ledger.file.hash_at(middle.sequence), ledger.file.hash_at(0), ledger.file.hash_at(99)) == (
        middle.hash,
        start,
        None,
    )


def test_a_sum_too_long_to_be_written_is_told_rounded_up(ledger: LedgerStore, tmp_path: Path) -> None:
    """Exact sums grow with every different study; Python turns 4300 digits into text, and a statement has 4000."""
    parts = [Fraction(1, 10**2999 + 1), Fraction(1, 10**3000 + 3)]
    for number, rho in enumerate(parts, 1):
        ledger.reserve("default", charge(number, rho))
        ledger.release(study(number))
    bodies = [ledger.charge_body(study(number)) for number in (1, 2)]
    assert bodies[0]["spent_rho"] == bodies[0]["rho"] == f"1/{10**2999 + 1}"
    assert bodies[1]["rho"] == f"1/{10**3000 + 3}"
    assert Fraction(bodies[1]["spent_rho"]) == Fraction(1, STEPS) > sum(parts)
    for body in bodies:
        make("charge", PARTY, body, KEY)
    assert ledger.verify().links == 6
    check_export(export(ledger.file), IDENTITIES)
    rest = WHOLE - sum(parts)  # the budget is held against the exact sum: it can be used up, and not a bit more
    with pytest.raises(BudgetExceeded):
        ledger.reserve("default", charge(3, rest + Fraction(1, 10**3000)))
    ledger.close()
    with open_ledger(tmp_path) as again:
        assert [again.charge_body(study(number)) for number in (1, 2)] == bodies


def test_the_charge_statement_is_always_the_same(ledger: LedgerStore) -> None:
    entry = ledger.reserve("default", charge(1))
    body = ledger.charge_body(study(1))
    ledger.reserve("default", charge(2))
    ledger.release(study(1))
    assert ledger.charge_body(study(1)) == body
    assert (body["sequence"], body["head"]) == (entry.number, format_hash(ledger.file.hash_at(entry.number)))
    assert Fraction(body["rho"]) == Fraction(body["spent_rho"]) == WHOLE / 8
    assert Fraction(ledger.charge_body(study(2))["spent_rho"]) == WHOLE / 4
    assert body["dataset"] == ledger.dataset("default").ident
    assert "default" not in body["dataset"]
    statement = make("charge", PARTY, body, KEY)
    verify(statement, {PARTY: KEY.public})


def test_contents_do_not_give_bodies_away(tmp_path: Path) -> None:
    """Two ledgers with the same entries show different digests: a guess cannot be tried."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in ("a", "b"):
        small_ledger(tmp_path / folder)
    with open_ledger(tmp_path / "a") as one, open_ledger(tmp_path / "b") as two:
        assert not set(one.links(0)) & set(two.links(0))


def test_countersignatures_are_kept_by_head_and_server(ledger: LedgerStore) -> None:
    entry = ledger.reserve("default", charge(1))
    for server in ("server-1", "server-2"):
        ledger.add_countersignature(countersign(ledger, 1, server).encode(), IDENTITIES)
    assert set(kept(ledger.file)) == {(entry.number, "server-1"), (entry.number, "server-2")}
    report = ledger.verify(IDENTITIES)
    assert report.countersigned == {"server-1": 3, "server-2": 3}
    assert "server-1 up to link 3" in report.words


def test_a_wrong_countersignature_is_refused(ledger: LedgerStore) -> None:
    ledger.reserve("default", charge(1))
    good = countersign(ledger, 1)
    wrong = [
        make("countersignature", "server-1", {**good.body, "head": "sha256:" + "0" * 64}, KEY),
        make("countersignature", "server-1", {**good.body, "sequence": 77}, KEY),
        make("countersignature", "server-1", {**good.body, "ledger": "0" * 32}, KEY),
        make("countersignature", "server-1", {**good.body, "client": "client-2"}, KEY),
        make("charge", PARTY, ledger.charge_body(study(1)), KEY),
    ]
    for statement in wrong:
        with pytest.raises(VerificationError):
            ledger.add_countersignature(statement.encode())
    with pytest.raises(VerificationError, match="did not sign"):
        ledger.add_countersignature(make("countersignature", "server-1", good.body, KEY).encode(), IDENTITIES)
    assert kept(ledger.file) == {}


def test_register_again(ledger: LedgerStore) -> None:
    """At every start of the client: the same source is nothing new, changed records are noted and stay charged."""
    ledger.reserve("default", charge(1))
    assert ledger.register(dataset(), BUDGET) == ledger.dataset("default")
    head = ledger.head().sequence
    changed = ledger.register(dataset(content="sha256:other"), BUDGET)
    assert changed.changed_at is not None
    assert ledger.head().sequence == head + 1
    assert ledger.view("default").spent.fits == 1
    ledger.grant("default", epsilon=3.0, delta=1e-6, by="")
    ledger.register(dataset(content="sha256:other"), BUDGET)  # role.toml still has the first figure
    ledger.register(dataset(content="sha256:other"), Budget(epsilon=3.0))
    for other, budget in (
        (dataset(content="sha256:other"), Budget(epsilon=7.0)),
        (dataset(location="/elsewhere.csv"), BUDGET),
    ):
        with pytest.raises(StudyError) as caught:
            ledger.register(other, budget)
        assert caught.value.rule in ("budget-is-granted", "source-registered-once")
    schema = Schema({"x": Number(0, 1)})
    with pytest.raises(StudyError):
        ledger.register(replace(dataset(), schema=schema), BUDGET)
