"""What parties select: the most frequent value, a quantile, the best of a user's candidates."""
