"""What a hostile or broken role does on top of the real one; keyed by the name a spec gives.

Each behaviour takes a built process and changes what leaves it. The machines of the honest parties are untouched.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.core.identifiers import format_hash
from tallystick.crypto.prg import AesStream
from tallystick.protocol import secure_sum as sums
from tallystick.protocol import study as studies
from tallystick.protocol.secure_sum.client import ClientMachine
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Inquiry,
    Partial,
    RoundOpen,
    Share,
    model_digest,
    share_context,
)
from tallystick.protocol.study.messages import StudyOpen, StudyStart
from tallystick.roles.processes import coordinator as aggregator
from tallystick.roles.processes.process import RoleProcess
from tallystick.study import study_digest
from tallystick.transport.wire import GOVERNANCE, HEADER_BYTES, STUDY, SUM, head
from tallystick.trust.servers.parts import ServersClientPart

Send = Callable[..., None]


def _sum_message(raw: Any) -> Any:
    return sums.decode(raw[HEADER_BYTES:]) if isinstance(raw, bytes) and raw[0] == SUM else None


def _study_message(raw: Any) -> Any:
    return studies.decode(raw[HEADER_BYTES:]) if isinstance(raw, bytes) and raw[0] == STUDY else None


def _change_sums(process: RoleProcess, change: Callable[[str, Any], Any]) -> None:
    """``change(to, message)`` gives the message or messages that leave in its place."""
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        message = _sum_message(raw)
        if message is None:
            send(to, raw, length)
            return
        after = change(to, message)
        for one in after if isinstance(after, list) else [after]:
            send(to, raw[:HEADER_BYTES] + sums.encode(one))

    process.send = changed  # type: ignore[method-assign]


def _on_shares(process: RoleProcess, act: Callable[[Any, str, Share], list[Share]]) -> None:
    """``act(part, to, share)`` gives the shares that are sealed and sent to a server in its place."""
    send = ServersClientPart.send

    def changed(self: ServersClientPart, to: str, message: Any) -> None:
        for one in act(self, to, message) if isinstance(message, Share) else [message]:
            send(self, to, one)

    ServersClientPart.send = changed  # type: ignore[method-assign]


def other_sharing(machine: ClientMachine, server: int, *, value: int | None = None) -> Share:
    """Another valid sharing of this round by the same client, of random or given values."""
    p = machine.parameters
    context = share_context(p.study_hash, machine.round, machine.index, len(p.servers), p.size, machine._model_hash)
    vector = np.full(p.size, 12345 if value is None else value, dtype=np.uint64)
    return machine._split(vector, AesStream(os.urandom(32), context), context)[server]


def equivocate(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Two different sharings to server-1, in one round."""

    def act(part: Any, to: str, share: Share) -> list[Share]:
        if to != "server-1":
            return [share]
        return [share, other_sharing(part.machine, share.server)]

    _on_shares(process, act)


