"""One thread per worker: two workers' OpenMP threads on two cores spin, waiting for each other."""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # before any of them is loaded; processes that tests start inherit it
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
