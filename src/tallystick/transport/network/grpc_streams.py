"""The only place that knows gRPC: raw bidirectional streams over mutual TLS, listening and calling.

Messages are raw bytes (no protobuf, no compression). The largest message gRPC
itself accepts is one frame, so an oversized one is cut by its length prefix,
before it is allocated. Flow control windows are fixed at one frame: with gRPC's
own 64 KiB a frame of data needs three more messages that widen the window for it,
which is a twelfth of what a share costs. What a peer can make us hold stays one
frame, whether it sends one slowly or many that we do not read yet. An endpoint of gRPC
waits for bytes with memory for as many as it last read at once (grpc/grpc#42194),
a chunk for every idle connection; ``tcp_max_read_buffer_size`` makes that 64 KiB.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # refused handshakes are our log's business

import grpc
import grpc.aio

from tallystick.transport.network.credentials import Credentials, fingerprint, server_name
from tallystick.transport.network.frames import MAX_FRAME, Reason, Refusal
from tallystick.transport.network.options import Options

_SERVICE, _METHOD = "tallystick.Network", "Exchange"
_COMMON: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_FRAME),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_frame_size", 1 << 22),
    ("grpc.http2.write_buffer_size", 1 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", MAX_FRAME + (1 << 16)),
    ("grpc.experimental.tcp_max_read_buffer_size", 1 << 16),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 8192),
)
_STATUS = {
    Reason.REFUSED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.SLOW: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.VERSION: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.REPLACED: grpc.StatusCode.ABORTED,
    Reason.STOPPED: grpc.StatusCode.UNAVAILABLE,
}


def _ours() -> bool:
    """Whether a CancelledError was meant for this task, or is gRPC's way to say that the stream is over."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _RawStream:
    """Reading and writing, the same at both ends; ``line`` is gRPC's."""

    def __init__(self, line: Any) -> None:
        self._line = line

    async def read(self) -> bytes | None:
        try:
            raw = await self._line.read()
        except asyncio.CancelledError:
            if _ours():
                raise
            return None
        except Exception:
            return None
        return raw if isinstance(raw, bytes) else None

    async def write(self, raw: bytes) -> bool:
        try:
            await self._line.write(raw)
        except asyncio.CancelledError:
            if _ours():
                raise
            return False
        except Exception:
            return False
        return True


class AcceptedStream(_RawStream):
    """The listener's end of a stream."""

    def caller(self) -> str:
        """Fingerprint of the caller's certificate; only over TLS 1.3."""
        properties = self._line.auth_context()
        if properties.get("ssl_tls_version") != [b"TLSv1.3"]:
            raise Refusal(Reason.REFUSED, "the connection is not TLS 1.3")
        certificates = properties.get("x509_pem_cert") or []
        if len(certificates) != 1:
            raise Refusal(Reason.REFUSED, "no certificate was shown")
        return fingerprint(certificates[0])

    def place(self) -> str:
        """Where the caller calls from, as gRPC writes it."""
        return str(self._line.peer())


class Acceptor:
    """A listening socket; every stream on it is given to ``serve``, which returns why it ended."""

    def __init__(self, serve: Callable[[AcceptedStream], Awaitable[tuple[Reason, str]]]) -> None:
        self._serve = serve
        self._server: Any = None

    async def start(self, credentials: Credentials, listen: str, options: Options, *, sockets: int) -> int:
        """Bind and listen, with at most so many sockets at once; the port."""
        settings = [
            *_COMMON,
            ("grpc.max_concurrent_streams", 1),
            ("grpc.server_handshake_timeout_ms", int(options.handshake_timeout * 1000)),
            ("grpc.max_connection_idle_ms", int(options.handshake_timeout * 1000)),
            ("grpc.max_allowed_incoming_connections", sockets),
        ]
        server = grpc.aio.server(options=settings, maximum_concurrent_rpcs=options.max_connections)
        handler = grpc.stream_stream_rpc_method_handler(self._handle)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
        secure = grpc.ssl_server_credentials(
            [(credentials.key_pem, credentials.certificate_pem)], credentials.ca_pem, require_client_auth=True
        )
        port = server.add_secure_port(listen, secure)
        await server.start()
        self._server = server
        return int(port)

    async def stop(self) -> None:
        """Stop listening and end what is left."""
        if self._server is not None:
            await self._server.stop(0.5)
            self._server = None

    async def _handle(self, _requests: object, context: Any) -> None:
        task = asyncio.ensure_future(self._serve(AcceptedStream(context)))
        try:
            reason, text = await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=1.0)  # its reads have failed: it ends by itself
            if not task.done():
                task.cancel()
            raise
        if reason in _STATUS:
            await context.abort(_STATUS[reason], f"{reason.name}: {text}")


class DialledStream(_RawStream):
    """The dialler's end of a stream, with the channel made for it."""

    def __init__(self, channel: Any, call: Any) -> None:
        super().__init__(call)
        self._channel = channel

    async def why(self) -> str:
        """What gRPC says of the end of the call, after it ended."""
        try:
            async with asyncio.timeout(0.5):
                return f"{(await self._line.code()).name}: {await self._line.details()}"[:300]
        except TimeoutError:
            return "no answer"

    async def close(self) -> None:
        """End the call and its connection."""
        self._line.cancel()
        await self._channel.close()


def dial(credentials: Credentials, address: str, certificate_pem: bytes, options: Options) -> DialledStream:
    """Begin a stream to the one holder of this certificate: it alone is trusted, the CA no longer matters."""
    secure = grpc.ssl_channel_credentials(certificate_pem, credentials.key_pem, credentials.certificate_pem)
    settings = [
        *_COMMON,
        ("grpc.ssl_target_name_override", server_name(certificate_pem)),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.min_reconnect_backoff_ms", int(options.handshake_timeout * 1000)),
    ]
    channel = grpc.aio.secure_channel(address, secure, options=settings)
    return DialledStream(channel, channel.stream_stream(f"/{_SERVICE}/{_METHOD}")())
