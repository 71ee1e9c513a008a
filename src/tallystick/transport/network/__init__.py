"""Parties on different machines: mutual TLS 1.3 over gRPC, one stream per pair, pinned identities.

``Node`` is the way in. ``frames`` documents the format, ``connection`` the life
of a line, ``admission`` what bounds memory, ``dialler`` how a listener is
authenticated.
"""

from tallystick.transport.network.admission import Sink, SinkFactory, Unwanted
from tallystick.transport.network.counters import Counters, Traffic
from tallystick.transport.network.credentials import Credentials, Peer, fingerprint
from tallystick.transport.network.frames import Reason
from tallystick.transport.network.node import NetworkLink, Node
from tallystick.transport.network.options import Options

__all__ = [
    "Counters",
    "Credentials",
    "NetworkLink",
    "Node",
    "Options",
    "Peer",
    "Reason",
    "Sink",
    "SinkFactory",
    "Traffic",
    "Unwanted",
    "fingerprint",
]
