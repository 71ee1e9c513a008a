"""``tallystick relay start``: the notice board of peers, run by one of them; it passes on what they seal.

It coordinates studies as every coordinator does, and gathers the perturbed records as every peer does. It has none of
its own, makes no noise and witnesses nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.roles.processes.coordinator import CoordinatorProcess
from tallystick.study import Study
from tallystick.transport.wire import GOVERNANCE


class RelayProcess(CoordinatorProcess):
    """The process of the relay."""

    def speakers(self, study_hash: bytes, kind: int) -> Collection[str] | None:
        if kind == GOVERNANCE:
            return self.members.clients  # witnesses are asked and answer, whether or not a study runs
        return super().speakers(study_hash, kind)

    def speak_in(self, study: Study) -> bool:
        return True  # peers speak to each other in every study
