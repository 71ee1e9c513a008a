"""``python -m tests.trust.parties_role ROLE CONFIG [POINT]``: a role that kills itself right after the step named.

Not in the wheel. ``POINT:freeze`` stops answering there instead, as a machine that hangs does.
"""

import logging
import os
import signal
import sys

from tallystick.roles.processes.start import start
from tallystick.roles.storage import crash_points

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if len(sys.argv) > 3:
        point, _, how = sys.argv[3].partition(":")
        mortal = signal.SIGSTOP if how == "freeze" else signal.SIGKILL
        crash_points.install(lambda step: os.kill(os.getpid(), mortal) if step == point else None)
    start(sys.argv[2], sys.argv[1])
