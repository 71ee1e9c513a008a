"""What a noise maker can vouch for at the end of a study: which rounds it let out, over whom, and with which noise.

Whatever it lets out is noted, durably, before it leaves. At the end the notes become one signed statement, which the
privacy receipt carries: that the noise of every round was that of the plan everybody approved, over the participants
that all who sum had agreed on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tallystick.core.identifiers import format_hash
from tallystick.engines.setup import Setup
from tallystick.privacy.open_budget import Prices
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.governance.plan_summary import fold, noise_of, plan_digest, summarise
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.storage.stores import RoleStore


def noted(store: RoleStore, study_hash: bytes) -> dict[int, dict[str, Any]]:
    """What a party's part has noted of each round before anything of it left."""
    return {round: json.loads(body) for round, body in store.releases(study_hash)}


def attest(
    exchange: Exchange, store: RoleStore, study_hash: bytes, setup: Setup, notes: Mapping[int, Mapping[str, Any]]
) -> None:
    """Say it, once, up to the last round that something was let out in; nothing if nothing ever was.

    ``notes`` has the ``participants`` of each such round, and the digest of what was let out (``partial``).
    """
    known = {s.signer for s in exchange.store.statements(study_hash) if s.kind == "attestation"}
    if not notes or exchange.name in known:
        return
    nothing = {"participants": [], "partial": ""}  # a tick of a stream that this party let nothing out in
    found = [notes.get(round, nothing) for round in range(1, max(notes) + 1)]
    if isinstance(setup.plan, SumPlan) and setup.plan.open is not None:  # what this noise maker has itself admitted
        prices = Prices.from_bytes(store.records(study_hash).get("prices", b""))
        noise = setup.plan.noise_parameters(len(found), prices)
    else:
        noise = setup.plan.noise_parameters(len(found))
    exchange.say(
        "attestation",
        {
            "hash": format_hash(study_hash),
            "plan": plan_digest(summarise(setup.plan)),
            "rounds": len(found),
            "noise": noise_of(noise),
            "participants": fold([note["participants"] for note in found]),
            "partials": [note["partial"] for note in found],
            "boot": store.boot,
        },
    )
