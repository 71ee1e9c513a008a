"""``tallystick relay start``: the notice board of peers, run by one of them; it passes on what they seal.

It coordinates studies as every coordinator does, and gathers the perturbed records as every peer does. It has none of
its own, makes no noise and witnesses nothing.
"""

from __future__ import annotations

from tallystick.roles.processes.coordinator import CoordinatorProcess


class RelayProcess(CoordinatorProcess):
    """The process of the relay."""

    def passes_on(self, study_hash: bytes) -> bool:
        return True  # peers speak to each other in every study
