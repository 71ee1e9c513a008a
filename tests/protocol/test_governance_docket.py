"""Where a study stands: the rules one by one, random lives against an oracle, convergence, and planted bugs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from governance_examples import (
    CLIENTS,
    KEYS,
    PROPOSAL,
    RESULT,
    SERVERS,
    STUDY,
    T0,
    WEEK,
    attestation,
    charge,
    countersignature,
    decision,
    finished,
    hash_of,
    members,
    outcome,
    proposal,
    start,
    study_text,
    withdrawal,
)
from governance_world import (
    HASH,
    MEMBERS,
    Said,
    disagreements,
    may_take_part,
    mutated,
    next_symbol,
    offer,
    oracle,
    random_life,
    seen,
    unstarted,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tallystick.core.errors import NotApproved, RemoteProtocolError, VerificationError
from tallystick.core.identifiers import parse_hash
from tallystick.protocol.governance import docket as module
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import STATES, Standing, quorum_of
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.governance.taking_part import check_approved, check_taking_part

NOW = T0 + 600
OK = [decision(c) for c in ("c0", "c1", "c2")]


def standing(*said: Statement, now: float = NOW) -> Standing:
    docket = Docket(HASH, MEMBERS)
    for statement in said:
        docket.apply(statement)
    return docket.standing(now)


# -- the rules, one by one --------------------------------------------------------------------------------------------


def test_a_study_nobody_proposed_is_unknown() -> None:
    s = standing(*OK)
    assert (s.state, s.proposal, dict(s.approvals)) == ("unknown", None, {})


def test_open_until_the_quorum_is_reached_and_then_approved() -> None:
    assert standing(PROPOSAL).waiting == CLIENTS
    two = standing(PROPOSAL, *OK[:2])
    assert (two.state, two.missing, two.quorum, two.waiting) == ("open", 1, 3, ("c2", "c3"))
    assert "2 of 3" in two.words
    three = standing(PROPOSAL, *OK)
    assert (three.state, three.missing, set(three.approvals)) == ("approved", 0, {"c0", "c1", "c2"})


def test_a_refusal_with_its_reason_does_not_stop_the_others() -> None:
    s = standing(PROPOSAL, *OK, decision("c3", "reject", reason="Not ours to give."))
    assert s.state == "approved"
    assert s.rejections["c3"].body["reason"] == "Not ours to give."


def test_refused_as_soon_as_the_quorum_cannot_be_reached() -> None:
    assert standing(PROPOSAL, decision("c0", "reject")).state == "open"
    s = standing(PROPOSAL, decision("c0", "reject"), decision("c1", "counter"))
    assert (s.state, set(s.rejections), set(s.counters)) == ("refused", {"c0"}, {"c1"})
    assert "c0, c1" in s.words
    assert s.counters["c1"].body["terms"] == {"epsilon": 0.25, "columns": ["age"]}


def test_a_study_asking_for_more_clients_than_there_are_is_refused() -> None:
    text = study_text(min_clients=5)
    docket = Docket(parse_hash(hash_of(text)), MEMBERS)
    docket.apply(proposal(study=text))
    assert docket.standing(NOW).state == "refused"


def test_a_client_may_change_its_mind_until_the_start() -> None:
    yes, no, again = decision("c2"), decision("c2", "reject", 2), decision("c2", "approve", 3)
    assert standing(PROPOSAL, *OK[:2], yes, no).state == "open"
    assert standing(PROPOSAL, *OK[:2], no, yes).state == "open"
    assert standing(PROPOSAL, *OK[:2], no, again, yes).state == "approved"
    assert standing(PROPOSAL, *OK, start(OK), no).state == "running"


def test_two_decisions_with_one_sequence_are_a_named_refusal() -> None:
    both = (decision("c2"), decision("c2", "approve", reason="really"))
    s = standing(PROPOSAL, *OK[:2], *both)
    assert (s.state, s.equivocators, set(s.rejections)) == ("open", ("c2",), {"c2"})
    assert "c2" in s.words
    mended = standing(PROPOSAL, *OK[:2], *both, decision("c2", "approve", 2))
    assert (mended.state, mended.equivocators) == ("approved", ())


def test_an_approval_is_of_one_proposal_only() -> None:
    other = proposal(purpose="Something else entirely.")
    for_other = [decision(c, proposal=other.ident) for c in ("c0", "c1")]
    s = standing(PROPOSAL, other, *for_other, OK[2])
    assert s.proposal == other  # most have decided on it
    assert (s.state, set(s.approvals), s.waiting) == ("open", {"c0", "c1"}, ("c2", "c3"))


def test_a_backdated_twin_takes_no_approvals_away() -> None:
    twin = proposal("bob", created=T0 - 100)
    s = standing(twin, PROPOSAL, *OK)
    assert (s.state, s.proposal) == ("approved", PROPOSAL)
    assert standing(twin, PROPOSAL).proposal == twin


def test_expiry() -> None:
    assert standing(PROPOSAL, *OK, now=T0 + WEEK - 1).state == "approved"
    assert standing(PROPOSAL, *OK, now=T0 + WEEK).state == "expired"
    late = decision("c2", at=T0 + WEEK)
    assert standing(PROPOSAL, *OK[:2], late).state == "open"
    anew = proposal(created=T0 + WEEK, expires=T0 + 2 * WEEK)
    s = standing(PROPOSAL, *OK, anew, now=T0 + WEEK + 1)
    assert (s.state, s.proposal, dict(s.approvals)) == ("open", anew, {})


def test_withdrawal_is_the_proposers_own() -> None:
    s = standing(PROPOSAL, *OK, withdrawal())
    assert (s.state, "a mistake" in s.words) == ("withdrawn", True)
    assert standing(PROPOSAL, *OK, withdrawal("bob")).state == "approved"
    late = standing(PROPOSAL, *OK[:2], withdrawal(), decision("c2", at=T0 + 501))
    assert set(late.approvals) == {"c0", "c1"}


def test_a_new_version_takes_the_place_of_the_old_one_and_needs_approvals_of_its_own() -> None:
    lower = study_text(2)
    successor = proposal(study=lower, supersedes=hash_of(STUDY), created=T0 + 300)
    s = standing(PROPOSAL, *OK, successor)
    assert (s.state, hash_of(lower) in s.words) == ("superseded", True)
    new = Docket(parse_hash(hash_of(lower)), MEMBERS)
    assert new.apply(successor)
    assert (new.standing(NOW).state, new.standing(NOW).waiting) == ("open", CLIENTS)
    foreign = proposal("bob", study=lower, supersedes=hash_of(STUDY))
    assert standing(PROPOSAL, *OK, foreign).state == "approved"


def test_a_start_holds_whatever_is_said_or_dated_back_later() -> None:
    begun = start(OK)
    later = [
        withdrawal(at=T0),
        proposal(study=study_text(2), supersedes=hash_of(STUDY)),
        decision("c0", "reject", 2, at=T0),
        decision("c1", "reject", 1),
        proposal("bob", created=T0 - 100),
    ]
    s = standing(PROPOSAL, *OK, begun, *later, now=T0 + 10 * WEEK)
    assert (s.state, set(s.approvals), s.start) == ("running", {"c0", "c1", "c2"}, begun)
    assert s.equivocators == ("c1",)


@pytest.mark.parametrize(
    "begun",
    [
        start(OK[:2]),
        start([*OK[:2], decision("c2", "reject")]),
        start([*OK[:2], decision("c2", proposal=hash_of(STUDY))]),
        start([*OK[:2], decision("c2", at=T0 + WEEK)]),
        start([*OK[:2], decision("c2", "approve", 9)]),  # nobody has seen that one
        start(OK, at=T0 + WEEK),
        start(OK, proposal=hash_of(STUDY)),
        start(OK, approvals={"c0": OK[0].ident, "c1": OK[1].ident, "c2": OK[1].ident}),
    ],
)
def test_a_start_without_its_approvals_is_none(begun: Statement) -> None:
    extra = [decision("c2", "reject"), decision("c2", proposal=hash_of(STUDY)), decision("c2", at=T0 + WEEK)]
    for others in ([], extra):
        s = standing(PROPOSAL, *OK[:2], *others, begun)
        assert s.state == "open"
        assert s.start is None


def test_outcomes() -> None:
    begun = (PROPOSAL, *OK, start(OK))
    done = standing(*begun, outcome())
    assert (done.state, done.outcome and done.outcome.body["result"]) == ("finished", RESULT)
    failed = standing(*begun, outcome(result="", code="too-few-clients"))
    assert (failed.state, "too-few-clients" in failed.words) == ("failed", True)
    assert standing(PROPOSAL, *OK, outcome()).state == "approved"  # before the start it says nothing
    again = standing(*begun, outcome(), outcome(at=T0 + 3000))
    assert (again.state, again.equivocators) == ("finished", ())
    torn = standing(*begun, outcome(), outcome(result=hash_of("{}")))
    assert (torn.state, torn.equivocators) == ("failed", ("hub",))
    twice = standing(*begun, start(OK, attempt=2))
    assert (twice.state, twice.equivocators) == ("running", ("hub",))


def test_who_may_say_what() -> None:
    docket = Docket(HASH, MEMBERS)
    for made in finished():
        assert docket.apply(made)
        assert not docket.apply(made)
    body = {kind: next(s.body for s in finished() if s.kind == kind) for kind in ("proposal", "decision", "start")}
    wrong = [
        (make("proposal", "c0", body["proposal"], KEYS["c0"]), "wrong-signer"),
        (make("decision", "s0", body["decision"], KEYS["s0"]), "wrong-signer"),
        (make("decision", "ana", body["decision"], KEYS["ana"]), "wrong-signer"),
        (make("start", "ana", body["start"], KEYS["ana"]), "wrong-signer"),
        (withdrawal("hub"), "wrong-signer"),
        (outcome("s0"), "wrong-signer"),
        (charge("s0"), "wrong-signer"),
        (attestation("c0"), "wrong-signer"),
        (countersignature("c1", charge("c0")), "wrong-signer"),
        (countersignature("s0", charge("c0"), client="s1"), "wrong-signer"),
        (proposal(consortium=hash_of("{}")), "consortium"),
        (decision("c0", hash=hash_of(study_text(2))), "not-this-study"),
        (proposal(study=study_text(2)), "not-this-study"),
        (start(OK, parties=[*SERVERS, "c1", "c0", "c2"]), "bad-roster"),
        (start(OK, parties=["s0", "c0", "c1", "c2"]), "bad-roster"),
        (start(OK, parties=[*SERVERS, "c0", "c1", "c2", "c3"]), "bad-roster"),
        (start(OK, approvals=dict.fromkeys(("c0", "c1", "ana"), OK[0].ident)), "bad-roster"),
    ]
    for statement, why in wrong:
        with pytest.raises(RemoteProtocolError) as refusal:
            docket.apply(statement)
        assert (refusal.value.rule, refusal.value.party) == (why, statement.signer)
    with pytest.raises(VerificationError):
        docket.apply(decision("c9"))
    with pytest.raises(VerificationError):
        docket.apply(make("decision", "c3", body["decision"], KEYS["eve"]))
    assert len(docket.statements()) == len(finished())
    assert Docket.of(HASH, MEMBERS, [w for w, _ in wrong] + finished()).statements() == docket.statements()


def test_quorum_of_a_study() -> None:
    assert quorum_of(STUDY) == 3
    assert quorum_of(study_text(min_clients=None)) == 3
    assert quorum_of(study_text(min_clients=7)) == 7
    assert quorum_of(study_text(min_clients=1)) == 2  # a sum of one hides nothing
    for odd in ("{}", "[]", "1", "{", '{"trust":{"min_clients":true}}', '{"trust":{"min_clients":"2"}}'):
        assert quorum_of(odd) == 3
    small = proposal(study=study_text(min_clients=2))
    said = [decision(c, hash=small.body["hash"], proposal=small.ident) for c in ("c0", "c1")]
    assert Docket.of(small.study_hash, MEMBERS, [small, *said]).standing(NOW).state == "approved"


def test_sequences() -> None:
    docket = Docket(HASH, MEMBERS)
    assert docket.next_sequence("c0") == 1
    docket.apply(decision("c0", "reject", 4))
    docket.apply(decision("c0", "approve", 2))
    assert docket.next_sequence("c0") == 5
    assert [d.body["sequence"] for d in docket.decisions("c0")] == [2, 4]


# -- taking part -------------------------------------------------------------------------------------------------------

LOWER = study_text(2)
FOUR = [*OK, decision("c3")]


def refusal(*said: Statement, client: str = "c0", now: float = NOW) -> NotApproved | None:
    """Why a client does not take part, or None if it does; a server says no whenever the study itself is the reason."""
    docket = Docket(HASH, MEMBERS)
    for statement in said:
        docket.apply(statement)
    found = None
    try:
        check_taking_part(docket, client, now)
    except NotApproved as error:
        found = error
    if found is None:
        check_approved(docket, now)
        return None
    assert found.exit_code == 5
    assert found.remedy
    if found.rule != "own-approval":
        with pytest.raises(NotApproved):
            check_approved(docket, now)
    return found


def test_a_client_takes_part_with_its_own_approval_in_an_approved_study_only() -> None:
    assert refusal(PROPOSAL, *OK) is None
    assert refusal(PROPOSAL, *OK, start(OK)) is None  # the start changes nothing where everything is in force
    alone = refusal(PROPOSAL, *OK, client="c3")
    assert alone is not None
    assert (alone.rule, alone.party) == ("own-approval", "c3")
    late = refusal(PROPOSAL, *OK, start(OK), decision("c3"), client="c3")
    assert late is not None
    assert "without this client" in late.cause
    for said in ([PROPOSAL, *OK[:2]], [PROPOSAL, *OK, withdrawal()], OK, [PROPOSAL, *OK, start(OK), outcome()]):
        s = standing(*said)
        found = refusal(*said)
        assert found is not None
        assert found.rule == f"study-{s.state}"


STALE: dict[str, tuple[list[Statement], float, str, str]] = {
    "revoked": (
        [PROPOSAL, *FOUR, decision("c0", "reject", 2, reason="We changed our mind.")],
        NOW,
        "own-approval",
        "ed our",
    ),
    "revoked, then countered": (
        [PROPOSAL, *FOUR, decision("c0", "reject", 2), decision("c0", "counter", 3)],
        NOW,
        "own-approval",
        "counter-proposal",
    ),
    "revoked by others": (
        [PROPOSAL, *FOUR, decision("c1", "reject", 2), decision("c2", "reject", 2)],
        NOW,
        "study-refused",
        "c1, c2",
    ),
    "expired": ([PROPOSAL, *FOUR], T0 + WEEK, "study-expired", "Expired"),
    "expired long ago": ([PROPOSAL, *FOUR], T0 + 50 * WEEK, "study-expired", "Expired"),
    "withdrawn": ([PROPOSAL, *FOUR, withdrawal()], NOW, "study-withdrawn", "a mistake"),
    "superseded": (
        [PROPOSAL, *FOUR, proposal(study=LOWER, supersedes=hash_of(STUDY), created=T0 + 300)],
        NOW,
        "study-superseded",
        hash_of(LOWER),
    ),
    "another proposal of it": (
        [PROPOSAL, *FOUR, proposal(created=T0 + WEEK, expires=T0 + 2 * WEEK)],
        T0 + WEEK + 1,
        "study-open",
        "0 of 3",
    ),
    "two decisions at once": (
        [PROPOSAL, *FOUR, decision("c0", "approve", reason="really")],
        NOW,
        "own-approval",
        "at once",
    ),
}


@pytest.mark.parametrize("why", STALE)
@pytest.mark.parametrize("dated", ["back", "now", "not at all"])
def test_a_start_on_what_is_not_in_force_moves_nobody(why: str, dated: str) -> None:
    """The review's attack: the aggregator signs a start on approvals that once were, and dates it back."""
    said, now, rule, words = STALE[why]
    at = {"back": T0 + 150, "now": min(int(now), T0 + WEEK - 1), "not at all": T0}[dated]
    begun = start(FOUR, at=at)
    assert standing(*said, begun, now=now).state == "running"  # so it says, for the record
    for start_or_not in ([], [begun], [begun, start(FOUR, attempt=2, at=at + 1)]):
        found = refusal(*said, *start_or_not, now=now)
        assert found is not None
        assert found.rule == rule
        assert words in found.cause
        assert ("changes nothing" in found.cause) == bool(start_or_not)


