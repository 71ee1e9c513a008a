"""Keeps a line to one listening peer, for ever: look at its certificate, dial, carry, wait, again.

Before gRPC dials, the peer's certificate is fetched by a TLS 1.3 handshake
that is verified against the consortium's CA, and compared with the pinned
fingerprints. gRPC is then told to trust this one certificate and nothing
else, so that the line that carries messages is to its holder. The certificate
is remembered until a dial with it fails, which is how a rotated one is found.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tallystick.transport.network.connection import Connection
from tallystick.transport.network.credentials import Credentials, Peer, fingerprint, server_name, split_address
from tallystick.transport.network.frames import End, Reason, Refusal
from tallystick.transport.network.grpc_streams import dial
from tallystick.transport.network.options import Options
from tallystick.transport.network.tls_line import tls_line

if TYPE_CHECKING:
    from tallystick.transport.network.node import Node

_log = logging.getLogger("tallystick.transport.network")


def peer_certificate(ca_pem: bytes, peer: Peer, timeout: float) -> bytes:
    """The listener's certificate as PEM, if the CA signed it, it is valid now and it is pinned for this peer."""
    if peer.address is None:
        raise Refusal(Reason.UNREACHABLE, "the peer has no address")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the pinned fingerprint says more than a name
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    try:
        with tls_line(context, split_address(peer.address), timeout) as secure:
            secure.do_handshake()
            der = secure.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise Refusal(Reason.REFUSED, f"TLS failed: {error.reason or error}") from error
    except OSError as error:
        raise Refusal(Reason.UNREACHABLE, f"no connection: {error.strerror or error}") from error
    if der is None:
        raise Refusal(Reason.REFUSED, "no certificate was shown")
    pem = ssl.DER_cert_to_PEM_cert(der).encode("ascii")
    shown = fingerprint(pem)
    if shown not in peer.fingerprints:
        raise Refusal(Reason.REFUSED, f"certificate {shown} is not pinned for this party")
    if not server_name(pem):
        raise Refusal(Reason.REFUSED, f"certificate {shown} names no host")
    return pem


class Dialler:
    """The task that keeps one line up; ``peer`` is looked up anew for every dial."""

    def __init__(self, credentials: Credentials, name: str, find: Callable[[str], Peer | None], node: Node) -> None:
        self._credentials = credentials
        self._name = name
        self._find = find
        self._node = node
        self._certificate: bytes | None = None
        self._pause = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        options = self._node.options
        while True:
            started = time.monotonic()
            end = await self._once(options)
            _log.info("not connected to %s: %s, %s", self._name, end.reason.name, end.text)
            if end.reason is not Reason.REPLACED and time.monotonic() - started > options.dead_after:
                self._pause = 0.0
            self._pause = min(max(2 * self._pause, options.first_backoff), options.longest_backoff)
            await asyncio.sleep(self._pause * (0.5 + secrets.randbelow(1001) / 1000))  # spread out a crowd

    async def _once(self, options: Options) -> End:
        peer = self._find(self._name)
        if peer is None or peer.address is None:
            return End(Reason.REFUSED, "the party is not known or has no address")
        try:
            if self._certificate is None or fingerprint(self._certificate) not in peer.fingerprints:
                loop = asyncio.get_running_loop()
                self._certificate = await loop.run_in_executor(  # not a worker: it waits for a peer that may be dead
                    None, peer_certificate, self._credentials.ca_pem, peer, options.handshake_timeout
                )
        except Refusal as refusal:
            if refusal.reason is Reason.REFUSED:
                _log.warning("%s at %s was refused: %s", peer.name, peer.address, refusal.text)
            return self._failed(End(refusal.reason, refusal.text))
        stream = dial(self._credentials, peer.address, self._certificate, options)
        connection = Connection(peer.name, stream, self._node, dialled=True)
        connection.fingerprint = fingerprint(self._certificate)
        try:
            end = await connection.run()
            if end.reason is Reason.LOST:
                end = End(Reason.LOST, await stream.why())
                self._certificate = None
        finally:
            await stream.close()
        return self._failed(end)

    def _failed(self, end: End) -> End:
        self._node.counters.ended(end.reason)
        return end
