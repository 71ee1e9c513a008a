"""Charges of Gaussian noise on a client's chain: written exactly, told apart from earlier ones, and converted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant
from ledger_examples import BUDGET, WHOLE, charge, dataset, open_ledger, study
from tests.privacy.test_gaussian_accounts import charge as planned
from tests.privacy.test_gaussian_accounts import laplace, through_a_proxy

from tallystick.core.errors import BudgetExceeded, VerificationError
from tallystick.privacy.accountant import epsilon_from_rho
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import Charge
from tallystick.roles.ledger.account import Account, charge_facts
from tallystick.roles.ledger.report import events


def of(number: int, one: Charge) -> Charge:
    return replace(one, study=study(number))


def test_a_charge_is_read_as_it_was_written(tmp_path: Path) -> None:
    kinds = [planned(0.3), through_a_proxy(0.2), laplace(0.1), charge(9, WHOLE / 50)]
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=3.0))
        for number, one in enumerate(kinds, start=1):
            ledger.reserve("default", of(number, one))
    with open_ledger(tmp_path) as ledger:
        entries = ledger.view("default").entries
        assert [e.charge for e in entries] == [of(n, one) for n, one in enumerate(kinds, start=1)]
        ledger.verify()


def test_links_of_earlier_versions_are_not_gaussian_and_set_nothing_aside() -> None:
    facts = charge_facts(charge(1))
    assert not {"gaussian_distance", "distance_aside"} & set(facts)  # the bytes that they always had
    told = charge_facts(of(1, through_a_proxy()))
    assert {"gaussian_distance", "distance_aside"} <= set(told)


@pytest.mark.parametrize("nonsense", ["-1/2", "1e9", "1/0", "", 3, None])
def test_nonsense_in_the_new_fields_is_refused(nonsense: object, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        facts = {"dataset": "x", "group": "default", "study_name": "", **charge_facts(of(1, planned(0.3)))}
        with ledger.file.turn() as account:
            again = Account()
            again.groups.update(account.groups)
            link = ledger.file.links(0)[0]
            for key in ("gaussian_distance", "distance_aside"):
                with pytest.raises((VerificationError, ValueError, TypeError)):
                    again._reserve(link, {**facts, "at": 0, key: nonsense})


def test_the_whole_budget_is_admitted_and_seen_as_spent(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        assert ledger.view("default").share_of(of(1, planned(1.0))) == pytest.approx(1.0, rel=1e-5)
        ledger.reserve("default", of(1, planned(1.0)))
        view = ledger.view("default")
        assert view.spent.epsilon == pytest.approx(1.0, rel=1e-6)
        assert view.left_epsilon < 1e-3
        assert "Nothing is left." in view.words or view.left_epsilon > 1e-4
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", of(2, planned(0.01)))
        ledger.verify()


def test_what_is_left_is_that_of_the_curve(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", of(1, planned(0.6)))
        ledger.reserve("default", of(2, laplace(0.1)))
        left = ledger.view("default").left_epsilon
        with pytest.raises(BudgetExceeded):
            ledger.preview("default", of(3, planned(left * 1.001)))
        share = ledger.view("default").share_of(of(3, planned(left * 0.9999)))
        assert 0.99 < share <= 1.0
        ledger.reserve("default", of(3, planned(left * 0.9999)))
        assert ledger.view("default").how_many_fit(0.05) == 0


def test_a_laplace_study_still_fits_where_renyi_curves_have_nothing_left(tmp_path: Path) -> None:
    """0.95 by the exact curve is 1.02 by Rényi's: what is pure comes on top of the former."""
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", of(1, planned(0.95)))
        view = ledger.view("default")
        assert epsilon_from_rho(view.entries[0].charge.rho, 1e-6) > 1.0
        assert view.share_of(of(2, laplace(0.02))) == pytest.approx(0.4, rel=1e-3)
        ledger.reserve("default", of(2, laplace(0.02)))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", of(3, laplace(0.04)))


def test_events_are_a_bound_for_anybodys_accountant(tmp_path: Path) -> None:
    """ρ-zCDP is true of them as well: dp-accounting's figure is that of Rényi curves, a little above the ledger's."""
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=3.0))
        for number, epsilon in enumerate((0.5, 0.7), start=1):
            ledger.reserve("default", of(number, planned(epsilon)))
        told, spent = events(ledger.file), ledger.view("default").spent
    theirs = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    for one in told:
        theirs.compose(getattr(dp_event, one["event"])(**one["arguments"]))
    assert 1.05 < theirs.get_epsilon(1e-6) / (spent.epsilon or 0) < 1.15