def test_a_start_of_another_version_or_of_nothing_moves_nobody() -> None:
    other = Docket(parse_hash(hash_of(LOWER)), MEMBERS)
    other.apply(proposal(study=LOWER, supersedes=hash_of(STUDY), created=T0 + 300))
    for statement in (start(FOUR), *FOUR):  # of the first version: not even taken
        with pytest.raises(RemoteProtocolError):
            other.apply(statement)
    other.apply(start(FOUR, hash=hash_of(LOWER), proposal=PROPOSAL.ident))  # the same words under the other hash
    with pytest.raises(NotApproved) as found:
        check_taking_part(other, "c0", NOW)
    assert found.value.rule == "study-open"
    never = refusal(*FOUR, start(FOUR))
    assert never is not None
    assert never.rule == "study-unknown"


def test_the_clock_that_counts_is_the_partys_own() -> None:
    """It jumps: each question is answered by the time it is then, back and forth; a start does not freeze it."""
    docket = Docket.of(HASH, MEMBERS, [PROPOSAL, *OK, start(OK)])
    for now, alive in ((NOW, True), (T0 + WEEK, False), (NOW, True), (T0 + WEEK - 0.5, True), (1e12, False)):
        if alive:
            check_taking_part(docket, "c0", now)
        else:
            with pytest.raises(NotApproved, match="expired"):
                check_taking_part(docket, "c0", now)


