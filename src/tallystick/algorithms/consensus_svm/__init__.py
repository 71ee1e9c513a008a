"""Support vector machines by consensus: learners keep their records and multipliers, and agree by exact sums."""
