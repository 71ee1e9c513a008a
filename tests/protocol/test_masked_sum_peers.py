"""Every peer its own reducer: all come to the same total, and to no other; what a lying relay cannot make them believe.

The program is a stand-in: each round's model is made of the total before it, so that a peer which believed a wrong
total would show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.protocol.masked_sum_world import AGREEMENTS, CLIENTS, IDENTITIES, MANY, MODEL, World, parameters, said
from tests.protocol.test_masked_sum_attacks import rules
from tests.protocol.test_masked_sum_circle import PLAN

from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.prg import AesStream
from tallystick.protocol.instructions import NoisySum, Send
from tallystick.protocol.masked_sum import PeerMachine, decode, encode
from tallystick.protocol.masked_sum import opening as opening_module
from tallystick.protocol.masked_sum.client import ClientMachine
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Evidence,
    Masked,
    Missed,
    Quorum,
    Revealed,
    RoundClosed,
    RoundOpen,
    Signed,
    Survivors,
    TiedSurvivors,
    model_digest,
)
from tallystick.protocol.masked_sum.opening import open_evidence
from tallystick.protocol.masked_sum.peer import kept_totals


class Program:
    """The next model is the last total's first three entries."""

    def __init__(self) -> None:
        self.round, self.model = 1, MODEL

    def take(self, result: NoisySum) -> None:
        assert result.round == self.round
        self.round, self.model = self.round + 1, result.total[:3].astype("<f8").tobytes()

    def skip(self, round: int) -> None:
        assert round == self.round
        self.round += 1


class Peers(World):
    """A world whose clients add up themselves."""

    def start(self, name: str, *, records: dict[str, bytes] | None = None, boot: int | None = None) -> None:
        if name == "reducer":
            super().start(name, records=records, boot=boot)
            return
        kept = self.records[name] if records is None else records
        self.starts[name] += 1
        value = AesStream(bytes(32), f"{name}{self.starts[name]}".encode()).bytes(16)
        self.machines[name], first = PeerMachine.restore(
            self.p, name, kept, key=IDENTITIES[name], agreement=AgreementKey(AGREEMENTS[name]),
            noise=self.noise[name], boot=self.starts[name], boot_value=value, boots=self.boots[name], replica=Program(),
        )  # fmt: skip
        self.carry_out(name, first)

    def open(self, round: int) -> None:
        own = Program()
        for result in self.results:
            while own.round < result.round:
                own.skip(own.round)
            own.take(result)
        while self.machines["reducer"].round < round:
            self.carry_out("reducer", self.machines["reducer"].open_round(round, own.model, self.now))

    def totals(self, name: str) -> dict[int, tuple[int, ...]]:
        return {found.round: tuple(found.total.tolist()) for found in kept_totals(self.records[name]) if found.clients}


def peers(**other: Any) -> Peers:
    return Peers(parameters(every_peer=True), **other)


def evidence_of(world: Peers, round: int = 1) -> Evidence:
    return said(world, Evidence, round=round)[0]


def told(world: Peers, name: str, message: Any) -> list[Any]:
    steps = world.machines[name].receive("reducer", message, world.now)
    world.carry_out(name, steps)
    return [s.message for s in steps if isinstance(s, Send)]


def test_every_peer_comes_to_the_total_and_to_the_next_model() -> None:
    world = peers()
    for round in (1, 2, 3):
        world.open(round)
        world.run()
    assert [r.round for r in world.results] == [1, 2, 3]
    for result in world.results:
        assert (result.total == world.expected(CLIENTS, result.round)).all()
        for name in CLIENTS:
            assert world.totals(name)[result.round] == tuple(result.total.tolist())
    assert world.secrets_left() == []


