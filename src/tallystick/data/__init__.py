"""Records where they are: readers, encoding by the public schema, partitions, and example data."""

from tallystick.data.encoding import Records, Tallies, encode
from tallystick.data.examples import census, census_schema, clinic, clinic_schema, ties, ties_schema
from tallystick.data.partitions import (
    Partition,
    by_value,
    dirichlet,
    even,
    fold_indices,
    holdout_split,
    parse_partition,
    permutation,
)
from tallystick.data.sources import TableSource, column_names, read_table

__all__ = [
    "Partition",
    "Records",
    "TableSource",
    "Tallies",
    "by_value",
    "census",
    "census_schema",
    "clinic",
    "clinic_schema",
    "column_names",
    "dirichlet",
    "encode",
    "even",
    "fold_indices",
    "holdout_split",
    "parse_partition",
    "permutation",
    "read_table",
    "ties",
    "ties_schema",
]
