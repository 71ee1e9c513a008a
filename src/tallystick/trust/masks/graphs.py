"""Who masks with whom in a study: from public facts, the same at every party.

Everybody with everybody up to 100 clients. Beyond, each with its neighbours on a circle whose order follows from the
hash of the roster, in which every client's key of the study is (:mod:`tallystick.crypto.mask_bounds`). Whoever names
its key last, or starts the study, may try out keys until the order suits it. So the bound on secrecy is 2^-64 of
the 2^-40 that is promised: 2^64 orders tried out leave 2^-40, by the union bound, with no exchange of commitments. The
reducer names the survivors: the bound is the one for drop-outs that are chosen.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tallystick.core.identifiers import digest
from tallystick.crypto.mask_bounds import COMPLETE_UP_TO, SECRECY, GraphPlan, complete_plan, plan_graph
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.privacy.sum_plan import rounds_of

if TYPE_CHECKING:
    from tallystick.privacy.plan import Plan
    from tallystick.trust.masks.section import MasksSection

TRIES = 2**64
"""Orders of the circle that may be tried out."""


def plan_for(section: MasksSection, clients: int) -> GraphPlan:
    """Neighbours and threshold for so many clients; raises ``StudyError`` where more collude than a graph can bear.

    Everybody with everybody a round may lose whoever is not needed to sign the survivor set; on a circle the study's
    ``dropout`` at most.
    """
    c = section.coalition
    spare = max(0, clients - max(section.least, (clients + c) // 2 + 1, c + 2))
    if clients <= COMPLETE_UP_TO:
        return complete_plan(clients=clients, colluding=c, dropping=spare)
    dropping = min(spare, int(Fraction(section.dropout) * clients))
    return plan_graph(clients=clients, colluding=c, dropping=dropping, chosen_dropouts=True, secrecy=SECRECY / TRIES)


def graph_for(section: MasksSection, clients: tuple[str, ...], session: bytes) -> MaskGraph:
    """The graph of those who take part; ``session`` names the roster."""
    return MaskGraph(clients, plan_for(section, len(clients)), digest(b"tallystick/masks/circle", session))


def graph_words(section: MasksSection) -> str:
    """For the plan: neighbours, threshold, how many must stay to the end of a round."""
    graph = plan_for(section, section.clients)
    least = max(section.least, graph.min_survivors, graph.signatures)
    if graph.complete:
        near, rebuild = "every other one", "as many rebuild what a missing client leaves behind"
    else:
        near = f"{graph.degree} neighbours on a random circle"
        rebuild = f"{graph.threshold} of its neighbours rebuild what a missing client leaves behind"
    bounds = (
        ""
        if graph.complete
        else f" Whoever is said to be missing, and after 2^64 orders of the circle tried out: a sum of fewer than all "
        f"survivors shows with a chance of at most 2^-40 with {graph.colluding} colluding, and with {graph.dropping} "
        "missing a round fails for want of neighbours with one of at most 2^-20."
    )
    return (
        f"Each of {graph.clients} clients masks its sum with {near}. A round needs {least} clients to its end: more "
        f"than half of clients and colluders together ({graph.signatures}) must sign who is left before anything is "
        f"unmasked, and {rebuild}. With fewer it is given up, unrevealed.{bounds}"
    )


def peer_words(section: MasksSection, plan: Plan) -> tuple[str, ...]:
    """For the plan, where every client adds up itself: what that costs it."""
    if not section.every_peer:
        return ()
    sums = 8 * section.clients * max((r.grid.size for r in rounds_of(plan)), default=0)
    size = f"{sums / 1e6:,.1f} MB" if sums >= 1e5 else f"{max(1, round(sums / 1e3))} kB"
    return (
        f"No party adds up for the others: every client is passed on all {section.clients} masked sums of a round "
        f"(about {size}), adds them up, runs the program itself and refuses a model or a result that is not its own.",
    )
