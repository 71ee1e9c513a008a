"""Golden vectors of shares, masks and the circle: the files, the plain-Python reference and the product agree."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import masking_reference as reference
import numpy as np
import pytest

from tallystick.core.redaction import Secret
from tallystick.crypto import field, masking, shamir
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.mask_graph import MaskGraph, graph_seed
from tallystick.crypto.prg import AesStream

NAMES = ["graph", "masking", "shamir"]


def load(name: str) -> Any:
    return json.loads((reference.VECTORS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_reference_gives(name: str) -> None:
    assert load(name) == reference.all_cases()[name]
    assert sorted(path.stem for path in reference.VECTORS.glob("*.json")) == NAMES


@pytest.mark.parametrize("case", load("shamir"), ids=lambda case: f"{case['threshold']} of {case['shares']}")
def test_shamir(case: dict[str, Any]) -> None:
    secrets, threshold = [bytes.fromhex(s) for s in case["secrets"]], case["threshold"]
    source = AesStream(bytes.fromhex(case["source_key"]))
    dealt = shamir.split(secrets, threshold=threshold, shares=case["shares"], source=source)
    assert [[share.hex() for share in row] for row in dealt] == case["dealt"]
    for secret, row in zip(secrets, dealt):
        last = list(enumerate(row, 1))[-threshold:]
        assert shamir.rebuild(last, threshold=threshold).reveal() == secret == reference.shamir_rebuild(last)


@pytest.mark.parametrize("case", load("masking"), ids=lambda case: f"{case['party']}, round {case['round']}")
def test_masking(case: dict[str, Any]) -> None:
    study, round, party = bytes.fromhex(case["study_hash"]), case["round"], case["party"]
    own = AgreementKey(bytes.fromhex(case["private"]))
    public = {
        name: StudyKey(study_hash=study, party=name, role="client", public=bytes.fromhex(key), signature=b"")
        for name, key in case["publics"].items()
    }
    others = sorted(public.keys() - {party})
    pairs = [masking.agree_pair(own, mine=public[party], theirs=public[other]) for other in others]
    source = AesStream(bytes.fromhex(case["source_key"]))
    for pair, other in zip(pairs, others):
        sealed = pair.seal(other.encode(), round=round, sender=party, source=source)
        assert sealed.hex() == case["packets_of_the_names"][other]
        assert pair.open(sealed, round=round, sender=party) == other.encode()
    keys = [pair.round_key(round) for pair in pairs]
    assert {key.other(party): key.reveal().hex() for key in keys} == case["round_keys"]
    seed, wrapping = (Secret(bytes.fromhex(case[name])) for name in ("self_seed", "wrapping_key"))
    where: Any = {"study_hash": study, "round": round, "party": party}
    acc = field.encode_signed(np.array(case["values"], dtype=np.int64))
    masking.mask(acc, keys, seed, **where)
    assert field.to_bytes(acc).hex() == case["masked"]
    wrapped = masking.wrap_round_keys(keys, wrapping, **where)
    assert wrapped.hex() == case["wrapped"]
    opened = masking.unwrap_round_keys(wrapped, wrapping, **where, neighbours=others)
    assert {name: key.reveal().hex() for name, key in opened.items()} == case["round_keys"]


@pytest.mark.parametrize("case", load("graph"))
def test_graph(case: dict[str, Any]) -> None:
    given = {name: bytes.fromhex(part) for name, part in case["contributions"].items()}
    seed = graph_seed(bytes.fromhex(case["study_hash"]), given)
    assert seed.hex() == case["seed"]
    none = Fraction(0)
    plan = GraphPlan(
        clients=len(given),
        colluding=1,
        dropping=1,
        degree=case["degree"],
        threshold=2,
        window=0,
        secrecy_failure=none,
        recovery_failure=none,
    )
    graph = MaskGraph(sorted(given), plan, seed)
    assert list(graph.circle) == case["circle"]
    assert {name: list(graph.neighbours(name)) for name in given} == case["neighbours"]