@pytest.mark.parametrize(("name", "away", "steps"), [("b", False, 40), ("b", True, 30), ("reducer", False, 90)])
def test_whoever_dies_at_whatever_step_nobody_comes_to_another_total(name: str, away: bool, steps: int) -> None:
    """Killed after each of its instructions in turn, and started again, or never seen again."""
    died = 0
    for step in range(1, steps):
        world = peers(die=(name, step), seed=step, away=away)
        for round in (1, 2):
            world.open(round)
            world.run()
            if world.machines["reducer"].state.value == "aborted":
                break
        died += world.die is None
        for result in world.results:
            assert (result.total == world.expected(result.participants, result.round)).all()
            others = [peer for peer in CLIENTS if peer not in world.absent]
            assert all(world.totals(peer)[result.round] == tuple(result.total.tolist()) for peer in others), step
        assert away or len(world.results) == 2, step
    assert died > steps / 2


def test_a_peer_that_was_away_is_told_round_by_round_what_it_missed() -> None:
    world = peers()
    world.absent.add("e")
    for round in (1, 2):
        world.open(round)
        world.run()
    world.absent.clear()
    assert not world.totals("e")
    world.open(3)
    world.run()
    assert world.results[-1].participants == CLIENTS  # it has caught up, checked the model, and takes part
    assert [m.round for name, _, m in world.sent if isinstance(m, Missed) and name == "e"][:2] == [1, 2]
    assert world.totals("e") == world.totals("a")


def test_a_round_that_was_given_up_has_no_total_for_anybody() -> None:
    world = peers()
    world.absent.update(("d", "e"))
    world.open(1)
    world.run()
    assert not world.results
    world.absent.clear()
    world.open(2)
    world.run()
    assert [r.round for r in world.results] == [2]
    assert all(list(world.totals(name)) == [2] for name in CLIENTS)


# -- lies --------------------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_follow_from_the_totals_is_refused_by_every_peer() -> None:
    world = peers()
    world.open(1)
    world.run()
    other = np.ones(3, dtype="<f8").tobytes()
    crafted = RoundOpen(study_hash=world.p.study_hash, round=2, deadline_ms=1000, model=other,
                        model_hash=model_digest(world.p.study_hash, 2, other))  # fmt: skip
    for name in CLIENTS:
        (abort,) = told(world, name, crafted)
        assert isinstance(abort, Abort)
        assert abort.code == Code.BAD_MODEL
        assert world.machines[name].state.value == "idle"


def masked() -> tuple[Peers, TiedSurvivors]:
    """All have sent their masked sums; the honest survivor set is known and told to nobody."""
    world = peers()
    world.change = lambda _sender, _to, m: None if isinstance(m, Survivors) else m
    world.open(1)
    world.run(until=0)
    return world, said(world, TiedSurvivors)[0]


def test_a_survivor_set_with_another_vector_of_a_peer_is_not_signed_by_it() -> None:
    world, whole = masked()
    lie = replace(whole, sums=(bytes(32), *whole.sums[1:]))
    (abort,) = told(world, "a", lie)
    assert isinstance(abort, Abort)
    assert abort.code == Code.SET_DISAGREEMENT
    assert "another sum of a" in abort.cause


def without(whole: TiedSurvivors, client: int) -> TiedSurvivors:
    left = [i for i, c in enumerate(whole.clients) if c != client]
    kept = {key: tuple(getattr(whole, key)[i] for i in left) for key in ("clients", "starts", "signatures", "sums")}
    return replace(whole, **kept)


def test_a_second_survivor_set_of_a_round_is_refused_by_every_peer() -> None:
    """The difference of two totals would be one peer's exact sum, behind its own noise alone."""
    world, whole = masked()
    for name in CLIENTS:
        assert isinstance(told(world, name, whole)[0], Signed)
    for name in CLIENTS[1:]:
        (abort,) = told(world, name, without(whole, 0))
        assert isinstance(abort, Abort)
        assert abort.code == Code.SET_DISAGREEMENT


def test_a_plain_survivor_set_that_names_no_vectors_is_not_signed() -> None:
    world, whole = masked()
    facts = {key: getattr(whole, key) for key in (
        "study_hash", "round", "model_hash", "dealers", "clients", "starts", "signatures")}  # fmt: skip
    (abort,) = told(world, "a", Survivors(**facts))
    assert isinstance(abort, Abort)