def test_many_clients() -> None:
    many = members(60)
    docket = Docket(HASH, many)
    docket.apply(PROPOSAL)
    for i in range(2):
        docket.apply(decision(f"c{i}"))
    assert docket.standing(NOW).words.endswith("and 48 more.")


# -- random lives against the oracle -----------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """Statements are made, delivered twice, late or never, and time passes; docket and oracle agree throughout."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.life: list[Said] = []
        self.told: list[Said] = []
        self.docket = Docket(HASH, MEMBERS)
        self.now = 5

    @rule()
    def say(self) -> None:
        """Somebody says something that is not delivered yet."""
        symbol = next_symbol(self.life, self.rng)
        if symbol is not None:
            self.life.append(symbol)

    @rule()
    def say_and_deliver(self) -> None:
        self.say()
        self.deliver(-1)

    @rule(which=st.integers(0, 50))
    def deliver(self, which: int) -> None:
        """Any statement so far, in any order, again or for the first time."""
        if self.life:
            symbol = self.life[which % len(self.life)]
            taken = offer(self.docket, symbol, self.life)
            assert taken == symbol.good
            if symbol not in self.told:
                self.told.append(symbol)

    @rule(by=st.sampled_from((5, 10, 30)))
    def wait(self, by: int) -> None:
        self.now += by

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "docket"):
            assert seen(self.docket, self.now, self.life) == oracle(self.told, self.now)

    @invariant()
    def only_its_own_view_lets_a_client_take_part(self) -> None:
        if hasattr(self, "docket"):
            mine = seen(self.docket, self.now, self.life, unstarted=True)
            assert mine == unstarted(self.told, self.now)
            for client in CLIENTS:
                assert taking_part(self.docket, client, self.now) == may_take_part(self.told, client, self.now)

    def teardown(self) -> None:
        if hasattr(self, "docket"):
            again = Docket(HASH, MEMBERS)
            for symbol in self.rng.sample(self.told, len(self.told)):
                offer(again, symbol, self.life)
            assert again.standing(T0 + self.now) == self.docket.standing(T0 + self.now)


