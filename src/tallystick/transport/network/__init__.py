"""Parties on different machines: mutual TLS 1.3 over gRPC, one stream per pair, pinned identities.

``Node`` is the way in. ``frames`` documents the format, ``connection`` the life
of a line, ``admission`` what bounds memory, ``dialler`` how a listener is
authenticated.
"""
