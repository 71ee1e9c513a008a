"""Second moments of records whose columns are at different institutions, and what follows from them."""
