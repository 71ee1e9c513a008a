"""Which survivor sets may be unmasked, whose share lies at which point, and seeds that nobody chooses alone."""

from __future__ import annotations

import pytest

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto.mask_bounds import complete_plan, plan_graph
from tallystick.crypto.mask_graph import MaskGraph, graph_seed

STUDY = digest(b"masked study")
NAMES = [f"client {i:03}" for i in range(150)]
PLAN = plan_graph(clients=150, colluding=15, dropping=50, chosen_dropouts=False)
WINDOWED = plan_graph(clients=150, colluding=5, dropping=40, chosen_dropouts=True)


def test_a_complete_graph_counts_survivors_only() -> None:
    graph = MaskGraph(NAMES[:10], complete_plan(clients=10, colluding=2, dropping=3))
    assert graph.refusal(NAMES[:10]) is None
    assert graph.refusal(NAMES[2:9]) is None
    assert "6 clients are left, and 7 are needed" in str(graph.refusal(NAMES[:6]))


def test_a_cut_circle_is_refused() -> None:
    """150 clients, 48 neighbours, 16 rebuild. One gap of half the degree opens nothing; two of them part the circle."""
    assert (PLAN.degree, PLAN.threshold, PLAN.min_survivors) == (48, 16, 100)
    graph = MaskGraph(NAMES, PLAN, STUDY)
    assert graph.refusal(NAMES) is None
    assert graph.refusal(graph.circle[24:]) is None
    assert "fall into parts" in str(graph.refusal(graph.circle[24:75] + graph.circle[99:]))
    assert "rebuild its secret" in str(graph.refusal(graph.circle[40:]))
    assert "99 clients are left, and 100 are needed" in str(graph.refusal(graph.circle[:99]))


def test_windows_are_checked_where_the_reducer_may_lie() -> None:
    assert not WINDOWED.complete
    graph = MaskGraph(NAMES, WINDOWED, STUDY)
    half = WINDOWED.degree // 2
    thinned = [name for at, name in enumerate(graph.circle) if at >= half or at < WINDOWED.window - 1]
    assert len(thinned) >= WINDOWED.min_survivors
    assert "places in a row" in str(graph.refusal(thinned))
    enough = [name for at, name in enumerate(graph.circle) if at >= half or at < WINDOWED.window]
    assert graph.refusal(enough) is None


def test_the_order_depends_on_every_contribution() -> None:
    given = {name: digest(name.encode()) for name in NAMES}
    seed = graph_seed(STUDY, given)
    assert seed == graph_seed(STUDY, dict(reversed(given.items())))
    other = graph_seed(STUDY, {**given, NAMES[7]: bytes(32)})
    assert len({seed, other, graph_seed(digest(b"another"), given)}) == 3
    assert MaskGraph(NAMES, PLAN, seed).circle != MaskGraph(NAMES, PLAN, other).circle
    assert MaskGraph(NAMES[::-1], PLAN, seed).circle == MaskGraph(NAMES, PLAN, seed).circle


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="150 different clients"):
        MaskGraph(NAMES[:-1], PLAN, STUDY)
    with pytest.raises(LocalProtocolError, match="150 different clients"):
        MaskGraph([*NAMES[:-1], NAMES[0]], PLAN, STUDY)
    with pytest.raises(LocalProtocolError, match="seed of 32 bytes"):
        MaskGraph(NAMES, PLAN)
    with pytest.raises(LocalProtocolError, match="32 bytes of every client"):
        graph_seed(STUDY, {"A": b"short"})
    graph = MaskGraph(NAMES, PLAN, STUDY)
    far = next(name for name in NAMES[1:] if name not in graph.neighbours(NAMES[0]))
    with pytest.raises(LocalProtocolError, match="no neighbour"):
        graph.point(NAMES[0], far)
    for ask in (graph.neighbours, lambda name: graph.refusal([name])):
        with pytest.raises(LocalProtocolError, match="not among the clients"):
            ask("nobody")
