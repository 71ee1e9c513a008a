"""The consortium: file, keys, requests, renewal, removal; everything that must be refused, and that no key travels."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.application import consortium as command
from tallystick.core.errors import StudyError, TallystickError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto.certificates import CertificateAuthority, TlsKey, certificate_facts, fingerprint
from tallystick.crypto.prg import AesStream
from tallystick.crypto.signing import SigningKey
from tallystick.roles.identity import enrolment, identity_files
from tallystick.roles.identity.consortium import Consortium, Party, dials, split_address
from tallystick.roles.identity.identity_files import (
    expiry_warning,
    load_identity,
    read_consortium,
    read_private,
    write_private,
    write_public,
)
from tallystick.roles.identity.role_config import load_role_config

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
AUTHORITY = CertificateAuthority.create("Trial", AesStream(digest(b"authority")), NOW)


def party(name: str, role: str = "client", *, address: str | None = None, pins: int = 1) -> Party:
    fingerprints = tuple(f"sha256:{digest(name.encode(), bytes([i])).hex()}" for i in range(pins))
    identity = SigningKey(digest(b"identity", name.encode())).public
    return Party(name=name, role=role, address=address, fingerprints=fingerprints, identity=identity)


def pinned_for(consortium: Consortium, certificate: str) -> list[str]:
    return [p.name for p in consortium.parties if certificate in p.fingerprints]


EXAMPLE = Consortium(
    name="Trial",
    version=7,
    ca_certificate=AUTHORITY.certificate,
    parties=(
        party("Server 1", "server", address="sum1.example.org:7101"),
        party("Server 2", "server", address="[2001:db8::1]:7101", pins=2),
        party("Sum", "aggregator", address="10.0.0.1:7100"),
        party("Hospital A"),
        party("Lab", "analyst"),
        party("Server 3", "server", address="127.0.0.1:7103"),
    ),
)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_comes_back_as_it_was() -> None:
    again = Consortium.parse(EXAMPLE.to_toml())
    assert again == EXAMPLE
    assert again.hash == EXAMPLE.hash
    assert again.to_toml() == EXAMPLE.to_toml()
    assert EXAMPLE.party("Sum").address == "10.0.0.1:7100"
    assert [p.name for p in EXAMPLE.by_role("server")] == ["Server 1", "Server 2", "Server 3"]
    assert pinned_for(EXAMPLE, EXAMPLE.parties[1].fingerprints[1]) == ["Server 2"]


def test_the_hash_is_of_the_content_not_of_the_spelling() -> None:
    spelt = EXAMPLE.to_toml().replace("# Public.", "# Another comment.").replace("version = 7", "version   =  0x7")
    assert Consortium.parse(spelt).hash == EXAMPLE.hash
    changes = [
        replace(EXAMPLE, name="Other"),
        replace(EXAMPLE, version=8),
        replace(EXAMPLE, parties=EXAMPLE.parties[::-1]),
        replace(EXAMPLE, parties=EXAMPLE.parties[:-1]),
        EXAMPLE.with_party(party("Lab", "client")),
        replace(EXAMPLE, ca_certificate=CertificateAuthority.create("Trial", AesStream(digest(b"x")), NOW).certificate),
    ]
    assert len({EXAMPLE.hash, *(c.hash for c in changes)}) == 7


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}", fullmatch=True)


@settings(deadline=None, max_examples=40)
@given(found=st.lists(names, max_size=6, unique_by=lambda n: re.sub(r"[^a-z0-9]+", "-", n.lower()).strip("-")))
def test_any_allowed_names_come_back(found: list[str]) -> None:
    consortium = replace(EXAMPLE, parties=tuple(party(name) for name in found))
    assert Consortium.parse(consortium.to_toml()) == consortium


BAD_FILES = {
    "not TOML": ("[consortium", "not TOML"),
    "empty": ("", r"no \[consortium\]"),
    "unknown section": (EXAMPLE.to_toml() + "\n[extra]\n", "unknown key 'extra'"),
    "unknown key": (EXAMPLE.to_toml().replace("version = 7", "version = 7\nseed = 3"), "unknown key 'seed'"),
    "unknown party key": (EXAMPLE.to_toml() + "weight = 3\n", "unknown key 'weight'"),
    "misspelt party key": (
        EXAMPLE.to_toml().replace("identity = ", "idenity = ", 1),
        r"\[\[party\]\] 1 has the unknown key 'idenity'.*Did you mean identity",
    ),
    "fingerprints of numbers": (
        re.sub(r"fingerprints = .*", "fingerprints = [1]", EXAMPLE.to_toml(), count=1),
        "right type",
    ),
    "no version": (EXAMPLE.to_toml().replace("version = 7", ""), "lacks version"),
    "version is text": (EXAMPLE.to_toml().replace("version = 7", 'version = "7"'), "right type"),
    "version is true": (EXAMPLE.to_toml().replace("version = 7", "version = true"), "right type"),
    "version 0": (EXAMPLE.to_toml().replace("version = 7", "version = 0"), "from 1"),
    "unknown role": (EXAMPLE.to_toml().replace('"analyst"', '"boss"'), "unknown role"),
    "two aggregators": (EXAMPLE.to_toml().replace('"analyst"', '"aggregator"\naddress = "a:1"'), "two aggregators"),
    "server without address": (EXAMPLE.to_toml().replace('address = "127.0.0.1:7103"\n', ""), "no address"),
    "client with address": (EXAMPLE.to_toml().replace('"client"', '"client"\naddress = "a:1"'), "has an address"),
    "bad port": (EXAMPLE.to_toml().replace(":7103", ":70000"), "not an address"),
    "no port": (EXAMPLE.to_toml().replace(":7103", ""), "not an address"),
    "short fingerprint": (re.sub("sha256:[0-9a-f]{2}", "sha256:", EXAMPLE.to_toml(), count=1), "64 hex"),
    "short identity": (re.sub('identity = "..', 'identity = "', EXAMPLE.to_toml(), count=1), "64 hex digits"),
    "weak identity": (
        re.sub('identity = "[^"]*', 'identity = "' + "00" * 32, EXAMPLE.to_toml(), count=1),
        "small order",
    ),
    "name with newline": (EXAMPLE.to_toml().replace('"Lab"', '"Lab\\nX"'), "not allowed"),
    "name with a path": (EXAMPLE.to_toml().replace('"Lab"', '"../Lab"'), "not allowed"),
    "same name": (EXAMPLE.to_toml().replace('"Lab"', '"Sum"'), "two parties are named"),
    "names too alike": (EXAMPLE.to_toml().replace('"Lab"', '"hospital-a"'), "differ in punctuation"),
    "bad authority": (re.sub("MII", "MIX", EXAMPLE.to_toml(), count=1), "cannot be read"),
    "party is no list": ('[consortium]\nname="x"\nversion=1\nca_certificate=""\n[party]\n', r"\[\[party\]\]"),
}


@pytest.mark.parametrize("why", BAD_FILES)
def test_bad_files_are_refused(why: str) -> None:
    text, cause = BAD_FILES[why]
    with pytest.raises(TallystickError, match=cause) as refusal:
        Consortium.parse(text)
    assert refusal.value.remedy


def test_shared_certificates_and_identities_are_refused() -> None:
    lab, sum_ = EXAMPLE.party("Lab"), EXAMPLE.party("Sum")
    for twin in (replace(lab, fingerprints=sum_.fingerprints), replace(lab, identity=sum_.identity)):
        with pytest.raises(StudyError, match="share"):
            EXAMPLE.with_party(twin)
    for pins in ((), lab.fingerprints * 2, (*party("a", pins=2).fingerprints, *lab.fingerprints)):
        with pytest.raises(StudyError, match="fingerprints"):
            replace(lab, fingerprints=pins)


def test_right_authority_but_not_pinned_is_refused() -> None:
    stranger = AUTHORITY.issue(
        TlsKey.generate(AesStream(digest(b"k"))).signing_request("Sum"),
        party="Sum",
        source=AesStream(digest(b"s")),
        now=NOW,
    )
    assert pinned_for(EXAMPLE, fingerprint(stranger)) == []
    with pytest.raises(StudyError, match="not in consortium") as unknown:
        EXAMPLE.party("nobody\x1b[2J")
    assert "\x1b" not in str(unknown.value)


def test_who_dials_whom() -> None:
    want = {
        "Hospital A": ["Sum", "Server 1", "Server 2", "Server 3"],
        "Server 1": ["Server 2", "Server 3", "Sum"],
        "Server 2": ["Server 3", "Sum"],
        "Server 3": ["Sum"],
        "Lab": ["Sum"],
        "Sum": [],
    }
    assert {name: [p.name for p in dials(EXAMPLE, name)] for name in want} == want


@pytest.mark.parametrize(
    ("text", "want"), [("a.b:1", ("a.b", 1)), ("[::1]:65535", ("::1", 65535)), ("0.0.0.0:80", ("0.0.0.0", 80))]
)
def test_addresses(text: str, want: tuple[str, int]) -> None:
    assert split_address(text) == want


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "a:1\n", "a:+1", "a:01", "::1:5", "-a:1", "a/b:1"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(StudyError, match="not an address"):
        split_address(text)


# --- key files --------------------------------------------------------------------------------------------------------


def test_key_files_are_private_and_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    mask = os.umask(0)
    try:
        write_private(path, Secret(b"one"))
        write_public(tmp_path / "y", b"public")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o644
    before = path.stat().st_ino
    write_private(path, Secret(b"two"))
    assert read_private(path).reveal() == b"two"
    assert path.stat().st_ino != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.key", "y"]


def test_an_interrupted_write_leaves_the_old_key_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.key"
    write_private(path, Secret(b"one"))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(identity_files.os, "fsync", full)
    with pytest.raises(StudyError, match="No space left"):
        write_private(path, Secret(b"two"))
    assert [p.name for p in tmp_path.iterdir()] == ["x.key"]
    assert read_private(path).reveal() == b"one"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_open_key_files_are_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "x.key"
    write_private(path, Secret(b"private words"))
    path.chmod(mode)
    with pytest.raises(StudyError, match=f"open to others .mode {mode:04o}") as refusal:
        read_private(path)
    assert refusal.value.rule == "key-permissions"
    assert "private words" not in str(refusal.value)


def test_other_things_are_no_key_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(StudyError, match="not a plain file"):
        read_private(tmp_path / "pipe")
    for name in ("missing", "."):
        with pytest.raises(StudyError):
            read_private(tmp_path / name)


# --- joining, renewing, leaving ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    command.create("Trial", tmp_path / "con", now=NOW)
    return tmp_path / "con"


def enrol_all(folder: Path) -> None:
    command.enrol("Server 1", role="server", directory=folder, address="127.0.0.1:7101", now=NOW)
    command.enrol("Sum", role="aggregator", directory=folder, address="sum.example.org:7100", now=NOW)
    command.enrol("Hospital A", role="client", directory=folder, data="a.csv", now=NOW)


def test_create_makes_an_authority_and_never_overwrites(folder: Path) -> None:
    consortium = read_consortium(folder / "consortium.toml")
    assert (consortium.name, consortium.version, consortium.parties) == ("Trial", 1, ())
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert certificate_facts(consortium.ca_certificate).days_left(NOW) > 3650
    with pytest.raises(StudyError, match="there already"):
        command.create("Trial", folder, now=NOW)
    with pytest.raises(StudyError, match="not allowed"):
        command.create("a/b", folder / "x", now=NOW)
    assert not (folder / "x").exists()


def test_enrol_makes_a_role_that_can_start(folder: Path) -> None:
    enrol_all(folder)
    consortium = read_consortium(folder / "consortium.toml")
    assert consortium.version == 4
    for name, slug in (("Server 1", "server-1"), ("Sum", "sum"), ("Hospital A", "hospital-a")):
        config = load_role_config(folder / slug / "role.toml")
        identity = load_identity(config, consortium, NOW)
        assert identity.party == name
        assert pinned_for(consortium, identity.facts.fingerprint) == [name]
        for key in (config.key, config.identity):
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert identity.tls_key.reveal().decode() not in repr(identity)
    assert load_role_config(folder / "server-1" / "role.toml").listen == "127.0.0.1:7101"
    assert load_role_config(folder / "sum" / "role.toml").listen == "0.0.0.0:7100"
    client = load_role_config(folder / "hospital-a" / "role.toml")
    assert client.data == folder / "hospital-a" / "a.csv"
    assert client.policy is not None
    assert not client.policy.allow_not_private


def test_enrol_refuses_and_leaves_nothing_half_done(folder: Path) -> None:
    enrol_all(folder)
    before = (folder / "consortium.toml").read_bytes()
    for name, role, more in (
        ("Server 1", "server", {"address": "a:1"}),
        ("server-1", "server", {"address": "a:1"}),
        ("Second", "aggregator", {"address": "a:1"}),
        ("Server 2", "server", {}),
        ("Server 2", "server", {"address": "nowhere"}),
        ("Server 2", "server", {"address": "a:1", "data": "x.csv"}),
        ("Hospital B", "client", {"address": "a:1"}),
        ("Hospital B", "client", {"listen": "a:1"}),
        ("Hospital B", "boss", {}),
        ("../x", "client", {}),
    ):
        with pytest.raises(StudyError) as refusal:
            command.enrol(name, role=role, directory=folder, now=NOW, **more)
        assert refusal.value.remedy
    assert (folder / "consortium.toml").read_bytes() == before
    for slug in ("second", "server-2", "hospital-b"):
        assert not list((folder / slug).glob("*")) if (folder / slug).exists() else True
    command.enrol("Server 2", role="server", directory=folder, address="a:1", now=NOW)  # a second try works


def test_private_keys_never_travel(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "hospital"
    made = command.request("Hospital B", role="client", out=own, data="b.csv")
    sent = Path(made["request"]).read_text()
    secrets = [(own / name).read_text().splitlines()[1] for name in ("tls.key", "identity.key")]
    assert "PRIVATE" not in sent
    assert not any(secret in sent for secret in secrets)
    approved = command.approve(Path(made["request"]), directory=folder, fingerprint=made["fingerprint"], now=NOW)
    at_authority = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert not any(secret.encode() in at_authority for secret in secrets)
    assert b"PRIVATE" not in Path(approved["certificate"]).read_bytes()
    command.install(Path(approved["certificate"]), consortium=folder / "consortium.toml", directory=own, now=NOW)
    identity = load_identity(load_role_config(own / "role.toml"), read_consortium(own / "consortium.toml"), NOW)
    assert identity.party == "Hospital B"
    assert (own / "consortium.toml").read_bytes() == (folder / "consortium.toml").read_bytes()
    assert "Hospital B" in command.describe(approved)
    with pytest.raises(StudyError, match="there already"):
        command.request("Hospital B", role="client", out=own)


def test_requests_that_are_not_what_they_say(folder: Path, tmp_path: Path) -> None:
    enrol_all(folder)
    asked, path = enrolment.request("Hospital B", "client", tmp_path / "b")
    other, _ = enrolment.request("Hospital C", "client", tmp_path / "c")
    before = (folder / "consortium.toml").read_bytes()
    for bad in (
        replace(asked, role="analyst"),
        replace(asked, identity=other.identity),
        replace(asked, csr=other.csr),
        replace(asked, name="Hospital C"),
        replace(asked, proof=other.proof),
        replace(asked, proof=b""),
        replace(asked, address="a:1"),
    ):
        with pytest.raises(VerificationError):
            enrolment.approve(bad, folder, now=NOW)
    with pytest.raises(VerificationError, match="fingerprint you were told"):
        command.approve(path, directory=folder, fingerprint=other.fingerprint, now=NOW)
    # somebody else's keys under a name that is taken
    thief, _ = enrolment.request("Hospital A", "client", tmp_path / "thief")
    with pytest.raises(VerificationError, match="another identity key") as refusal:
        enrolment.approve(thief, folder, now=NOW)
    assert refusal.value.party == "Hospital A"
    for text in ("", "[request]\n", asked.to_toml() + "x = 1\n", asked.to_toml().replace('proof = "', 'proof = "zz')):
        with pytest.raises(StudyError, match="not a request file"):
            enrolment.Request.parse(text)
    path.write_bytes(b"\xff")
    with pytest.raises(StudyError, match="not a request file"):
        command.approve(path, directory=folder, unchecked=True, now=NOW)
    assert (folder / "consortium.toml").read_bytes() == before


def test_approval_needs_the_authority(folder: Path, tmp_path: Path) -> None:
    made = command.request("Hospital B", role="client", out=tmp_path / "b")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "consortium.toml").write_bytes((folder / "consortium.toml").read_bytes())
    with pytest.raises(StudyError, match=r"ca\.key"):
        command.approve(Path(made["request"]), directory=elsewhere, unchecked=True, now=NOW)
    command.create("Trial", tmp_path / "foreign", now=NOW)
    write_private(elsewhere / "ca.key", read_private(tmp_path / "foreign" / "ca.key"))
    with pytest.raises(VerificationError, match="does not belong"):
        command.approve(Path(made["request"]), directory=elsewhere, unchecked=True, now=NOW)
    (folder / "ca.key").chmod(0o644)
    with pytest.raises(StudyError, match="open to others"):
        command.approve(Path(made["request"]), directory=folder, unchecked=True, now=NOW)
    with pytest.raises(StudyError, match="open to others"):
        command.remove("Hospital B", directory=folder)


def test_rotation_overlaps_and_ends(folder: Path) -> None:
    enrol_all(folder)
    old = read_consortium(folder / "consortium.toml").party("Server 1")
    later = NOW + timedelta(days=80)
    result = command.rotate("Server 1", directory=folder, now=later)
    assert "--finish" in command.describe(result)
    both = read_consortium(folder / "consortium.toml").party("Server 1")
    assert both.fingerprints[0] == old.fingerprints[0]
    assert len(both.fingerprints) == 2
    assert both.identity == old.identity
    config = load_role_config(folder / "server-1" / "role.toml")
    identity = load_identity(config, read_consortium(folder / "consortium.toml"), NOW + timedelta(days=100))
    assert identity.facts.fingerprint == both.fingerprints[1]
    assert not (folder / "server-1" / "tls.next.key").exists()
    with pytest.raises(StudyError, match="renewed already"):
        command.rotate("Server 1", directory=folder, now=later)
    load_identity(config, read_consortium(folder / "consortium.toml"), later)  # the refused attempt broke nothing
    command.rotate("Server 1", directory=folder, finish=True)
    end = read_consortium(folder / "consortium.toml")
    assert end.party("Server 1").fingerprints == both.fingerprints[1:]
    assert pinned_for(end, old.fingerprints[0]) == []
    with pytest.raises(StudyError, match="not being renewed"):
        command.rotate("Server 1", directory=folder, finish=True)
    with pytest.raises(StudyError, match="Give the party"):
        command.rotate(directory=folder)


def test_rotation_without_keys_travelling(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "b"
    asked = command.request("Hospital B", role="client", out=own)
    issued = command.approve(Path(asked["request"]), directory=folder, unchecked=True, now=NOW)["certificate"]
    command.install(Path(issued), consortium=folder / "consortium.toml", directory=own, now=NOW)
    first = (own / "tls.key").read_bytes()
    renewal = command.rotate(directory=own)
    assert (own / "tls.key").read_bytes() == first  # the old key works until the new certificate is there
    heard = renewal["fingerprint"]
    renewed = command.approve(Path(renewal["request"]), directory=folder, fingerprint=heard, renewal=True, now=NOW)
    issued = renewed["certificate"]
    command.install(Path(issued), consortium=folder / "consortium.toml", directory=own, now=NOW)
    assert (own / "tls.key").read_bytes() != first
    command.install(Path(issued), consortium=folder / "consortium.toml", directory=own, now=NOW)  # again: the same
    consortium = read_consortium(own / "consortium.toml")
    identity = load_identity(load_role_config(own / "role.toml"), consortium, NOW)
    assert identity.facts.fingerprint == consortium.party("Hospital B").fingerprints[1]
    with pytest.raises(StudyError, match="finished by the authority"):
        command.rotate(directory=own, finish=True)
    enrol_all(folder)
    with pytest.raises(StudyError, match="not on this machine"):
        command.rotate("Hospital B", directory=folder)


def test_install_refuses_what_does_not_fit(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "b"
    asked = command.request("Hospital B", role="client", out=own)
    made = command.approve(Path(asked["request"]), directory=folder, unchecked=True, now=NOW)
    issued = Path(made["certificate"]).read_bytes()
    good = (folder / "consortium.toml").read_bytes()
    enrol_all(folder)
    newer = (folder / "consortium.toml").read_bytes()
    other = (folder / "issued" / "hospital-a.pem").read_bytes()
    with pytest.raises(VerificationError, match="another party"):
        enrolment.install(own, other, newer, now=NOW)
    with pytest.raises(VerificationError, match="expired"):
        enrolment.install(own, issued, newer, now=NOW + timedelta(days=91))
    swapped = EXAMPLE.with_party(party("Hospital B"))
    with pytest.raises(VerificationError, match="not issued by"):
        enrolment.install(own, issued, swapped.to_toml().encode(), now=NOW)
    enrolment.install(own, issued, newer, now=NOW)
    with pytest.raises(StudyError, match="version"):  # an older file would bring removed parties back
        enrolment.install(own, issued, good, now=NOW)
    with pytest.raises(StudyError, match="another consortium"):
        enrolment.install(own, issued, swapped.to_toml().encode(), now=NOW)
    (own / "tls.key").unlink()
    with pytest.raises(StudyError, match="no key here"):
        enrolment.install(own, issued, newer, now=NOW)


def test_a_removed_party_counts_nowhere(folder: Path) -> None:
    enrol_all(folder)
    config = load_role_config(folder / "hospital-a" / "role.toml")
    pin = read_consortium(folder / "consortium.toml").party("Hospital A").fingerprints[0]
    command.remove("Hospital A", directory=folder)
    after = read_consortium(folder / "consortium.toml")
    assert pinned_for(after, pin) == []
    with pytest.raises(StudyError, match="not in consortium"):
        load_identity(config, after, NOW)
    with pytest.raises(StudyError, match="not in consortium"):
        command.remove("Hospital A", directory=folder)


def test_identities_that_do_not_fit_are_refused(folder: Path) -> None:
    enrol_all(folder)
    consortium = read_consortium(folder / "consortium.toml")
    config = load_role_config(folder / "server-1" / "role.toml")
    other = load_role_config(folder / "sum" / "role.toml")
    for wrong, cause in (
        (replace(config, key=other.key), "TLS key does not belong"),
        (replace(config, identity=other.identity), "identity key is not the one pinned"),
        (replace(config, certificate=other.certificate), "another party"),
        (replace(config, role="client"), "knows Server 1 as server"),
        (replace(config, key=config.identity), "P-256"),
        (replace(config, identity=config.key), "Ed25519"),
    ):
        with pytest.raises(TallystickError, match=cause):
            load_identity(wrong, consortium, NOW)
    with pytest.raises(VerificationError, match="expired"):
        load_identity(config, consortium, NOW + timedelta(days=91))
    with pytest.raises(VerificationError, match="not valid before"):
        load_identity(config, consortium, NOW - timedelta(days=1))
    unpinned = consortium.with_party(replace(consortium.party("Server 1"), fingerprints=party("z").fingerprints))
    with pytest.raises(VerificationError, match="not pinned"):
        load_identity(config, unpinned, NOW)


def test_expiry_is_told_fourteen_days_ahead(folder: Path) -> None:
    enrol_all(folder)
    pem = (folder / "issued" / "sum.pem").read_bytes()
    assert expiry_warning(pem, NOW + timedelta(days=75, hours=23)) is None
    soon = expiry_warning(pem, NOW + timedelta(days=77))
    assert soon is not None
    assert "expires in 13.0 days" in soon
    late = expiry_warning(pem, NOW + timedelta(days=91))
    assert late is not None
    assert "expired on" in late
    assert command.show(folder, now=NOW)["warnings"] == []
    shown = command.show(folder, now=NOW + timedelta(days=80))
    assert len(shown["warnings"]) == 3
    assert "warning: the certificate of Sum expires in 10.0 days" in command.describe(shown)


def test_show_and_words(folder: Path) -> None:
    assert "nobody yet" in command.describe(command.show(folder, now=NOW))
    enrol_all(folder)
    shown = command.show(folder / "consortium.toml", now=NOW)
    assert [p["name"] for p in shown["parties"]] == ["Server 1", "Sum", "Hospital A"]
    assert shown["hash"] == read_consortium(folder / "consortium.toml").printed_hash
    assert shown["parties"][0]["expires"].startswith("2027-02-13")
    text = command.describe(shown)
    assert "sum.example.org:7100" in text
    assert shown["hash"] in text
