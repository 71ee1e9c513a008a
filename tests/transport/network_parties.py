"""A small consortium for the tests of the network: certificates good and bad, nodes on ephemeral loopback ports."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tallystick.transport.network.credentials import Credentials, Peer, fingerprint
from tallystick.transport.network.node import Node
from tallystick.transport.network.options import Options

PATIENCE = 30.0  # how long a test waits for what must come; it never passes by waiting this long


@dataclass(frozen=True)
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def issue(name: str, ca: Issued | None, *, first_day: int = -1, last_day: int = 90, is_ca: bool = False) -> Issued:
    """A P-256 certificate, self-signed without ``ca``; days count from today."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.certificate.subject if ca else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=first_day))
        .not_valid_after(now + dt.timedelta(days=last_day))
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
    )
    if not is_ca:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return Issued(builder.sign(ca.key if ca else key, hashes.SHA256()), key)


CA = issue("test consortium", None, is_ca=True)
_KNOWN: dict[str, Issued] = {}


def party(name: str) -> Issued:
    """The certificate of a party of the consortium, made once."""
    if name not in _KNOWN:
        _KNOWN[name] = issue(name, CA)
    return _KNOWN[name]


def credentials(name: str, issued: Issued | None = None, ca: Issued = CA) -> Credentials:
    mine = issued or party(name)
    return Credentials(name=name, certificate_pem=mine.pem, key_pem=mine.key_pem, ca_pem=ca.pem)


def peer(name: str, address: str | None = None, *issued: Issued) -> Peer:
    return Peer(
        name=name, address=address, fingerprints=frozenset(fingerprint(i.pem) for i in issued or (party(name),))
    )


QUICK = Options(heartbeat=0.2, dead_after=5.0, handshake_timeout=5.0, first_backoff=0.02, longest_backoff=0.1)


def listener(name: str, *others: str, options: Options = QUICK, **rest: object) -> Node:
    """A started node that listens and knows the others."""
    return Node(credentials(name), [peer(o) for o in others], listen="127.0.0.1:0", options=options, **rest).start()  # type: ignore[arg-type]


def dialler(name: str, to: Node, options: Options = QUICK, **rest: object) -> Node:
    """A started node that dials one listener."""
    peers = [peer(to.name, f"127.0.0.1:{to.port}")]
    return Node(credentials(name), peers, dial=[to.name], options=options, **rest).start()  # type: ignore[arg-type]


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; fail if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)
