"""The harness every built-in block program is held to: blocks, singletons and permutations give equal bits.

Per-record clipping bounds a record's influence only if a record's vector depends on that record alone. The harness
checks it twice: the vectors a block map returns must be the same bits whatever shares the block (this is what catches a
float BLAS score, whose last bit moves with the block's shape and is usually lost again on the grid), and the exact
integer totals must be equal (what is shared in the end).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import BlockProgram, State
from tallystick.privacy.contribution import Chunked, Contribution, Dense, Factored, Repeated, total, total_by_person
from tallystick.privacy.grid import Grid, fraction_bits_for

__all__ = ["RowsDependError", "check_row_independence"]


class RowsDependError(AssertionError):
    """A record's vector, or a total, depended on the other records of its block."""


def check_row_independence(
    program: BlockProgram,
    features: NDArray[np.float64],
    target: NDArray[np.float64] | None,
    rounds: Sequence[tuple[State, Grid]],
    *,
    seed: int = 0,
) -> None:
    """Raise RowsDependError unless every split and order of the records gives the same bits in each of ``rounds``.

    ``rounds`` are (query, grid) pairs. A block is prepared once and asked for all rounds, backwards and then forwards:
    what a program keeps between rounds must not matter either.
    """
    rng = np.random.default_rng(seed)
    n = len(features)
    whole = np.arange(n)
    expected = [_answers(program, features, target, whole, [r])[0] for r in rounds]
    for blocks in _splits(n, rng):
        sums = [np.zeros_like(answer[1]) for answer in expected]
        persons = [np.zeros_like(answer[2]) for answer in expected]
        for block in blocks:
            for at, (rows, summed, by_person) in enumerate(_answers(program, features, target, block, rounds)):
                if not _same_bits(rows, expected[at][0][block]):
                    raise RowsDependError(f"round {at}: vectors differ in a block of {len(block)}")
                sums[at] += summed
                persons[at] += by_person
        for at, (_, summed, by_person) in enumerate(expected):
            if not np.array_equal(sums[at], summed) or not np.array_equal(persons[at], by_person):
                raise RowsDependError(f"round {at}: totals differ over {len(blocks)} blocks")


def _splits(n: int, rng: np.random.Generator) -> Iterable[list[NDArray[np.int64]]]:
    """Blocks of records: one by one, all reversed, random orders cut at random places, an empty block among them."""
    whole = np.arange(n)
    yield [whole[i : i + 1] for i in range(n)]
    yield [whole[::-1]]
    yield [whole[:0], whole]
    for cuts in (1, 2, 5, 17):
        order = rng.permutation(n)
        yield [np.sort(part) if cuts == 2 else part for part in np.split(order, np.sort(rng.integers(0, n, cuts)))]


def _answers(
    program: BlockProgram,
    features: NDArray[np.float64],
    target: NDArray[np.float64] | None,
    block: NDArray[np.int64],
    rounds: Sequence[tuple[State, Grid]],
) -> list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]]:
    """(vectors, total, total with every record a person of its own) per round, for the records of one block."""
    prepared: Any = program.prepare(
        np.ascontiguousarray(features[block]), None if target is None else np.ascontiguousarray(target[block])
    )
    for query, _ in reversed(rounds):  # out of order first: nothing a program keeps may show in what follows
        program.map_block(prepared, query)
    out = []
    for query, grid in rounds:
        contribution = program.map_block(prepared, query)
        person = total_by_person(contribution, _of_persons(grid), np.arange(len(block), dtype=np.int64))
        out.append((_vectors(contribution), total(contribution, grid), person))
    return out


def _of_persons(grid: Grid) -> Grid:
    """A group of blocks is bounded as a whole where the unit is a person (privacy.plan)."""
    groups = tuple(replace(g, bound=g.bound + g.count, one_of=0, count=0.0) for g in grid.groups)
    bits = min(grid.fraction_bits, *(fraction_bits_for(g.bound) for g in groups))
    return replace(grid, groups=groups, fraction_bits=bits) if any(g.one_of for g in grid.groups) else grid


def _vectors(contribution: Contribution) -> NDArray[np.float64]:
    """All numbers of each record, one row per record."""
    if isinstance(contribution, Dense):
        return contribution.values
    if isinstance(contribution, Chunked):
        return np.vstack([_vectors(part) for part in contribution.parts()])
    if isinstance(contribution, Factored):
        coefficients = contribution.coefficients
        coefficients = coefficients[:, None] if coefficients.ndim == 1 else coefficients
        return np.hstack([coefficients, contribution.rows.values])
    if isinstance(contribution, Repeated):
        return contribution.vectors[contribution.which]
    out = np.zeros((len(contribution.indptr) - 1, contribution.size))
    rows = np.repeat(np.arange(len(out)), np.diff(contribution.indptr))
    out[rows, contribution.indices] = contribution.values
    return out


def _same_bits(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
