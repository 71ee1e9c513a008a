"""A whole consortium on this machine: what ``tallystick demo`` runs, and what tests and benchmarks start."""
