"""A nursery of the parties of a support vector machine among institutions with different columns:
``tests.trust.proxy_role``, and notes of what is said of labels and by columns. Not in the wheel.

``notes`` in the deployment's folder: every list and every vector of labels before it is sealed, one line each, with how
the study stands in its sender's ledger. ``models``: a study's hash and the model of each round, as who coordinates has
it. ``heard`` beside the config of who neither coordinates nor is an institution: all that came in on its lines, and
what was sealed in it. ``planted`` beside a config: a fault (:data:`PLANTED`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.trust import proxy_role
from tests.trust.learners_deployment import study

from tallystick.engines.setup import set_up
from tallystick.protocol import alignment, labels
from tallystick.roles.holders import aligning, learning
from tallystick.roles.processes.coordinated_rounds import CoordinatedRounds
from tallystick.transport.network.node import Node
from tallystick.transport.wire import Seals
from tallystick.trust.masks import parts as masks  # noqa: F401 - children must not take their time to load it
from tallystick.trust.servers import parts, server  # noqa: F401

_child = proxy_role._child


def _append(path: Path, raw: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, raw)
    os.close(fd)


def _note(folder: Path, work: Any, to: str, message: Any, raw: bytes) -> None:
    paid = work._session.own.ledger.standing(work._session.study_hash)
    said = f"{work.name} {type(message).__name__} {to} {hashlib.sha256(raw).hexdigest()} {raw.hex()} {paid}\n"
    _append(folder / "notes", said.encode())


def _noted(folder: Path) -> None:
    send, tell = aligning.AligningWork._send, learning.LearningWork._tell

    def sent(self: Any, to: str, message: Any) -> None:
        _note(folder, self, to, message, alignment.encode(message))
        send(self, to, message)

    def told(self: Any, to: str, message: Any) -> None:
        _note(folder, self, to, message, labels.encode(message))
        tell(self, to, message)

    aligning.AligningWork._send = sent  # type: ignore[method-assign]
    learning.LearningWork._tell = told  # type: ignore[method-assign]


def _models_noted(folder: Path) -> None:
    opens = CoordinatedRounds._open

    def opening(self: Any, request: Any) -> None:
        _append(folder / "models", f"{self.study_hash.hex()} {request.model.hex()}\n".encode())
        opens(self, request)

    CoordinatedRounds._open = opening  # type: ignore[method-assign]


def _heard(path: Path) -> None:
    take, unseal = Node.receive, Seals.open

    def receive(self: Any, timeout: float | None = 0.0) -> Any:
        envelope = take(self, timeout)
        if envelope is not None:
            _append(path, envelope.raw)
        return envelope

    def opened(self: Any, sender: str, sealed: memoryview) -> bytes:
        raw = unseal(self, sender, sealed)
        _append(path, raw)
        return raw

    Node.receive, Seals.open = receive, opened  # type: ignore[method-assign]


def _short_labels() -> None:
    """An institution tells the labels of fewer people than there are rows."""
    tell = learning.LearningWork._tell

    def shorter(self: Any, to: str, message: Any) -> None:
        tell(
            self,
            to,
            replace(message, signs=message.signs[:-1]) if isinstance(message, labels.messages.Labels) else message,
        )

    learning.LearningWork._tell = shorter  # type: ignore[method-assign]


def _no_labels() -> None:
    """An institution takes part and tells no labels."""
    learning.LearningWork._tell = lambda self, to, message: None  # type: ignore[method-assign]


def _someone_elses_labels() -> None:
    """An institution that has no labels tells some, beside its part in the alignment."""
    read = learning.LearningWork._read

    def telling(self: Any, found: Any, positions: Any) -> None:
        read(self, found, positions)
        made = labels.messages.Labels(study_hash=self._roster.session, signature=bytes(64), signs=bytes([1]) * 44)
        raw = bytes([2]) + self._session.study_hash + labels.encode(made)
        self._session.process.send(self._reducer, raw)

    learning.LearningWork._read = telling  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "no-labels": _no_labels,
    "short-labels": _short_labels,
    "others-labels": _someone_elses_labels,
}


def _started(role: str, config: Path, log: str) -> None:
    _noted(Path(log).parent)
    _models_noted(Path(log).parent)
    if role in ("server", "proxy", "dealer"):
        _heard(config.parent / "heard")
    planted = config.parent / "planted"
    if planted.exists():
        PLANTED[planted.read_text()]()
    _child(role, config, log)


if __name__ == "__main__":
    set_up(study("warm").canonical(), "", allow_not_private=True)  # compiled once, for all children
    proxy_role._child = _started
    proxy_role.main()
