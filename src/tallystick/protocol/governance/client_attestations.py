"""What a receipt needs of noise makers who are the clients themselves: each vouches for the rounds it was in.

A client that misses a round made no noise in it, and one that was lost in the middle of a round, after its masked sum
had left, may never say so. So not everybody has to attest to everything: every round needs more than half of its
participants (as many as have signed its survivor set are surely there), and more than may collude, so that one of them
is honest; whoever speaks must say what the receipt says, and all the same noise.

Where each one's noise is on its own records alone (``themselves``: local privacy), nobody else's word is worth
anything: everybody whose records are in must have vouched for its own part, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tallystick.protocol.governance.plan_summary import fold, plan_digest, unfold, within_reservation
from tallystick.protocol.governance.statements import Statement

Told = tuple[str, str, str, str]
"""A rule, where it does not hold, what is wrong, and who could have done it."""


def speakers(known: Sequence[Statement], round: int, names: Sequence[str]) -> list[str]:
    """Participants of a round that have attested to it."""
    said = [s for s in known if s.kind == "attestation" and s.signer in names and s.body["rounds"] >= round]
    return [s.signer for s in said if unfold(s.body["participants"], s.body["rounds"])[round - 1]]


def unattested(
    known: Sequence[Statement],
    participants: Sequence[Sequence[str]],
    plan: Mapping[str, Any],
    *,
    themselves: bool = False,
) -> Iterator[tuple[str, str]]:
    """(a client that is missed, in words what for): rounds to which too few of their participants have attested."""
    if themselves:
        for round, names in enumerate(participants, start=1):
            there = set(speakers(known, round, names))
            yield from ((n, f"nobody vouches for its noise in round {round}.") for n in names if n not in there)
        return
    trust = plan.get("privacy", {}).get("trust", {})
    dishonest = trust.get("min_clients", 0) - trust.get("honest", 0)  # at most, in whatever round
    for round, names in enumerate(participants, start=1):
        there = set(speakers(known, round, names))
        if names and (2 * len(there) <= len(names) or len(there) <= dishonest):
            yield (
                next(n for n in names if n not in there),
                f"{len(there)} of {len(names)} clients vouch for round {round}.",
            )


def attested_by_clients(
    known: Sequence[Statement],
    participants: Sequence[Sequence[str]],
    plan: Mapping[str, Any],
    clients: Sequence[str],
    *,
    themselves: bool = False,
) -> Iterator[Told]:
    """What is wrong with what the clients attest to; ``participants`` are the receipt's, nobody in a lost round."""
    for who, what in unattested(known, participants, plan, themselves=themselves):
        yield "missing-attestation", f"attestation of {who}", what, f"{who} did not make it, or it was left out."
    rounds, noise_at = len(participants), dict[int, Any]()
    for client in clients:
        own = [s.body for s in known if s.kind == "attestation" and s.signer == client]
        if not own:
            continue
        where, body = f"attestation of {client}", own[0]
        if any(said != body for said in own[1:]):
            yield "two-attestations", where, "it says two different things.", f"{client} signed both."
        told = [[client] if names else () for names in participants] if themselves else participants
        different = sorted(_different(body, told, plan, rounds, noise_at))
        if different:
            what = f"{', '.join(different)} differ from what was approved and from the rest of the receipt."
            yield "wrong-attestation", where, what, f"{client} did, or signed, something else than agreed."
    if "open" in plan and noise_at:
        last = max(noise_at)
        if not within_reservation(plan["open"], fold([noise_at[r] for r in sorted(noise_at)]), len(noise_at)):
            what = f"the noise of the rounds up to {last} costs more than was reserved."
            yield "wrong-attestation", "the attestations", what, "All clients went on."


def _different(
    body: Mapping[str, Any],
    participants: Sequence[Sequence[str]],
    plan: Mapping[str, Any],
    rounds: int,
    noise_at: dict[int, Any],
) -> set[str]:
    """The keys of one attestation that differ; the noise of each round must be everybody's."""
    found = set()
    if body["plan"] != plan_digest(plan):
        found.add("plan")
    said, added = unfold(body["participants"], body["rounds"]), unfold(body["noise"], body["rounds"])
    planned = unfold(plan["noise"], max(rounds, body["rounds"]))
    for round, (names, noise) in enumerate(zip(said, added), start=1):
        told = participants[round - 1] if round <= rounds else ()
        if not names or not told:  # it was not in this round; or the round was given up after it had vouched for it
            continue
        if sorted(names) != sorted(told):
            found.add("participants")
        if noise != (noise_at.setdefault(round, noise) if "open" in plan else planned[round - 1]):
            found.add("noise")
    return found
