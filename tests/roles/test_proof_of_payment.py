"""A result is let out on proof that everybody who took part has paid: by signatures that hold, of this very study.

The aggregator makes the receipt that the analyst's machine takes the proof from; so what a lying one could put into it
is tried here: charges nobody signed, heads of another study, one client left out, a countersignature short.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.protocol.governance_examples import CONSORTIUM, KEYS, LEDGER, T0, digest_of, members

import tallystick as ts
from tallystick.application.study_results import document
from tallystick.core.errors import NotApproved, RoundAborted, TallystickError, TooFewParties, VerificationError
from tallystick.core.identifiers import canonical, format_hash
from tallystick.engines.engine import Computed
from tallystick.engines.planning import layout_of, plan_study
from tallystick.estimators.from_study import estimator_for
from tallystick.privacy.ledger import Ledger
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.receipt_contents import countersigned
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.analyst.connected import ConnectedFederation
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.governance.clearance import Clearance
from tallystick.roles.governance.review import proposal_statement
from tallystick.roles.processes.coordinated_rounds import CoordinatedRounds, pack_outcome
from tallystick.study import Study

MEMBERS = members(3)
WITNESSES = ("s0", "s1")
TEXT = """
[study]
name = "means"
program = "summary"
[privacy]
epsilon = 1.0
neighbours = "add-remove"
[trust]
servers = 2
min_clients = 3
[data]
records = 90
[data.columns]
x = { type = "number", lower = 0, upper = 1 }
"""
ESTIMATOR, STUDY = estimator_for(Study.parse(TEXT), None)
PLAN = plan_study(STUDY, ESTIMATOR.design_for(STUDY, layout_of(STUDY)), allow_not_private=False)
assert isinstance(PLAN, SumPlan)
RHO = f"{PLAN.rho.numerator}/{PLAN.rho.denominator}"
PROPOSAL = proposal_statement(
    STUDY, PLAN, "", analyst="ana", key=KEYS["ana"], consortium=CONSORTIUM, now=T0, days=7
)  # fmt: skip
CLIENTS = ("c0", "c1", "c2")


@pytest.fixture(scope="module")
def packed() -> bytes:
    frames = [{"x": np.linspace(0, 1, 30)} for _ in CLIENTS]
    fed = ts.Federation.simulate(frames, schema=STUDY.schema_of_data(), names=CLIENTS, seed=1)
    return pack_outcome(fed.run(STUDY, ESTIMATOR.design_for(STUDY, layout_of(STUDY))).outcome)


def charge(client: str, *, sequence: int = 3, key: str | None = None, **changes: Any) -> Statement:
    body = {
        "hash": format_hash(STUDY.hash),
        "ledger": LEDGER,
        "dataset": "ward 7",
        "sequence": sequence,
        "head": digest_of(f"head {sequence} of {client}"),
        "rho": RHO,
        "spent_rho": RHO,
        "at": T0 + 900,
    }
    return make("charge", client, body | changes, KEYS[key or client])


def countersignature(witness: str, charged: Statement, *, key: str | None = None) -> Statement:
    same = {k: charged.body[k] for k in ("hash", "ledger", "sequence", "head")}
    return make("countersignature", witness, {"client": charged.signer, **same}, KEYS[key or witness])


def approval(client: str) -> Statement:
    body = {"decision": "approve", "reason": "", "terms": {}, "by": "", "dataset": "ward 7", "sequence": 1}
    of = {"hash": format_hash(STUDY.hash), "proposal": PROPOSAL.ident, "at": T0 + 100}
    return make("decision", client, body | of, KEYS[client])


def started(approved: list[Statement]) -> Statement:
    names = [one.signer for one in approved]
    body = {"attempt": 1, "parties": [*WITNESSES, *names], "approvals": {one.signer: one.ident for one in approved}}
    of = {"hash": format_hash(STUDY.hash), "proposal": PROPOSAL.ident, "at": T0 + 200}
    return make("start", "hub", body | of, KEYS["hub"])


def paid(**changes: Any) -> list[Statement]:
    """Every client's charge, countersigned by every witness."""
    charges = [charge(c, **changes) for c in CLIENTS]
    return [*charges, *(countersignature(w, one) for one in charges for w in WITNESSES)]