def second_evidence(world: Peers, whole: Evidence) -> Evidence:
    """As if a second set had been signed after all, by keys that an attacker with more colluders would have."""
    survivors = decode(whole.survivors)
    assert isinstance(survivors, TiedSurvivors)
    fewer = without(survivors, 4)
    quorum = decode(whole.quorum)
    assert isinstance(quorum, Quorum)
    signers = fewer.clients[: world.p.quorum]
    signatures = tuple(
        IDENTITIES[CLIENTS[i]].sign(
            Signed(study_hash=world.p.study_hash, round=1, client=i, agreement=fewer.digest()).signed_part()
        )
        for i in signers
    )
    reveals = [decode(raw) for raw in whole.reveals]
    size = 8 * world.p.size
    return replace(
        whole,
        survivors=encode(fewer),
        quorum=encode(replace(quorum, agreement=fewer.digest(), signers=signers, signatures=signatures)),
        commitments=whole.commitments[: 32 * 4],
        vectors=whole.vectors[: size * 4],
        reveals=tuple(encode(replace(r, agreement=fewer.digest())) for r in reveals if isinstance(r, Revealed)),
        wrapped=(bytes(16),),
    )


def test_a_second_set_that_was_signed_after_all_stops_every_peer_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """More collude than the study allows for, and show a second total: whoever has the first one goes no further."""
    world = peers()
    world.open(1)
    world.run()
    whole = evidence_of(world)
    lie = second_evidence(world, whole)
    first = open_evidence(world.p, whole)
    other = replace(first, agreement=bytes(32), total=first.total + 1, clients=first.clients[:4])
    for name in CLIENTS:
        machine = world.machines[name]
        monkeypatch.setattr(machine, "_open", lambda _p, _e: other)  # it would open: enough keys are theirs
        assert told(world, name, lie)[0].code == Code.SET_DISAGREEMENT
        assert world.totals(name)[1] == tuple(first.total.tolist())
        world.start(name)  # also after a restart
        opened = RoundOpen(study_hash=world.p.study_hash, round=2, deadline_ms=1000, model=Program().model,
                           model_hash=model_digest(world.p.study_hash, 2, MODEL))  # fmt: skip
        assert told(world, name, opened)[0].code == Code.SET_DISAGREEMENT


def _changed(world: Peers, whole: Evidence, what: str) -> Evidence:
    flipped = bytes([whole.vectors[0] ^ 1]) + whole.vectors[1:]
    survivors, quorum = decode(whole.survivors), decode(whole.quorum)
    assert isinstance(survivors, TiedSurvivors)
    assert isinstance(quorum, Quorum)
    few = replace(quorum, signers=quorum.signers[:-1], signatures=quorum.signatures[:-1])
    forged = replace(quorum, signatures=(bytes(64), *quorum.signatures[1:]))
    reveal = decode(whole.reveals[0])
    assert isinstance(reveal, Revealed)
    wrong = bytes([reveal.shares[0] ^ 1]) + reveal.shares[1:]
    return {
        "vector": replace(whole, vectors=flipped),
        "no vector": replace(whole, vectors=whole.vectors[:-8]),
        "seed": replace(whole, commitments=bytes(32) + whole.commitments[32:]),
        "set": replace(whole, survivors=encode(replace(survivors, sums=(bytes(32), *survivors.sums[1:])))),
        "few signers": replace(whole, quorum=encode(few)),
        "forged": replace(whole, quorum=encode(forged)),
        "share": replace(whole, reveals=(encode(replace(reveal, shares=wrong)), *whole.reveals[1:])),
        "few shares": replace(whole, reveals=whole.reveals[:2]),
        "twice": replace(whole, reveals=(whole.reveals[0], *whole.reveals)),
        "round": replace(whole, round=2),
        "nonsense": replace(whole, survivors=whole.quorum),
    }[what]


@pytest.mark.parametrize(
    "what",
    ["vector", "no vector", "seed", "set", "few signers", "forged", "share", "few shares", "twice", "round",
     "nonsense"],
)  # fmt: skip
def test_evidence_that_was_changed_is_no_evidence(what: str) -> None:
    world = peers()
    world.open(1)
    world.run()
    whole = evidence_of(world)
    assert (open_evidence(world.p, whole).total == world.results[0].total).all()
    with pytest.raises(RemoteProtocolError):
        open_evidence(world.p, _changed(world, whole, what))


