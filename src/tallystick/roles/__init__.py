"""The deployed parties: processes, their stores, and how everything is wired."""
