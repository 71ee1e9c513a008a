"""k-means as rounds of secure sums."""
