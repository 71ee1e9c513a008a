"""Errors, identifiers, clocks, secrets: the floor everything stands on."""

import hashlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallystick.core.errors as errors
from tallystick.core.errors import RoundAborted, StudyError, TallystickError
from tallystick.core.identifiers import check_party_name, digest, format_hash, parse_hash
from tallystick.core.randomness import SystemSource
from tallystick.core.redaction import Secret


def test_every_error_has_its_exit_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TallystickError)]
    codes = {kind.__name__: kind.exit_code for kind in kinds}
    assert codes == {
        "TallystickError": 1,
        "StudyError": 2,
        "BoundsError": 2,
        "TrustModelError": 2,
        "NotApproved": 5,
        "DataError": 2,
        "PrivacyRefused": 3,
        "BudgetExceeded": 3,
        "RoundAborted": 4,
        "TooFewParties": 4,
        "ProtocolError": 4,
        "LocalProtocolError": 4,
        "RemoteProtocolError": 4,
        "VerificationError": 6,
    }


def test_an_error_says_who_when_why_and_what_to_do():
    error = RoundAborted("server-2 did not answer", party="server-2", round=7, remedy="Restart it.", rule="deadline")
    assert str(error) == "party server-2, round 7: server-2 did not answer [deadline]. Restart it."
    assert error.as_dict() == {
        "code": 4,
        "rule": "deadline",
        "party": "server-2",
        "round": 7,
        "cause": "server-2 did not answer",
        "remedy": "Restart it.",
    }
    assert str(TallystickError("plain")) == "plain"
    assert str(TallystickError("It ended.", remedy="Look.")) == "It ended. Look."
    assert issubclass(StudyError, ValueError)


@given(st.lists(st.binary(max_size=3000), max_size=4))
def test_digest_is_unambiguous_and_the_same_by_either_path(parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little") + part)
    assert digest(*parts) == h.digest()
    assert digest(*parts, b"") != digest(*parts)
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


def test_digest_known_answer():
    expected = hashlib.sha256(b"\x01" + bytes(7) + b"a" + b"\x02" + bytes(7) + b"bc").hexdigest()
    assert digest(b"a", b"bc").hex() == expected


def test_hashes_print_and_parse():
    value = digest(b"x")
    assert parse_hash(format_hash(value)) == value
    for wrong in ("sha256:00", "md5:" + "0" * 64, "sha256:" + "G" * 64, ""):
        with pytest.raises(StudyError):
            parse_hash(wrong)
    with pytest.raises(ValueError, match="32 bytes"):
        format_hash(b"short")


@pytest.mark.parametrize("name", ["client-1", "St. Mary", "a", "x" * 63, "7"])
def test_ordinary_party_names(name):
    assert check_party_name(name) == name


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a\nb", "-a", "x" * 64, "é", "a\x00", 7, None, " a"])
def test_names_with_tricks_are_refused(name):
    with pytest.raises(StudyError):
        check_party_name(name)


def test_secrets_do_not_print_compare_or_travel():
    secret = Secret(b"hunter2")
    assert "hunter2" not in f"{secret!r} {secret}"
    assert repr(secret) == "Secret(7 bytes)"
    assert secret.reveal() == b"hunter2"
    with pytest.raises(TypeError):
        assert secret == Secret(b"hunter2")
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        hash(secret)


def test_system_source():
    source = SystemSource()
    assert len(source.words(3)) == 3
    assert source.bytes(5) != source.bytes(5)
