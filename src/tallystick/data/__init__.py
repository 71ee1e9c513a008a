"""Records where they are: readers, encoding by the public schema, partitions, and example data."""