TestLife = Life.TestCase
TestLife.settings = settings(deadline=None, max_examples=100, stateful_step_count=40)


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_any_order_and_any_repetition_give_the_same_standing(seed: int, data: st.DataObject) -> None:
    life = random_life(seed)
    now = data.draw(st.sampled_from((35, 55, 70, 100)))
    orders = [life, data.draw(st.permutations(life)), [*life[::-1], *life]]
    dockets = [Docket(HASH, MEMBERS) for _ in orders]
    for docket, order in zip(dockets, orders):
        for symbol in order:
            offer(docket, symbol, life)
    first, *others = [(d.standing(T0 + now), d.statements()) for d in dockets]
    assert all(other == first for other in others)


def taking_part(docket: Docket, client: str, now: int) -> bool:
    try:
        check_taking_part(docket, client, T0 + now)
    except NotApproved:
        return False
    return True


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_no_start_turns_a_no_into_a_yes(seed: int, data: st.DataObject) -> None:
    """Whatever the aggregator signs, and however it dates it: it can only keep clients out."""
    life = random_life(seed, 24)
    now = data.draw(st.sampled_from((35, 54, 55, 70, 100)))
    with_starts, without = Docket(HASH, MEMBERS), Docket(HASH, MEMBERS)
    for symbol in life:
        offer(with_starts, symbol, life)
        if symbol.kind not in ("start", "outcome", "pause"):
            offer(without, symbol, life)
    for client in CLIENTS:
        assert taking_part(with_starts, client, now) <= taking_part(without, client, now)


