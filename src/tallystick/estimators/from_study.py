"""From a study to the estimator that runs it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.engines.designs import program_of
from tallystick.estimators.base import PROMISE, PrivateEstimator
from tallystick.estimators.custom import ProgramEstimator
from tallystick.study import Study


def estimator_class(program: str) -> type[PrivateEstimator]:
    """The estimator of a built-in program, imported when it is asked for."""
    module, _, name = BUILT_IN[program].estimator.partition(":")
    found: type[PrivateEstimator] = getattr(import_module(module), name)
    return found


def estimator_for(
    study: Study, read_program: Callable[[str], str] | None = None, *, sandboxed: bool = False
) -> tuple[PrivateEstimator, Study]:
    """The estimator of a study, and the study with its program file's hash filled in.

    ``read_program`` turns the path in ``program = "….py"`` into text; without it only built-in programs run.
    ``sandboxed``: somebody else may have written the program, so its code runs in locked children only.
    """
    program, study = program_of(study, read_program, sandboxed=sandboxed)
    common: dict[str, Any] = {name: getattr(study.privacy, name) for name in PROMISE}
    if program is None:
        return estimator_class(study.study.program)(**common, **study.program), study
    return ProgramEstimator(program, **common), study
