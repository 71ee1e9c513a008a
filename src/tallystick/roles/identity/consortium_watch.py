"""A new consortium file, noticed by a running role: looked at, checked, and taken or left.

A file is taken if it is of the same consortium and not older (as ``consortium install`` has it), if it has one notice
board, and if this party is in it as it is running: same role, same identity, its certificate still pinned. What is not
taken is said, once, and the role goes on with the file it has; a file that is still being copied is looked at again
when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.protocol.members import Members
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.enrolment import check_successor
from tallystick.roles.identity.identity_files import Identity, read_consortium
from tallystick.roles.identity.places import members_of


def check_taken_over(old: Consortium, new: Consortium, identity: Identity) -> None:
    """Return if a running role may go on with the new file; a ``TallystickError`` says why not."""
    check_successor(old, new)
    me = new.party(identity.party)
    members_of(new)  # exactly one party keeps the notice board
    if me.role != identity.role or me.identity != identity.signing.public:
        raise VerificationError(
            "the new consortium file has another role or identity for this party",
            party=identity.party,
            rule="consortium",
            remedy="Do not use it. Ask the authority how that came about.",
        )
    if identity.facts.fingerprint not in me.fingerprints:
        raise VerificationError(
            "the certificate this role runs with is not pinned in the new consortium file",
            party=identity.party,
            rule="untrusted-certificate",
            remedy="Install the renewed certificate and restart this role.",
        )


def left(old: Members, new: Members) -> tuple[str, ...]:
    """Parties of the old file that the new one does not have, or has under another key or role."""

    names = (old.board, *old.helpers, *old.clients)
    return tuple([n for n in names if old.role(n) != new.role(n) or old.identities.get(n) != new.identities.get(n)])


def change_of_members(gone: Sequence[str]) -> tuple[str, str | None]:
    """Why a study cannot go on under another file: in words, and whose leaving it is (None: it had not started)."""
    if gone:
        return f"{gone[0]} has left the consortium, as the consortium file now in force says", gone[0]
    return "the consortium file was replaced before the study started", None


class ConsortiumWatch:
    """One file; :meth:`look` is cheap while nothing has changed."""

    def __init__(self, path: Path, current: Consortium) -> None:
        self.path, self.current = path, current
        self.problem = ""
        self._mark = self._now_there()

    def _now_there(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def look(self, identity: Identity, *, always: bool = False) -> Consortium | None:
        """The new consortium, if there is one that may be taken; ``problem`` says what is wrong with what is there."""
        mark = self._now_there()
        if mark == self._mark and not always:
            return None
        self._mark = mark
        try:
            new = read_consortium(self.path)
            if new.hash != self.current.hash:
                check_taken_over(self.current, new, identity)
        except TallystickError as error:
            self.problem = str(error)
            return None
        self.problem = ""
        if new.hash == self.current.hash:
            return None
        self.current = new
        return new
