"""The study file: what is computed, with which privacy, among whom. Parsed once; its hash is what everyone approves."""

from tallystick.study.settings import apply_settings
from tallystick.study.study import CANONICAL_BYTES, Study, json_schema, study_digest

__all__ = ["CANONICAL_BYTES", "Study", "apply_settings", "json_schema", "study_digest"]
