"""The exact arithmetic and the secrets: field, keystream, shares, signatures. Raw tools, not for users' hands."""
