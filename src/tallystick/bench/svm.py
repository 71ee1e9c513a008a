"""``tallystick bench svm``: consensus support vector machines on the paper's three sets (C = 50, standardised columns).

``local-step``: milliseconds of all four learners' steps of one ADMM round, one after the other, warm, in the tenth
round (reference: the same four problems by a general solver of quadratic programs in the same run: cvxopt where it is
installed, else SciPy's bounded quasi-Newton method; nothing else needs it). ``admm-rounds``: rounds to a relative
duality gap of 10⁻³ at a ρ that is given (reference: at the paper's ρ = 100, without relaxation). ``interior-point``:
iterations to 10⁻⁶, for 4 and 20 learners with the same bits, and its objective beside LIBSVM's. Sets that are not there
are made up in their shapes, and named so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tallystick.algorithms.consensus_svm.admm import AdmmProgram, AdmmSettings, AdmmState, Learner
from tallystick.algorithms.consensus_svm.interior_point import EXCHANGES, InteriorPointProgram
from tallystick.bench.measuring import best_seconds, row
from tallystick.bench.svm_data import Halves, halves
from tallystick.bench.svm_runs import Learners, public_of

C = 50.0
RHO = {"wdbc": {4: 5.0, 20: 5.0}, "optdigits": {4: 1000.0, 20: 500.0}, "higgs": {4: 3000.0, 20: 1000.0}}
"""The best of a grid, per set and number of learners."""
PAPERS_RHO = 100.0
_RELAXATION = 1.7
_MOST_LIBSVM = (20_000_000, 300_000)
"""Steps that LIBSVM is given, with up to 4,000 records and beyond: there it takes minutes and does not arrive."""
Floats = NDArray[np.float64]


def rows(quick: bool) -> list[dict[str, Any]]:
    """The rows of the bench."""
    out = []
    with threadpool_limits(1):
        for name in ("wdbc", "optdigits", "higgs"):
            data = halves(name, quick=quick)
            out += [_local_step(data), *_rounds(data, quick), *_interior_point(data)]
    return out


def as_they_are(features: Floats) -> Floats:
    """The map of a linear kernel."""
    return features


def admm(data: Halves, *, rho: float, relaxation: float, tolerance: float = 1e-3) -> AdmmProgram:
    """ADMM on these rows."""
    settings = AdmmSettings(C=C, rho=rho, relaxation=relaxation, tolerance=tolerance)
    columns = data.rows.shape[1]
    return AdmmProgram(public_of(data.rows), settings, size=columns, rows=as_they_are, typical_square=float(columns))


def _named(data: Halves, what: str) -> str:
    return f"{data.name}{'' if data.real else ' (made up)'} {what}"


def _local_step(data: Halves) -> dict[str, Any]:
    program = admm(data, rho=PAPERS_RHO, relaxation=1.0)
    learners = Learners.dealt(program, public_of(data.rows), data.rows, data.target, 4)
    learners.run(10)
    own = best_seconds(learners.steps)
    solver, solve = general_solver()
    state: AdmmState = learners.state
    problems = [_problem(p, state, m) for p, m in zip(learners.prepared, learners.memories)]
    started = time.thread_time()
    for matrix, linear in problems:
        solve(matrix, linear)
    general = time.thread_time() - started
    made = row(
        _named(data, "local-step"), round(1e3 * own, 4), "ms, 4 learners in series", round(1e3 * general, 2), None
    )
    return made | {"ratio": round(general / own, 1), "note": f"local-step: the general solver is {solver}"}


def _problem(own: Learner, state: AdmmState, memory: Any) -> tuple[Floats, Floats]:
    """A learner's dual as a general solver takes it [decision 15]: minimise λᵀAλ/2 + qᵀλ in the box."""
    rho, kappa = state.rho, state.rho + 1 / state.learners
    signs, z, s = own.signs[0], state.z[0], float(state.s[0])
    g, e = memory.sent_w[0] - z, float(memory.sent_b[0]) - s
    matrix = np.outer(signs, signs) * (own.rows @ own.rows.T / kappa + 1 / rho)
    return matrix, -1 + signs * (rho / kappa * own.rows @ (z - g) + s - e)


