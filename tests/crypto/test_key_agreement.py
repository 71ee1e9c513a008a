"""Study keys: the standard's vectors, an independent curve, and every key that must be refused."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import sealing_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto import key_agreement
from tallystick.crypto.key_agreement import AgreementKey, StudyKey, check_public_key, check_study_keys, derive_channel
from tallystick.crypto.prg import AesStream
from tallystick.crypto.signing import SigningKey

STUDY = digest(b"study")
PARTIES = {"Hospital A": "client", "Hospital B": "client", "Server 1": "server"}
IDENTITIES = {party: SigningKey(digest(b"identity", party.encode())) for party in PARTIES}
KEYS = {party: AgreementKey(digest(b"x25519", party.encode())) for party in PARTIES}
MEMBERS = {party: (role, IDENTITIES[party].public) for party, role in PARTIES.items()}


def signed(party: str, *, study: bytes = STUDY, key: AgreementKey | None = None, role: str | None = None) -> StudyKey:
    own = key or KEYS[party]
    return own.sign(IDENTITIES[party], study_hash=study, party=party, role=role or PARTIES[party])


ALL = [signed(party) for party in PARTIES]


def refused(*keys: StudyKey) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as refusal:
        check_study_keys(keys, study_hash=STUDY, members=MEMBERS)
    assert refusal.value.rule == "bad-study-key"
    assert refusal.value.remedy
    return refusal.value


def test_rfc7748_section_5_2() -> None:
    """The standard's own vectors: one multiplication, and a thousand of them in a row."""
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    want = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert AgreementKey(scalar).agree(point).reveal().hex() == reference.x25519(scalar, point).hex() == want
    k = u = (9).to_bytes(32, "little")
    for _ in range(1000):
        k, u = AgreementKey(k).agree(u).reveal(), k
    assert k.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@settings(deadline=None, max_examples=25)
@given(a=st.binary(min_size=32, max_size=32), b=st.binary(min_size=32, max_size=32))
def test_the_curve_is_the_one_of_the_standard(a: bytes, b: bytes) -> None:
    one, two = AgreementKey(a), AgreementKey(b)
    assert one.public == reference.public_of(a)
    if one.public == two.public:
        return
    shared = one.agree(two.public).reveal()
    assert shared == two.agree(one.public).reveal() == reference.x25519(a, two.public)


@pytest.mark.parametrize("low", sorted(key_agreement._LOW_ORDER), ids=lambda u: u.hex()[:8])
def test_low_order_keys_are_refused(low: bytes) -> None:
    assert reference.x25519(digest(b"any"), low) == bytes(32)  # why
    with pytest.raises(RemoteProtocolError, match="low order") as refusal:
        KEYS["Server 1"].agree(low, party="Hospital A")
    assert refusal.value.party == "Hospital A"
    assert refusal.value.rule == "bad-study-key"


def test_the_list_of_low_order_points_is_complete() -> None:
    """u = 0, 1, −1 and the roots of the 8-division polynomial: doubling takes each of them to 0 or to nothing."""

    def double(u: int) -> int | None:
        below = 4 * u * (u * u + 486662 * u + 1) % reference.Q
        return (u * u - 1) ** 2 * pow(below, -1, reference.Q) % reference.Q if below else None

    chains = {}
    for raw in key_agreement._LOW_ORDER:
        u = int.from_bytes(raw, "little")
        steps = [u]
        while (following := double(steps[-1])) is not None and len(steps) < 5:
            steps.append(following)
        chains[u] = len(steps)
    # order 2 or infinity: 0; order 4: 1, −1; order 8 on the curve: two; the twist's order is 4 times a prime
    assert sorted(chains.values()) == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("low", sorted(key_agreement._LOW_ORDER), ids=lambda u: u.hex()[:8])
def test_second_spellings_are_refused(low: bytes) -> None:
    for raw in (
        (int.from_bytes(low, "little") + 2**255).to_bytes(32, "little"),
        (reference.Q + int.from_bytes(low, "little") % 19).to_bytes(32, "little"),
        KEYS["Hospital A"].public[:-1] + bytes([KEYS["Hospital A"].public[-1] | 0x80]),
    ):
        with pytest.raises(RemoteProtocolError, match="canonical"):
            check_public_key(raw)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="32 bytes"):
        KEYS["Server 1"].agree(bytes(length))
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        AgreementKey(bytes(length))


def test_a_reflected_key_is_refused() -> None:
    own = KEYS["Server 1"]
    with pytest.raises(RemoteProtocolError, match="sent back") as refusal:
        own.agree(own.public, party="Hospital A")
    assert refusal.value.party == "Hospital A"
    # the same with the attacker's own signature under it
    mirror = replace(signed("Hospital A", key=own))
    assert "same as that of Server 1" in refused(signed("Server 1"), mirror).cause
    with pytest.raises(RemoteProtocolError, match="sent back"):
        derive_channel(own, sender=mirror, receiver=signed("Server 1"))


