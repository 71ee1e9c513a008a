"""Who we are and whom we know, as plain data: certificates, keys and pinned fingerprints.

A fingerprint is ``sha256:<64 hex>`` over the DER certificate. Only a pinned
fingerprint is an identity: a certificate that the CA signed and that nobody
pinned is a stranger's. A peer has two fingerprints while its certificate
rotates.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import check_party_name, format_hash, parse_hash


def fingerprint(certificate_pem: bytes | str) -> str:
    """SHA-256 of the DER form of the first certificate in the text."""
    text = certificate_pem if isinstance(certificate_pem, str) else certificate_pem.decode("ascii")
    end = "-----END CERTIFICATE-----"
    first = text[: text.find(end) + len(end)].strip() if end in text else text
    return format_hash(hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest())


def server_name(certificate_pem: bytes) -> str:
    """The DNS name that a certificate, already pinned, carries for itself."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    found = names.get_values_for_type(x509.DNSName)
    return found[0] if found else ""


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` (an IPv6 host in brackets) as a pair; port 0 asks for any free port."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise StudyError(f"{ascii(address)[:80]} is not an address", remedy='Write it as "host:port".')
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another party: its pinned fingerprints and, if it listens, its address."""

    name: str
    address: str | None = None
    fingerprints: frozenset[str]

    def __post_init__(self) -> None:
        check_party_name(self.name)
        for one in self.fingerprints:
            parse_hash(one)
        if self.address is not None:
            split_address(self.address)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """This party's name, certificate and key, and the consortium's CA."""

    name: str
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    ca_pem: bytes

    def __post_init__(self) -> None:
        check_party_name(self.name)
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate_pem)
            x509.load_pem_x509_certificate(self.ca_pem)
        except ValueError:
            raise StudyError(
                "the certificate or the CA certificate is not readable", party=self.name, remedy="Give PEM files."
            ) from None
        if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
            raise StudyError(
                "the certificate's key is not an elliptic-curve key",
                party=self.name,
                remedy="Make the key with `tallystick consortium request`.",
            )

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate_pem)


def by_fingerprint(peers: Iterable[Peer]) -> dict[str, Peer]:
    """The peer behind each fingerprint; one fingerprint for two peers is an error."""
    found: dict[str, Peer] = {}
    for peer in peers:
        for one in peer.fingerprints:
            if found.setdefault(one, peer) is not peer:
                raise StudyError(
                    f"{peer.name} and {found[one].name} have the same certificate fingerprint",
                    remedy="Every party has its own certificate.",
                )
    return found
