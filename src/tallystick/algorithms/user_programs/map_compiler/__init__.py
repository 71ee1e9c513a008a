"""From ``map_in_client`` to machine code that cannot read past its record: shapes first, then loops over numbers."""