def unrelated_shares(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Each server gets a share of another sharing."""
    _on_shares(process, lambda part, to, share: [other_sharing(part.machine, share.server)])


def twice(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Everything is sent three times, same bytes (sealed anew each time)."""
    _on_shares(process, lambda part, to, share: [share] * 3)


def huge(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A valid sharing of values no record can have."""
    kept: dict[int, tuple[Share, ...]] = {}

    def act(part: Any, to: str, share: Share) -> list[Share]:
        machine = part.machine
        if machine.round not in kept:
            p = machine.parameters
            context = share_context(
                p.study_hash, machine.round, machine.index, len(p.servers), p.size, machine._model_hash
            )
            values = np.full(p.size, 1 << 61, dtype=np.uint64)
            kept[machine.round] = machine._split(values, AesStream(os.urandom(32), context), context)
        return [kept[machine.round][share.server]]

    _on_shares(process, act)


def wrong_rounds(process: RoleProcess, spec: dict[str, Any]) -> None:
    """With every share come others, of past, future and unknown rounds, studies and shapes."""

    def act(part: Any, to: str, share: Share) -> list[Share]:
        return [
            replace(share, round=share.round + 1),
            replace(share, round=share.round + 100),
            replace(share, round=0),
            replace(share, study_hash=bytes(32)),
            replace(share, client=(share.client + 1) % 3),
            replace(share, server=1 - share.server),
            replace(share, size=share.size + 1),
            share,
        ]

    _on_shares(process, act)


def to_one_server(process: RoleProcess, spec: dict[str, Any]) -> None:
    """As if it had died half-way: the shares of round 2 reach server-1 only."""

    def act(part: Any, to: str, share: Share) -> list[Share]:
        return [] if share.round == 2 and to != "server-1" else [share]

    _on_shares(process, act)


def object_in_round_two(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A client that claims the model of round 2 is bad: it may stop the round, and is named."""

    def act(part: Any, to: str, share: Share) -> list[Share]:
        if share.round == 2:
            abort = Abort(
                study_hash=share.study_hash, round=2, code=Code.BAD_MODEL, party="aggregator", cause="x", remedy="y"
            )
            part.session.process.send(to, head(SUM, part.session.study_hash) + sums.encode(abort))
            return []
        return [share]

    _on_shares(process, act)


def nan_model(process: RoleProcess, spec: dict[str, Any]) -> None:
    """The aggregator sends NaN, with the right hash."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and message.round == 2:
            model = np.full(len(message.model) // 8, np.nan).tobytes()
            return replace(message, model=model, model_hash=model_digest(message.study_hash, 2, model))
        return message

    _change_sums(process, change)


def wrong_model_hash(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Another model than its hash says."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and message.round == 2:
            return replace(message, model=np.ones(len(message.model) // 8).tobytes())
        return message

    _change_sums(process, change)


def short_model(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A model of the wrong length."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and message.round == 2:
            model = message.model[:-8]
            return replace(message, model=model, model_hash=model_digest(message.study_hash, 2, model))
        return message

    _change_sums(process, change)


def two_models(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Different models to different clients: the attack on secure aggregation [Pasquini22]."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and message.round == 2 and to == "client-1":
            model = np.full(len(message.model) // 8, 0.5).tobytes()
            return replace(message, model=model, model_hash=model_digest(message.study_hash, 2, model))
        return message

    _change_sums(process, change)


def asks_again(process: RoleProcess, spec: dict[str, Any]) -> None:
    """An aggregator that opens every finished round again, with another model, and asks for what was said."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and message.round > 1:
            model = np.full(len(message.model) // 8, 0.25).tobytes()
            old = replace(
                message,
                round=message.round - 1,
                model=model,
                model_hash=model_digest(message.study_hash, message.round - 1, model),
            )
            return [old, Inquiry(study_hash=message.study_hash, round=message.round - 1), message]
        return message

    _change_sums(process, change)


def other_consortium(process: RoleProcess, spec: dict[str, Any]) -> None:
    """The aggregator asks under another consortium file."""
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        message = _study_message(raw)
        if isinstance(message, StudyOpen):
            raw = raw[:HEADER_BYTES] + studies.encode(replace(message, consortium_hash=bytes(32)))
        send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def other_version(process: RoleProcess, spec: dict[str, Any]) -> None:
    """This client's sums speak another version of the protocol (its byte is changed)."""
    send = ServersClientPart.send

    def changed(self: ServersClientPart, to: str, message: Any) -> None:
        if isinstance(message, Share):
            raw = bytearray(sums.encode(message))
            raw[spec["version_at"]] ^= 0x40
            process.send(to, *self.session.seals.seal(to, bytes(raw)))
        else:
            send(self, to, message)

    ServersClientPart.send = changed  # type: ignore[method-assign]


def forged_words(process: RoleProcess, spec: dict[str, Any]) -> None:
    """What this party says to others carries line breaks and terminal codes."""
    words = "no\n2026-01-01 00:00:00,000 error   forged\r\x1b[2Jforged \u2028 forged"
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        study, total = _study_message(raw), _sum_message(raw)
        for message, codec in ((study, studies), (total, sums)):
            if message is not None and hasattr(message, "cause"):
                raw = raw[:HEADER_BYTES] + codec.encode(replace(message, cause="x" * len(words.encode())))
                raw = raw.replace(b"x" * len(words.encode()), words.encode())
        if isinstance(raw, bytes) and raw[0] == GOVERNANCE:  # the reason of a decision, of the same length
            raw = re.sub(rb'"reason":"[^"]{60}', b'"reason":"' + words.encode()[:60], raw)
        send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def two_rosters(process: RoleProcess, spec: dict[str, Any]) -> None:
    """The aggregator tells one client of another set of parties than the others."""
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        message = _study_message(raw)
        if isinstance(message, StudyStart) and to == "client-1":
            raw = raw[:HEADER_BYTES] + studies.encode(replace(message, tickets=message.tickets[:-1]))
        send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def starts_anyway(process: RoleProcess, spec: dict[str, Any]) -> None:
    """An aggregator that asks for every study it is told to run, whatever the stewards say by now.

    If there once were approvals, it first signs a start that names the oldest of them, dated before the expiry.
    """

    def approved(self: aggregator.CoordinatorSession) -> None:
        exchange = self.process.exchange
        docket = exchange.docket(self.study_hash)
        approvals: dict[str, str] = {}
        named = ""
        for client in self.process.members.clients:
            old = next((d for d in docket.decisions(client) if d.body["decision"] == "approve"), None)
            if old is not None:
                approvals[client], named = old.ident, str(old.body["proposal"])
        proposal = next((p for p in docket.statements("proposal") if p.ident == named), None)
        if proposal is None:
            return
        body = {
            "hash": format_hash(self.study_hash),
            "proposal": named,
            "attempt": 1,
            "at": min(int(exchange.wall()), proposal.body["expires"] - 1),
            "parties": [*self.cast.helpers, *approvals],
            "approvals": approvals,
        }
        exchange.say("start", body)

    def take_up(study_hash: bytes, sender: str) -> aggregator.CoordinatorSession:
        return aggregator.CoordinatorSession(process, study_hash)

    process.make_session = take_up  # type: ignore[method-assign, assignment]
    aggregator.CoordinatorSession._approved = approved  # type: ignore[method-assign]


def wrong_partial(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A server whose partial is tampered with on the way: its signature no longer holds."""

    def change(to: str, message: Any) -> Any:
        if isinstance(message, Partial):
            return replace(message, vector=message.vector[:-1] + bytes([message.vector[-1] ^ 1]))
        return message

    _change_sums(process, change)


def silent_server(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A server that takes everything and never agrees."""
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        if not isinstance(_sum_message(raw), (Agreement, Partial)):
            send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def lossy(process: RoleProcess, spec: dict[str, Any]) -> None:
    """Every third message is lost, every fourth comes twice, every fifth late; by a count, not by chance."""
    import threading

    send: Send = process.send
    count = 0

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        nonlocal count
        count += 1
        if not isinstance(raw, bytes):
            raw = b"".join(raw)
            length = None
        if count % 3 == 0:
            return
        if count % 5 == 0:
            threading.Timer(0.3, lambda: send(to, raw, length)).start()
            return
        send(to, raw, length)
        if count % 4 == 0:
            send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def no_acceptance(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A server whose acknowledgements are lost: clients send the same bytes again."""
    send: Send = process.send

    def changed(to: str, raw: Any, length: int | None = None) -> None:
        if not isinstance(_sum_message(raw), Accepted):
            send(to, raw, length)

    process.send = changed  # type: ignore[method-assign]


def unchecked_programs(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A client whose compiler forgets every comparison of an index with a length; guards and lock are the real ones."""
    from tallystick.engines.sandbox import children

    bypass = Path(__file__).resolve().parents[1] / "engines" / "sandbox_bypass.py"
    children._shared = os.getpid(), children.Children(command=(sys.executable, "-I", "-B", str(bypass)))


def refuses_bad_records(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A client that reads its records as a simulation does: one bad cell, and it withdraws."""
    from tallystick.engines.record_engine import LocalEngine

    read = LocalEngine.records
    LocalEngine.records = lambda self, study, source, *, party, lenient: read(  # type: ignore[method-assign]
        self, study, source, party=party, lenient=False
    )


# Floods: a role that works as it should and besides, in a thread of its own, sends what the spec says, or for ever.


def _besides(process: RoleProcess, spec: dict[str, Any], act: Callable[[int], None]) -> None:
    """Call ``act`` with 0, 1, 2 ... once there are lines; note when it has been called often enough."""
    import threading
    import time
    from pathlib import Path

    def run() -> None:
        process.node.wait_connected(["server-1" if process.name == "aggregator" else "aggregator"], 60)
        for i in range(spec.get("count", 1 << 60)):
            act(i)
            time.sleep(spec.get("pause", 0.005))  # what it does besides needs its lines and processor, too
        (Path(spec["notes"]) / f"{process.name}.flooded").write_text("done")

    threading.Thread(target=run, daemon=True).start()


def made_up_decisions(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A client that signs decisions about studies nobody has proposed, a hundred in a message."""
    from tallystick.core.identifiers import format_hash
    from tallystick.protocol.governance.statements import make
    from tallystick.roles.governance.messages import Op, pack_parts

    key = process.parts.identity.signing

    def act(_i: int) -> None:
        batch = []
        for _ in range(100):
            made_up = format_hash(os.urandom(32))
            said = {"hash": made_up, "proposal": made_up, "decision": "reject", "reason": "x" * 100, "terms": {}}
            said |= {"by": "x", "dataset": "d", "sequence": 1, "at": 1}
            batch.append(make("decision", process.name, said, key).encode())
        raw = head(GOVERNANCE, bytes(32)) + bytes([Op.STATEMENTS]) + pack_parts(batch)
        process.node.offer("aggregator", raw, timeout=30)

    _besides(process, spec, act)


def made_up_studies(process: RoleProcess, spec: dict[str, Any]) -> None:
    """An aggregator that opens studies nobody has proposed: a short one, then one of ``size`` bytes."""

    def opening(study: bytes) -> bytes:
        named = study_digest(study)
        made = StudyOpen(
            study_hash=named, attempt=1, ready_ms=1000, min_clients=3,
            consortium_hash=process.members.consortium_hash, study=study, program="",
        )  # fmt: skip
        return head(STUDY, named) + studies.encode(made)

    large = opening(os.urandom(spec.get("size", 1 << 20)))

    def act(i: int) -> None:
        raw = head(STUDY, os.urandom(32)) + large[HEADER_BYTES:] if i % 2 else opening(os.urandom(100))
        for party in process.members.parties:
            process.node.offer(party, raw, timeout=5)

    _besides(process, spec, act)


def babbles(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A party that sends garbage of every kind to everybody: noise, and messages of its studies with bytes changed."""
    import random

    rng = random.Random(process.name)
    overheard: list[bytes] = []
    send: Send = process.send

    def listening(to: str, raw: Any, length: int | None = None) -> None:
        if isinstance(raw, bytes) and len(raw) < 1 << 16:
            overheard[:] = [*overheard[-50:], raw]
        send(to, raw, length)

    process.send = listening  # type: ignore[method-assign]

    def act(_i: int) -> None:
        if overheard and rng.random() < 0.6:
            changed = bytearray(rng.choice(overheard))
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            raw = bytes(changed[: rng.randint(1, len(changed))] if rng.random() < 0.3 else changed)
        else:
            raw = bytes([rng.randint(0, 6)]) + rng.randbytes(rng.choice((0, 10, 32, 33, 200, 70_000)))
        for peer in sorted(process.node.connected()):
            process.node.offer(peer, raw, timeout=1.0)

    _besides(process, spec, act)


def grants_nothing(process: RoleProcess, spec: dict[str, Any]) -> None:
    """A party that never grants a large message, and asks for everything there is, again and again."""
    from tallystick.roles.governance.messages import Op
    from tallystick.transport.network.connection import Connection

    async def never(_self: Connection, _incoming: Any) -> None:
        return

    Connection._grant = never  # type: ignore[method-assign]

    def act(_i: int) -> None:
        process.node.offer("aggregator", head(GOVERNANCE, bytes(32)) + bytes([Op.HAVE]), timeout=1.0)

    _besides(process, spec, act)


BEHAVIOURS: dict[str, Callable[[RoleProcess, dict[str, Any]], None]] = {
    act.__name__: act
    for act in (
        asks_again,
        babbles,
        equivocate,
        forged_words,
        grants_nothing,
        huge,
        lossy,
        made_up_decisions,
        made_up_studies,
        nan_model,
        no_acceptance,
        object_in_round_two,
        other_consortium,
        other_version,
        refuses_bad_records,
        short_model,
        silent_server,
        starts_anyway,
        to_one_server,
        twice,
        two_models,
        two_rosters,
        unchecked_programs,
        unrelated_shares,
        wrong_model_hash,
        wrong_partial,
        wrong_rounds,
    )
}
