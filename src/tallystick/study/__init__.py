"""The study file: what is computed, with which privacy, among whom. Parsed once; its hash is what everyone approves.

Names are imported when they are first used, so that the command line may list the roles of trust models at no cost.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.study.study import Study as Study
    from tallystick.study.study import json_schema as json_schema
    from tallystick.study.study import study_digest as study_digest


def __getattr__(name: str) -> Any:
    if name in ("Study", "json_schema", "study_digest"):
        return getattr(import_module("tallystick.study.study"), name)
    raise AttributeError(f"module 'tallystick.study' has no attribute {name!r}")