def unsigned() -> list[Statement]:
    """What an aggregator can make up by itself: it has no key but its own."""
    charges = [charge(c, key="hub") for c in CLIENTS]
    return [*charges, *(countersignature(w, one, key="hub") for one in charges for w in WITNESSES)]


def receipt(said: list[Statement]) -> bytes:
    """As much of one as a result is made from."""
    return canonical({"statements": [json.loads(s.encode()) for s in (PROPOSAL, *said)], "consortium": ""})


def made(packed: bytes, receipt: bytes | None, heard: list[Statement]) -> Any:
    docket = Docket.of(STUDY.hash, MEMBERS, [PROPOSAL, *heard])
    return document(docket, PROPOSAL, packed, receipt, signer="ana", key=KEYS["ana"])


FORGERIES: dict[str, Callable[[], list[Statement]]] = {
    "charges and countersignatures that nobody signed": unsigned,
    "charges of another study": lambda: paid(hash=digest_of("another study")),
    "a lower charge": lambda: paid(rho="1/1000000"),
    "one client has not paid": lambda: [s for s in paid() if s.signer != "c1"],
    "a client's charge twice for another's": lambda: [*(s for s in paid() if s.signer != "c1"), charge("c0")],
    "one countersignature short": lambda: paid()[:-1],
    "countersigned by a client": lambda: [
        *(charge(c) for c in CLIENTS), *(countersignature(w, charge(c)) for c in CLIENTS for w in ("s0", "c2"))
    ],
    "two heads at one entry": lambda: [*paid(), charge("c0", head=digest_of("fork"))],
}  # fmt: skip


def test_a_paid_result_is_made_from_its_receipt_or_from_what_was_heard(packed: bytes) -> None:
    from_receipt, from_docket = made(packed, receipt(paid()), []), made(packed, None, paid())
    assert from_receipt["model"] == from_docket["model"]
    assert from_receipt["privacy"]["epsilon"] == 1.0


@pytest.mark.parametrize("forgery", FORGERIES)
def test_no_result_without_every_institutions_own_charge_for_it(packed: bytes, forgery: str) -> None:
    said = FORGERIES[forgery]()
    with pytest.raises(VerificationError, match="has charged its ledger"):
        made(packed, receipt(said), [])
    with pytest.raises(VerificationError, match="has charged its ledger"):
        made(packed, None, said)


def proof(said: list[Statement], participants: tuple[str, ...] = CLIENTS, rho: Fraction = PLAN.rho) -> Any:
    cast = MEMBERS.cast(STUDY.trust_model)
    return countersigned(said, cast, [participants], study=STUDY.hash, rho=rho)


def test_the_proof_names_the_head_that_was_countersigned() -> None:
    """A client whose ledger was recovered charges again: the later head, countersigned by all, is the proof."""
    later = charge("c0", sequence=9)
    for said in ([*paid(), later], [later, *paid()]):
        assert proof(said) is None  # not countersigned yet
        found = proof([*said, *(countersignature(w, later) for w in WITNESSES)])
        assert {one.client: one.head for one in found.proof} == {
            c: digest_of(f"head {9 if c == 'c0' else 3} of {c}") for c in CLIENTS
        }
        assert (found.study, found.rho) == (STUDY.hash, PLAN.rho)


def test_nobody_took_part_and_strangers_prove_nothing() -> None:
    assert proof(paid()) is not None
    assert proof(paid(), ()) is None
    assert proof(paid(), (*CLIENTS, "c9")) is None
    assert proof(paid(), rho=PLAN.rho / 2) is None
    assert proof(paid(hash=digest_of("another study"))) is None


# -- what the analyst's own account says -------------------------------------------------------------------------------


