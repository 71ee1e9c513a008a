"""For the disk test: what a role must forget, noted elsewhere as it is made; and roles that forget badly.

``note_secrets`` wraps the places where secrets come into being (a study key, a draw of noise, a client's sum and
shares, a server's sum of shares). ``PLANTED`` are bugs that leave them on disk, which the test must find.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.crypto.key_agreement import AgreementKey
from tallystick.engines.round_vectors import RoundNoise
from tallystick.protocol.secure_sum.client import ClientMachine
from tallystick.protocol.secure_sum.records import SeedRecord
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.storage import erasure
from tallystick.roles.storage.stores import RoleStore
from tallystick.trust.servers import server


def note_secrets(note: Callable[[str], None]) -> None:
    """``note("kind round hex")`` for every secret this process makes from now on."""

    def after(owner: Any, name: str, told: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            made = real(*given, **named)
            told(made, *given)
            return made

        setattr(
            owner,
            name,
            wrapped if isinstance(inspect.getattr_static(owner, name), type(wrapped)) else staticmethod(wrapped),
        )

    def key(made: AgreementKey, *_: Any) -> None:
        note(f"key 0 {made.reveal().reveal().hex()}")

    def noise(drawn: np.ndarray, _source: Any, round: int) -> None:
        note(f"noise {round} {drawn.astype('<i8').tobytes().hex()}")

    def shares(made: tuple[Any, ...], machine: ClientMachine, vector: np.ndarray, *_: Any) -> None:
        note(f"sum {machine.round} {vector.astype('<u8').tobytes().hex()}")
        for share in made:
            note(f"share {machine.round} {bytes(share.payload).hex()}")
            note(f"blind {machine.round} {bytes(share.blind).hex()}")

    def seed(_: bytes, record: SeedRecord) -> None:
        note(f"seed {record.round} {record.seed.hex()}")

    def summed(total: np.ndarray, machine: Any, *_: Any) -> None:
        note(f"sum {machine.round} {total.astype('<u8').tobytes().hex()}")

    after(AgreementKey, "generate", key)
    after(RoundNoise, "draw", noise)
    after(ClientMachine, "_split", shares)
    after(SeedRecord, "to_bytes", seed)
    after(server._SpoolingServer, "_sum", summed)


def secrets_in_the_database(process: RoleProcess) -> None:
    """As it was: the secret records are rows, and what is deleted is left where it lies."""
    process.store._db.execute("PRAGMA secure_delete = OFF")

    def persist(self: RoleStore, study: bytes, key: str, value: bytes, *, secret: bool = False) -> None:
        self._write("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (study, key, value))

    def forget(self: RoleStore, study: bytes, key: str) -> None:
        self._write("DELETE FROM records WHERE study = ? AND key = ?", (study, key))

    RoleStore.persist, RoleStore.forget = persist, forget  # type: ignore[method-assign]


def secrets_kept(process: RoleProcess) -> None:
    """The study ends and its folder stays."""
    RoleStore.erase_secrets = lambda self, study: None  # type: ignore[method-assign]


def files_moved_away(process: RoleProcess) -> None:
    """What is set aside is never overwritten."""
    erasure.BackgroundEraser.add = lambda self, aside: None  # type: ignore[method-assign]
    erasure.overwrite = lambda path: None
    RoleStore.erase_secrets = lambda self, study: None  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[RoleProcess], None]] = {
    bug.__name__: bug for bug in (secrets_in_the_database, secrets_kept, files_moved_away)
}
