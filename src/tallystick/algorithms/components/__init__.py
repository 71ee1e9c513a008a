"""Principal components from rounds of sums."""
