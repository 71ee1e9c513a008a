"""Trying a program out on records: the same bits again, in parts and in another order? And does clipping bite?

The platform's sums are exact integers, so three things must hold to the bit at any state:

* determinism: a second process, started afresh, gives the same start, the same vectors and the same next state;
* exactness: one block, two blocks and records one by one add up to the same total;
* order: any order of the records gives that total.

A program that was read against the allow-list and compiled cannot break them; this is the test that says so for the
program at hand. What an author can get wrong is the *bound*: vectors longer than it are shortened, which costs
accuracy, and a bound that nothing reaches costs noise. So the trial runs the program's rounds without noise and
reports, for the first and the last of them, how many records were shortened and how long their vectors are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Program, Public, State, pack_state
from tallystick.algorithms.user_programs.findings import Finding
from tallystick.crypto.field import to_real
from tallystick.engines.client_map import RecordMap
from tallystick.privacy.contribution import Dense, total
from tallystick.privacy.grid import Grid, Norm, fraction_bits_for

CORRECT = "Correct the program and check again."
MOST_ROUNDS = 20
"""So many rounds are run without noise at most."""
_ROUNDING = 4
"""Grid units that a vector at its bound may lose to rounding."""
_CHECKED = 64
"""Records that are summed in parts, singly and in another order."""


def grid_for(program: Program, size: int, norm: Norm) -> Grid:
    """The grid that a plan would give the program: as fine as its bounds allow."""
    groups = program.groups_for(size)
    return Grid(groups=groups, fraction_bits=min(fraction_bits_for(max(g.bound, g.count)) for g in groups), norm=norm)


def check_sums(mapped: RecordMap, records: NDArray[np.float64], state: State, grid: Grid) -> list[Finding]:
    """Whether the map repeats itself, adds up and does not mind the order, to the bit."""
    some = np.ascontiguousarray(records[:_CHECKED])

    def summed(*parts: NDArray[np.float64]) -> tuple[bytes, int]:
        sums = [mapped.total_leaving_out(np.ascontiguousarray(rows), state, grid) for rows in parts]
        start = np.zeros(grid.size, dtype=np.int64)
        return sum((s for s, _ in sums), start).tobytes(), sum(n for _, n in sums)

    whole = summed(some)
    half = len(some) // 3
    findings = []
    if summed(some) != whole:
        findings.append(finding("determinism", "map_in_client gives other numbers when it is asked again"))
    if summed(some[:half], some[half:]) != whole or summed(*(some[i : i + 1] for i in range(len(some)))) != whole:
        findings.append(finding("exactness", "records add up to another total in parts than together"))
    if summed(some[::-1]) != whole or summed(np.roll(some, half, axis=0)) != whole:
        findings.append(finding("order", "the total depends on the order of the records"))
    return findings


def same_again(
    first: Program, make: Callable[[], Program], public: Public, records: NDArray[np.float64], size: int
) -> list[Finding]:
    """Whether a second instance, in processes of its own, gives the same start, vectors and next state."""
    second = make()
    try:
        found = []
        for program in (first, second):
            start = program.init(public)
            mapped: Any = getattr(program, "compiled_map", None)
            vectors, _ = mapped.vectors_leaving_out(records[:_CHECKED], program.query(start), size)
            after = program.reduce_in_aggregator(vectors.sum(axis=0), start)
            found.append((pack_state(start), vectors.tobytes(), pack_state(after)))
    finally:
        close = getattr(second, "close", None)
        if close is not None:
            close()
    names = ("init", "map_in_client", "reduce_in_aggregator")
    return [
        finding("determinism", f"{name} gives other numbers in a second process")
        for name, a, b in zip(names, found[0], found[1])
        if a != b
    ]


def trial_rounds(
    program: Program, mapped: RecordMap, public: Public, records: NDArray[np.float64], grid: Grid
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """The program's rounds without noise; what is wrong, and how clipping bites in the first and the last of them."""
    state = program.init(public)
    # Where the study says how many records there are, the trial's total stands for that many.
    scale = 1.0 if public.records is None or not len(records) else public.records / len(records)
    rounds = min(program.rounds, MOST_ROUNDS)
    report: list[dict[str, Any]] = []
    for number in range(1, rounds + 1):
        at = program.query(state)
        if number == 1 or number == rounds:
            findings = check_sums(mapped, records, at, grid)
            if findings:
                return findings, report
            report += [{"round": number, **row} for row in clipping(mapped, records, at, grid)]
        exact, _ = mapped.total_leaving_out(records, at, grid)
        state = program.reduce_in_aggregator(scale * to_real(exact, grid.fraction_bits), state)
        if not np.isfinite(np.frombuffer(pack_state(state), dtype="<f8")).all():
            cause = f"the state holds NaN or infinity after round {number}, even without noise"
            return [finding("state-is-finite", cause, "Take smaller steps or bound the update.")], report
        if program.finished(state):
            break
    return [], report


def clipping(mapped: RecordMap, records: NDArray[np.float64], state: State, grid: Grid) -> list[dict[str, Any]]:
    """For each group: the share of records that the platform changed, and how long their vectors were before."""
    vectors, failed = mapped.vectors_leaving_out(records, state, grid.size)
    # Row by row as in a round; a record was clipped if rounding to the grid alone would make something else of it.
    kept = np.array([total(Dense(values=vectors[i : i + 1]), grid) for i in range(len(vectors))]).reshape(vectors.shape)
    changed = np.abs(kept - np.rint(vectors * grid.scale)) > _ROUNDING
    out = []
    starts, stops, _ = grid.edges()
    for group, start, stop in zip(grid.groups, starts, stops):
        part = vectors[:, start:stop]
        norms = np.abs(part).sum(axis=1) if grid.norm == "l1" else np.sqrt(np.square(part).sum(axis=1))
        out.append(
            {
                "group": group.name,
                "bound": group.bound,
                "norm": grid.norm,
                "records": len(vectors),
                "clipped": float(changed[:, start:stop].any(axis=1).mean()) if len(vectors) else 0.0,
                "failed": failed,
                "median_norm": float(np.median(norms)) if len(norms) else 0.0,
                "norm_of_95_percent": float(np.quantile(norms, 0.95)) if len(norms) else 0.0,
                "largest_norm": float(norms.max()) if len(norms) else 0.0,
            }
        )
    return out


def finding(rule: str, cause: str, remedy: str = CORRECT) -> Finding:
    """What is wrong with the program as a whole."""
    return Finding(line=1, column=1, rule=rule, cause=cause, remedy=remedy)
