"""The study layer's wire format: golden vectors, a second decoder, and bytes that are not messages."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from study_examples import CONSORTIUM, HASH, PACKED, STUDY, every_message, identity, members, start
from study_plain_decoder import plain_decode

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError
from tallystick.protocol.study import decode, encode, is_study_message, result_digest, study_of
from tallystick.protocol.study.messages import StudyRefused
from tallystick.protocol.study.roster import make_roster

VECTORS = Path(__file__).parents[1] / "vectors" / "study"


def mutations() -> dict[str, tuple[bytes, str]]:
    """Bytes that must be refused, each with the rule that refuses it."""
    good = {name: encode(message) for name, message in every_message().items()}
    refused, ready, begun, failed = good["refused"], good["ready"], good["start"], good["failed"]
    huge32, huge64 = struct.pack("<I", 2**32 - 1), struct.pack("<Q", 2**63)
    blob = 8 + 32 + 16 + 32
    tickets = 8 + 32 + 8
    return {
        "empty": (b"", "malformed"),
        "header_only": (ready[:8], "malformed"),
        "bad_magic": (b"TSUM" + ready[4:], "malformed"),
        "other_version": (ready[:4] + struct.pack("<H", 2) + ready[6:], "other-version"),
        "unknown_type": (ready[:6] + b"\x63" + ready[7:], "other-version"),
        "type_zero": (ready[:6] + b"\x00" + ready[7:], "other-version"),
        "reserved_byte_set": (ready[:7] + b"\x01" + ready[8:], "other-version"),
        "ready_truncated": (ready[:-1], "malformed"),
        "ready_trailing_byte": (ready + b"\0", "malformed"),
        "ready_name_empty": (ready[:48] + b"\x00" + ready[51:], "readable-text"),
        "ready_name_path": (ready[:48] + b"\x05../db" + ready[51:], "readable-text"),
        "ready_name_newline": (ready[:48] + b"\x03c1\n" + ready[51:], "readable-text"),
        "ready_name_not_utf8": (ready[:48] + b"\x02c\xff" + ready[51:], "malformed"),
        "propose_study_length_huge": (good["propose"][:blob] + huge64 + good["propose"][blob + 8 :], "malformed"),
        "propose_program_not_utf8": (good["propose_builtin"][:-8] + struct.pack("<Q", 1) + b"\xff", "malformed"),
        "start_count_huge": (begun[:tickets] + huge32 + begun[tickets + 4 :], "malformed"),
        "start_count_one_less": (begun[:tickets] + struct.pack("<I", 3) + begun[tickets + 4 :], "malformed"),
        "result_length_huge": (good["result"][:44] + huge64 + good["result"][52:], "malformed"),
        "declined_unknown_code": (good["declined"][:47] + b"\xc8" + good["declined"][48:], "malformed"),
        "end_code_zero": (good["end"][:44] + b"\x00" + good["end"][45:], "malformed"),
        "failed_final_is_two": (failed[:60] + b"\x02" + failed[61:], "malformed"),
        "refused_text_too_long": (refused[:41] + struct.pack("<H", 501) + b"a" * 501, "malformed"),
        "refused_text_not_utf8": (refused[:41] + struct.pack("<H", 1) + b"\xff", "malformed"),
        "refused_control_character": (refused[:41] + struct.pack("<H", 2) + b"a\n", "readable-text"),
        "inquiry_truncated": (good["inquiry"][:-2], "malformed"),
    }


def golden() -> dict[str, str]:
    """The files under vectors/study, as they should be."""
    good = [
        {"name": name, "raw": encode(message).hex(), "fields": plain_decode(encode(message))}
        for name, message in every_message().items()
    ]
    bad = [{"name": name, "raw": raw.hex(), "rule": rule} for name, (raw, rule) in mutations().items()]
    return {
        "messages.json": json.dumps(good, indent=1) + "\n",
        "malformed.json": json.dumps(bad, indent=1) + "\n",
    }


def stored(name: str) -> list[dict]:
    path = VECTORS / name
    return json.loads(path.read_text()) if path.exists() else []


def test_golden_vectors_are_what_the_code_writes() -> None:
    """TALLYSTICK_WRITE_VECTORS=1 writes them anew: a change there is a change of the protocol's version."""
    for name, text in golden().items():
        path = VECTORS / name
        if os.environ.get("TALLYSTICK_WRITE_VECTORS"):
            path.write_text(text)
        assert path.read_text() == text, f"{name} differs: the wire format has changed"


