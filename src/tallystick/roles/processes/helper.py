"""A helper: it holds no records, is there in every study, and may make noise, which it vouches for at the end."""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import TallystickError
from tallystick.engines.setup import Setup, set_up
from tallystick.roles.governance.attestation import attest, noted
from tallystick.roles.processes.participant import ParticipantProcess, ParticipantSession


class HelperSession(ParticipantSession):
    """A study at a helper."""

    def decide(self, setup: Setup) -> None:
        """It holds no data: it takes part in whatever it can calibrate (the plan was made, so it can)."""
        setup.check_cast(self.cast)

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """Vouch for the rounds of a study that has a result."""
        stored = self.process.store.study(self.study_hash)
        if error is not None or stored is None or self.process.role not in self.cast.model.maker_roles:
            return
        setup = self.setup or set_up(stored.canonical, stored.program, allow_not_private=True)
        attest(self.process.exchange, self.process.store, self.study_hash, setup, self.notes())

    def notes(self) -> dict[int, dict[str, Any]]:
        """What its part has noted of each round before anything of it left."""
        return noted(self.process.store, self.study_hash)


class HelperProcess(ParticipantProcess):
    """``tallystick server start``, and whatever else helps."""

    session = HelperSession
