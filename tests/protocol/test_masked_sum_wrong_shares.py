"""Clients that tell wrong shares while a round is unmasked: left out and named, as far as it can be known who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.protocol.masked_sum_world import CLIENTS, MANY, World, parameters, said
from tests.protocol.test_masked_sum_peers import evidence_of, peers

from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.protocol.masked_sum import client_masking, rebuilding, reducer
from tallystick.protocol.masked_sum.messages import Masked, Revealed, RoundClosed
from tallystick.protocol.masked_sum.opening import open_evidence

Bend = Callable[[bytes], bytes]


def pieces(shares: bytes) -> list[bytes]:
    return [shares[at : at + SHARE_BYTES] for at in range(0, len(shares), SHARE_BYTES)]


def turned(shares: bytes) -> bytes:
    """Of every secret the share of another one."""
    first, *rest = pieces(shares)
    return b"".join([*rest, first])


def one_more(shares: bytes) -> bytes:
    """Near enough to a share to be one: every limb but the lowest bit."""
    return b"".join(bytes([piece[0] ^ 1]) + piece[1:] for piece in pieces(shares))


WAYS: dict[str, Bend] = {
    "zeros": lambda shares: bytes(len(shares)),
    "another secret's": turned,
    "one bit": one_more,
    "no element": lambda shares: b"\xff" * len(shares),
    "short": lambda shares: shares[:-1],
    "none": lambda _: b"",
    "long": lambda shares: shares + bytes(SHARE_BYTES),
}


def lying(world: World, liars: Iterable[str], bend: Bend, *, away: str = "", leaving: str = "") -> World:
    """The liars bend what they tell; one may fall silent before it tells, one before it sends its sum."""
    out = set(liars)

    def change(sender: str, _to: str, message: Any) -> Any:
        if isinstance(message, Masked) and sender == leaving:
            return None
        if isinstance(message, Revealed) and sender == away:
            return None
        return (
            replace(message, shares=bend(message.shares))
            if isinstance(message, Revealed) and sender in out
            else message
        )

    world.change = change
    world.open(1)
    world.run()
    return world


def right(world: World, clients: tuple[str, ...] = CLIENTS) -> None:
    assert not world.aborts
    assert (world.results[0].total == world.expected(clients, 1)).all()
    assert world.secrets_left() == []


def given_up(world: World) -> Any:
    assert not world.results
    assert world.secrets_left() == []
    (error,) = [error for name, error in world.aborts if name == "reducer"]
    return error


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_one_client_that_tells_wrong_shares_is_left_out_and_named(way: str, seed: int) -> None:
    """Five clients, four shares needed: there is one to spare, and the commitments tell which."""
    world = lying(World(parameters(), seed=seed), "b", WAYS[way])
    assert {name for name, _ in world.aborts} <= {"b"}  # who tells no shares at all is refused
    world.aborts.clear()
    right(world)
    faults = world.results[0].faults
    assert faults == "" or faults.startswith("b ")  # its shares may have come when enough others were there


def late(world: World, liars: Iterable[str], bend: Bend, **other: str) -> World:
    """The same with the honest clients' shares held up until the liars have told theirs."""
    held = list[tuple[str, Any]]()
    lying_first = set(liars)

    def change(sender: str, _to: str, message: Any) -> Any:
        if isinstance(message, Masked) and sender == other.get("leaving"):
            return None
        if not isinstance(message, Revealed):
            return message
        if sender in lying_first:
            return replace(message, shares=bend(message.shares))
        held.append((sender, message))
        return None

    world.change = change
    world.open(1)
    world.run(until=30 if other.get("leaving") else 0)
    for sender, message in held:
        if sender != other.get("away"):
            world.carry_out("reducer", world.machines["reducer"].receive(sender, message, world.now))
    world.run()
    return world


@pytest.mark.parametrize("leaving", ["", "p"])
@pytest.mark.parametrize("liars", [1, 2, 3, 4, 5])
def test_as_many_liars_as_there_are_shares_to_spare(liars: int, leaving: str) -> None:
    """Sixteen clients, ten shares needed: three wrong ones are decoded, and more found by leaving some out."""
    world = late(World(parameters(MANY, colluding=3)), MANY[1 : 1 + liars], turned, leaving=leaving)
    right(world, tuple(name for name in MANY if name != leaving))
    names, faults = MANY[1 : 1 + liars], world.results[0].faults
    known = len(world.results[0].participants) - liars + 1 - 10  # as long as no more lie, shares off the polynomial do
    assert faults.startswith(", ".join(names[:4]) if liars <= known else f"more than {known} of the clients")