def test_identical_keys_are_refused() -> None:
    error = refused(signed("Hospital A"), signed("Hospital B", key=KEYS["Hospital A"]))
    assert error.party == "Hospital B"
    assert "Hospital A" in error.cause


def test_signed_keys_are_accepted_and_bound() -> None:
    assert check_study_keys(ALL, study_hash=STUDY, members=MEMBERS) == {key.party: key for key in ALL}
    good = signed("Hospital A")
    with pytest.raises(VerificationError):  # another's signature under one's name
        check_study_keys([replace(signed("Hospital B"), party="Hospital A")], study_hash=STUDY, members=MEMBERS)
    with pytest.raises(VerificationError):
        replace(good, public=KEYS["Hospital B"].public).verify(IDENTITIES["Hospital A"].public)
    with pytest.raises(VerificationError):
        replace(good, study_hash=digest(b"other")).verify(IDENTITIES["Hospital A"].public)
    with pytest.raises(VerificationError):
        replace(good, role="server").verify(IDENTITIES["Hospital A"].public)
    with pytest.raises(RemoteProtocolError, match="low order"):
        replace(good, public=bytes(32)).verify(IDENTITIES["Hospital A"].public)


def test_keys_of_another_study_role_party_or_twice_are_refused() -> None:
    assert "another study" in refused(signed("Hospital A", study=digest(b"other"))).cause
    assert "another study or role" in refused(signed("Hospital A", role="server")).cause
    assert "two study keys" in refused(signed("Hospital A"), signed("Hospital A")).cause
    assert "no member" in refused(replace(signed("Hospital A"), party="Stranger")).cause
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        signed("Hospital A", study=b"short")
    with pytest.raises(StudyError, match="not allowed"):
        KEYS["Hospital A"].sign(IDENTITIES["Hospital A"], study_hash=STUDY, party="a\nb", role="client")


def test_channels_differ_by_direction_study_and_party() -> None:
    a, b, s = (signed(p) for p in PARTIES)
    one = derive_channel(KEYS["Hospital A"], sender=a, receiver=s)
    assert one.reveal() == derive_channel(KEYS["Server 1"], sender=a, receiver=s).reveal()
    later = {p: signed(p, study=digest(b"later")) for p in PARTIES}
    others = [
        derive_channel(KEYS["Hospital A"], sender=s, receiver=a),
        derive_channel(KEYS["Hospital A"], sender=b, receiver=a),
        derive_channel(KEYS["Hospital B"], sender=b, receiver=s),
        derive_channel(KEYS["Hospital A"], sender=later["Hospital A"], receiver=later["Server 1"]),
    ]
    assert len({one.reveal(), *(other.reveal() for other in others)}) == 5


def test_channels_are_made_only_between_two_ends_of_one_study() -> None:
    a, b, s = (signed(p) for p in PARTIES)
    with pytest.raises(LocalProtocolError, match="one of its ends"):
        derive_channel(KEYS["Hospital B"], sender=a, receiver=s)
    with pytest.raises(RemoteProtocolError, match="another study"):
        derive_channel(KEYS["Hospital A"], sender=a, receiver=signed("Server 1", study=digest(b"x")))
    with pytest.raises(RemoteProtocolError, match="to oneself"):
        derive_channel(KEYS["Hospital A"], sender=a, receiver=replace(b, party="Hospital A"))


def test_the_end_of_a_study() -> None:
    key = AgreementKey.generate(AesStream(digest(b"fresh")))
    party = key.sign(IDENTITIES["Hospital A"], study_hash=STUDY, party="Hospital A", role="client")
    channel = derive_channel(key, sender=party, receiver=signed("Server 1"))
    held, held_channel = key._secret, channel._key
    assert AgreementKey(key.reveal()).public == key.public
    key.erase()
    channel.erase()
    assert set(held) <= {0}
    assert not held_channel
    assert repr(key) == "AgreementKey(erased)"
    assert repr(key) == "AgreementKey(erased)"
    with pytest.raises(LocalProtocolError, match="erased"):
        key.agree(KEYS["Server 1"].public)
    with pytest.raises(LocalProtocolError, match="erased"):
        channel.reveal()


def test_keys_come_from_the_source_and_do_not_print() -> None:
    stream = AesStream(digest(b"fresh"))
    one, two = AgreementKey.generate(stream), AgreementKey.generate(stream)
    assert one.public != two.public
    assert AgreementKey.generate(AesStream(digest(b"fresh"))).public == one.public
    assert repr(one) == "AgreementKey(32 bytes)"
    assert isinstance(one.reveal(), Secret)
    channel = derive_channel(KEYS["Hospital A"], sender=signed("Hospital A"), receiver=signed("Server 1"))
    assert channel.reveal().hex() not in repr(channel)
    for thing in (one, channel):
        with pytest.raises(TypeError, match="not serialised"):
            pickle.dumps(thing)
