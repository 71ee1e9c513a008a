"""Certificates: what is issued, what is refused, and that gRPC's TLS agrees on both."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import StudyError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import SystemSource
from tallystick.core.redaction import Secret
from tallystick.crypto.certificates import (
    CertificateAuthority,
    TlsKey,
    certificate_facts,
    check_certificate,
    check_signing_request,
    dns_name,
    fingerprint,
    signing_key_from_pem,
    signing_key_to_pem,
)
from tallystick.crypto.prg import AesStream
from tallystick.crypto.signing import SigningKey

NOW = datetime.now(UTC)
SOURCE = AesStream(digest(b"certificates"))
AUTHORITY = CertificateAuthority.create("Trial", SOURCE, NOW - timedelta(days=200))
FOREIGN = CertificateAuthority.create("Trial", SOURCE, NOW - timedelta(days=200))
KEY = TlsKey.generate(SOURCE)


def issue(
    party: str = "Server 1", *, by: CertificateAuthority = AUTHORITY, key: TlsKey = KEY, age: float = 0.0
) -> bytes:
    when = NOW - timedelta(days=age)
    return by.issue(key.signing_request(party), party=party, source=SOURCE, now=when)


def built(
    *,
    party: str = "Server 1",
    dns: tuple[str, ...] = ("server-1",),
    ca: bool = False,
    key: Any = None,
    signer: Any = None,
    issuer: str = "Trial",
) -> bytes:
    """A certificate made by hand, to deviate where the product does not."""
    key = key or private(KEY)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(d) for d in dns]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
    )
    signer = signer or private(AUTHORITY.key)
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(signer, algorithm).public_bytes(Encoding.PEM)


def private(key: TlsKey) -> ec.EllipticCurvePrivateKey:
    loaded = load_pem_private_key(key.to_pem().reveal(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    return loaded


def test_what_is_issued() -> None:
    pem = issue()
    facts = check_certificate(pem, AUTHORITY.certificate, party="Server 1", now=NOW)
    assert facts == certificate_facts(pem)
    assert (facts.party, facts.issuer) == ("Server 1", "Trial")
    assert facts.fingerprint == fingerprint(pem)
    assert 89.9 < facts.days_left(NOW) <= 90
    assert facts.public_der == KEY.public_der
    certificate = x509.load_pem_x509_certificate(pem)
    der = certificate.public_bytes(Encoding.DER)
    assert fingerprint(der) == facts.fingerprint == f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}"
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert certificate.serial_number != x509.load_pem_x509_certificate(issue()).serial_number


def test_the_authority_issues_end_certificates_only() -> None:
    certificate = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints.ca
    assert constraints.path_length == 0
    assert certificate.not_valid_after_utc > NOW + timedelta(days=3400)


def test_no_certificate_outlives_its_authority() -> None:
    end = certificate_facts(AUTHORITY.certificate).not_after
    late = AUTHORITY.issue(KEY.signing_request("A"), party="A", source=SOURCE, now=end - timedelta(days=3))
    assert certificate_facts(late).not_after == end
    with pytest.raises(VerificationError, match="expired"):
        AUTHORITY.issue(KEY.signing_request("A"), party="A", source=SOURCE, now=end)


Case = Callable[[], bytes]
REFUSED: dict[str, tuple[Case, str, str]] = {
    "forged": (lambda: built(signer=private(TlsKey.generate(SOURCE))), "not issued by", "untrusted-certificate"),
    "self-signed": (lambda: built(signer=private(KEY), issuer="Server 1"), "not issued by", "untrusted-certificate"),
    "foreign authority of the same name": (lambda: issue(by=FOREIGN), "not issued by", "untrusted-certificate"),
    "foreign authority of another name": (lambda: built(issuer="Other"), "not issued by", "untrusted-certificate"),
    "the authority's own": (lambda: AUTHORITY.certificate, "a certificate|an authority", "untrusted-certificate"),
    "an intermediate authority": (lambda: built(ca=True), "authority's certificate", "untrusted-certificate"),
    "wrong name": (lambda: issue("Server 2"), "another party", "untrusted-certificate"),
    "right name, wrong DNS name": (lambda: built(dns=("server-2",)), "another party", "untrusted-certificate"),
    "two DNS names": (lambda: built(dns=("server-1", "server-2")), "another party", "untrusted-certificate"),
    "control characters in its name": (lambda: built(party="Server 1\nok"), "another party", "untrusted-certificate"),
    "another curve": (lambda: built(key=ec.generate_private_key(ec.SECP384R1())), "P-256", "untrusted-certificate"),
    "Ed25519": (lambda: built(key=ed25519.Ed25519PrivateKey.generate()), "P-256", "untrusted-certificate"),
    "expired": (lambda: issue(age=91), "expired on", "certificate-out-of-date"),
    "not yet valid": (lambda: issue(age=-1), "not valid before", "certificate-out-of-date"),
    "no certificate": (
        lambda: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "cannot be read",
        "untrusted-certificate",
    ),
    "nothing": (lambda: b"", "cannot be read", "untrusted-certificate"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_certificate_that_does_not_fit_is_refused(why: str) -> None:
    case, cause, rule = REFUSED[why]
    with pytest.raises(VerificationError, match=cause) as refusal:
        check_certificate(case(), AUTHORITY.certificate, party="Server 1", now=NOW)
    assert refusal.value.rule == rule
    assert refusal.value.party == "Server 1"
    assert refusal.value.remedy
    check_certificate(issue(), AUTHORITY.certificate, party="Server 1", now=NOW)  # the control


def test_validity_has_sharp_ends() -> None:
    pem = issue()
    facts = certificate_facts(pem)
    for when in (facts.not_before, facts.not_after - timedelta(seconds=1)):
        check_certificate(pem, AUTHORITY.certificate, party="Server 1", now=when)
    for when in (facts.not_before - timedelta(seconds=1), facts.not_after):
        with pytest.raises(VerificationError):
            check_certificate(pem, AUTHORITY.certificate, party="Server 1", now=when)
    assert facts.not_before <= NOW - timedelta(minutes=5) + timedelta(seconds=1)  # some skew is fine
    with pytest.raises(ValueError, match="aware"):
        check_certificate(pem, AUTHORITY.certificate, party="Server 1", now=datetime(2026, 1, 1))


def test_every_changed_byte_of_the_content_is_refused() -> None:
    certificate = x509.load_pem_x509_certificate(issue())
    der, content = certificate.public_bytes(Encoding.DER), certificate.tbs_certificate_bytes
    start = der.index(content)
    for where in range(len(der)):
        changed = bytearray(der)
        changed[where] ^= 4
        try:
            facts = check_certificate(bytes(changed), AUTHORITY.certificate, party="Server 1", now=NOW)
        except VerificationError:
            continue
        # Around the content ECDSA's encoding has slack (unused bits of a bit string): there the pin decides.
        assert not start <= where < start + len(content)
        assert facts.fingerprint != fingerprint(der)


def test_requests_prove_their_key() -> None:
    request = KEY.signing_request("Server 1")
    check_signing_request(request, party="Server 1")
    der = bytearray(x509.load_pem_x509_csr(request).public_bytes(Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    for bad, cause in ((forged, "its own key"), (b"no request", "cannot be read")):
        with pytest.raises(VerificationError, match=cause):
            AUTHORITY.issue(bad, party="Server 1", source=SOURCE, now=NOW)
    with pytest.raises(VerificationError, match="another party"):
        AUTHORITY.issue(request, party="Server 2", source=SOURCE, now=NOW)
    other = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256())
    )
    with pytest.raises(VerificationError, match="P-256"):
        check_signing_request(other.public_bytes(Encoding.PEM), party="Server 1")


def test_keys_come_from_the_source_and_do_not_print() -> None:
    one, two = (TlsKey.generate(AesStream(digest(b"tls"))) for _ in range(2))
    assert one.public_der == two.public_der
    assert TlsKey.generate(SOURCE).public_der != one.public_der
    assert TlsKey.from_pem(one.to_pem()).public_der == one.public_der
    assert isinstance(one.to_pem(), Secret)
    assert repr(one) == "TlsKey(P-256)"
    assert repr(AUTHORITY) == "CertificateAuthority(Trial)"
    for thing in (one, AUTHORITY):
        with pytest.raises(TypeError, match="not serialised"):
            pickle.dumps(thing)


def test_key_files_hold_the_right_kind() -> None:
    signing = SigningKey.generate(SOURCE)
    assert signing_key_from_pem(signing_key_to_pem(signing)).public == signing.public
    for read, pem in (
        (TlsKey.from_pem, signing_key_to_pem(signing)),
        (signing_key_from_pem, KEY.to_pem()),
        (TlsKey.from_pem, b"secret words"),
    ):
        with pytest.raises(StudyError) as refusal:
            read(pem)
        assert "secret words" not in str(refusal.value)
    with pytest.raises(VerificationError, match="does not belong"):
        CertificateAuthority(KEY, AUTHORITY.certificate)


@settings(deadline=None, max_examples=100)
@given(name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}", fullmatch=True))
def test_dns_names_are_labels(name: str) -> None:
    label = dns_name(name)
    assert 1 <= len(label) <= 63
    assert label.replace("-", "").isalnum()
    assert label == dns_name(name.upper())


def test_dns_name_refuses_other_names() -> None:
    assert dns_name("St. Mary's"[:8] + " 2") == "st-mary-2"
    with pytest.raises(StudyError):
        dns_name("../etc")


# --- gRPC speaks to these certificates, and refuses the others by itself ---------------------------------------------


@contextmanager
def served(certificate: bytes, key: bytes, authority: bytes = AUTHORITY.certificate) -> Iterator[int]:
    """A gRPC server on loopback that answers with the caller's name, mutual TLS."""

    def who(_request: bytes, context: Any) -> bytes:
        pem = context.auth_context()["x509_pem_cert"][0]
        return fingerprint(pem).encode()

    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def call(port: int, certificate: bytes | None, key: bytes | None, name: str = "server-1") -> str:
    credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate, key, certificate)
    options = [("grpc.ssl_target_name_override", name), ("grpc.enable_retries", 0)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        return str(channel.unary_unary("/test/Who")(b"", timeout=10).decode())


CLIENT_KEY = TlsKey.generate(SOURCE)


def test_grpc_mutual_tls_tells_the_caller() -> None:
    mine = issue("Hospital A", key=CLIENT_KEY)
    with served(issue(), KEY.to_pem().reveal()) as port:
        assert call(port, mine, CLIENT_KEY.to_pem().reveal()) == fingerprint(mine)


@pytest.mark.parametrize("why", ["none", "self-signed", "foreign authority", "expired", "not yet valid", "stolen"])
def test_grpc_refuses_callers(why: str) -> None:
    key = CLIENT_KEY.to_pem().reveal()
    certificate = {
        "none": None,
        "self-signed": built(signer=private(CLIENT_KEY), key=private(CLIENT_KEY), issuer="Server 1"),
        "foreign authority": issue("Hospital A", by=FOREIGN, key=CLIENT_KEY),
        "expired": issue("Hospital A", key=CLIENT_KEY, age=91),
        "not yet valid": issue("Hospital A", key=CLIENT_KEY, age=-1),
        "stolen": issue("Hospital A", key=KEY),  # somebody's certificate without its key
    }[why]
    with served(issue(), KEY.to_pem().reveal()) as port, pytest.raises(grpc.RpcError) as refusal:
        call(port, certificate, key if certificate else None)
    assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("why", ["foreign authority", "expired", "not yet valid", "wrong name"])
def test_grpc_refuses_listeners(why: str) -> None:
    certificate = {
        "foreign authority": issue(by=FOREIGN),
        "expired": issue(age=91),
        "not yet valid": issue(age=-1),
        "wrong name": issue("Server 2"),
    }[why]
    mine = issue("Hospital A", key=CLIENT_KEY)
    with served(certificate, KEY.to_pem().reveal()) as port, pytest.raises(grpc.RpcError) as refusal:
        call(port, mine, CLIENT_KEY.to_pem().reveal())
    assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE


def test_grpc_does_not_speak_ed25519_certificates() -> None:
    """Why TLS keys are P-256. If this fails one day, gRPC has learnt it."""
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    mine = issue("Hospital A", key=CLIENT_KEY)
    with served(built(key=key), pem) as port, pytest.raises(grpc.RpcError):
        call(port, mine, CLIENT_KEY.to_pem().reveal())
    with served(built(), KEY.to_pem().reveal()) as port:  # the control: the same by hand with P-256
        assert call(port, mine, CLIENT_KEY.to_pem().reveal()) == fingerprint(mine)


def test_system_randomness_works_too() -> None:
    authority = CertificateAuthority.create("X", SystemSource(), NOW)
    key = TlsKey.generate(SystemSource())
    pem = authority.issue(key.signing_request("A"), party="A", source=SystemSource(), now=NOW)
    check_certificate(pem, authority.certificate, party="A", now=NOW)
