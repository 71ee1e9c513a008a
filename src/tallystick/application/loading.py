"""``ts.load("result.json")``: the fitted estimator back, from a simulation or from a study run between institutions.

A deployed result is verified first, as ``tallystick verify`` does. A simulation's file says itself what it was fitted
to: the study and the final state, which is all that an estimator is made from.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tallystick.algorithms.program import pack_state, unpack_state
from tallystick.application.result_document import RESULT
from tallystick.application.study_results import MAX_RESULT, estimator_of, verify
from tallystick.core.errors import StudyError, TallystickError
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.data.files import read_file
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study


def load(path: str | PathLike[str], *, consortium: str | PathLike[str] | None = None) -> PrivateEstimator:
    """The fitted estimator of a ``result.json``.

    The result of a study between institutions is verified first (:class:`VerificationError` if anything differs),
    with your own ``consortium.toml`` where it is given. A simulation's result is signed by nobody and taken as it is.
    """
    file = Path(path)
    file = file / "result.json" if file.is_dir() else file
    raw = read_file(file, limit=MAX_RESULT, what="the result")
    try:
        made = read_json(raw, limit=MAX_RESULT)
    except NotReadable as error:
        raise _no_result(file, str(error)) from None
    if not isinstance(made, dict) or made.get("schema") != RESULT:
        kind = made.get("schema") if isinstance(made, dict) else None
        raise _no_result(
            file, "it is a receipt" if str(kind).startswith("tallystick/receipt") else "it is another file"
        )
    if made.get("kind") == "study":
        verify(file, None if consortium is None else Path(consortium))
        return estimator_of(made)
    return of_simulation(made)


def _no_result(file: Path, why: str) -> StudyError:
    return StudyError(
        f"{str(file)!r} is not a result: {why}",
        rule="not-a-result",
        remedy="Give the result.json that simulate --out, study run --out or study result --out has written.",
    )


def packed_fit(estimator: PrivateEstimator) -> dict[str, Any]:
    """What a simulation's result keeps so that it can be loaded: study, program file, final state, contributors."""
    study: Study = estimator.study_
    return {
        "study": json.loads(study.canonical()),
        "program": getattr(estimator._program, "source_text", ""),
        "state": base64.b64encode(pack_state(estimator.history_[-1])).decode(),
        "contributors": list(estimator.contributors_),
    }


def of_simulation(made: Mapping[str, Any]) -> PrivateEstimator:
    """The estimator of a simulation's result."""
    try:
        kept = made["fitted"]
        cost, participants = made["cost"], made["participants"]
        program, packed = str(kept["program"]), base64.b64decode(kept["state"], validate=True)
        study, contributors = Study.from_dict(kept["study"]), tuple(map(str, kept["contributors"]))
        gone = {int(line["round"]): tuple(map(str, line["names"])) for line in participants["dropped"]}
        rounds, least = int(cost["rounds"]), int(participants["min_clients"])
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise _not_fitted() from error
    estimator, study = estimator_for(study, (lambda _name: program) if program else None, sandboxed=True)
    layout = layout_of(study)
    design = estimator.design_for(study, layout)
    plan = plan_study(study, design, allow_not_private=True)
    if not 0 <= rounds <= plan.claim.rounds:
        raise _not_fitted()
    try:
        state = unpack_state(packed, design.program.released_like(public_facts(study, layout)))
        if study.stream is not None:
            estimator.lost_ticks_ = tuple(map(int, made["stream"]["lost"]))
        return estimator.take_state(
            design,
            study,
            plan,
            state,
            history=(state,),
            contributors=contributors,
            dropped=tuple(gone.get(number, ()) for number in range(1, rounds + 1)),
            min_clients=least,
            cost={name: value for name, value in cost.items() if name != "seconds"},
        )
    except TallystickError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # numbers that no study has released
        raise _not_fitted() from error


def _not_fitted() -> StudyError:
    return StudyError(
        "the file does not hold the study and the state that a model is made from",
        rule="not-a-result",
        remedy="Those are in the result.json that simulate --out writes, from this version on; simulate again.",
    )
