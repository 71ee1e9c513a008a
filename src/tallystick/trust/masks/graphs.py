"""Who masks with whom in a study: from public facts, the same at every party."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.crypto.mask_bounds import GraphPlan, complete_plan

if TYPE_CHECKING:
    from tallystick.trust.masks.section import MasksSection


def plan_for(section: MasksSection, clients: int) -> GraphPlan:
    """Neighbours and threshold for so many clients; raises ``StudyError`` where more collude than a graph can bear.

    Everybody with everybody a round may lose whoever is not needed to sign the survivor set.
    """
    c = section.coalition
    needed = max(section.least, (clients + c) // 2 + 1, c + 2)
    return complete_plan(clients=clients, colluding=c, dropping=max(0, clients - needed))


def graph_words(section: MasksSection) -> str:
    """For the plan: neighbours, threshold, how many must stay to the end of a round."""
    plan = plan_for(section, section.clients)
    least = max(section.least, plan.min_survivors, plan.signatures)
    return (
        f"Each of {plan.clients} clients masks its sum with every other one. A round needs {least} clients to its end: "
        f"more than half of clients and colluders together ({plan.signatures}) must sign who is left before anything "
        "is unmasked, and as many rebuild what a missing client leaves behind. With fewer it is given up, unrevealed."
    )
