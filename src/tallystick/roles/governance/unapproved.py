"""What an aggregator says of a study that is not approved: why, and nothing of it is kept."""

from __future__ import annotations

from tallystick.core.errors import NotApproved
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.study.messages import Failed, Message, Propose, StudyCode, StudyRefused


def not_approved(standing: Standing) -> NotApproved:
    """Why a study is not run."""
    return NotApproved(
        f"the study is {standing.state}. {standing.words}",
        rule=f"study-{standing.state}",
        remedy="Propose it, and ask those who have not decided: tallystick study status.",
    )


def answer_of(message: Message, study_hash: bytes, standing: Standing) -> Failed | StudyRefused:
    """To an analyst that wants such a study run, or asks how it stands."""
    if not isinstance(message, Propose):
        cause = "this study was never run here"
        return StudyRefused(study_hash=study_hash, code=StudyCode.UNKNOWN_STUDY, cause=cause)
    error = not_approved(standing)
    return Failed(
        study_hash=study_hash,
        attempt=0,
        request=message.request,
        final=0,
        code=StudyCode.NOT_APPROVED,
        round=0,
        exit_code=error.exit_code,
        rule=error.rule or "",
        party="",
        cause=error.cause,
        remedy=error.remedy or "",
    )