SEEDS = range(120)


def test_the_real_docket_agrees_and_the_lives_reach_every_state() -> None:
    assert list(disagreements(module, SEEDS)) == []
    reached = {oracle(random_life(seed)[:n], now).state for seed in SEEDS for n in (0, 9, 18) for now in (35, 55, 100)}
    assert reached == set(STATES)


BUGS: dict[str, list[tuple[str, str]]] = {
    "quorum off by one": [
        ("missing = max(0, quorum - len(approvals))", "missing = max(0, quorum - 1 - len(approvals))")
    ],
    "refused one too early": [("elif missing > len(waiting):", "elif missing >= len(waiting):")],
    "approval counted after withdrawal": [('*(w.body["at"] for w in withdrawn), ', "")],
    "approval counted after supersession": [(', *(p.body["created"] for p in later)]', "]")],
    "withdrawal ignored": [("        if withdrawn:\n", "        if False:\n")],
    "withdrawal by anyone": [(" if w.signer == proposal.signer]", "]")],
    "supersession by anyone": [("[p for p in later if p.signer == proposal.signer]", "later")],
    "expiry ignored": [('if now >= proposal.body["expires"]:', "if False:")],
    "expiry off by one": [('if now >= proposal.body["expires"]:', 'if now > proposal.body["expires"]:')],
    "late approval counted": [('bool(approval.body["at"] < min(ends))', "True")],
    "foreign party counted": [
        ("if statement.signer not in _SPEAKERS[statement.kind](members):", "if False:"),
        ("known = newest[decision.signer]", "known = newest.setdefault(decision.signer, [])"),
    ],
    "decision for another proposal counted": [('body["proposal"] == proposal.ident and (what', "(what")],
    "decision for another study counted": [("if not self.bears_on(statement):", "if False:")],
    "signature not checked": [("verify(statement, members.identities)", "pass")],
    "first decision in force": [('decision.body["sequence"] >= known', 'decision.body["sequence"] <= known')],
    "equivocation ignored": [('"reject" if client in equivocators else body["decision"]', 'body["decision"]')],
    "rejection counted as approval": [
        ("approvals, rejections, counters = sorted", "rejections, approvals, counters = sorted")
    ],
    "counter counted as approval": [
        ("approvals, rejections, counters = sorted", "counters, rejections, approvals = sorted")
    ],
    "start without a quorum": [('if len(body["approvals"]) < quorum_of(proposal.body["study"]):', "if False:")],
    "start on a refusal": [(' or approval.body["decision"] != "approve":', ":")],
    "start on approvals of another proposal": [('if approval.body["proposal"] != proposal.ident or ', "if ")],
    "start on approvals nobody has": [
        ("if approval is None or ", "if approval is None:\n                continue\n            if "),
        ('{c: self._kept["decision"][i] for c, i in', '{c: self._kept["decision"].get(i) for c, i in'),
    ],
    "start after expiry": [(' or body["at"] >= proposal.body["expires"]:', ":")],
    "a start can be undone": [
        (
            "if started:\n            return self._running",
            "if started and not self._ended(proposal, now):\n            return self._running",
        )
    ],
    "a start decides for those who have not started": [("[] if unstarted else self._started()", "self._started()")],
    "a standing outlives what is said next": [("            self._found.clear()\n", "            pass\n")],
    "a standing outlives an expiry": [("if known is None or not since <= now < until:", "if known is None:")],
    "with and without a start are one": [("self._found[unstarted] = ", "self._found[True] = self._found[False] = ")],
    "first heard leads": [("return min(\n", "return next(iter(proposals.values()), None) or min(\n")],
    "two outcomes, one believed": [("        elif len(told) > 1:\n", "        elif False:\n")],
    "failure is a result": [('        elif ends[0].body["result"]:\n', "        elif True:\n")],
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug: str) -> None:
    broken: Any = mutated("docket", *BUGS[bug])
    assert next(disagreements(broken, SEEDS), None) is not None, bug


