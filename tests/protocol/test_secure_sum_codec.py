"""The wire format: golden vectors, a second decoder, and bytes that are not messages."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3
from blake3_reference import plain_blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sum_examples import STUDY, every_message, keys
from secure_sum_plain_decoder import plain_decode

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.protocol.secure_sum import decode, encode
from tallystick.protocol.secure_sum.messages import Refused

VECTORS = Path(__file__).parents[1] / "vectors" / "secure_sum"
P = 2**64 - 2**32 + 1


def mutations() -> dict[str, tuple[bytes, str]]:
    """Bytes that must be refused, each with the rule that refuses it."""
    good = {name: encode(message) for name, message in every_message().items()}
    vector, seed, partial = good["share_vector"], good["share_seed"], good["partial"]
    share_head, commitments = 8 + struct.calcsize("<32sIIHHIB32s32sQ"), 64
    first = share_head + commitments
    refused = good["refused"]
    listed = bytearray(good["received_list"])
    at = 8 + struct.calcsize("<32sIHI16s32s32sII")
    listed[at : at + 8] = struct.pack("<II", 2, 0)
    return {
        "empty": (b"", "malformed"),
        "header_only": (seed[:8], "malformed"),
        "bad_magic": (b"TSUN" + seed[4:], "malformed"),
        "other_version": (seed[:4] + struct.pack("<H", 2) + seed[6:], "other-version"),
        "unknown_type": (seed[:6] + b"\x63" + seed[7:], "other-version"),
        "reserved_byte_set": (seed[:7] + b"\x01" + seed[8:], "other-version"),
        "share_truncated": (vector[:-5], "malformed"),
        "share_trailing_byte": (vector + b"\x00", "malformed"),
        "share_element_is_p": (vector[:first] + struct.pack("<Q", P) + vector[first + 8 :], "RemoteProtocolError"),
        "share_element_all_ones": (vector[:first] + b"\xff" * 8 + vector[first + 8 :], "RemoteProtocolError"),
        "share_size_off_by_one": (vector[:52] + struct.pack("<I", 6) + vector[56:], "wrong-shape"),
        "share_size_huge": (vector[:52] + struct.pack("<I", 2**32 - 1) + vector[56:], "wrong-shape"),
        "share_kind_unknown": (seed[:56] + b"\x03" + seed[57:], "wrong-shape"),
        "share_kind_swapped": (seed[:56] + b"\x02" + seed[57:], "wrong-shape"),
        "share_payload_length_huge": (
            seed[: share_head - 8] + struct.pack("<Q", 2**63) + seed[share_head:],
            "malformed",
        ),
        "share_servers_huge": (seed[:50] + struct.pack("<H", 65535) + seed[52:], "malformed"),
        "share_proof_length_huge": (seed[:-4] + struct.pack("<I", 2**32 - 1), "malformed"),
        "open_model_length_huge": (
            good["round_open"][:80] + struct.pack("<Q", 2**60) + good["round_open"][88:], "malformed"),
        "list_not_ascending": (bytes(listed), "malformed"),
        "list_count_huge": (
            good["received_list"][: at - 8] + struct.pack("<I", 2**31) + good["received_list"][at - 4 :], "malformed"),
        "agreement_truncated": (good["agreement"][:-1], "malformed"),
        "agreement_servers_huge": (good["agreement"][:80] + b"\xff\xff" + good["agreement"][82:], "malformed"),
        "partial_element_too_big": (partial[:134] + b"\xff" * 8 + partial[142:], "RemoteProtocolError"),
        "refused_unknown_code": (refused[:44] + b"\xc8" + refused[45:], "malformed"),
        "refused_text_too_long": (refused[:45] + struct.pack("<H", 501) + b"a" * 501, "malformed"),
        "refused_text_not_utf8": (refused[:45] + struct.pack("<H", 1) + b"\xff", "malformed"),
        "refused_control_character": (refused[:45] + struct.pack("<H", 2) + b"a\n", "readable-text"),
        "inquiry_truncated": (good["inquiry"][:-2], "malformed"),
        "hash_open_with_a_model": (good["hash_open"] + good["secret_open"][80:-32], "malformed"),
        "secret_open_without_its_blind": (good["secret_open"][:-32], "malformed"),
        "secret_model_length_huge": (
            good["secret_open"][:80] + struct.pack("<Q", 2**60) + good["secret_open"][88:], "malformed"),
        **sparse_mutations(good["round_open_sparse"]),
    }  # fmt: skip


def sparse_mutations(good: bytes) -> dict[str, tuple[bytes, str]]:
    """The same for a model that travels sparse: 7 entries, of which 2 (−0.0) and 5 (1.5) are not zero."""
    head, size = good[:80], struct.pack("<Q", 56)
    zero, half, one = struct.pack("<d", -0.0), struct.pack("<d", 1.5), struct.pack("<d", 1.0)

    def body(indices: list[int], *entries: bytes, size: bytes = size, count: int | None = None) -> bytes:
        many = len(indices) if count is None else count
        return head + size + struct.pack(f"<I{len(indices)}I", many, *indices) + b"".join(entries)

    dense = good[:6] + b"\x01" + good[7:80]
    assert body([2, 5], zero, half) == good
    return {
        "sparse_truncated": (good[:90], "malformed"),
        "sparse_head_truncated": (good[:50], "malformed"),
        "sparse_trailing_byte": (good + b"\x00", "malformed"),
        "sparse_indices_descending": (body([5, 2], half, zero), "malformed"),
        "sparse_index_twice": (body([5, 5], half, half), "malformed"),
        "sparse_index_beyond_the_model": (body([2, 7], zero, half), "malformed"),
        "sparse_zero_spelt_out": (body([2, 5], bytes(8), half), "malformed"),
        "sparse_no_shorter_than_dense": (body([0, 2, 3, 5, 6], one, zero, one, half, one), "malformed"),
        "sparse_of_no_whole_entries": (body([2, 5], zero, half, size=struct.pack("<Q", 57)), "malformed"),
        "sparse_count_huge": (body([2, 5], zero, half, count=2**32 - 1), "malformed"),
        "sparse_model_huge": (body([2, 5], zero, half, size=struct.pack("<Q", 2**62)), "too-long"),
        "dense_where_sparse_is_shorter": (
            dense + size + b"".join([bytes(16), zero, bytes(16), half, bytes(8)]), "malformed"),
    }  # fmt: skip


def golden() -> dict[str, str]:
    """The files under vectors/secure_sum, as they should be."""
    good = [
        {"name": name, "raw": encode(message).hex(), "fields": plain_decode(encode(message))}
        for name, message in every_message().items()
    ]
    bad = [{"name": name, "raw": raw.hex(), "rule": rule} for name, (raw, rule) in mutations().items()]
    return {
        "messages.json": json.dumps(good, indent=1) + "\n",
        "malformed.json": json.dumps(bad, indent=1) + "\n",
    }


def test_golden_vectors_are_what_the_code_writes() -> None:
    """TALLYSTICK_WRITE_VECTORS=1 writes them anew: a change there is a change of the protocol's version."""
    for name, text in golden().items():
        path = VECTORS / name
        if os.environ.get("TALLYSTICK_WRITE_VECTORS"):
            path.write_text(text)
        assert path.read_text() == text, f"{name} differs: the wire format has changed"