class Refused(ConnectedFederation):
    """A consortium whose study ends in an error."""

    def __init__(self, error: TallystickError) -> None:
        self.ledger, self._error = Ledger(), error

    def _run(self, *_: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(("error", "fits"), [
    (NotApproved("one said no", rule="quorum"), 0),
    (RoundAborted("nobody is there", rule="not-started"), 0),
    (TooFewParties("two of three", rule="too-few-clients"), 0),
    (TooFewParties("two of three", rule="too-few-clients", round=1), 1),  # shares were sent, and charges are final
    (TooFewParties("two of three", rule="too-few-clients", round=2), 1),
    (RoundAborted("a server is away", rule="missing-server", round=1), 1),
], ids=str)  # fmt: skip
def test_an_analysts_account_is_given_back_only_what_no_round_has_answered(error: Any, fits: int) -> None:
    fed = Refused(error)
    with pytest.raises(type(error)):
        fed.run(STUDY, ESTIMATOR.design_for(STUDY, layout_of(STUDY)))
    assert fed.spent.fits == fits


# -- the coordinator waits for the last signature ----------------------------------------------------------------------


class Coordinator(CoordinatedRounds):
    """A coordinator whose board is what the test has put on it."""

    def __init__(self) -> None:
        self.docket = Docket.of(STUDY.hash, MEMBERS, [PROPOSAL])
        self.wakes: list[str] = []
        self.results: list[bytes] = []
        self.errors: list[TallystickError] = []
        self.now = 0.0
        self.process: Any = SimpleNamespace(
            now=lambda: self.now,
            wake=lambda _at, _session, layer: self.wakes.append(layer),
            exchange=SimpleNamespace(docket=lambda _study: self.docket),
        )
        self.study_hash, self.over, self._unpaid = STUDY.hash, False, None
        self.cast, self.setup = MEMBERS.cast(STUDY.trust_model), SimpleNamespace(plan=PLAN)  # type: ignore[assignment]

    def hear(self, *said: Statement) -> None:
        for one in said:
            self.docket.apply(one)
        self.tick("payment")

    def finish(self, packed: bytes) -> None:
        self.results.append(packed)

    def progressed(self, done: int, rounds: int) -> None: ...

    def failed(self, error: TallystickError) -> None:
        self.over = True
        self.errors.append(error)


def test_a_coordinator_lets_nothing_out_before_everybody_of_every_round_has_paid() -> None:
    """The client that was in the first round only is the last one whose signatures come in."""
    session, said = Coordinator(), paid()
    computed = Computed(history=(np.zeros(1),) * 2, contributors=(CLIENTS, CLIENTS[:2]), dropped=((), ("c2",)))
    session._release(computed)
    late = [s for s in said if s.signer == "c2" or s.body.get("client") == "c2"]
    for one in [*(s for s in said if s not in late), *late[:-1]]:
        session.hear(one)
        assert session.results == []
    assert session.wakes == ["payment"] * (1 + len(said) - 1)  # it comes back by itself, each time
    session.hear(late[-1])
    assert len(session.results) == 1
    assert json.loads(session.results[0])["contributors"] == [list(CLIENTS), list(CLIENTS[:2])]
    session.tick("payment")
    assert len(session.results) == 1
    assert session.wakes == ["payment"] * len(said)


def test_a_client_that_never_pays_holds_a_study_up_for_an_hour_and_is_named() -> None:
    """It sends shares without a charge, or says a second one that no witness has seen: the study ends all the same."""
    approved = [approval(c) for c in CLIENTS]
    for said, named in (
        ([s for s in paid() if s.signer != "c1"], "charge of c1"),
        ([*paid(), charge("c1", sequence=9)], "countersignature of s0 for c1"),
    ):
        session = Coordinator()
        session.hear(*approved, started(approved), *said)
        session._release(Computed(history=(np.zeros(1),), contributors=(CLIENTS,), dropped=((),)))
        for session.now in (1.0, 3599.0):
            session.tick("payment")
            assert session.errors == []
        session.now = 3600.0
        session.tick("payment")
        (error,) = session.errors
        assert (error.rule, named in error.cause) == ("missing-charge", True)
        session.tick("payment")
        assert (len(session.errors), session.results) == (1, [])


def test_a_study_that_is_over_is_not_let_out_by_a_signature_that_comes_late() -> None:
    session = Coordinator()
    session._release(Computed(history=(np.zeros(1),), contributors=(CLIENTS,), dropped=((),)))
    session.over = True
    session.hear(*paid())
    assert session.results == []


def test_the_analysts_machine_looks_for_itself() -> None:
    """Whatever the aggregator let out: without everybody's charge on the analyst's own board there is no result."""
    board = Docket.of(STUDY.hash, MEMBERS, [PROPOSAL, *paid()[:-1]])
    connection: Any = object.__new__(AnalystConnection)
    connection.members, connection.exchange = MEMBERS, SimpleNamespace(docket=lambda _study: board)
    connection.wait = lambda _until, _seconds: False
    with pytest.raises(VerificationError, match="charged its ledger"):
        connection.payment(STUDY, PLAN, [CLIENTS])
    board.apply(paid()[-1])
    assert connection.payment(STUDY, PLAN, [CLIENTS]).rho == PLAN.rho
    with pytest.raises(VerificationError, match="charged its ledger"):
        connection.payment(STUDY, replace(PLAN, rounds=PLAN.rounds * 2), [CLIENTS])


# -- a client waits for every witness ----------------------------------------------------------------------------------


def test_no_share_leaves_before_every_witness_has_signed_this_very_head() -> None:
    mine, board = charge("c0"), Docket.of(STUDY.hash, MEMBERS, [PROPOSAL])
    exchange: Any = SimpleNamespace(
        name="c0", say=lambda _kind, _body: mine, docket=lambda _study: board, send=lambda *_: None,
        standing=lambda _study: board.standing(T0), members=MEMBERS,
    )  # fmt: skip
    ledger: Any = SimpleNamespace(release=lambda _study: None, charge_body=lambda _study: {}, links=lambda *_: [])
    clearance = Clearance(
        STUDY.hash, exchange, ledger, seen_by={}, check=lambda: None, again=lambda: None, witnesses=WITNESSES
    )
    others = [charge("c0", sequence=2), charge("c0", head=digest_of("x")), charge("c0", ledger="ff" * 16), charge("c1")]
    for other in others:
        for witness in WITNESSES:
            board.apply(countersignature(witness, other))
    assert not clearance.given(None)  # type: ignore[arg-type]
    for witness in WITNESSES:
        assert not clearance.given(None)  # type: ignore[arg-type]
        board.apply(countersignature(witness, mine))
    assert clearance.given(None)  # type: ignore[arg-type]


def test_where_some_of_the_witnesses_do_so_many_of_them_must_have_signed() -> None:
    cast = replace(MEMBERS.cast(STUDY.trust_model), countersigners=1)
    charges = [charge(c) for c in CLIENTS]
    one_each = [countersignature(WITNESSES[i % len(WITNESSES)], one) for i, one in enumerate(charges)]
    facts = {"study": STUDY.hash, "rho": PLAN.rho}
    assert countersigned([*charges, *one_each], cast, [CLIENTS], **facts) is not None
    assert countersigned([*charges, *one_each[1:]], cast, [CLIENTS], **facts) is None
    other = countersignature(WITNESSES[0], charge("c0", sequence=2))  # of another head
    assert countersigned([*charges, *one_each[1:], other], cast, [CLIENTS], **facts) is None
    mine, board = charge("c0"), Docket.of(STUDY.hash, MEMBERS, [PROPOSAL])
    exchange: Any = SimpleNamespace(
        name="c0", say=lambda _kind, _body: mine, docket=lambda _study: board, send=lambda *_: None,
        standing=lambda _study: board.standing(T0), members=MEMBERS,
    )  # fmt: skip
    ledger: Any = SimpleNamespace(release=lambda _study: None, charge_body=lambda _study: {}, links=lambda *_: [])
    own = {"seen_by": {}, "check": lambda: None, "again": lambda: None, "witnesses": WITNESSES, "needed": 1}
    clearance = Clearance(STUDY.hash, exchange, ledger, **own)
    assert not clearance.given(None)  # type: ignore[arg-type]
    board.apply(countersignature(WITNESSES[1], mine))
    assert clearance.given(None)  # type: ignore[arg-type]
