"""Certificates of a consortium: a P-256 authority, one certificate per role instance, and what is checked of them.

TLS keys are P-256 because gRPC's TLS library does not offer Ed25519 certificates (a test shows it); identities, which
sign statements and study keys, are Ed25519 and separate. A certificate lives 90 days, names one party (subject and
DNS name: :func:`dns_name`), may be used by either end of a connection, and issues nothing. Its fingerprint, SHA-256
over its DER bytes, is what the consortium file pins, so a certificate authority that issues too much changes nothing.

Pure: bytes in, bytes out; time (``now``, aware, UTC) and randomness are arguments; ECDSA nonces are derived, not drawn
[RFC 6979].
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tallystick.core.errors import StudyError, VerificationError
from tallystick.core.identifiers import check_party_name, format_hash
from tallystick.core.randomness import WordSource
from tallystick.core.readable_text import what_is_wrong_with_name
from tallystick.core.redaction import Secret
from tallystick.crypto.signing import SigningKey

CERTIFICATE_DAYS = 90
AUTHORITY_DAYS = 3652
_SKEW = timedelta(minutes=5)  # a certificate is good at once at a party whose clock is a little behind
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def dns_name(party: str) -> str:
    """The DNS name in a party's certificate: lower case, everything but letters and digits a dash."""
    return re.sub(r"[^a-z0-9]+", "-", check_party_name(party).lower()).strip("-")


