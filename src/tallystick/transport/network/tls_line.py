"""A TLS line to an address that is closed whatever happens: the handshake is left to the caller."""

from __future__ import annotations

import socket
import ssl


def tls_line(
    context: ssl.SSLContext, address: tuple[str, int], timeout: float, server_hostname: str | None = None
) -> ssl.SSLSocket:
    """Connected, the handshake still to be done (``do_handshake``); OSError where nobody answers.

    The socket is wrapped before it is connected. Wrapped afterwards, a listener that is killed in between makes
    ``wrap_socket`` lose the descriptor, or give back a socket without TLS whose methods raise ValueError.
    """
    refused: OSError = OSError("the address names no host")
    for family, kind, protocol, _, target in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as plain:
            line = context.wrap_socket(plain, do_handshake_on_connect=False, server_hostname=server_hostname)
        try:
            line.settimeout(timeout)
            line.connect(target)
        except OSError as error:
            line.close()
            refused = error
        else:
            return line
    raise refused
