"""Stream studies in real roles: the clock, the batches with their watermarks, the ticks that witnesses have seen."""