@pytest.mark.parametrize("vector", json.loads((VECTORS / "messages.json").read_text()), ids=lambda v: v["name"])
def test_both_decoders_read_every_golden_message(vector: dict) -> None:
    raw = bytes.fromhex(vector["raw"])
    assert plain_decode(raw) == vector["fields"]
    message = decode(raw)
    assert message == every_message()[vector["name"]]
    assert encode(message) == raw
    for name, value in vector["fields"].items():
        if name in ("client", "server", "size", "round", "honest", "kind", "code", "cause", "deadline_ms"):
            assert getattr(message, name) == value
        if name in ("start", "starts"):
            starts, told = ([message.start], [value]) if name == "start" else (message.starts, value)
            assert [{"boot": s.boot, "value": s.value.hex(), "noise": s.noise.hex()} for s in starts] == told


@pytest.mark.parametrize("vector", json.loads((VECTORS / "malformed.json").read_text()), ids=lambda v: v["name"])
def test_malformed_messages_are_refused_by_both_decoders(vector: dict) -> None:
    raw = bytes.fromhex(vector["raw"])
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(raw)
    assert (refusal.value.rule or "RemoteProtocolError") == vector["rule"]
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
        message = decode(raw, limit=1 << 20)
    except RemoteProtocolError:
        assert plain is None
        return
    assert plain is not None
    assert encode(message) == raw
    assert message.round == plain["round"]