def general_solver() -> tuple[str, Callable[[Floats, Floats], Floats]]:
    """(its name, minimiser of λᵀAλ/2 + qᵀλ over [0, C]ⁿ)."""
    try:
        from cvxopt import matrix, solvers
    except ImportError:
        return "SciPy's L-BFGS-B (cvxopt is not installed)", _quasi_newton
    solvers.options["show_progress"] = False

    def solve(a: Floats, q: Floats) -> Floats:
        n = len(q)
        sides, box = np.vstack([np.eye(n), -np.eye(n)]), np.concatenate([np.full(n, C), np.zeros(n)])
        found = solvers.qp(matrix(a), matrix(q), matrix(sides), matrix(box))
        return np.array(found["x"])[:, 0]

    return "cvxopt", solve


def _quasi_newton(a: Floats, q: Floats) -> Floats:
    from scipy.optimize import minimize

    def value(v: Floats) -> tuple[float, Floats]:
        slope = a @ v
        return float(0.5 * v @ slope + q @ v), slope + q

    start, limits = np.zeros(len(q)), [(0.0, C)] * len(q)
    options = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 1e-12, "gtol": 1e-6}
    found: Floats = minimize(value, start, jac=True, bounds=limits, method="L-BFGS-B", options=options).x
    return found


def _rounds(data: Halves, quick: bool) -> list[dict[str, Any]]:
    most = 200 if quick else 6000
    out = []
    for learners in (4, 20):
        rho = RHO[data.name][learners]
        counts = []
        for given, relaxation in ((rho, _RELAXATION), (PAPERS_RHO, 1.0)):
            program = admm(data, rho=given, relaxation=relaxation)
            run = Learners.dealt(program, public_of(data.rows), data.rows, data.target, learners).run(most)
            counts.append(len(run.states) - 1)  # the first counts the learners
        unit = f"rounds to 1e-3, M = {learners}, rho = {rho:g} (ref.: {PAPERS_RHO:g})"
        out.append(
            row(_named(data, "admm-rounds"), counts[0], unit, counts[1], round(counts[1] / counts[0], 2))
            | {"note": f"admm-rounds: at most {most} were run"}
        )
    return out


def _interior_point(data: Halves) -> list[dict[str, Any]]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    public, weights, steps = public_of(data.rows), [], _MOST_LIBSVM[len(data.rows) > 4000]
    program = InteriorPointProgram(
        public,
        C=C,
        tolerance=1e-6,
        size=data.rows.shape[1],
        rows=as_they_are,
        longest=float(np.abs(data.rows).max()),
    )
    for learners in (4, 20):
        run = Learners.dealt(program, public, data.rows, data.target, learners).run(EXCHANGES * 25 + 1)
        weights.append(run.state.weights)
    gap = float(program.gaps(run.state)[0])
    same = np.array_equal(*weights)
    unit = f"iterations to {gap:.1g}, M = 4 and 20: {'the same bits' if same else 'DIFFERENT BITS'}"
    bias, found = program.model(run.state)
    theirs = SVC(C=C, kernel="linear", tol=1e-4, cache_size=1000, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(data.rows, data.target)
    objectives = [_objective(found[0], bias[0], data), _objective(theirs.coef_[0], theirs.intercept_[0], data)]
    return [
        row(_named(data, "interior-point"), int(run.state.iteration), unit, None, None),
        row(
            _named(data, "interior-point-objective"),
            round(objectives[0], 5),
            "objective (ref.: LIBSVM)",
            round(objectives[1], 5),
            round(objectives[0] / objectives[1], 7),
        )
        | {
            "note": f"interior-point-objective: LIBSVM was given up to {steps:,} steps; well below 1 it had not arrived"
        },
    ]


def _objective(weights: Floats, bias: float, data: Halves) -> float:
    signs = 2 * data.target - 1
    hinges = np.maximum(0, 1 - signs * (data.rows @ weights + bias))
    return float(0.5 * weights @ weights + C * hinges.sum())
