"""Golden vectors: the files, the plain-Python reference and the product agree, on what to accept and what to refuse."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import crypto_reference as reference
import numpy as np
import pytest
import sharing

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto import additive, field, prg

NAMES = ["derivation", "encoding", "expansion", "shares"]


def load(name: str) -> Any:
    return json.loads((reference.VECTORS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_reference_gives(name: str) -> None:
    assert load(name) == reference.all_cases()[name]
    assert (reference.VECTORS / f"{name}.json").stat().st_size < 50_000


def test_no_file_is_left_out() -> None:
    assert sorted(reference.all_cases()) == NAMES
    assert sorted(path.stem for path in reference.VECTORS.glob("*.json")) == sorted([*NAMES, "ed25519"])


@pytest.mark.parametrize("case", load("expansion"))
def test_expansion(case: dict[str, Any]) -> None:
    seed, context = bytes.fromhex(case["seed"]), bytes.fromhex(case["context"])
    if "vector" in case:
        want = bytes.fromhex(case["vector"])
        assert field.to_bytes(sharing.expand(seed, len(want) // 8, context)) == want
    else:
        raw = field.to_bytes(sharing.expand(seed, case["size"], context))
        assert hashlib.sha256(raw).hexdigest() == case["sha256"]


@pytest.mark.parametrize("case", load("derivation"))
def test_derivation(case: dict[str, Any]) -> None:
    labels = [bytes.fromhex(label) for label in case["labels"]]
    assert prg.derive(bytes.fromhex(case["seed"]), *labels).hex() == case["key"]


@pytest.mark.parametrize("case", load("shares"))
def test_shares(case: dict[str, Any]) -> None:
    study, servers = bytes.fromhex(case["study_hash"]), case["servers"]
    context = reference.context_for(study, case["round"], case["client"])
    assert context.hex() == case["context"]
    chosen = additive.vector_server_for(study, case["round"], case["client"], servers)
    assert chosen == case["vector_server"]
    integers = np.array(case["integers"], dtype=np.int64)
    source = prg.AesStream(bytes.fromhex(case["source_key"]))
    shares = additive.split(
        field.encode_signed(integers), servers=servers, vector_server=chosen, source=source, context=context
    )
    written = [
        share.seed.hex() if isinstance(share, additive.SeedShare) else {"vector": field.to_bytes(share.vector).hex()}
        for share in shares
    ]
    assert written == case["shares"]
    combined = sharing.combine(shares, integers.size, context)
    assert field.decode_signed(combined).tolist() == case["integers"]


@pytest.mark.parametrize("case", load("encoding")["good"])
def test_encoding(case: dict[str, Any]) -> None:
    encoded = field.encode_signed(np.array([case["integer"]], dtype=np.int64))
    assert field.to_bytes(encoded).hex() == case["bytes"]
    assert field.decode_signed(field.from_bytes(bytes.fromhex(case["bytes"]), 1)).tolist() == [case["integer"]]


@pytest.mark.parametrize("case", load("encoding")["bad"], ids=lambda case: case["why"])
def test_bad_encodings_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        field.from_bytes(bytes.fromhex(case["bytes"]), case["size"], party="Hospital D")
    assert refusal.value.party == "Hospital D"
    assert refusal.value.remedy


@pytest.mark.parametrize("integer", load("encoding")["unrepresentable"])
def test_integers_beyond_the_field(integer: int) -> None:
    with pytest.raises(LocalProtocolError):
        field.encode_signed(np.array([integer], dtype=np.int64))
