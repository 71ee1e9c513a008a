"""Clients dial out only, and some studies need a word from one to another: whoever coordinates passes it on.

What is passed on is sealed to its receiver and signed by its sender (:mod:`tallystick.transport.relayed`): a relay sees
who speaks to whom and how much, and can write and change nothing. It neither reads nor keeps: a message for a client
that has no line here now is lost, and said again by who sent it. It passes on between the members of a study that is
under way, and each of them has its share of what may wait for another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.roles.processes.process import RoleProcess
from tallystick.transport.link import Envelope
from tallystick.transport.relayed import unwrap, wrap
from tallystick.transport.wire import HEADER_BYTES, RELAYED, SEALED


class Relay(RoleProcess):
    """A process that passes messages on. Comes before what else it is, in a class's list of bases."""

    def speakers(self, study_hash: bytes, kind: int) -> Collection[str] | None:
        """Who may say something of this kind to each other now: nobody, unless the study is under way.

        None if no client ever does in it.
        """
        raise NotImplementedError

    def _message(self, envelope: Envelope) -> None:
        if envelope.raw[:1] != bytes([RELAYED]):
            super()._message(envelope)
            return
        relayed = unwrap(bytes(envelope.raw[HEADER_BYTES:]), envelope.sender)
        if relayed.sender != envelope.sender or relayed.to not in self.members.clients:
            raise RemoteProtocolError("a message to be relayed that is not its sender's", party=envelope.sender)
        speakers = self.speakers(bytes(envelope.raw[1:HEADER_BYTES]), relayed.raw[0])
        if speakers is None:
            raise RemoteProtocolError(
                "a message to be relayed in a study whose clients say nothing to each other",
                party=envelope.sender,
                rule="unknown-study",
            )
        if not speakers:
            return  # over, or paused: what was on its way comes late, and that is nobody's fault
        if relayed.sender not in speakers or relayed.to not in speakers:
            raise RemoteProtocolError(
                "a message to be relayed of or to somebody who is not in the study",
                party=envelope.sender,
                rule="unknown-study",
            )
        there = relayed.to in self.node.connected()
        if there and not self._backlog.send(relayed.to, bytes(envelope.raw), of=relayed.sender):
            self.conduct.note(relayed.sender, "relayed-messages", why=f"{relayed.to} does not take so many at once;")


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
