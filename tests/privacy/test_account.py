"""What a ledger's links add up to, and that the cap is reached exactly, never passed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims import servers_claim

from tallystick.core.errors import BudgetExceeded, LocalProtocolError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.privacy.accountant import ORDERS, epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.chain import Head, Link, make_link
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Budget, admit, charge_of, covers
from tallystick.privacy.sum_plan import make_plan
from tallystick.privacy.totals import STEPS, Charge, Totals, steps
from tallystick.roles.ledger.account import Account, DataSet, Fingerprint, charge_facts, dataset_facts
from tallystick.study.columns import Number
from tallystick.study.schema import Schema

BUDGET = Budget(epsilon=1.0, delta=1e-6)
WHOLE = rho_from_epsilon(1.0, 1e-6)


def charge(number: int, rho: Fraction, pure: Fraction | None = None, *, private: bool = True) -> Charge:
    curve = tuple(Fraction(steps(rho * a if pure is None else min(rho * a, pure)), STEPS) for a in ORDERS)
    return Charge(study=bytes([number]) * 32, curve=curve, rho=rho, pure_epsilon=pure, private=private)


def pure(number: int, epsilon: Fraction) -> Charge:
    return charge(number, epsilon**2 / 2, epsilon)


class Book:
    """An account with its links, made one by one."""

    def __init__(self) -> None:
        self.account, self.head = Account(), Head(ledger=b"L" * 16, sequence=0, hash=bytes(32))
        mark = Fingerprint(location="/a.csv", bytes="sha256:b", content="sha256:c")
        dataset = DataSet(
            name="a", source="a.csv", fingerprint=mark, group="g", schema=Schema({"x": Number(0, 1)}), ident="id"
        )
        self.add("register", **dataset_facts(dataset))
        self.add("grant", group="g", epsilon="1.0", delta="1e-06", by="steward", reason="")

    def add(self, kind: str, **body: Any) -> int:
        link = make_link(self.head, kind, {"at": 5, "salt": "", **body})
        self.account.apply(link)
        self.head = Head(ledger=self.head.ledger, sequence=link.sequence, hash=link.hash)
        return link.sequence

    def reserve(self, one: Charge, **more: Any) -> int:
        return self.add("reserve", **{"dataset": "id", "group": "g", "study_name": "s", **charge_facts(one), **more})

    def step(self, kind: str, one: Charge, reserved: int, **more: Any) -> int:
        return self.add(kind, study=format_hash(one.study), reserved=reserved, **more)


# -- the cap -----------------------------------------------------------------------------------------------------------


def test_equality_with_the_cap_is_allowed() -> None:
    assert admit(Totals(), charge(1, WHOLE), BUDGET).rho == WHOLE
    assert admit(Totals(), pure(1, Fraction(1)), Budget(epsilon=1.0, delta=0.0)).pure_epsilon == 1
    halves = Totals().plus(charge(1, WHOLE / 2))
    assert admit(halves, charge(2, WHOLE / 2), BUDGET).rho == WHOLE


@pytest.mark.parametrize("step", [Fraction(1, 2**80), Fraction(1, 10**60), Fraction(1, 10**6)])
def test_one_step_over_the_cap_is_refused(step: Fraction) -> None:
    for totals, asked in ((Totals(), WHOLE + step), (Totals().plus(charge(1, WHOLE)), step)):
        with pytest.raises(BudgetExceeded) as caught:
            admit(totals, charge(2, asked), BUDGET)
        assert (caught.value.rule, caught.value.exit_code) == ("budget-covers-charge", 3)
    with pytest.raises(BudgetExceeded):
        admit(Totals(), pure(1, 1 + step), Budget(epsilon=1.0, delta=0.0))


@pytest.mark.parametrize("parts", [3, 7, 49, 1000])
def test_rounding_neither_helps_nor_hurts(parts: int) -> None:
    """ρ/3 has no float: in floats three of them may miss the cap, or a fourth slip under it."""
    totals = Totals()
    for number in range(parts):
        totals = admit(totals, charge(number % 250, WHOLE / parts), BUDGET)
    assert totals.rho == WHOLE
    with pytest.raises(BudgetExceeded):
        admit(totals, charge(1, WHOLE / parts / 2**200), BUDGET)


@pytest.mark.parametrize("asked", [(0.1, 0.2), (0.1, 0.1, 0.1), (0.15, 0.15)])
def test_decimal_budgets_cover_their_decimal_parts(asked: tuple[float, ...]) -> None:
    """0.1 + 0.2 is 0.30000000000000004 in floats; studies asking for these fit a budget of 0.3 all the same."""
    totals, budget = Totals(), Budget(epsilon=0.3, delta=0.0)
    for number, epsilon in enumerate(asked):
        claim = servers_claim(
            epsilon=epsilon, delta=0.0, neighbours="add-remove", mechanism="laplace", rounds=1, allow_not_private=True
        )
        plan = make_plan(claim, [(Group(name="g", size=1, bound=1.0),)])
        totals = admit(totals, charge_of(bytes([number]) * 32, plan), budget)
    assert totals.pure_epsilon <= Fraction(3, 10)
    with pytest.raises(BudgetExceeded):
        admit(totals, pure(9, Fraction(1, 10**8)), budget)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 20), st.sampled_from([1e-4, 1e-6, 1e-9, 1e-12]), st.integers(1, 10**6))
def test_what_is_admitted_keeps_the_promise(epsilon: float, delta: float, part: int) -> None:
    """Whatever the rule admits, the conversion promises at most the budget (up to its own rounding)."""
    budget = Budget(epsilon=epsilon, delta=delta)
    rho = rho_from_epsilon(epsilon, delta) * Fraction(1_000_000 + part, 1_000_000)
    for asked in (rho, rho * Fraction(1001, 1000)):
        if covers(budget, Totals().plus(charge(1, asked))):
            assert epsilon_from_rho(asked, delta) <= epsilon * (1 + 1e-9)


def test_curves_admit_what_sum_of_rho_cannot() -> None:
    """Pure charges at a budget with δ: at low orders their curve is far below ρα."""
    big = pure(1, Fraction(9, 10))
    totals = admit(Totals(), big, BUDGET)
    assert not covers(Budget(epsilon=0.89, delta=1e-9), totals)
    mixed = totals.plus(charge(2, Fraction(1, 10**6)))
    assert mixed.rho > WHOLE  # Σρ alone would refuse both
    assert covers(Budget(epsilon=1.0, delta=1e-6), mixed) == any(
        Fraction(value, STEPS)
        <= 1 - (math.log(1e6) + (float(a) - 1) * math.log1p(-1 / float(a)) - math.log(a)) / (float(a) - 1)
        for value, a in zip(mixed.curve, ORDERS)
    )


def test_an_exact_study_only_where_it_is_allowed() -> None:
    exact = charge(1, Fraction(0), private=False)
    with pytest.raises(BudgetExceeded, match="without noise"):
        admit(Totals(), exact, BUDGET)
    totals = admit(Totals(), exact, BUDGET, allow_not_private=True)
    assert totals.spent().epsilon is None
    assert admit(totals, charge(2, WHOLE), BUDGET).rho == WHOLE  # the budget still bounds the others
    with pytest.raises(BudgetExceeded):
        admit(totals.plus(charge(2, WHOLE)), charge(3, WHOLE), BUDGET)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 10**9), st.booleans()), max_size=12))
def test_totals_forget_what_is_taken_back(parts: list[tuple[int, bool]]) -> None:
    charges = [pure(1, Fraction(n, 10**9)) if p else charge(1, Fraction(n, 7 * 10**9)) for n, p in parts]
    totals = Totals()
    for one in charges:
        totals = totals.plus(one)
    for one in reversed(charges[len(charges) // 2 :]):
        totals = totals.minus(one)
    kept = Totals()
    for one in charges[: len(charges) // 2]:
        kept = kept.plus(one)
    assert totals == kept


def test_a_curve_of_another_length_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        Totals().plus(Charge(study=bytes(32), curve=(Fraction(1),), rho=Fraction(1), pure_epsilon=None))


# -- the fold ----------------------------------------------------------------------------------------------------------


def test_a_study_through_its_states() -> None:
    book, one, two = Book(), charge(1, WHOLE / 4), charge(2, WHOLE / 2)
    first, second = book.reserve(one), book.reserve(two)
    assert book.account.studies[one.study].charge == one
    assert book.account.studies[two.study].total_rho == WHOLE * 3 / 4
    book.step("release", one, first)
    book.step("commit", one, first, result="sha256:r")
    book.step("void", two, second, reason="aborted")
    assert [entry.state for entry in book.account.studies.values()] == ["committed", "voided"]
    assert book.account.groups["g"].totals == Totals().plus(one)
    again = book.reserve(two)  # given back, asked for again
    assert (book.account.studies[two.study].state, book.account.studies[two.study].sequence) == ("reserved", again)


def test_impossible_links_are_refused() -> None:
    book, one = Book(), charge(1, WHOLE / 4)
    reserved = book.reserve(one)
    for kind, more in (("commit", {"result": ""}), ("release", {"reserved": reserved + 1})):
        with pytest.raises(VerificationError, match=f"link {book.head.sequence + 1} \\({kind}\\)"):
            book.step(kind, one, **{"reserved": reserved, **more})
    book.step("release", one, reserved)
    for kind in ("void", "release"):
        with pytest.raises(VerificationError) as caught:
            book.step(kind, one, reserved, reason="")
        assert caught.value.rule == "ledger-account"
    with pytest.raises(VerificationError):
        book.reserve(one)
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), group="unknown")
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), curve=[1, 2])
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), curve=[-1] * len(ORDERS))
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), rho="-1/2")
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), rho="1/0")
    with pytest.raises(VerificationError):
        book.add("release", study="sha256:zz", reserved=1)
    with pytest.raises(VerificationError):
        book.add("register", **dataset_facts(book.account.datasets["a"]))


@pytest.mark.parametrize(
    "figure", ["1e999999999", "1e-999999999", f"{10**25}/1", "9" * 5000 + "/1", "1", "1/2/3", "½", ""], ids=ascii
)
def test_figures_that_no_ledger_of_ours_writes(figure: str) -> None:
    """``Fraction`` would compute 10^999999999; and an account that was read must be one that can be told."""
    book = Book()
    for field in ("rho", "pure_epsilon"):
        with pytest.raises(VerificationError):
            book.reserve(charge(2, WHOLE), **{field: figure})
    with pytest.raises(VerificationError):
        book.reserve(charge(2, WHOLE), curve=[10**300] * len(ORDERS))
    for epsilon, delta in (("nan", "1e-6"), ("inf", "1e-6"), ("-1", "1e-6"), ("1", "nan"), ("1", "2"), ("1e999", "0")):
        with pytest.raises(VerificationError):
            book.add("grant", group="g", epsilon=epsilon, delta=delta, by="", reason="")


@pytest.mark.parametrize("kind", ["charge", "move", "_init__", "_class__", ""])
def test_links_of_no_kind_call_nothing(kind: str) -> None:
    link = Link(sequence=1, kind=kind, body=b"{}", previous=bytes(32), hash=bytes(32), signature=bytes(64))
    with pytest.raises(VerificationError):
        Account().apply(link)


def test_recovery_counts_everything_as_spent_and_closes() -> None:
    book, one, two, three = Book(), charge(1, WHOLE / 4), charge(2, WHOLE / 8), charge(3, WHOLE / 16)
    book.reserve(one)
    given_back = book.reserve(three)
    book.step("void", three, given_back, reason="")
    carried = [
        {"kind": "reserve", "body": {"dataset": "id", "group": "g", "study_name": "", **charge_facts(c)}}
        for c in (one, two, three)
    ]
    book.add("recovered", by="", reason="", resumed=None, carried=carried)
    group = book.account.groups["g"]
    assert group.closed
    assert group.totals == Totals().plus(one).plus(three).plus(two)  # none of them twice
    assert {entry.state for entry in book.account.studies.values()} == {"released"}
    book.add("grant", group="g", epsilon="2.0", delta="1e-06", by="steward", reason="looked into it")
    assert not book.account.groups["g"].closed
    assert book.account.groups["g"].budget == Budget(epsilon=2.0)


def test_fingerprints_of_the_same_records() -> None:
    one = Fingerprint(location="/a", bytes="b", content="c")
    assert one.shared_with(Fingerprint(location="/a")) == "it is the same file or address"
    assert "byte for byte" in (one.shared_with(Fingerprint(location="/x", bytes="b")) or "")
    assert "another order" in (one.shared_with(Fingerprint(location="/x", bytes="y", content="c")) or "")
    assert one.shared_with(Fingerprint(location="/x", bytes="y", content="z")) is None
    assert Fingerprint(location="/x").shared_with(Fingerprint(location="/y")) is None  # empty marks tell nothing
    assert "content" not in repr(one)


# -- a long life -------------------------------------------------------------------------------------------------------


def test_a_thousand_different_studies_fit_on_one_account() -> None:
    """Their exact sum has more digits than Python turns into text; what is told of it has not, and is never less."""
    book, exact, told_before = Book(), Fraction(0), Fraction(0)
    for number in range(1000):
        one = charge(0, Fraction(1, 10**12 + 2 * number + 1))  # coprime, or nearly: twelve more digits each
        one = replace(one, study=number.to_bytes(32, "big"))
        exact += one.rho
        book.reserve(one)
        known = book.account.studies[one.study].total_rho
        assert book.account.groups["g"].totals.rho == exact  # sums are kept exactly
        assert exact <= known < exact + Fraction(1, STEPS)
        assert known >= told_before
        assert (known == exact) == (max(exact.numerator, exact.denominator) < 10**4000)
        assert len(str(known.denominator)) <= 4000  # what a charge statement may say
        told_before = known
    assert exact.denominator > 10**4300
    assert book.account.groups["g"].totals.spent(1e-6).fits == 1000
    last = book.account.studies[(999).to_bytes(32, "big")]
    book.step("void", last.charge, last.sequence)
    assert book.account.groups["g"].totals.rho == exact - last.charge.rho
