"""``python -m tests.trust.curator ROLE CONFIG``: a role of a process that knows the toy trust models."""

import logging
import sys

from tests.trust import chooser
from tests.trust.curator import CURATOR

from tallystick.roles.processes.start import start
from tallystick.study.trust import register

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    register(CURATOR)
    chooser.install()
    start(sys.argv[2], sys.argv[1])