def test_more_liars_than_there_are_shares_to_spare_end_the_round_and_nobody_is_blamed_for_certain() -> None:
    error = given_up(late(World(parameters()), "bd", turned))
    assert (error.rule, error.party) == ("bad-share", None)
    assert "more than 1 of the clients dealt or told wrong shares, and no one can tell which" in error.cause
    error = given_up(late(World(parameters(MANY, colluding=3)), MANY[1:8], turned))
    assert error.rule == "bad-share"


def test_without_a_share_to_spare_a_liar_ends_the_round_and_no_one_can_tell_who_it_was() -> None:
    error = given_up(late(World(parameters(CLIENTS[:3])), "b", turned))
    assert (error.rule, error.party) == ("bad-share", None)
    assert "the secrets of a, b, c do not give what was committed to" in error.cause
    assert "no one can tell" in error.cause


@pytest.mark.parametrize("way", ["short", "no element"])
def test_who_tells_no_shares_at_all_where_all_are_needed_is_named(way: str) -> None:
    error = given_up(late(World(parameters(CLIENTS[:3])), "b", WAYS[way]))
    assert (error.rule, error.party) == ("threshold", "b")
    assert error.cause.startswith("2 of the survivors" if way == "short" else "3 of the survivors")


def about(client: str, bend: Bend = one_more) -> Bend:
    """Lie about one secret only."""
    at = CLIENTS.index(client)
    return lambda shares: b"".join(bend(piece) if i == at else piece for i, piece in enumerate(pieces(shares)))


def test_dealer_and_teller_of_one_wrong_share_cannot_be_told_apart() -> None:
    world = late(World(parameters()), "d", about("a"))
    right(world)
    assert world.results[0].faults == "a dealt d a wrong share, or d told one, and no one can tell which"


def test_two_pairs_apart_are_more_than_one_liar() -> None:
    """d lies of a's secret and e of b's, where one may: nobody is named, and both pairs are."""
    world = World(parameters(MANY[:8]))
    lies = {"d": about("a"), "e": about("b")}
    world.change = lambda sender, _to, m: (
        replace(m, shares=lies[sender](m.shares)) if isinstance(m, Revealed) and sender in lies else m
    )
    for seed in range(20):
        world.schedule.seed(seed)
        world.open(seed + 1)
        world.run()
    assert all((r.total == world.expected(MANY[:8], r.round)).all() for r in world.results)
    faults = {r.faults for r in world.results}
    assert (
        "more than 1 of the clients dealt or told wrong shares, and no one can tell which; a dealt d a wrong share, or "
        "d told one, and no one can tell which; b dealt e a wrong share, or e told one, and no one can tell which"
    ) in faults
    assert faults <= {"", *(f for f in faults if "a dealt d" in f or "b dealt e" in f)}


def test_who_tells_its_own_share_wrong_is_named() -> None:
    world = late(World(parameters()), "d", about("d"))
    right(world)
    assert world.results[0].faults.startswith("d dealt or told wrong shares")


def test_a_dealer_that_dealt_wrong_shares_to_several_is_named() -> None:
    """To two of sixteen: what they tell is what they were dealt, and the packets do not show it."""
    world = World(parameters(MANY))
    at = MANY.index("c")
    bend: Bend = lambda shares: b"".join(one_more(p) if i == at else p for i, p in enumerate(pieces(shares)))  # noqa: E731
    late(world, "gk", bend)
    right(world, MANY)
    assert world.results[0].faults.startswith("c dealt or told wrong shares")


@pytest.mark.parametrize("leaving", ["", "b"])
def test_a_dealer_that_commits_to_another_secret_than_it_deals_is_named(
    monkeypatch: pytest.MonkeyPatch, leaving: str
) -> None:
    what = "key_commitment" if leaving else "seed_commitment"
    real = getattr(client_masking, what)
    monkeypatch.setattr(client_masking, what, lambda s, r, i, *x: bytes(32) if i == 1 else real(s, r, i, *x))
    names = MANY[:8]
    error = given_up(lying(World(parameters(names)), "", turned, leaving=leaving))
    assert (error.rule, error.party) == ("bad-share", "b")
    assert "b dealt or told wrong shares" in error.cause


