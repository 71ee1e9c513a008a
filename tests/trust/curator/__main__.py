"""``python -m tests.trust.curator ROLE CONFIG [mortal]``: a role of a process that knows the toy trust models.

A mortal one dies right before it would vouch for its noise: the study has ended, and only its receipt is missing.
"""

import logging
import os
import signal
import sys

from tests.trust import chooser
from tests.trust.curator import CURATOR

from tallystick.roles.processes import coordinator
from tallystick.roles.processes.start import start
from tallystick.study.trust import register

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    register(CURATOR)
    chooser.install()
    if "mortal" in sys.argv[3:]:
        coordinator.attest = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    start(sys.argv[2], sys.argv[1])