def test_a_relay_that_shows_one_peer_a_changed_vector_is_found_there() -> None:
    world = peers()

    def lie(sender: str, to: str, message: Any) -> Any:
        if isinstance(message, Evidence) and to == "c":
            return _changed(world, message, "vector")
        return message

    world.change = lie
    world.open(1)
    world.run()
    assert "bad-share" in rules(world, of="c")
    assert not world.totals("c")


def test_the_planted_bug_of_a_set_without_its_quorum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of signatures a relay's own second set would give a peer a second total."""
    world = peers()
    world.open(1)
    world.run()
    few = _changed(world, evidence_of(world), "few signers")
    monkeypatch.setattr(opening_module, "quorum_problem", lambda *_: None)
    assert open_evidence(world.p, few).round == 1


def test_the_planted_bug_of_a_client_that_signs_two_sets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it two sets get their quorum, and the difference of their totals is one client's sum and noise, exactly."""
    world, whole = masked()

    def any_set(self: ClientMachine, sender: str, message: Survivors, now: float) -> list[Any]:
        self._survivors = message
        return [Send(sender, self._signature())]

    monkeypatch.setattr(ClientMachine, "_on_survivors", any_set)
    fewer = without(whole, 4)
    for survivors in (whole, fewer):
        signed = [world.machines[name]._on_survivors("reducer", survivors, 0.0)[0].message for name in CLIENTS[:4]]
        quorum = Quorum(study_hash=world.p.study_hash, round=1, agreement=survivors.digest(),
                        signers=tuple(s.client for s in signed),
                        signatures=tuple(s.signature for s in signed))  # fmt: skip
        assert opening_module.quorum_problem(world.p, survivors, quorum) is None


def test_a_peer_ignores_evidence_from_anybody_but_the_relay_and_asks_nobody_else() -> None:
    world = peers()
    world.open(1)
    world.run()
    whole = evidence_of(world)
    world.start("a", records={})
    steps = world.machines["a"].receive("b", whole, 0.0)
    assert [s.message.code for s in steps] == [Code.WRONG_PARTY]
    closed = RoundClosed(study_hash=world.p.study_hash, round=1, agreement=bytes(32))
    assert [m for m in told(world, "a", closed) if isinstance(m, Missed)]


def test_a_masked_sum_whose_signature_is_not_of_its_vector_is_not_taken() -> None:
    world = peers()
    changed: list[str] = []

    def lie(sender: str, to: str, message: Any) -> Any:
        if isinstance(message, Masked) and sender == "b":
            changed.append(sender)
            return replace(message, vector=bytes(len(message.vector)))
        return message

    world.change = lie
    world.open(1)
    world.run()
    assert changed
    assert "b" not in world.results[0].participants


# -- on a circle -------------------------------------------------------------------------------------------------------


def circle() -> Peers:
    return Peers(parameters(MANY, every_peer=True, graph=MaskGraph(MANY, PLAN, bytes(32))))


def test_on_a_circle_every_peer_comes_to_the_total_too() -> None:
    world = circle()
    world.absent.add("d")
    world.open(1)
    world.run()
    world.absent.clear()
    world.open(2)
    world.run()
    assert [len(r.participants) for r in world.results] == [15, 16]
    for result in world.results:
        assert (result.total == world.expected(result.participants, result.round)).all()
        assert all(world.totals(name)[result.round] == tuple(result.total.tolist()) for name in MANY)


def test_on_a_circle_neighbours_sign_no_set_with_a_vector_that_its_owner_has_not_signed() -> None:
    """The relay names another vector of a: its neighbours see that, the others need not."""
    world = circle()
    world.change = lambda _sender, _to, m: None if isinstance(m, Survivors) else m
    world.open(1)
    world.run(until=0)
    (whole, *_) = said(world, TiedSurvivors)
    lie = replace(whole, sums=(bytes(32), *whole.sums[1:]))
    for name in world.p.graph.neighbours("a"):
        (abort,) = told(world, name, lie)
        assert abort.code == Code.SET_DISAGREEMENT
        assert "a has not signed" in abort.cause