def test_a_liar_and_a_survivor_that_is_gone_cost_a_wait_and_not_the_round() -> None:
    world = late(World(parameters(MANY[:8])), "b", turned, away="h")
    right_total = world.expected(MANY[:8], 1)
    assert (world.results[0].total == right_total).all()
    assert world.results[0].faults.startswith("b dealt or told")


def test_what_is_told_first_counts() -> None:
    """A liar that has been waited for does not get a second word, nor does it count twice."""
    world = World(parameters())
    late(world, "b", turned)
    right(world)
    assert len([m for m in said(world, Revealed) if m.client == 1]) == 1
    machine = World(parameters())
    machine.change = lambda _s, _t, m: None if isinstance(m, Revealed) else m
    machine.open(1)
    machine.run(until=0)
    told = {m.client: m for m in said(machine, Revealed)}
    for message in (replace(told[1], shares=turned(told[1].shares)), told[1], told[1], told[0], told[2], told[3]):
        machine.carry_out("reducer", machine.machines["reducer"].receive(CLIENTS[message.client], message, 0.0))
    assert not machine.results  # three right ones and a wrong one
    machine.carry_out("reducer", machine.machines["reducer"].receive("e", told[4], 0.0))
    assert (machine.results[0].total == machine.expected(CLIENTS, 1)).all()


def test_nobody_is_asked_for_more_than_in_a_round_without_liars() -> None:
    """The same messages, the same shares: one share of one secret of each dealer."""
    honest, lied = World(parameters()), World(parameters())
    late(honest, "", turned)
    late(lied, "b", turned)
    assert said(honest, Revealed) == said(lied, Revealed)
    asked = [
        [(to, type(m)) for by, to, m in w.sent if by == "reducer" and not isinstance(m, RoundClosed)]
        for w in (honest, lied)
    ]
    assert sorted(asked[0], key=str) == sorted(asked[1], key=str)
    assert honest.results[0].faults == ""


def test_every_peer_does_without_the_liars_too() -> None:
    world = peers()
    late(world, "b", turned)
    assert (world.results[0].total == world.expected(CLIENTS, 1)).all()
    for name in CLIENTS:
        assert world.totals(name)[1] == tuple(world.results[0].total.tolist())
    assert (open_evidence(world.p, evidence_of(world)).total == world.results[0].total).all()


def test_a_reducer_that_was_killed_between_shares_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in range(30, 60):
        world = lying(World(parameters(), die=("reducer", steps)), "b", turned)
        assert world.die is None or world.results
        right(world)


def test_the_planted_bug_of_a_secret_that_nobody_checks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducer, "fitting", lambda *_a, **_k: lambda _dealer, _secret: True)
    world = late(World(parameters(result_limit=2**63 - 1)), "b", about("a", one_more))
    assert (world.results[0].total != world.expected(CLIENTS, 1)).any()


def test_the_planted_bug_of_first_shares_only_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding.Rebuilding, "_corrected", lambda *_: iter(()))
    monkeypatch.setattr(rebuilding.Rebuilding, "_left_out", lambda *_: iter(()))
    assert given_up(late(World(parameters()), "b", turned)).rule == "bad-share"


def test_the_search_beyond_decoding_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "SEARCH", 16**2 * 8)
    error = given_up(late(World(parameters(MANY, colluding=3)), MANY[1:6], turned))
    assert error.rule == "bad-share"


def guilty(pairs: list[tuple[int, int]], most: int) -> set[int]:
    """Who is in every set of so few that has one of each pair: by all of them."""
    everybody = sorted({i for pair in pairs for i in pair})
    covers = [
        {client for at, client in enumerate(everybody) if chosen >> at & 1}
        for chosen in range(1 << len(everybody))
        if chosen.bit_count() <= most
    ]
    covers = [cover for cover in covers if all(cover & set(pair) for pair in pairs)]
    return set.intersection(*covers) if covers else set()


def test_nobody_is_named_whom_a_set_of_so_few_liars_can_do_without() -> None:
    """Against all sets of at most so many; what is found is within what they have in common."""
    draw = np.random.Generator(np.random.PCG64(5))
    named = 0
    for _ in range(300):
        most = int(draw.integers(1, 4))
        bad = draw.choice(7, size=most, replace=False)
        pairs = [(int(b), int(o)) for b in bad for o in draw.choice(7, size=int(draw.integers(1, 7))) if b != o]
        found = rebuilding._guilty(pairs, set(), most)
        assert found <= guilty(pairs, most)
        named += len(found)
    assert named > 100
