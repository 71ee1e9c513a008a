"""What the fuzzer feeds: a text that may be a study, a role file, a consortium file or a request.

Of a study everything is derived that a role derives before anybody has approved it: the same study from its canonical
form, its rules, its plan, what is shown of it. Refusals are typed; anything else that is raised is a finding.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tallystick.core.errors import PrivacyRefused, StudyError, TallystickError
from tallystick.core.identifiers import canonical
from tallystick.engines.designs import design_of, program_of
from tallystick.engines.planning import layout_of, plan_study
from tallystick.privacy.ledger import charge_of
from tallystick.protocol.governance.bodies import check_plan
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.requests import Request
from tallystick.roles.identity.role_config import parse_role_config
from tallystick.study import Study
from tallystick.study.proposed import proposed_study

__all__ = ["study_target"]

_MOST_ROUNDS = 500  # more of the same cost time and find nothing
_MOST_ENCODED = 300


def study_target(data: bytes) -> None:
    """One input of the fuzzer: TOML, or the JSON that travels."""
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        study = Study.from_canonical(text) if text.startswith("{") else Study.parse(text)
    except StudyError as refusal:
        _shown(refusal)
    else:
        _derived(study)
    if "[role]" in text:
        with contextlib.suppress(StudyError):
            parse_role_config(text, Path("role.toml"))
    if "[consortium]" in text:
        with contextlib.suppress(TallystickError):  # a certificate in it may be none: a VerificationError
            Consortium.parse(text)
    if "[request]" in text:
        with contextlib.suppress(StudyError):
            Request.parse(text)
    proposed_study(text)


def _shown(refusal: TallystickError) -> None:
    assert refusal.cause
    refusal.cause.encode("utf-8", errors="surrogatepass")


def _derived(study: Study) -> None:
    raw = study.canonical()
    again = Study.from_canonical(raw)
    assert again.canonical() == raw, "the canonical form of a study is not a fixed point"
    assert again.hash == study.hash
    asked = study.program.get("rounds", 1)
    ticks = study.stream.ticks if study.stream is not None else 1
    if study.study.program.endswith(".py") or ticks > _MOST_ROUNDS:
        return
    if isinstance(asked, (int, float)) and _MOST_ROUNDS < asked <= 100_000:
        return
    try:
        program_of(study, None)
        layout = layout_of(study)
        if len(layout) > _MOST_ENCODED:
            return
        plan = plan_study(study, design_of(study, layout, None), allow_not_private=True)
    except (StudyError, PrivacyRefused) as refusal:
        _shown(refusal)
        return
    assert check_plan(json.loads(canonical(summarise(plan)))) is None
    charge = charge_of(study.hash, plan)
    assert all(value >= 0 for value in charge.curve)
    spent = plan.spent_epsilon()
    assert spent is None or 0 < spent <= plan.claim.epsilon * (1 + 1e-9)