def test_a_lying_length_allocates_nothing() -> None:
    lies = [raw for name, (raw, _) in mutations().items() if "huge" in name]
    tracemalloc.start()
    for raw in lies:
        with pytest.raises(RemoteProtocolError):
            decode(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_message_above_the_study_limit_is_cut() -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(RAWS[0], limit=len(RAWS[0]) - 1)
    assert refusal.value.rule == "too-long"


def test_encode_refuses_what_would_shift_the_layout() -> None:
    with pytest.raises(LocalProtocolError):
        encode(replace(every_message()["inquiry"], study_hash=b"short"))
    long = decode(encode(Refused(study_hash=STUDY, round=1, code=4, cause="é" * 400)))
    assert long.cause == "é" * 250


def test_secrets_do_not_print() -> None:
    payloads = {"share_seed": "payload", "share_vector": "payload", "partial": "vector", "secret_open": "blind"}
    for name, field in payloads.items():
        message = every_message()[name]
        text = repr(message)
        payload = getattr(message, field)
        assert repr(payload) not in text
        assert payload.hex() not in text


def sha(*parts: bytes) -> bytes:
    """The project's digest, by hand: SHA-256 over the parts, each after its 8-byte length."""
    return hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()


def test_blake3_is_blake3() -> None:
    """The package against the specification: no chunk, one, several, a tree that is not full; a known answer."""
    assert plain_blake3(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    for size in (0, 1, 64, 65, 1024, 1025, 2048, 3073, 7169):
        raw = bytes(i % 251 for i in range(size))
        assert blake3(raw).digest() == plain_blake3(raw)


def packed(start: dict) -> bytes:
    return struct.pack("<I16s32s", start["boot"], bytes.fromhex(start["value"]), bytes.fromhex(start["noise"]))


def test_digests_and_signatures_by_hand() -> None:
    """What is hashed and signed, computed from the golden bytes alone."""
    golden = {v["name"]: v["fields"] for v in json.loads((VECTORS / "messages.json").read_text())}
    opened = golden["round_open"]
    study = bytes.fromhex(opened["study_hash"])
    model_hash = sha(b"tallystick/secure-sum/model", study, struct.pack("<I", 1), bytes.fromhex(opened["model"]))
    assert model_hash.hex() == opened["model_hash"]
    hidden = golden["secret_open"]
    blind, model = bytes.fromhex(hidden["blind"]), bytes.fromhex(hidden["model"])
    blinded = sha(b"tallystick/secure-sum/secret-model", blind, study, struct.pack("<I", 1), model)
    assert blinded.hex() == hidden["model_hash"] == golden["hash_open"]["model_hash"]
    for name in ("share_seed", "share_vector"):
        share = golden[name]
        place = struct.pack("<IIHI", 1, share["client"], 2, share["size"])
        context = b"tallystick/sum/1" + study + model_hash + place
        payload = bytes.fromhex(share["seed"]) if "seed" in share else struct.pack("<5Q", *share["vector"])
        tag = struct.pack("<HB", share["server"], share["kind"])
        hashed = plain_blake3(payload)
        commitment = sha(b"tallystick/secure-sum/commit/2", context, tag, bytes.fromhex(share["blind"]), hashed)
        assert commitment.hex() == share["commitments"][share["server"]]
    key = Ed25519PublicKey.from_public_bytes(keys(1)[0].public.encoded)
    said = golden["agreement"]
    members = struct.pack("<2I", *said["clients"])
    body = sha(
        b"tallystick/secure-sum/agreement",
        study,
        bytes.fromhex(said["model_hash"]),
        struct.pack("<IHHI", 7, 1, 2, 2),
        b"".join(map(packed, said["starts"])),
        members,
    )
    signed = sha(b"tallystick/secure-sum/agree", body, struct.pack("<I", said["server"]))
    key.verify(bytes.fromhex(said["signature"]), signed)
    partial = golden["partial"]
    assert partial["agreement"] == body.hex()
    vector = struct.pack("<2Q", *partial["vector"])
    place = struct.pack("<IHI", 7, 0, 2)
    signed = sha(b"tallystick/secure-sum/partial", study, body, place, packed(partial["start"]), vector)
    key.verify(bytes.fromhex(partial["signature"]), signed)
    listed = golden["received_list"]
    signed = sha(
        b"tallystick/secure-sum/received",
        study,
        bytes.fromhex(listed["model_hash"]),
        struct.pack("<IHII", 7, 0, 2, 1),
        packed(listed["start"]),
        struct.pack("<2I", *listed["clients"]),
        bytes.fromhex("".join(listed["digests"])),
        struct.pack("<I", *listed["equivocators"]),
    )
    key.verify(bytes.fromhex(listed["signature"]), signed)
