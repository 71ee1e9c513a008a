"""Clients dial out only, and some studies need a word from one to another: whoever coordinates passes it on.

What is passed on is sealed to its receiver and signed by its sender (:mod:`tallystick.transport.relayed`): a relay sees
who speaks to whom and how much, and can write and change nothing. It neither reads nor keeps: a message for a client
that has no line here now is lost, and said again by who sent it.
"""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.roles.processes.process import RoleProcess
from tallystick.transport.link import Envelope
from tallystick.transport.relayed import unwrap, wrap
from tallystick.transport.wire import HEADER_BYTES, RELAYED, SEALED


class Relay(RoleProcess):
    """A process that passes messages on. Comes before what else it is, in a class's list of bases."""

    def passes_on(self, study_hash: bytes) -> bool:
        """Whether clients speak to each other in this study; nothing is passed on in others."""
        raise NotImplementedError

    def _message(self, envelope: Envelope) -> None:
        if envelope.raw[:1] != bytes([RELAYED]):
            super()._message(envelope)
            return
        relayed = unwrap(bytes(envelope.raw[HEADER_BYTES:]), envelope.sender)
        if relayed.sender != envelope.sender or relayed.to not in self.members.clients:
            raise RemoteProtocolError("a message to be relayed that is not its sender's", party=envelope.sender)
        if not self.passes_on(bytes(envelope.raw[1:HEADER_BYTES])):
            raise RemoteProtocolError(
                "a message to be relayed in a study whose clients say nothing to each other",
                party=envelope.sender,
                rule="unknown-study",
            )
        if relayed.to in self.node.connected():
            self.send(relayed.to, bytes(envelope.raw))


class Relayed(RoleProcess):
    """A client's process: what is for another client goes by the relay, signed, unless they have a line."""

    def send(self, to: str, raw: Any, length: int | None = None) -> None:
        if to in self.members.clients and to not in self.node.connected() and isinstance(raw, bytes):
            raw, to, length = wrap(self.name, to, raw, self.parts.identity.signing), self.members.board, None
        super().send(to, raw, length)

    def takes_relayed(self, kind: int) -> bool:
        """Which kinds of messages another client may send: what is sealed, in a study; nothing else is said."""
        return kind == SEALED

    def _message(self, envelope: Envelope) -> None:
        if envelope.raw[:1] != bytes([RELAYED]):
            super()._message(envelope)
            return
        relayed = unwrap(bytes(envelope.raw[HEADER_BYTES:]), envelope.sender)
        if envelope.sender != self.members.board or relayed.to != self.name:
            raise RemoteProtocolError("a relayed message that is not for this party", party=envelope.sender)
        if relayed.sender not in self.members.clients or not self.takes_relayed(relayed.raw[0]):
            raise RemoteProtocolError("a relayed message of nobody who sends such to this party", party=envelope.sender)
        relayed.verify(self.members.identities[relayed.sender])
        super()._message(Envelope(sender=relayed.sender, to=self.name, raw=relayed.raw))
