"""From a study to its solver: which one, how many rounds, and what all of it tells, said before anything is done."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tallystick.algorithms.consensus_svm.admm import AdmmProgram, AdmmSettings, Rows
from tallystick.algorithms.consensus_svm.interior_point import InteriorPointProgram
from tallystick.algorithms.consensus_svm.landmark_admm import LandmarkAdmmProgram
from tallystick.algorithms.consensus_svm.private_design import design_private
from tallystick.algorithms.consensus_svm.settings import ConsensusSettings
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.landmarks import LandmarkFeatures
from tallystick.algorithms.feature_maps.settings import make_map
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.local_program import LocalDesign
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.privacy.client_vectors import not_private

ADMM_ROUNDS, ITERATIONS = 1000, 25
_FEATURES, _LANDMARKS = 1600, 200
_MOST_MATRIX = 2**21
"""Numbers of an interior point's matrix (all classes) that a round may carry."""
_TELLING = 0.1
"""An interior point that releases more than this part of what the institutions hold has to be asked for."""


def design_consensus_svc(public: Public, budget: PublicBudget, settings: ConsensusSettings) -> LocalDesign:
    """The program and its rounds, from public facts alone."""
    if not public.classes:
        raise wrong_target(
            "ConsensusSVC",
            public.target,
            "a category",
            rule="target-is-a-category",
            instead='ts.Ridge (program = "ridge")',
        )
    if settings.privacy is None and budget.mechanism != "none":
        raise not_private(budget.mechanism)
    made, size, rows, typical = mapped_rows(public, settings)
    if settings.privacy is not None:
        return design_private(public, budget, settings, made=made, size=size, rows=rows, typical=typical)
    common: dict[str, Any] = {"size": size, "rows": rows}
    solver, why = chosen_solver(public, settings, size)
    if solver == "interior-point":
        iterations = ITERATIONS if settings.max_iter == "auto" else int(settings.max_iter)
        tolerance = 1e-6 if settings.tolerance == "auto" else float(settings.tolerance)
        program: Any = InteriorPointProgram(
            public, C=settings.C, tolerance=tolerance, longest=1.0 if made is None else made.norm, **common
        )
        sizes = program.sizes(iterations)
        told = program.numbers_told(iterations)
    else:
        rounds = ADMM_ROUNDS if settings.max_iter == "auto" else int(settings.max_iter)
        at_landmarks = settings.feature_map == "landmarks"
        admm = AdmmSettings(
            C=settings.C,
            rho=None if settings.rho == "auto" else float(settings.rho),
            relaxation=settings.relaxation,
            tolerance=1e-3 if settings.tolerance == "auto" else float(settings.tolerance),
            certify=not at_landmarks,
        )
        if at_landmarks and isinstance(made, LandmarkFeatures):
            program = LandmarkAdmmProgram(public, admm, made=made)
        else:
            program = AdmmProgram(public, admm, typical_square=typical, **common)
        sizes = (program.vector_size(),) * (rounds + 1)
        told = rounds * program.numbers
    program.feature_map = made
    notes = (*why, told_note(told, size_of_records(public)), NOT_PRIVATE)
    if made is not None:
        notes = (made.describe(), *notes)
    details = {"solver": solver, "numbers_told": told, "numbers_held": size_of_records(public)}
    return LocalDesign(program=program, sizes=sizes, notes=notes, details=details)


NOT_PRIVATE = (
    "consensus is exact: nobody sees another's records, and everybody sees exact functions of all of them in every "
    "round; this is not differential privacy"
)


def mapped_rows(public: Public, settings: ConsensusSettings) -> tuple[FeatureMap | None, int, Rows, float]:
    """(the feature map, columns that are learned from, the map of rows, E‖row‖² of evenly spread records)."""
    asked = settings.map
    if asked is not None and settings.feature_map == "landmarks" and asked.landmarks is None:
        asked = replace(asked, landmarks=asked.n_features or _LANDMARKS)
    if asked is None:
        d = max(1, len(public.features))
        longest = public.max_l2_squared if math.isfinite(public.max_l2_squared) else float(d)
        return None, len(public.features), _as_they_are, longest / 2
    made = make_map(public, asked, n_features=_FEATURES)
    return made, made.size, made.rows, made.typical_square


def _as_they_are(features: Any) -> Any:
    return features


def chosen_solver(public: Public, settings: ConsensusSettings, size: int) -> tuple[str, tuple[str, ...]]:
    """The solver, and why it is another one than was asked for."""
    outputs = 1 if len(public.classes) <= 2 else len(public.classes)
    matrix = outputs * (size + 1) * (size + 2) // 2
    if settings.solver == "admm" or settings.feature_map == "landmarks":
        return "admm", ()
    if matrix > _MOST_MATRIX and settings.reveal:
        raise StudyError(
            f"the interior point's matrices have {matrix:,} numbers, and a round carries {_MOST_MATRIX:,}",
            rule="matrix-fits-a-round",
            remedy='Use solver = "admm", or fewer features (n_features).',
        )
    iterations = ITERATIONS if settings.max_iter == "auto" else int(settings.max_iter)
    told = InteriorPointProgram.told(size, outputs, iterations)
    held = size_of_records(public)
    if settings.reveal or (held is not None and told <= _TELLING * held):
        return "interior-point", ()
    what = f"{told:,} exact numbers" + (" of an unknown number" if held is None else f" against {held:,}")
    return "admm", (
        f"ADMM instead of an interior point, which would release {what} that the institutions hold: more than a tenth. "
        "Say reveal = true to have it all the same",
    )


def size_of_records(public: Public) -> int | None:
    """Numbers that the institutions hold: a cell of every declared column and a label for each record."""
    return None if public.records is None else public.records * (len(public.columns) + 1)


def told_note(told: int, held: int | None) -> str:
    """What is revealed, in numbers."""
    against = "an undisclosed number of them" if held is None else f"{held:,}"
    part = "" if not held else f" ({told / held:.2g} times as many)"
    return f"revealed: at most {told:,} exact numbers in all rounds, where the institutions hold {against}{part}"
