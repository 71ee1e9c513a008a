"""A mail server on loopback that keeps what it is given. It speaks as much SMTP as smtplib needs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage


class MailStub(socketserver.ThreadingTCPServer):
    """``refuse`` is the line with which every mail is turned down, if there is one."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuse = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Session(socketserver.StreamRequestHandler):
    server: MailStub

    def handle(self) -> None:
        receivers: list[str] = []
        self.wfile.write(b"220 stub\r\n")
        for line in self.rfile:
            word = line.strip().upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = []
                for part in self.rfile:
                    if part == b".\r\n":
                        break
                    lines.append(part[1:] if part.startswith(b"..") else part)
                mail = message_from_bytes(b"".join(lines), policy=policy.default)
                self.server.mails.append((receivers, mail))  # type: ignore[arg-type]
                self.wfile.write(b"250 kept\r\n")
            elif word.startswith(b"RCPT TO:"):
                receivers.append(line.strip()[8:].decode().strip("<>"))
                self.wfile.write(self.server.refuse or b"250 fine\r\n")
            elif word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 fine\r\n")


@contextmanager
def mail_stub() -> Iterator[MailStub]:
    with MailStub() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
