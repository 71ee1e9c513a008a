"""Random lives of a study in symbols, the statements they stand for, and an oracle that only looks at the symbols.

The oracle is written from the rules in words (docket's head), client by client and without statements, hashes or
signatures: symbols refer to each other by number. A mutated docket (a planted bug) disagrees with it somewhere.
"""

from __future__ import annotations

import importlib
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from governance_examples import (
    CLIENTS,
    STUDY,
    T0,
    decision,
    hash_of,
    members,
    outcome,
    pause,
    proposal,
    start,
    study_text,
    withdrawal,
)

from tallystick.core.errors import TallystickError
from tallystick.core.identifiers import parse_hash
from tallystick.protocol.governance.statements import Statement, decode

MEMBERS = members()
QUORUM = 3
SUCCESSOR = study_text(2)
HASH = parse_hash(hash_of(STUDY))
TIMES = (10, 20, 30, 40, 50, 60)


@dataclass(frozen=True)
class Said:
    """A symbol: what kind, by whom, and what it says. ``number`` names it; proposals and decisions are referred to."""

    number: int
    kind: str
    by: str
    at: int
    what: str = ""
    sequence: int = 0
    about: int = -1  # a proposal's number
    rests: tuple[int, ...] = ()  # decisions' numbers
    expires: int = 0
    good: bool = True  # False: forged, foreign or about another study


def statement_of(symbol: Said, life: list[Said]) -> Statement:
    """The statement a symbol stands for; it may refer to others of its life."""
    named = [life[n] for n in (symbol.about, *symbol.rests) if n >= 0]
    return _spoken(symbol, tuple(statement_of(other, life) for other in named))


@cache
def _spoken(symbol: Said, named: tuple[Statement, ...]) -> Statement:
    at = T0 + symbol.at
    if symbol.kind == "proposal":
        return proposal(symbol.by, created=at, expires=T0 + symbol.expires)
    if symbol.kind == "successor":
        return proposal(symbol.by, study=SUCCESSOR, created=at, expires=T0 + symbol.expires, supersedes=hash_of(STUDY))
    if symbol.kind == "withdrawal":
        return withdrawal(symbol.by, at=at, reason=f"no. {symbol.number}")
    if symbol.kind == "start":
        rests = sorted(named[1:], key=lambda s: CLIENTS.index(s.signer))
        return start(rests, proposal=named[0].ident, attempt=symbol.sequence, at=at)
    if symbol.kind == "outcome":
        return outcome(at=at, **{"result": "", "code": symbol.what} if symbol.what else {})
    if symbol.kind == "pause":
        return pause(at=at, number=symbol.sequence, code=symbol.what)
    about = {"proposal": named[0].ident if named else f"sha256:{symbol.number:064x}", "at": at}
    if symbol.what == "forged":  # in the name of one client, signed by another
        mine = decision(symbol.by, "approve", symbol.sequence, **about)
        other = decision("c0" if symbol.by != "c0" else "c1", "approve", symbol.sequence, **about)
        return decode(mine.encode().replace(mine.signature.hex().encode(), other.signature.hex().encode()))
    if symbol.what == "elsewhere":
        return decision(symbol.by, "approve", symbol.sequence, hash=hash_of(SUCCESSOR), **about)
    return decision(symbol.by, symbol.what, symbol.sequence, reason=f"no. {symbol.number}", **about)


# -- the oracle -------------------------------------------------------------------------------------------------------


@dataclass
class View:
    """What parties would see: names only."""

    state: str
    approvals: set[str] = field(default_factory=set)
    rejections: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    equivocators: set[str] = field(default_factory=set)
    missing: int = QUORUM
    proposal: int = -1