@pytest.mark.parametrize("vector", stored("messages.json"), ids=lambda v: v["name"])
def test_both_decoders_read_every_golden_message(vector: dict) -> None:
    raw = bytes.fromhex(vector["raw"])
    assert plain_decode(raw) == vector["fields"]
    message = decode(raw)
    assert message == every_message()[vector["name"]]
    assert encode(message) == raw
    assert is_study_message(raw)
    assert study_of(raw) == HASH
    for name, value in vector["fields"].items():
        if name not in ("type", "tickets"):
            mine = getattr(message, name)
            assert (mine.hex() if isinstance(mine, bytes) else mine) == value


@pytest.mark.parametrize("vector", stored("malformed.json"), ids=lambda v: v["name"])
def test_malformed_messages_are_refused_by_both_decoders(vector: dict) -> None:
    raw = bytes.fromhex(vector["raw"])
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(raw)
    assert refusal.value.rule == vector["rule"]
    assert refusal.value.cause
    assert refusal.value.remedy
    with pytest.raises(ValueError):
        plain_decode(raw)


RAWS = [encode(message) for message in every_message().values()]


@st.composite
def nearly_messages(draw: st.DrawFn) -> bytes:
    raw = bytearray(draw(st.sampled_from(RAWS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        match draw(st.integers(0, 3)):
            case 0:
                raw[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                raw[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\x01\0\0\0"]))
            case 2:
                del raw[at:]
            case _:
                raw[at:at] = draw(st.binary(max_size=9))
    return bytes(raw)


@settings(deadline=None, max_examples=1500)
@given(raw=nearly_messages() | st.binary(max_size=200))
def test_decoders_agree_on_anything_and_only_refuse(raw: bytes) -> None:
    try:
        plain = plain_decode(raw)
    except ValueError:
        plain = None
    try:
        message = decode(raw)
    except RemoteProtocolError:
        assert plain is None
        return
    assert plain is not None
    assert encode(message) == raw


def test_a_lying_length_allocates_nothing() -> None:
    tracemalloc.start()
    for raw in [raw for name, (raw, _) in mutations().items() if "huge" in name]:
        with pytest.raises(RemoteProtocolError):
            decode(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_limits_and_what_would_shift_the_layout() -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(RAWS[0], limit=len(RAWS[0]) - 1)
    assert refusal.value.rule == "too-long"
    with pytest.raises(RemoteProtocolError):
        study_of(RAWS[0][:39])
    messages = every_message()
    for message, changes in (
        (messages["inquiry"], {"request": b"short"}),
        (messages["ready"], {"attempt": 2**32}),
        (messages["ready"], {"signature": b""}),
        (messages["refused"], {"code": 99}),
        (messages["failed"], {"final": 2}),
    ):
        with pytest.raises(LocalProtocolError):
            encode(replace(message, **changes))
    with pytest.raises(StudyError):
        encode(replace(messages["ready"], party="../x"))


def test_texts_are_cut_and_cleaned_not_refused() -> None:
    said = decode(encode(StudyRefused(study_hash=HASH, code=4, cause="é" * 400)))
    assert said.cause == "é" * 250
    said = decode(encode(StudyRefused(study_hash=HASH, code=4, cause="a\nb\x1b[31m")))
    assert said.cause == "a b [31m"


def sha(*parts: bytes) -> bytes:
    """The project's digest, by hand: SHA-256 over the parts, each after its 8-byte length."""
    return hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()


def test_digests_and_signatures_by_hand() -> None:
    fields = {v["name"]: v["fields"] for v in stored("messages.json")}
    assert fields["propose"]["study_hash"] == sha(b"tallystick/study/1", STUDY).hex()
    assert fields["end"]["result"] == sha(b"tallystick/study/result", HASH, PACKED).hex()
    assert result_digest(HASH, PACKED).hex() == fields["end"]["result"]
    for name, public, signature in fields["start"]["tickets"]:
        role = b"server" if name[0] == "s" else b"client"
        statement = sha(b"tallystick/study-key/v1", HASH, name.encode(), role, bytes.fromhex(public))
        key = Ed25519PublicKey.from_public_bytes(identity(name).public.encoded)
        key.verify(bytes.fromhex(signature), statement)
    parts = [b for name, public, _ in fields["start"]["tickets"] for b in (name.encode(), bytes.fromhex(public))]
    by_hand = sha(b"tallystick/study/roster", HASH, CONSORTIUM, struct.pack("<IIII", 1, 2, 2, 2), *parts)
    assert make_roster(members(), start("s0", "s1", "c0", "c2")).digest == by_hand


def test_the_study_hash_is_the_engines() -> None:
    from tallystick.study import Study, study_digest

    study = Study.from_dict({"study": {"name": "x", "program": "logistic_regression"}})
    assert study_digest(study.canonical()) == study.hash
