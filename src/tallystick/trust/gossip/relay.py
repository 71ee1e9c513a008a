"""``tallystick relay start``: the notice board of peers, run by one of them; it passes on what they seal.

It coordinates studies as every coordinator does, and gathers the perturbed records as every peer does. It has none of
its own, makes no noise and witnesses nothing. What it passes on it neither reads nor keeps: a message for a peer that
has no line here now is lost, and said again by who sent it.
"""

from __future__ import annotations

from tallystick.core.errors import RemoteProtocolError
from tallystick.roles.processes.coordinator import CoordinatorProcess
from tallystick.transport.link import Envelope
from tallystick.transport.relayed import unwrap
from tallystick.transport.wire import HEADER_BYTES, RELAYED


class RelayProcess(CoordinatorProcess):
    """The process of the relay."""

    def _message(self, envelope: Envelope) -> None:
        if envelope.raw[:1] != bytes([RELAYED]):
            super()._message(envelope)
            return
        relayed = unwrap(bytes(envelope.raw[HEADER_BYTES:]), envelope.sender)
        if relayed.sender != envelope.sender or relayed.to not in self.members.clients:
            raise RemoteProtocolError("a message to be relayed that is not its sender's", party=envelope.sender)
        if relayed.to in self.node.connected():
            self.send(relayed.to, bytes(envelope.raw))