def oracle(known: list[Said], now: int) -> View:
    """How the study stands, from symbols alone."""
    known = [s for s in known if s.good]
    proposals = [s for s in known if s.kind == "proposal"]
    if not proposals:
        return View("unknown")
    latest: dict[str, Said] = {}
    double: set[str] = set()
    for client in CLIENTS:
        own = [s for s in known if s.kind == "decision" and s.by == client]
        if own:
            top = max(s.sequence for s in own)
            same = [s for s in own if s.sequence == top]
            latest[client] = same[0]
            if len(same) > 1:
                double.add(client)

    def deadline(p: Said) -> int:
        ends = [p.expires]
        ends += [s.at for s in known if s.kind == "withdrawal" and s.by == p.by]
        ends += [s.at for s in known if s.kind == "successor" and s.by == p.by]
        return min(ends)

    def fate(p: Said) -> str:
        if any(s.kind == "withdrawal" and s.by == p.by for s in known):
            return "withdrawn"
        if any(s.kind == "successor" and s.by == p.by for s in known):
            return "superseded"
        return "expired" if now >= p.expires else ""

    def holds(s: Said) -> bool:
        p = next((p for p in proposals if p.number == s.about), None)
        if p is None or s.at >= p.expires or len(s.rests) < QUORUM:
            return False
        rests = [d for d in known if d.number in s.rests]
        if len(rests) < len(s.rests):
            return False
        return all(d.what == "approve" and d.about == p.number and d.at < p.expires for d in rests)

    starts = sorted((s for s in known if s.kind == "start" and holds(s)), key=lambda s: (s.sequence, s.at))
    if starts:
        first = [s for s in starts if (s.sequence, s.at) == (starts[0].sequence, starts[0].at)]
        if len(first) > 1:  # two at once: either may be shown; the generator avoids it
            raise AssertionError("ambiguous")
        told = {s.what for s in known if s.kind == "outcome"}
        pauses = [s for s in known if s.kind == "pause"]
        newest = max((s.sequence for s in pauses), default=0)
        waits = newest and not any(s.what == "resumed" for s in pauses if s.sequence == newest)
        state = (
            ("paused" if waits else "running")
            if not told
            else "failed"
            if len(told) > 1 or told != {""}
            else "finished"
        )
        twice = {"hub"} if len(starts) > 1 or len(told) > 1 else set()
        clients = {d.by for d in known if d.number in starts[0].rests}
        return View(state, clients, equivocators=double | twice, missing=0, proposal=starts[0].about)

    def rank(p: Said) -> tuple[bool, int, int]:
        return bool(fate(p)), -sum(d.about == p.number for d in latest.values()), p.at

    p = min(proposals, key=rank)
    view = View(fate(p), equivocators=double, proposal=p.number)
    for client in CLIENTS:
        d = latest.get(client)
        if d is None or (client not in double and d.about != p.number):
            view.waiting.add(client)
        elif client in double:
            same = [s for s in known if s.kind == "decision" and s.by == client and s.sequence == d.sequence]
            on_this = {s.about == p.number for s in same}
            if len(on_this) > 1:
                raise AssertionError("ambiguous")
            (view.rejections if True in on_this else view.waiting).add(client)
        elif d.what == "approve":
            (view.approvals if d.at < deadline(p) else view.waiting).add(client)
        else:
            (view.rejections if d.what == "reject" else view.counters).add(client)
    view.missing = max(0, QUORUM - len(view.approvals))
    if not view.state:
        if not view.missing:
            view.state = "approved"
        else:
            view.state = "refused" if view.missing > len(view.waiting) else "open"
    return view


def unstarted(known: list[Said], now: int) -> View:
    """How it stands for a party that has not started: the starts are not even read."""
    return oracle([s for s in known if s.kind != "start"], now)


def may_take_part(known: list[Said], client: str, now: int) -> bool:
    """Whether a client that has not started takes part, in the words of the rule: its own newest decision approves the
    living proposal, so do enough others', and nobody has said that it is over or runs without this client."""
    good = [s for s in known if s.good]
    own = [s for s in good if s.kind == "decision" and s.by == client]
    newest = [s for s in own if s.sequence == max(o.sequence for o in own)]
    if len(newest) != 1 or newest[0].what != "approve":
        return False
    view, told = unstarted(known, now), oracle(known, now)
    if told.state in ("finished", "failed") or (told.state in ("running", "paused") and client not in told.approvals):
        return False
    return view.state == "approved" and newest[0].about == view.proposal and client in view.approvals


def seen(docket: Any, now: int, life: list[Said], *, unstarted: bool = False) -> View:
    """The same view of a real docket."""
    s = docket.unstarted(T0 + now) if unstarted else docket.standing(T0 + now)
    idents = {statement_of(p, life).ident: p.number for p in life if p.kind == "proposal"}
    return View(
        state=s.state,
        approvals=set(s.approvals),
        rejections=set(s.rejections),
        counters=set(s.counters),
        waiting=set(s.waiting),
        equivocators=set(s.equivocators),
        missing=s.missing,
        proposal=-1 if s.proposal is None else idents[s.proposal.ident],
    )


# -- random lives -----------------------------------------------------------------------------------------------------


