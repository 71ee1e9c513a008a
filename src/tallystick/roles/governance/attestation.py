"""What a server can vouch for at the end of a study: which rounds it summed, over whom, and with which noise.

Each partial sum is noted, durably, before it leaves. At the end the notes become one signed statement, which the
privacy receipt carries: that the noise of every round was that of the plan everybody approved, over the participants
the servers had agreed on.
"""

from __future__ import annotations

import json
from typing import Any

from tallystick.core.identifiers import digest, format_hash
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.governance.plan_summary import fold, noise_of, plan_digest, summarise
from tallystick.protocol.secure_sum.messages import Agreement, Partial
from tallystick.roles.storage.stores import RoleStore

__all__ = ["attestation_body", "last_rounds", "note_partial"]


def note_partial(store: RoleStore, study_hash: bytes, partial: Partial, clients: tuple[str, ...]) -> None:
    """Before a partial sum leaves: its digest and whose shares are in it. A second, different one is refused."""
    if partial.round in {round for round, _ in store.releases(study_hash)}:
        return
    kept = store.records(study_hash).get("agreement")
    agreement = sums.decode(kept) if kept is not None else None
    names = [clients[i] for i in agreement.clients] if isinstance(agreement, Agreement) else []
    note = {"participants": names, "partial": format_hash(digest(partial.signed_part(), partial.signature))}
    store.put_release(study_hash, partial.round, json.dumps(note).encode())


def last_rounds(store: RoleStore, study_hash: bytes) -> dict[str, int]:
    """The last round in which each client's share is in a partial sum that was noted here."""
    return {name: round for round, body in store.releases(study_hash) for name in json.loads(body)["participants"]}


def attestation_body(store: RoleStore, study_hash: bytes, setup: Setup) -> dict[str, Any] | None:
    """The statement's body, up to the last round released in; None if this server has released nothing."""
    found = {round: json.loads(body) for round, body in store.releases(study_hash)}
    if not found:
        return None
    nothing = {"participants": [], "partial": ""}  # a tick of a stream that this server released nothing in
    notes = [found.get(round, nothing) for round in range(1, max(found) + 1)]
    return {
        "hash": format_hash(study_hash),
        "plan": plan_digest(summarise(setup.plan)),
        "rounds": len(notes),
        "noise": noise_of(setup.plan, len(notes)),
        "participants": fold([note["participants"] for note in notes]),
        "partials": [note["partial"] for note in notes],
        "boot": store.boot,
    }
