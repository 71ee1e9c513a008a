"""The roles as processes: the loop, the sessions of studies, and how everything is wired at the start."""
