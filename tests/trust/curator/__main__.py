"""``python -m tests.trust.curator ROLE CONFIG``: a role of a process that knows this trust model."""

import logging
import sys

import tests.trust.curator  # noqa: F401 - registers itself

from tallystick.roles.processes.start import start

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    start(sys.argv[2], sys.argv[1])
