"""A nursery of the parties of a study among institutions with different columns: ``tests.trust.proxy_role``, and the
servers' noise under the seed of a simulation, and notes of what is said. Not in the wheel.

``notes`` in the deployment's folder: every message between institutions and dealer as it is before it is sealed, and
every digest of opened rows, one line each. ``planted`` beside a config: a fault (:data:`PLANTED`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.trust import proxy_role
from tests.trust.vertical_deployment import study

from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.engines.federation import seed_bytes
from tallystick.engines.setup import set_up
from tallystick.protocol.alignment import AligningMachine
from tallystick.protocol.joint_products import JointParameters, encode
from tallystick.roles.holders import work
from tallystick.roles.processes.session import Parts
from tallystick.transport.memory_holders import MemoryHolders
from tallystick.trust.servers import dealer, parts, server  # noqa: F401 - children must not take their time to load it

SEED = 7
_child = proxy_role._child


def streams(hash: bytes, *labels: bytes) -> AesStream:
    """Noise as the simulation draws it; all else is the system's, so that what is drawn twice differs."""
    if labels[0] == b"noise":
        return AesStream(derive(seed_bytes(SEED), b"tallystick/simulation/1", hash, *labels))
    return system_stream()


def _note(folder: Path, name: str, kind: str, to: str, raw: bytes, paid: str = "-") -> None:
    fd = os.open(folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name} {kind} {to} {hashlib.sha256(raw).hexdigest()} {raw.hex()} {paid}\n".encode())
    os.close(fd)


def _noted(folder: Path) -> None:
    """Note what is said before it is sealed."""
    send, tell = work.HoldersWork._send, dealer.DealerPart.send

    def holder(self: Any, to: str, message: Any) -> None:
        module = work.alignment if "alignment" in type(message).__module__ else work.joint_products
        paid = self._session.own.ledger.standing(self._session.study_hash)
        _note(folder, self.name, type(message).__name__, to, module.encode(message), paid)
        send(self, to, message)

    def dealt(self: Any, to: str, message: Any) -> None:
        _note(folder, "dealer", type(message).__name__, to, encode(message))
        tell(self, to, message)

    work.HoldersWork._send = holder  # type: ignore[method-assign]
    dealer.DealerPart.send = dealt  # type: ignore[method-assign]


def _longer_list() -> None:
    """An institution shows more people than the study binds it to."""
    pass_on = AligningMachine._pass_on

    def longer(self: AligningMachine, owner: int, hops: int, points: list[bytes]) -> list[Any]:
        if owner == self._index:
            from tallystick.crypto.blinded_identifiers import points_of

            points = [*points, *points_of(["somebody"], self.parameters.context)]
        return pass_on(self, owner, hops, points)

    AligningMachine._pass_on = longer  # type: ignore[method-assign]


def _turned_file() -> None:
    """An institution's file is put into another order once its people are aligned, and before their cells are used."""
    read = work.HoldersWork._read

    def turned(self: work.HoldersWork, found: Any, positions: Any) -> None:
        source = Path(self._session.own.source())
        head, *lines = source.read_text().splitlines(keepends=True)
        source.write_text(head + "".join(reversed(lines)))
        read(self, found, positions)

    work.HoldersWork._read = turned  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {"longer-list": _longer_list, "turned-file": _turned_file}


def _started(role: str, config: Path, log: str) -> None:
    _noted(Path(log).parent)
    planted = config.parent / "planted"
    if planted.exists():
        PLANTED[planted.read_text()]()
    proxy_role.Parts = lambda **facts: Parts(**{**facts, "streams": streams})  # type: ignore[assignment,misc]
    _child(role, config, log)


def _warm() -> None:
    """Load the compiled kernels once, for all children."""
    set_up(study().canonical(), "")
    facts = JointParameters(study_hash=bytes(32), holders=("a", "b"), widths=(2, 2), records=3, dealer="d")
    MemoryHolders(facts, {"a": np.ones((3, 2)), "b": np.ones((3, 2))}, system_stream()).run()


if __name__ == "__main__":
    _warm()
    proxy_role._child = _started
    proxy_role.main()
