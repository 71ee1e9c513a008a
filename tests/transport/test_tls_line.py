"""A listener that is killed between our connect and our handshake costs no descriptor and no odd error."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import warnings

import pytest

from tallystick.transport.network.tls_line import tls_line

CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENT.check_hostname = False


def resetting(listener: socket.socket) -> None:
    """Take the next caller and reset the line, as the kernel does for a killed process."""
    caller, _ = listener.accept()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


def test_a_line_that_is_reset_before_the_handshake_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        line = tls_line(CLIENT, listener.getsockname(), 5.0)
        resetting(listener)
        with line, pytest.raises(OSError, match=r"reset|EOF"):
            line.do_handshake()
        assert line.fileno() == -1
        del line
        gc.collect()


def test_nobody_there_is_an_error_of_the_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        tls_line(CLIENT, ("127.0.0.1", port), 5.0)
