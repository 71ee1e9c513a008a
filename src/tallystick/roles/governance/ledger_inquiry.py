"""Ask the witnesses which head of this client's ledger they have seen last: its own word alone cannot tell that a
restored copy is old, nor that another copy went on.

Through the running client if there is one, over a line of our own otherwise; never both, for a party has one line to
each peer and a second one would cut the first.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from tallystick.privacy.chain import Head
from tallystick.roles.governance.exchange import NOBODY
from tallystick.roles.governance.messages import Op, unpack_head
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.handshake import handshake
from tallystick.roles.identity.identity_files import Identity
from tallystick.roles.identity.places import node_for
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.steward.witness_answers import WitnessAnswers
from tallystick.roles.storage.stores import is_running
from tallystick.study.trust import registered
from tallystick.transport.wire import GOVERNANCE, head, parse

PATIENCE = 5.0
_LOOK = 0.1


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """``seen``: what each witness that answered has seen last, None if nothing; ``silent``: who did not answer."""

    seen: dict[str, Head | None]
    silent: tuple[str, ...]


def ask_witnesses(
    config: RoleConfig, consortium: Consortium, identity: Identity, ledger: bytes, *, patience: float = PATIENCE
) -> Inquiry:
    """Their answers about the ledger of this id, as far as they come in time."""
    witnesses = [p for role in sorted({m.witnesses for m in registered()}) for p in consortium.by_role(role)]
    names = [p.name for p in witnesses]
    if is_running(config.state):
        found = _through_the_client(config, names, patience)
    else:
        with ThreadPoolExecutor(max_workers=16) as pool:  # no line is opened by this, and who is not there says so soon
            fine = pool.map(lambda p: handshake(p.address or "", p, consortium, config, patience).fine, witnesses)
            there = [name for name, reached in zip(names, fine, strict=True) if reached]
        found = _directly(identity, consortium, there, ledger, patience) if there else {}
    seen = {name: unpack_head(raw, name) if raw else None for name, raw in found.items() if name in names}
    return Inquiry(seen=seen, silent=tuple(name for name in names if name not in seen))


def _through_the_client(config: RoleConfig, names: list[str], patience: float) -> dict[str, bytes]:
    deadline = time.monotonic() + patience
    with closing(WitnessAnswers(config.state / "governance.sqlite", party=config.name)) as table:
        question = table.ask()
        while True:
            found = table.answers(question)
            if set(names) <= set(found) or time.monotonic() > deadline:
                return found
            time.sleep(_LOOK)


def _directly(
    identity: Identity, consortium: Consortium, there: list[str], ledger: bytes, patience: float
) -> dict[str, bytes]:
    deadline = time.monotonic() + patience
    asked: set[str] = set()
    found: dict[str, bytes] = {}
    with node_for(identity, consortium, listen=None, dial=there) as node:
        while set(found) < set(there) and (left := deadline - time.monotonic()) > 0:
            for name in node.connected() - asked:
                node.send(name, head(GOVERNANCE, NOBODY) + bytes([Op.HEAD]) + ledger)
                asked.add(name)
            envelope = node.receive(timeout=min(left, _LOOK))
            if envelope is None:
                continue
            kind, _, payload = parse(envelope.raw, envelope.sender)
            if kind == GOVERNANCE and payload and payload[0] == Op.SEEN:
                found[envelope.sender] = bytes(payload[1:])
    return found