class TlsKey:
    """A P-256 private key; its PEM form is a :class:`Secret`."""

    __slots__ = ("_private",)

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls, source: WordSource) -> TlsKey:
        """A fresh key: 48 bytes reduced mod the order, off uniform by 2^-128 [FIPS 186-5 A.2.1]."""
        scalar = int.from_bytes(source.bytes(48), "big") % (_ORDER - 1) + 1
        return cls(ec.derive_private_key(scalar, ec.SECP256R1()))

    @classmethod
    def from_pem(cls, pem: Secret | bytes) -> TlsKey:
        """The key in a PEM file, or an error that quotes nothing of it."""
        key = _private_from_pem(pem)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise StudyError("a TLS key file does not hold a P-256 key", remedy="Make one with consortium request.")
        return cls(key)

    @property
    def public_der(self) -> bytes:
        """The public half, for comparison."""
        return self._private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def to_pem(self) -> Secret:
        """PKCS 8, for a file of mode 0600."""
        return Secret(self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def signing_request(self, party: str) -> bytes:
        """A PEM certificate signing request: shows that whoever asks holds this key."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(_name(party))
        return builder.sign(self._private, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)

    def __repr__(self) -> str:
        return "TlsKey(P-256)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("TLS keys are not serialised")


@dataclass(frozen=True, kw_only=True)
class CertificateFacts:
    """What a certificate says, without any judgement of it."""

    party: str
    issuer: str
    fingerprint: str
    not_before: datetime
    not_after: datetime
    public_der: bytes

    def days_left(self, now: datetime) -> float:
        """Days until it expires; negative when it has."""
        return (self.not_after - now) / timedelta(days=1)


class CertificateAuthority:
    """The consortium's authority: its key exists only where the consortium was created."""

    __slots__ = ("_certificate", "_key")

    def __init__(self, key: TlsKey, certificate: bytes) -> None:
        self._key = key
        self._certificate = _load(certificate)
        if _public_der(self._certificate) != key.public_der:
            raise VerificationError(
                "the authority's key does not belong to its certificate",
                remedy="Use the key file that consortium create wrote beside this consortium file.",
            )

    @classmethod
    def create(cls, consortium: str, source: WordSource, now: datetime) -> CertificateAuthority:
        """A new authority for ten years that may issue end certificates only."""
        key = TlsKey.generate(source)
        public = key._private.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(consortium))
            .issuer_name(_name(consortium))
            .public_key(public)
            .serial_number(_serial(source))
            .not_valid_before(_aware(now) - _SKEW)
            .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(issues=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        return cls(
            key, builder.sign(key._private, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)
        )

    @property
    def certificate(self) -> bytes:
        """PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key(self) -> TlsKey:
        """For the one file that keeps it."""
        return self._key

    def issue(
        self, request: bytes, *, party: str, source: WordSource, now: datetime, days: float = CERTIFICATE_DAYS
    ) -> bytes:
        """A PEM certificate for the key in ``request``, which must ask for ``party`` and prove its key."""
        asked = check_signing_request(request, party=party)
        end = min(_aware(now) + timedelta(days=days), self._certificate.not_valid_after_utc)
        if end <= now:
            raise VerificationError("the authority's certificate has expired", remedy="Create a new consortium.")
        issuer_key = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(party))
            .issuer_name(self._certificate.subject)
            .public_key(asked)
            .serial_number(_serial(source))
            .not_valid_before(max(now - _SKEW, self._certificate.not_valid_before_utc))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(issues=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name(party))]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(asked), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
        )
        return builder.sign(self._key._private, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)

    def __repr__(self) -> str:
        return f"CertificateAuthority({_common_name(self._certificate.subject)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("authorities are not serialised")


def check_signing_request(request: bytes, *, party: str) -> ec.EllipticCurvePublicKey:
    """The P-256 key in a signing request that names ``party`` and is signed with that very key."""
    try:
        asked = x509.load_pem_x509_csr(request)
        fine = asked.is_signature_valid
        key = asked.public_key()
    except Exception:
        _refuse("a certificate request cannot be read", "Make it again with consortium request.", party=party)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        _refuse("a certificate request is not for a P-256 key", "Make it again with consortium request.", party=party)
    if not fine:
        _refuse("a certificate request is not signed with its own key", "Do not approve it.", party=party)
    if _common_name(asked.subject) != party:
        _refuse("a certificate request names another party", "Do not approve it; ask who made it.", party=party)
    return key


def request_key_der(request: bytes, *, party: str) -> bytes:
    """The key in a signing request, as :attr:`CertificateFacts.public_der` has that of a certificate."""
    return check_signing_request(request, party=party).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(certificate: bytes) -> str:
    """``sha256:<64 hex>`` over the DER bytes of a PEM or DER certificate: what the consortium file pins."""
    return format_hash(_load(certificate).fingerprint(hashes.SHA256()))


def certificate_facts(certificate: bytes) -> CertificateFacts:
    """What a certificate says of itself; :func:`check_certificate` says whether to believe it."""
    found = _load(certificate)
    return CertificateFacts(
        party=_common_name(found.subject),
        issuer=_common_name(found.issuer),
        fingerprint=format_hash(found.fingerprint(hashes.SHA256())),
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        public_der=_public_der(found),
    )


def check_certificate(certificate: bytes, authority: bytes, *, party: str, now: datetime) -> CertificateFacts:
    """The facts of a certificate that this authority issued to this party and that is valid now."""
    found, issuer = _load(certificate, party), _load(authority, party)
    facts = certificate_facts(certificate)
    try:
        found.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        _refuse(
            "a certificate was not issued by the consortium's authority",
            "Have it approved there (consortium approve), or compare the consortium files of both sides.",
            party=party,
        )
    try:
        constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = names.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        _refuse("a certificate lacks the fields of a role certificate", "Have it approved again.", party=party)
    if constraints.ca:
        _refuse("an authority's certificate is used as a party's", "Use the party's own certificate.", party=party)
    if facts.party != party or dns != [dns_name(party)]:
        _refuse("a certificate names another party", "Use the certificate issued to this party.", party=party)
    key = found.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        _refuse("a certificate is not for a P-256 key", "Make a request with consortium request.", party=party)
    begin = max(facts.not_before, issuer.not_valid_before_utc)
    end = min(facts.not_after, issuer.not_valid_after_utc)
    if _aware(now) < begin:
        _refuse(
            f"a certificate is not valid before {begin:%Y-%m-%d %H:%M} UTC and this clock says {now:%Y-%m-%d %H:%M}",
            "Set this machine's clock.",
            "certificate-out-of-date",
            party=party,
        )
    if now >= end:
        _refuse(
            f"a certificate expired on {end:%Y-%m-%d %H:%M} UTC",
            "Renew it: consortium rotate.",
            "certificate-out-of-date",
            party=party,
        )
    return facts


def signing_key_to_pem(key: SigningKey) -> Secret:
    """An identity key as PKCS 8 PEM, which any tool reads, for a file of mode 0600."""
    private = Ed25519PrivateKey.from_private_bytes(key.reveal().reveal())
    return Secret(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def signing_key_from_pem(pem: Secret | bytes) -> SigningKey:
    """Inverse of :func:`signing_key_to_pem`."""
    key = _private_from_pem(pem)
    if not isinstance(key, Ed25519PrivateKey):
        raise StudyError("an identity file does not hold an Ed25519 key", remedy="Make one with consortium request.")
    return SigningKey(Secret(key.private_bytes_raw()))


def _private_from_pem(pem: Secret | bytes) -> object:
    try:
        return load_pem_private_key(pem.reveal() if isinstance(pem, Secret) else pem, password=None)
    except (ValueError, TypeError):
        raise StudyError(
            "a key file does not hold an unencrypted PEM key", remedy="Make one with consortium request."
        ) from None


def _load(certificate: bytes, party: str | None = None) -> x509.Certificate:
    try:
        pem = certificate.lstrip().startswith(b"-----BEGIN")
        found = x509.load_pem_x509_certificate(certificate) if pem else x509.load_der_x509_certificate(certificate)
        _ = (found.subject, found.issuer, found.extensions, found.public_key(), found.not_valid_after_utc)
    except Exception:  # the parser is lazy and raises a dozen kinds: whatever it is, it is not a certificate of ours
        _refuse("a certificate cannot be read", "Copy the file again; it is text between BEGIN and END.", party=party)
    return found


def _public_der(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _name(party: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, check_party_name(party))])


def _common_name(name: x509.Name) -> str:
    values = [str(a.value) for a in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
    fit = len(values) == 1 and what_is_wrong_with_name(values[0]) is None  # it may end up in a log
    return values[0] if fit else ""


def _usage(*, issues: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not issues, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=issues, crl_sign=issues, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _serial(source: WordSource) -> int:
    return (int.from_bytes(source.bytes(20), "big") >> 1) | 1  # positive, at most 159 bits [RFC 5280 §4.1.2.2]


def _aware(now: datetime) -> datetime:
    if now.tzinfo is None:
        raise ValueError("times are aware: datetime.now(UTC)")
    return now.astimezone(UTC)


def _refuse(cause: str, remedy: str, rule: str = "untrusted-certificate", *, party: str | None) -> NoReturn:
    raise VerificationError(cause, rule=rule, remedy=remedy, party=party) from None
