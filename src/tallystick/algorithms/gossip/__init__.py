"""Learning among peers without a server."""
