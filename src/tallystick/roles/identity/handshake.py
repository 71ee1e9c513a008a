"""One mutual TLS 1.3 handshake with a party, as a diagnosis: who answers there, and does it let us in?

Checked is what the transport checks: the consortium's authority, the party's name, its pinned fingerprint. In TLS 1.3
the listener judges our certificate after our side of the handshake is done, so one read follows: a listener that
accepts us begins to speak HTTP/2, one that does not sends an alert.
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass

from tallystick.core.errors import TallystickError
from tallystick.crypto.certificates import fingerprint
from tallystick.roles.identity.consortium import Consortium, Party, split_address
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.transport.network.tls_line import tls_line


@dataclass(frozen=True)
class Reached:
    """How far we came."""

    fine: bool
    what: str
    remedy: str | None = None


def handshake(address: str, party: Party, consortium: Consortium, config: RoleConfig, timeout: float) -> Reached:
    """Connect, shake hands with our certificate, check theirs."""
    host, port = split_address(address)
    try:
        context = _context(consortium, config)
    except (OSError, TallystickError):
        return Reached(False, "our own certificate cannot be used", "See the line about this role's certificate.")
    try:
        line = tls_line(context, (_reachable(host), port), timeout, party.dns_name)
    except OSError as error:
        return _unreachable(error)
    try:
        with line:
            line.do_handshake()
            theirs = fingerprint(line.getpeercert(binary_form=True) or b"")
            if theirs not in party.fingerprints:
                return Reached(
                    False,
                    f"answers with the certificate {theirs}, which is not pinned for it",
                    "Get the newest consortium.toml on both sides; if it persists, somebody else answers there.",
                )
            return _accepted(line)
    except ssl.SSLCertVerificationError as error:
        return Reached(
            False,
            f"its certificate does not verify: {error.verify_message}",
            "Compare clocks and consortium files on both sides; its owner may have to renew (rotate).",
        )
    except OSError:  # ssl.SSLError is one
        remedy = "Check host and port, and that no proxy between terminates TLS."
        return Reached(False, "a program answers that does not speak our TLS", remedy)


def _accepted(line: ssl.SSLSocket) -> Reached:
    try:
        greeting = line.recv(64)
    except TimeoutError:
        return Reached(True, "reached, certificates fine; it says nothing yet")
    except OSError:
        greeting = b""
    if greeting:
        return Reached(True, "reached, certificates fine on both sides")
    remedy = "Give it the newest consortium.toml, compare clocks, and restart it."
    return Reached(False, "it refuses our certificate", remedy)


def _context(consortium: Consortium, config: RoleConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=consortium.ca_certificate.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(config.certificate, config.key)
    return context


def port_state(listen: str) -> str:
    """ "free", "in use", or why it cannot be bound."""
    host, port = split_address(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as error:
        return "in use" if error.errno == errno.EADDRINUSE else error.strerror or "unknown host"
    return "free"


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _unreachable(error: OSError) -> Reached:
    if isinstance(error, socket.gaierror):
        return Reached(False, "its host name is unknown here", "Check the address and this machine's DNS.")
    if isinstance(error, ConnectionRefusedError):
        return Reached(False, "nothing listens there", "Start it, or correct its address in the consortium file.")
    if isinstance(error, TimeoutError):
        return Reached(False, "no answer", "Check the firewall on the way: outgoing TCP to that port must pass.")
    return Reached(False, f"not reachable: {error.strerror}", "Check network, route and firewall.")
