"""A party's place among the others, by the consortium file: whom it knows, whom it dials, what studies see of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.core.errors import RemoteProtocolError
from tallystick.protocol.members import Members
from tallystick.roles.identity.consortium import Consortium, consortium_roles, dials
from tallystick.roles.identity.identity_files import Identity
from tallystick.study.trust import registered
from tallystick.transport.network.admission import SinkFactory
from tallystick.transport.network.credentials import Credentials, Peer
from tallystick.transport.network.node import Node
from tallystick.transport.network.options import Options


def members_of(consortium: Consortium) -> Members:
    """The consortium as the study layer knows it."""
    boards = [p.name for role in sorted({m.board for m in registered()}) for p in consortium.by_role(role)]
    if len(boards) != 1:
        wanted = " or ".join(sorted({m.board for m in registered()}))
        raise RemoteProtocolError(
            f"the consortium has {len(boards)} parties for the notice board", remedy=f"Enrol exactly one {wanted}."
        )
    return Members(
        consortium_hash=consortium.hash,
        board=boards[0],
        roles={role: tuple(p.name for p in consortium.by_role(role)) for role in consortium_roles()},
        identities={p.name: p.identity for p in consortium.parties},
    )


def peers_of(consortium: Consortium, name: str, *, listening: bool) -> tuple[list[Peer], list[str]]:
    """Whom a party knows, and whom of them it dials."""
    wanted = [p.name for p in dials(consortium, name)]
    known = consortium.parties if listening else [p for p in consortium.parties if p.name in wanted]
    peers = [Peer(name=p.name, address=p.address, fingerprints=frozenset(p.fingerprints)) for p in known]
    return peers, wanted


def node_for(
    identity: Identity,
    consortium: Consortium,
    *,
    listen: str | None,
    dial: Sequence[str] | None = None,
    options: Options | None = None,
    on_connect: Callable[[str], object] | None = None,
    sinks: SinkFactory | None = None,
) -> Node:
    """This party's place in the network, by the consortium file; ``dial``: only these of those it may."""
    peers, wanted = peers_of(consortium, identity.party, listening=listen is not None)
    credentials = Credentials(
        name=identity.party,
        certificate_pem=identity.certificate,
        key_pem=identity.tls_key.reveal(),
        ca_pem=consortium.ca_certificate,
    )
    return Node(
        credentials,
        peers,
        listen=listen,
        dial=wanted if dial is None else dial,
        options=options,
        sinks=sinks,
        on_connect=on_connect,
    )
