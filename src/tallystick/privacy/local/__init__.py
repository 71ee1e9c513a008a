"""Local differential privacy: what a peer draws once, before anything of its record leaves it."""
