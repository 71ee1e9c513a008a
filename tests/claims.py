"""A claim of the trust model ``servers``: ``servers`` and ``colluding`` as a study states them."""

from typing import Any

from tallystick.privacy.rules import Claim
from tallystick.trust.servers import SERVERS
from tallystick.trust.servers.section import ServersSection


def servers_claim(*, servers: int = 2, colluding: int = 1, **facts: Any) -> Claim:
    return Claim(**{"trust": SERVERS.trust(ServersSection(servers=servers, colluding=colluding)), **facts})
