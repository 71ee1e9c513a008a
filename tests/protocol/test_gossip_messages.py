"""Gossip's messages, list of peers and books: one encoding each, strict; what counts and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.gossip import GossipParameters, Model, ModelWalks, PeerMachine, decode, encode
from tallystick.protocol.gossip.member import FROM, Noticed
from tallystick.protocol.gossip.messages import (
    Batch,
    Code,
    Digests,
    Evidence,
    Offer,
    Proof,
    Publication,
    Refused,
    Walk,
    bit_map,
    indices_of,
    publication_digest,
)
from tallystick.protocol.gossip.newscast import View
from tallystick.protocol.gossip.publications import Publications, Refusal
from tallystick.protocol.gossip.walks import AGE_STEP
from tallystick.protocol.instructions import Persist, Send

STUDY, SESSION = digest(b"the study"), digest(b"the session")
NAMES = ("a", "b", "c", "d")
KEYS = {name: SigningKey(derive(bytes(32), name.encode())) for name in NAMES}


def source(seed: int = 0) -> AesStream:
    return AesStream(derive(bytes(32), seed.to_bytes(4, "little")))


def validate(_name: str, body: bytes) -> None:
    if len(body) > 8:
        raise DataError("too long")


def signed(name: str, body: bytes, study: bytes = STUDY) -> Publication:
    signature = KEYS[name].sign(publication_digest(study, name, body))
    return Publication(peer=NAMES.index(name), body=body, signature=signature)


def books() -> Publications:
    return Publications(STUDY, NAMES, {n: k.public for n, k in KEYS.items()}, validate)


def parameters() -> GossipParameters:
    return GossipParameters(
        study_hash=SESSION, study=STUDY, peers=NAMES, collector="board", validate=validate, body_limit=8, min_peers=2,
        identities={n: k.public for n, k in KEYS.items()},
    )  # fmt: skip


def peer(name: str = "a", records: dict[str, bytes] | None = None) -> PeerMachine:
    return PeerMachine(parameters(), name, records or {}, key=KEYS[name], source=source())


PROOF = Proof(peer=1, first=b"x", first_signature=b"s" * 64, second=b"y", second_signature=b"t" * 64)
MESSAGES = [
    Offer(study_hash=SESSION, answer=1, peers=(0, 3), ages=(2, 9), held=b"\x05", convicted=b"\x00", root=STUDY),
    Batch(study_hash=SESSION, publications=(signed("a", b"one"), signed("b", b""))),
    Digests(study_hash=SESSION, peers=(0, 2), digests=(b"x" * 16, b"y" * 16)),
    Evidence(study_hash=SESSION, proofs=(PROOF,)),
    Refused(study_hash=SESSION, code=Code.BAD_MODEL, cause="a model with NaN"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_reads_back_and_nothing_else_does(message: object) -> None:
    raw = encode(message)  # type: ignore[arg-type]
    assert decode(raw) == message
    for wrong in (raw[:-1], raw + b"\0", raw[:20], b"XXXX" + raw[4:]):
        with pytest.raises(RemoteProtocolError):
            decode(wrong)
    with pytest.raises(RemoteProtocolError):
        decode(raw, limit=len(raw) - 1)


def test_a_model_travels_to_the_bit() -> None:
    weights = np.array([1.5, -0.0, 1e-300, np.nan])
    found = decode(encode(Walk(study_hash=SESSION, age=7, weights=weights)))
    assert isinstance(found, Walk)
    assert (found.age, found.weights.tobytes()) == (7, weights.tobytes())


@given(st.sets(st.integers(0, 40)), st.integers(41, 60))
def test_bit_maps_read_back(found: set[int], size: int) -> None:
    assert indices_of(bit_map(found, size), size) == found
    assert indices_of(bit_map(found, size) + b"\0", size) is None


def test_bits_beyond_the_roster_are_no_bit_map() -> None:
    assert indices_of(b"\xff", 5) is None


# -- publications ------------------------------------------------------------------------------------------------------


def test_what_counts_is_the_signature_for_this_study_by_this_peer() -> None:
    kept = books()
    assert isinstance(kept.offer(signed("a", b"one")), Publication)
    assert kept.offer(signed("a", b"one")) is None
    of_another_study = kept.offer(signed("b", b"one", study=digest(b"another study")))
    of_another_peer = kept.offer(Publication(peer=2, body=b"one", signature=signed("a", b"one").signature))
    for refused in (of_another_study, of_another_peer):
        assert isinstance(refused, Refusal)
        assert refused.code is Code.BAD_SIGNATURE
    impossible = kept.offer(signed("c", b"far too long"))
    assert isinstance(impossible, Refusal)
    assert impossible.code is Code.BAD_RECORD
    assert isinstance(kept.offer(Publication(peer=9, body=b"", signature=b"")), Refusal)
    assert kept.held == {0}


def test_a_second_record_convicts_whichever_came_first_and_a_third_is_not_looked_at() -> None:
    one, two = books(), books()
    one.offer(signed("a", b"x"))
    two.offer(signed("a", b"y"))
    first, second = one.offer(signed("a", b"y")), two.offer(signed("a", b"x"))
    assert first == second
    assert isinstance(first, Proof)
    assert one.held == frozenset()
    assert one.offer(signed("a", b"z")) is None
    third = books()
    third.offer(signed("a", b"x"))
    assert third.take_proof(first) == first
    assert (third.held, third.convicted) == (frozenset(), {0})


def test_a_proof_that_proves_nothing_convicts_nobody() -> None:
    kept, good = books(), signed("a", b"x")
    kept.offer(good)
    same = Proof(peer=0, first=b"x", first_signature=good.signature, second=b"x", second_signature=good.signature)
    forged = Proof(peer=0, first=b"x", first_signature=good.signature, second=b"y", second_signature=good.signature)
    for proof in (same, forged, Proof(**{**_facts(forged), "peer": 9})):
        assert isinstance(kept.take_proof(proof), Refusal)
    assert kept.held == {0}


def _facts(proof: Proof) -> dict[str, object]:
    return {name: getattr(proof, name) for name in proof.__slots__}


def test_damaged_records_are_not_taken_up_again() -> None:
    machine = peer()
    machine.begin(0.0)
    (kept, _) = machine.publish(b"own")
    assert isinstance(kept, Persist)
    assert peer(records={kept.key: kept.record}).published is not None
    with pytest.raises((VerificationError, RemoteProtocolError)):
        peer(records={kept.key: kept.record[:-1] + b"\0"})


# -- a peer ------------------------------------------------------------------------------------------------------------


def test_a_peer_draws_once_and_a_restarted_one_not_at_all() -> None:
    machine = peer()
    machine.begin(0.0)
    kept, _ = machine.publish(b"own")
    with pytest.raises(LocalProtocolError):
        machine.publish(b"another")
    again = peer(records={kept.key: kept.record})
    assert not any(type(step).__name__ == "Compute" for step in again.begin(0.0))
    with pytest.raises(LocalProtocolError):
        again.publish(b"another")
    assert again.publications.get(0).body == b"own"  # type: ignore[union-attr]


def test_a_peer_that_was_set_back_takes_up_its_own_record_and_draws_no_other() -> None:
    machine = peer("b")
    machine.begin(0.0)
    said = machine.receive("c", Batch(study_hash=SESSION, publications=(signed("b", b"before"),)), 0.0)
    assert [s.key for s in said if isinstance(s, Persist)] == [FROM + "b"]
    assert any(type(s).__name__ == "Published" for s in said)
    with pytest.raises(LocalProtocolError):
        machine.publish(b"another")
    withdrawn = peer("b")
    withdrawn.begin(0.0)
    withdrawn.withdraw()
    withdrawn.receive("c", Batch(study_hash=SESSION, publications=(signed("b", b"before"),)), 0.0)
    assert withdrawn.published is not None


def test_another_roster_changes_the_index_and_not_the_record() -> None:
    machine = peer("b")
    machine.begin(0.0)
    kept, _ = machine.publish(b"own")
    without = GossipParameters(**{**vars(parameters()), "peers": ("b", "d", "c")})
    again = PeerMachine(without, "b", {kept.key: kept.record}, key=KEYS["b"], source=source())
    assert again.publications.get(0).body == b"own"  # type: ignore[union-attr]


def test_strangers_and_members_of_another_study_are_refused() -> None:
    machine = peer()
    offer = peer("b")._offer(answer=False)
    said = machine.receive("mallory", offer, 0.0)
    assert [s.code for s in said if isinstance(s, Noticed)] == [Code.WRONG_PARTY]
    other = Offer(**{**_offer_facts(offer), "study_hash": digest(b"other")})
    said = machine.receive("b", other, 0.0)
    assert [s.code for s in said if isinstance(s, Noticed)] == [Code.WRONG_STUDY]
    assert machine.receive("b", Refused(study_hash=SESSION, code=Code.MALFORMED, cause="x"), 0.0)
    answers = [s for s in said if isinstance(s, Send)]
    assert [type(s.message) for s in answers] == [Refused]


def _offer_facts(offer: Offer) -> dict[str, object]:
    return {name: getattr(offer, name) for name in offer.__slots__}


def test_who_asks_again_and_again_is_answered_twice_in_a_cycle() -> None:
    machine = peer()
    machine.begin(0.0)
    machine.publish(b"own")
    offer = peer("b")._offer(answer=False)
    answers = [machine.receive("b", offer, 0.0) for _ in range(10)]
    assert sum(bool(said) for said in answers) == 2


def test_a_forged_record_costs_its_bearer_the_rest_of_the_message() -> None:
    machine = peer()
    forged = Publication(peer=1, body=b"lies", signature=b"s" * 64)
    said = machine.receive("d", Batch(study_hash=SESSION, publications=(forged, signed("c", b"true"))), 0.0)
    assert machine.publications.held == frozenset()
    assert [(s.party, s.code) for s in said if isinstance(s, Noticed)] == [("d", Code.BAD_SIGNATURE)]
    machine.receive("d", Batch(study_hash=SESSION, publications=(signed("c", b"true"), forged)), 0.0)
    assert machine.publications.held == {2}


def test_records_are_kept_under_the_names_of_their_peers() -> None:
    said = peer().receive("d", Batch(study_hash=SESSION, publications=(signed("c", b"true"),)), 0.0)
    assert [s.key for s in said if isinstance(s, Persist)] == [FROM + "c"]


# -- the list of peers -------------------------------------------------------------------------------------------------


def test_a_list_is_bounded_never_holds_its_owner_and_keeps_the_freshest() -> None:
    view = View(0, 100, source(), size=10)
    assert len(view.entries()[0]) == 10
    view.grow_older()
    view.merge(7, range(50, 70), [1] * 20)
    peers, ages = view.entries()
    assert len(peers) == 10
    assert 0 not in peers
    assert (peers[0], ages[0]) == (7, 0)
    assert set(peers[1:]) <= set(range(50, 70))


def test_a_liar_makes_nobody_but_itself_fresh() -> None:
    view = View(0, 100, source(), size=10)
    view.merge(7, [8, 9, 10, 300, -1, 0], [0, 0, 0, 0, 0, 0])
    ages = dict(zip(*view.entries()))
    assert ages[7] == 0
    assert all(age >= 1 for peer, age in ages.items() if peer != 7)
    assert set(ages) <= set(range(1, 100))


def test_partners_come_from_the_whole_roster_even_if_the_list_was_taken_over() -> None:
    view = View(0, 40, source(3), size=5)
    for _ in range(20):
        view.merge(1, [2, 3, 4, 5], [1, 1, 1, 1])
    met = {view.choose() for _ in range(2000)}
    assert met == set(range(1, 40))


# -- models ------------------------------------------------------------------------------------------------------------


def walks(radius: float = 2.0) -> ModelWalks:
    return ModelWalks(2, radius, lambda model: Model(model.age + 1, model.weights))


@pytest.mark.parametrize(
    "weights", [[np.nan, 0], [np.inf, 0], [1e308, 1e308], [2001.0, 0.0], [1.0], [1.0, 2.0, 3.0]]
)  # fmt: skip
def test_impossible_models_are_refused_and_leave_no_trace(weights: list[float]) -> None:
    own = walks()
    assert own.take("b", Model(3, np.array(weights))) is not None
    assert own.model.weights.tolist() == [0.0, 0.0]
    assert own.model.age == 0


def test_what_one_sender_can_do_is_bounded() -> None:
    own = walks()
    assert own.take("b", Model((1 << 32) - 1, np.array([1000.0, 0.0]))) is None
    assert own.model.weights.tolist() == [1.0, 0.0]  # scaled to length 2, and averaged with ours
    assert own.model.age == AGE_STEP + 1
    own.take("b", Model(1, np.array([0.0, 2.0])))
    assert own.model.weights.tolist() == [1.0, 0.0]  # one model of a sender in a cycle
    own.new_cycle()
    own.take("b", Model(1, np.array([0.0, 2.0])))
    assert own.model.weights.tolist() == [0.5, 1.0]


def test_a_member_that_asks_for_the_same_records_again_and_again_is_given_them_once_a_cycle() -> None:
    """A list of digests is a few bytes, and what is given for it half a megabyte."""
    machine = peer("a")
    machine.receive("b", Batch(study_hash=SESSION, publications=(signed("c", b"one"),)), 0.0)
    asked = Digests(study_hash=SESSION, peers=(2,), digests=(b"x" * 16,))
    given = [s for _ in range(50) for s in machine.receive("b", asked, 0.0) if isinstance(s, Send)]
    assert len(given) == 2
    machine.tick(10.0)
    assert any(isinstance(s, Send) for s in machine.receive("b", asked, 10.0))