def next_symbol(life: list[Said], rng: random.Random) -> Said | None:
    """Something somebody might say next, sensible or not; None where it would be ambiguous to the oracle."""
    number, at = len(life), rng.choice(TIMES)
    proposals = [s for s in life if s.kind == "proposal"]
    decisions = [s for s in life if s.kind == "decision" and s.good]
    kind = rng.choices(
        ["proposal", "successor", "decision", "bad", "withdrawal", "start", "outcome", "pause"],
        [2, 0.3, 14, 2, 0.3, 4, 2, 3],
    )[0]
    if not proposals and rng.random() < 0.9:
        kind = "proposal"
    if kind in ("proposal", "successor"):
        if any(s.at == at for s in life if s.kind == kind):
            return None
        return Said(
            number, kind, rng.choice(("ana", "ana", "bob")), at, expires=rng.choice((55, 100)) if at < 55 else 100
        )
    if kind in ("decision", "bad"):
        about = rng.choice(proposals).number if proposals and rng.random() < 0.95 else -1
        by, what, good = rng.choice(CLIENTS), rng.choice(("approve",) * 6 + ("reject", "counter")), True
        if kind == "bad":
            good, what = False, rng.choice(("forged", "elsewhere", "approve"))
            by = rng.choice(("c9", "s0", "ana", "hub")) if what == "approve" else by
        sequence = rng.choice((1, 1, 2, 3))
        same = [d for d in decisions if d.by == by and d.sequence == sequence]
        if good and same:
            about = same[0].about  # an equivocation about two proposals at once is left out
        return Said(number, "decision", by, at, what, sequence, about, good=good)
    if kind == "withdrawal":
        return Said(number, kind, rng.choice(("ana", "bob")), at)
    if kind == "start":
        about = rng.choice(proposals).number if proposals else -1
        if rng.random() < 0.8:
            decisions = [d for d in decisions if d.what == "approve" and d.about == about]
        one_each = {d.by: d for d in rng.sample(decisions, len(decisions))}
        chosen = tuple(d.number for d in list(one_each.values())[: rng.choice((2, 3, 3, 4))])
        taken = [(s.sequence, s.at) for s in life if s.kind == "start"]
        attempt = rng.choice((1, 2))
        if not proposals or not chosen or (attempt, at) in taken:
            return None
        return Said(number, kind, "hub", at, sequence=attempt, about=about, rests=chosen)
    if kind == "pause":
        return Said(number, kind, "hub", at, rng.choice(("missing-server", "resumed")), rng.choice((1, 2)))
    return Said(number, kind, "hub", at, what=rng.choice(("", "", "too-few-clients")))


def random_life(seed: int, length: int = 18) -> list[Said]:
    rng = random.Random(seed)
    life: list[Said] = []
    while len(life) < length:
        symbol = next_symbol(life, rng)
        if symbol is not None:
            life.append(symbol)
    return life


def offer(docket: Any, symbol: Said, life: list[Said]) -> bool:
    """Say it to a docket; whether it was taken."""
    try:
        docket.apply(statement_of(symbol, life))
    except TallystickError:
        return False
    return True


def disagreements(module: Any, seeds: range) -> Iterator[tuple[int, View, View]]:
    """Where the dockets of a module differ from the oracle, over many random lives delivered out of order."""
    for seed in seeds:
        life = random_life(seed)
        rng = random.Random(seed + 1)
        docket = module.Docket(HASH, MEMBERS)
        told: list[Said] = []
        for symbol in rng.sample(life, len(life)):
            offer(docket, symbol, life)
            told.append(symbol)
            now = rng.choice((35, 54, 55, 70, 100))
            mine, wanted = seen(docket, now, life), oracle(told, now)
            if mine == wanted:
                mine, wanted = seen(docket, now, life, unstarted=True), unstarted(told, now)
            if mine != wanted:
                yield seed, mine, wanted
                break


def mutated(name: str, *changes: tuple[str, str]) -> Any:
    """A module of the governance room with a bug planted in its source."""
    real = importlib.import_module(f"tallystick.protocol.governance.{name}")
    source = Path(str(real.__file__)).read_text()
    for old, new in changes:
        if source.count(old) != 1:
            raise AssertionError(f"{old!r} is {source.count(old)} times in {name}: the planted bug has lost its place")
        source = source.replace(old, new)
    module = types.ModuleType(f"mutated_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source, f"{name} with a bug", "exec"), module.__dict__)
    return module
