"""Random sequences of what can be asked of a ledger, by two connections and over restarts, against a plain model.

The model is a dictionary and a sum of fractions; it knows nothing of links, files or turns.
"""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_examples import BUDGET, WHOLE, charge, dataset, open_ledger, study

from tallystick.core.errors import BudgetExceeded, LocalProtocolError, TallystickError, VerificationError
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.roles.ledger.seen_heads import SeenHeads

PARTS = {0: Fraction(1, 2), 1: Fraction(1, 3), 2: Fraction(1, 6), 3: Fraction(2, 3), 4: Fraction(1)}
STEPS = ("reserve", "release", "commit", "void")


class Model:
    """What a ledger is supposed to be."""

    def __init__(self) -> None:
        self.cap = WHOLE
        self.state: dict[int, str] = {}

    def rho(self, number: int) -> Fraction:
        return WHOLE * PARTS[number]

    @property
    def spent(self) -> Fraction:
        return sum((self.rho(n) for n, s in self.state.items() if s != "voided"), Fraction(0))

    def step(self, what: str, number: int) -> type[TallystickError] | None:
        """Do it, or say which error it is."""
        state = self.state.get(number)
        if what == "reserve":
            if state in (None, "voided"):
                if self.spent + self.rho(number) > self.cap:
                    return BudgetExceeded
                self.state[number] = "reserved"
            return None
        if state is None:
            return LocalProtocolError
        wanted = {"release": ("reserved",), "commit": ("released",), "void": ("reserved",)}[what]
        done = {"release": "released", "commit": "committed", "void": "voided"}[what]
        if state in wanted:
            self.state[number] = done
        elif state != done and not (what == "release" and state == "committed"):
            return VerificationError if what == "commit" else LocalProtocolError
        return None

    def grant(self, epsilon: float) -> type[TallystickError] | None:
        cap = rho_from_epsilon(epsilon, 1e-6)
        if self.spent > cap:
            return BudgetExceeded
        self.cap = cap
        return None


def ask(ledger: Any, what: str, number: int) -> None:
    if what == "reserve":
        ledger.reserve("default", charge(number, WHOLE * PARTS[number]))
    elif what == "commit":
        ledger.commit(study(number), b"r" * 32)
    else:
        getattr(ledger, what)(study(number))


operations = st.one_of(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(sorted(PARTS)), st.integers(0, 1)),
    st.tuples(st.just("grant"), st.sampled_from([0.4, 0.7, 1.0, 1.3]), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.just(0), st.integers(0, 1)),
    st.tuples(st.just("show"), st.just(0), st.integers(0, 1)),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(operations, max_size=24))
def test_random_sequences(sequence: list[tuple[str, Any, int]]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hands = [open_ledger(folder), open_ledger(folder)]
        server = SeenHeads(folder / "server.sqlite", party="server-1")
        try:
            hands[0].register(dataset(), BUDGET)
            for what, value, hand in sequence:
                ledger = hands[hand]
                if what == "restart":
                    ledger.close()
                    hands[hand] = open_ledger(folder)
                    continue
                if what == "show":
                    last = server.last("client-1")
                    since = 0 if last is None else last.sequence
                    assert server.accept("client-1", ledger.head(), ledger.links(since)).accepted
                    continue
                expected = model.grant(value) if what == "grant" else model.step(what, value)
                try:
                    if what == "grant":
                        ledger.grant("default", epsilon=value, delta=1e-6, by="")
                    else:
                        ask(ledger, what, value)
                    found = None
                except TallystickError as error:
                    found = type(error)
                assert found is expected, (what, value)
                for each in hands:
                    assert {n: each.standing(study(n)) for n in PARTS} == {n: model.state.get(n) for n in PARTS}
            with hands[1].file.reading() as account:
                assert account.groups["default"].totals.rho == model.spent
            assert hands[0].verify().head == hands[1].head()
        finally:
            server.close()
            for ledger in hands:
                ledger.close()
