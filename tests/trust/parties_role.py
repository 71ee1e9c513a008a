"""``python -m tests.trust.parties_role ROLE CONFIG [POINT]``: a role that kills itself right after the step named.

Not in the wheel. ``POINT:freeze`` stops answering there instead, as a machine that hangs does. What a party
draws from is noted beside its config, so that a test can look for it on the party's disk.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tallystick.roles.processes.start import start
from tallystick.roles.storage import crash_points
from tallystick.trust.parties import party


def note_secrets(file: Path) -> None:
    """Write down, one line each, the random words (or noise) and shares that this party computes with."""
    word_of, share_of = party.word_of, party.share_of

    def noted(secret: bytes) -> None:
        with file.open("a") as out:
            out.write(secret.hex() + "\n")

    def word(question: Any, noise: Any) -> bytes:
        found = word_of(question, noise)
        noted(found[:64])
        return found

    def share(question: Any, vector: Any) -> Any:
        found = share_of(question, vector)
        noted(found.tobytes()[:24])
        return found

    party.word_of, party.share_of = word, share  # type: ignore[assignment]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    note_secrets(Path(sys.argv[2]).parent / "secrets-noted")
    if len(sys.argv) > 3:
        point, _, how = sys.argv[3].partition(":")
        mortal = signal.SIGSTOP if how == "freeze" else signal.SIGKILL
        crash_points.install(lambda step: os.kill(os.getpid(), mortal) if step == point else None)
    start(sys.argv[2], sys.argv[1])
