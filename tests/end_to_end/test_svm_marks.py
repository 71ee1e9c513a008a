"""The marks of consensus SVMs on the paper's three sets: C = 50, the bias unpenalised, standardised columns.

They need the sets in ``../shared/data`` or ``data``; made-up twins are held everywhere to the marks that do not depend
on the set: the gap, the iterations and the bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.algorithms.consensus_svm.interior_point import EXCHANGES, InteriorPointProgram
from tallystick.bench.svm import RHO, C, admm, as_they_are
from tallystick.bench.svm_data import Halves, halves
from tallystick.bench.svm_runs import Learners, public_of

SETS = ("wdbc", "optdigits", "higgs")
MOST_ROUNDS = {"wdbc": 1000, "optdigits": 500, "higgs": 500}


def real(name: str) -> Halves:
    data = halves(name)
    if not data.real:
        pytest.skip(f"the records of {name} are not in ../shared/data or data; its made-up twin is tested instead")
    return data


def check_interior_point(data: Halves) -> None:
    public = public_of(data.rows)
    program = InteriorPointProgram(
        public, C=C, tolerance=1e-6, size=data.rows.shape[1], rows=as_they_are, longest=float(np.abs(data.rows).max())
    )
    last = [Learners.dealt(program, public, data.rows, data.target, m).run(EXCHANGES * 25 + 1).state for m in (4, 20)]
    assert np.array_equal(last[0].weights, last[1].weights)
    assert last[0].iteration <= 25
    assert program.gaps(last[0])[0] <= 1e-6


@pytest.mark.parametrize("name", SETS)
def test_an_interior_point_is_there_in_25_iterations_with_the_same_bits_for_4_and_20_learners(name: str) -> None:
    check_interior_point(real(name))


@pytest.mark.parametrize("name", SETS)
def test_so_it_is_on_made_up_records(name: str) -> None:
    check_interior_point(halves(name, quick=True))


@pytest.mark.parametrize("name", SETS)
def test_admm_is_there_within_its_rounds(name: str) -> None:
    data = real(name)
    program = admm(data, rho=RHO[name][4], relaxation=1.7)
    run = Learners.dealt(program, public_of(data.rows), data.rows, data.target, 4).run(1 + MOST_ROUNDS[name])
    assert program.gaps(run.state)[0] <= 1e-3
    assert len(run.states) <= 1 + MOST_ROUNDS[name]