# one client's approval counts for another one's; what is over begins anew; what runs without it takes it in
TAKING_PART_BUGS = {
    "a start is believed": [("docket.unstarted(now), docket", "docket.standing(now), docket"),
                            ('if standing.state != "approved":', 'if standing.state not in ("approved", "running"):')],
    "what is over begins anew": [('if told.state in ("finished", "failed"):', "if False:")],
    "others' approvals are enough": [("if client not in standing.approvals:", "if False:")],
    "taken in although it was started without": [("if told.start is not None and client", "if False and client")],
}  # fmt: skip


@pytest.mark.parametrize("bug", TAKING_PART_BUGS)
def test_planted_bugs_in_taking_part_are_caught(bug: str) -> None:
    broken = mutated("taking_part", *TAKING_PART_BUGS[bug])

    def differs(life: list[Said], client: str, now: int) -> bool:
        docket = Docket(HASH, MEMBERS)
        for symbol in life:
            offer(docket, symbol, life)
        try:
            broken.check_taking_part(docket, client, T0 + now)
            allowed = True
        except NotApproved:
            allowed = False
        return allowed != may_take_part(life, client, now)

    lives = (random_life(seed, 24)[:n] for seed in range(400) for n in (12, 18, 24))
    assert any(differs(life, client, now) for life in lives for client in CLIENTS for now in (35, 70))
