"""From a study to the estimator that runs it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.engines.study import Study
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.custom import ProgramEstimator
from tallystick.estimators.logistic_regression import LogisticRegression

__all__ = ["BUILT_IN", "estimator_for"]

BUILT_IN: dict[str, type[PrivateEstimator]] = {LogisticRegression.program_name: LogisticRegression}


def estimator_for(study: Study, read_program: Callable[[str], str] | None = None) -> tuple[PrivateEstimator, Study]:
    """The estimator of a study, and the study with its program file's hash filled in.

    ``read_program`` turns the path in ``program = "….py"`` into text; without it only built-in programs run.
    """
    common: dict[str, Any] = {
        "epsilon": study.privacy.epsilon,
        "delta": study.privacy.delta,
        "neighbours": study.privacy.neighbours,
        "mechanism": study.privacy.mechanism,
    }
    name = study.study.program
    if name.endswith(".py"):
        return _custom(study, name, read_program, common)
    if name not in BUILT_IN:
        close = difflib.get_close_matches(name, list(BUILT_IN), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise StudyError(
            f"there is no program {name!r}",
            rule="unknown-program",
            remedy=f"Built in: {', '.join(sorted(BUILT_IN))}; or a file ending in .py.{hint}",
        )
    kind = BUILT_IN[name]
    known = set(kind().get_params()) - set(common) - {"schema", "bounds"}
    for key in study.program:
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), n=1)
            raise StudyError(
                f"unknown key 'program.{key}'",
                rule="unknown-key",
                remedy=f"Did you mean {close[0]!r}?" if close else f"{name} takes: {', '.join(sorted(known))}.",
            )
    return kind(**common, **study.program), study


def _custom(
    study: Study, name: str, read_program: Callable[[str], str] | None, common: dict[str, Any]
) -> tuple[PrivateEstimator, Study]:
    if read_program is None:
        raise StudyError(f"the program file {name!r} is not available here")
    if study.program:
        raise StudyError(
            f"unknown key 'program.{next(iter(study.program))}'",
            rule="unknown-key",
            remedy="A program file carries its own settings as class constants.",
        )
    estimator = ProgramEstimator.from_text(read_program(name), name=name, **common)
    stated = study.study.program_hash
    if stated is not None and stated != estimator.program_hash:
        raise StudyError(
            f"the program file {name!r} is not the one the study names",
            rule="program-hash",
            remedy=f"The file has {estimator.program_hash}, the study says {stated}.",
        )
    return estimator, study.replace("study", program_hash=estimator.program_hash)
