"""``tallystick peer start``: a client that others may reach; those it has no line to it reaches through the relay."""

from __future__ import annotations

from tallystick.roles.processes.client import ClientProcess


class PeerProcess(ClientProcess):
    """The process of a peer."""

    def takes_relayed(self, kind: int) -> bool:
        return True  # witnesses among peers are asked and answer, too
