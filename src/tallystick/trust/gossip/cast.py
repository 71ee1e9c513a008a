"""Who does what among peers: one of them runs the relay, some of them witness ledgers, each makes its own noise.

Witnesses are peers that the study names (the consortium's first five, if it names none); ``countersignatures`` of them,
more than half, have to sign a ledger's head before the records behind it travel. Two such majorities have a witness in
common: a ledger that was set back after one study is found out in the next, as long as that witness is honest and has
kept its own memory. Nobody witnesses its own ledger, so of three witnesses with two signatures none may be away when
another one of them publishes; of five with three, one may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tallystick.privacy.trust import Problem
from tallystick.study.trust import Role, TrustModel

PEER, RELAY = "peer", "relay"
LEAST_WITNESSES = 3
FIRST = 5
"""Of the consortium's peers, these witness where the study names nobody."""
MOST_WITNESSES = 100


class PeersAndRelay(TrustModel):
    """The cast of a trust model among peers."""

    roles = (
        Role(
            name=PEER,
            words="Sits beside a holder's records; exchanges perturbed ones with other peers.",
            listens=False,
            may_listen=True,
            process="tallystick.trust.gossip.peer:PeerProcess",
        ),
        Role(
            name=RELAY,
            words="Keeps the peers' notice board and passes on what they seal for each other; run by one of them.",
            process="tallystick.trust.gossip.relay:RelayProcess",
        ),
    )
    coordinator = board = RELAY
    holders = witnesses = makers = PEER
    vouch_for_themselves = True
    parts: ClassVar[Mapping[str, str]] = {
        PEER: "tallystick.trust.gossip.parts:PeerPart",
        RELAY: "tallystick.trust.gossip.parts:CollectorPart",
    }

    def witnesses_of(self, section: Mapping[str, Any], parties: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
        named, needed = section.get("witnesses"), section.get("countersignatures")
        listed = [name for name in named if isinstance(name, str)] if isinstance(named, (list, tuple)) else []
        chosen = tuple(name for name in parties if name in listed) if listed else parties[:FIRST]
        majority = max(len(listed), len(chosen)) // 2 + 1
        return chosen, needed if type(needed) is int and needed > 0 else majority


def witness_problems(witnesses: tuple[str, ...], countersignatures: int | None) -> Iterator[Problem]:
    """What cannot be about the witnesses that a study names."""
    there = len(witnesses)
    if there == 0 and countersignatures is not None:
        yield Problem(
            rule="majority-of-witnesses",
            cause=f"countersignatures = {countersignatures}, and no witnesses are named",
            remedy="Name them: witnesses = [...] under [trust]; or leave both out.",
        )
    if there == 0:
        return
    needed = there // 2 + 1 if countersignatures is None else countersignatures
    if len(set(witnesses)) != len(witnesses) or not LEAST_WITNESSES <= there <= MOST_WITNESSES:
        yield Problem(
            rule="three-witnesses-at-least",
            cause=f"{len(set(witnesses))} different witnesses are named: of two, one could not do without the other",
            remedy=f"Name {LEAST_WITNESSES} to {MOST_WITNESSES} peers, each once; or none for the first five.",
        )
    elif not there // 2 < needed < there:
        yield Problem(
            rule="majority-of-witnesses",
            cause=f"countersignatures = {needed} of {there} witnesses: two sets of so many may have none in common, "
            "or a witness, which cannot sign for itself, would never have enough",
            remedy=f"Use {there // 2 + 1} to {there - 1}.",
        )
