"""Masks: they cancel for any survivors in any graph, say nothing else, and end with their round; what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto import field, mask_keys, masking, shamir
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.masking import PairSecret, RoundKey, RoundSecrets
from tallystick.crypto.prg import AesStream

STUDY = digest(b"masked study")
LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
Vector = NDArray[np.uint64]


class Party:
    """One client: its pairs are made without X25519 here, which has vectors of its own."""

    def __init__(self, name: str, neighbours: list[str]) -> None:
        self.name = name
        self.secrets = RoundSecrets.generate(AesStream(digest(b"secrets", name.encode())))
        self.pairs = {}
        for other in neighbours:
            first, second = sorted((name, other))
            key = digest(b"pair", first.encode(), second.encode())
            self.pairs[other] = PairSecret(study_hash=STUDY, first=first, second=second, key=key)

    def keys(self, round: int) -> list[RoundKey]:
        return [pair.round_key(round) for pair in self.pairs.values()]

    def send(self, values: NDArray[np.int64], round: int) -> Vector:
        acc = field.encode_signed(values)
        masking.mask(acc, self.keys(round), self.secrets.self_seed, study_hash=STUDY, round=round, party=self.name)
        return acc

    def wrapped(self, round: int) -> bytes:
        where: Any = {"study_hash": STUDY, "round": round, "party": self.name}
        return masking.wrap_round_keys(self.keys(round), self.secrets.wrapping_key, **where)


def parties_of(names: list[str], edges: set[tuple[int, int]]) -> list[Party]:
    near: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        near[names[a]].append(names[b])
        near[names[b]].append(names[a])
    return [Party(name, near[name]) for name in names]


def values_of(index: int, size: int) -> NDArray[np.int64]:
    return (np.arange(size, dtype=np.int64) + index * 7919) * (-1) ** index


def total_of(parties: list[Party], survivors: set[int], size: int, round: int) -> NDArray[np.int64]:
    """What the reducer gets: the survivors' masked vectors summed, and unmasked with what may be revealed."""
    acc = field.sum_vectors([parties[i].send(values_of(i, size), round) for i in sorted(survivors)])
    dropped = {}
    for i, party in enumerate(parties):
        if i not in survivors:
            dropped[party.name] = masking.unwrap_round_keys(
                party.wrapped(round),
                party.secrets.wrapping_key,
                study_hash=STUDY,
                round=round,
                party=party.name,
                neighbours=list(party.pairs),
            )
    seeds = {parties[i].name: parties[i].secrets.self_seed for i in survivors}
    masking.unmask(acc, study_hash=STUDY, round=round, seeds=seeds, dropped=dropped)
    return field.decode_signed(acc)


@settings(deadline=None, max_examples=60)
@given(data=st.data(), clients=st.integers(2, 7), size=st.integers(1, 40), round=st.integers(0, 2**63 - 1))
def test_masks_cancel_for_any_survivors_in_any_graph(data: st.DataObject, clients: int, size: int, round: int) -> None:
    names = data.draw(st.permutations([f"Clinic {i}" for i in range(clients)]))
    pairs = [(a, b) for a in range(clients) for b in range(a)]
    edges = data.draw(st.sets(st.sampled_from(pairs)))
    survivors = data.draw(st.sets(st.integers(0, clients - 1), min_size=1))
    got = total_of(parties_of(list(names), edges), survivors, size, round)
    assert (got == sum(values_of(i, size) for i in survivors)).all()


def triangle() -> list[Party]:
    return parties_of(["A", "B", "C"], {(1, 0), (2, 0), (2, 1)})


def expected(survivors: set[int], size: int) -> NDArray[np.int64]:
    return np.sum([values_of(i, size) for i in survivors], axis=0)


def both_add(self: RoundKey, party: str) -> bool:
    return True


def test_a_sign_error_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: both ends add. The sum is then garbage, which the comparison of totals catches."""
    assert (total_of(triangle(), {0, 1, 2}, 5, 1) == expected({0, 1, 2}, 5)).all()
    monkeypatch.setattr(RoundKey, "_is_first", both_add)
    assert not (total_of(triangle(), {0, 1, 2}, 5, 1) == expected({0, 1, 2}, 5)).any()


def masks_of_two_rounds() -> tuple[Vector, Vector]:
    """What A's pair masks were in rounds 1 and 2, as the reducer sees them once A's self seeds are revealed."""
    party = triangle()[0]
    seen = []
    for round in (1, 2):
        acc = party.send(np.zeros(2000, dtype=np.int64), round)
        masking.remove_self_mask(acc, party.secrets.self_seed, study_hash=STUDY, round=round, party="A")
        seen.append(acc)
    return seen[0], seen[1]


def test_a_reused_round_key_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the same key every round. Two rounds of a survivor then differ by its values alone, here by nothing."""
    first, second = masks_of_two_rounds()
    assert not (first == second).any()
    assert (
        stats.chisquare(np.bincount(((first - second) >> np.uint64(60)).astype(np.int64), minlength=16)).pvalue > 1e-4
    )

    def forgetful(self: PairSecret, round: int) -> RoundKey:
        return RoundKey(self.study_hash, round, self.first, self.second, bytes(self._key))

    def same_context(*_parts: bytes) -> bytes:
        return bytes(32)

    monkeypatch.setattr(PairSecret, "round_key", forgetful)
    first, second = masks_of_two_rounds()
    assert not (first == second).any()  # the round in the mask's context still separates them
    monkeypatch.setattr(mask_keys, "digest", same_context)
    monkeypatch.setattr(masking, "digest", same_context)
    first, second = masks_of_two_rounds()
    assert (first == second).all()


def p_value(vector: Vector, shift: int) -> float:
    counts = np.bincount(((vector >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("leave_out", ["nothing", "self", "pairs"])
def test_what_is_sent_is_uniform(leave_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros sent with all masks, or with either kind alone, look uniform in the top and in the bottom byte."""
    party = triangle()[0]
    acc = np.zeros(100_000, dtype=np.uint64)
    if leave_out != "pairs":
        for key in party.keys(3):
            key.add(acc, "A")
    if leave_out != "self":
        masking.add_self_mask(acc, party.secrets.self_seed, study_hash=STUDY, round=3, party="A")
    assert p_value(acc, 56) > 1e-4
    assert p_value(acc, 0) > 1e-4
    assert field.is_canonical(acc)
    assert p_value(acc >> np.uint64(1), 56) < 1e-9  # masks of 63 bits would be found


def test_a_revealed_round_does_not_open_another() -> None:
    """A survives round 1, so its self seed is public, and drops out of round 2, so that round's keys are.

    Nothing of round 2 takes A's pair masks of round 1 away: the keys are other keys, and are refused for that round.
    """
    a = triangle()[0]
    sent = a.send(np.zeros(500, dtype=np.int64), 1)
    masking.remove_self_mask(sent, a.secrets.self_seed, study_hash=STUDY, round=1, party="A")
    opened = masking.unwrap_round_keys(
        a.wrapped(2), a.secrets.wrapping_key, study_hash=STUDY, round=2, party="A", neighbours=["B", "C"]
    )
    assert not {key.reveal() for key in opened.values()} & {key.reveal() for key in a.keys(1)}
    for forged in (opened, {name: replace(key, round=1) for name, key in opened.items()}):
        attempt = sent.copy()
        for key in forged.values():
            key.remove(attempt, "A")
        assert attempt.any()
        assert p_value(attempt, 56) > 1e-4
    for key in a.keys(1):  # with the true ones, it would be open
        key.remove(sent, "A")
    assert not sent.any()
    with pytest.raises(LocalProtocolError, match="round 2 was offered for round 1"):
        masking.mask(sent, opened.values(), a.secrets.self_seed, study_hash=STUDY, round=1, party="A")


def test_the_study_long_secret_has_no_way_out() -> None:
    pair = triangle()[0].pairs["B"]
    public = {name for name in dir(pair) if not name.startswith("_")}
    assert public == {"erase", "first", "open", "round_key", "seal", "second", "study_hash"}
    key = bytes(pair._key)
    assert key.hex() not in repr(pair)
    assert not isinstance(pair, Secret)
    with pytest.raises(TypeError):
        pickle.dumps(pair)
    with pytest.raises(TypeError):
        pickle.dumps(pair.round_key(1))
    for attempt in (
        lambda: shamir.split([pair], threshold=2, shares=3, source=AesStream(bytes(32))),  # type: ignore[list-item]
        lambda: masking.wrap_round_keys([pair], Secret(bytes(32)), study_hash=STUDY, round=1, party="A"),  # type: ignore[list-item]
    ):
        with pytest.raises((LocalProtocolError, AttributeError)):
            attempt()
    assert pair.round_key(1).reveal().hex() not in repr(pair.round_key(1))
    pair.erase()
    with pytest.raises(LocalProtocolError, match="erased"):
        pair.round_key(2)
    assert key.hex() not in repr(pair)


def test_every_part_of_the_derivation_counts() -> None:
    """Round, study, either name: change one and the key and the mask are others."""
    base = PairSecret(study_hash=STUDY, first="A", second="B", key=bytes(32))
    variants = [
        base.round_key(1),
        base.round_key(2),
        PairSecret(study_hash=digest(b"another"), first="A", second="B", key=bytes(32)).round_key(1),
        PairSecret(study_hash=STUDY, first="A", second="C", key=bytes(32)).round_key(1),
        PairSecret(study_hash=STUDY, first="0", second="B", key=bytes(32)).round_key(1),
        PairSecret(study_hash=STUDY, first="A", second="B", key=bytes([1]) * 32).round_key(1),
    ]
    assert len({key.reveal() for key in variants}) == len(variants)
    masks = set()
    for key in [replace(key, _key=bytes(32)) for key in variants[:5]]:  # the same key: the contexts differ as well
        acc = np.zeros(4, dtype=np.uint64)
        key.add(acc, key.first)
        masks.add(acc.tobytes())
    assert len(masks) == 5


def test_packets_open_at_the_other_end_only() -> None:
    source = AesStream(bytes(32))
    pair = PairSecret(study_hash=STUDY, first="A", second="B", key=bytes(32))
    sealed = pair.seal(b"shares", round=1, sender="B", source=source)
    assert len(sealed) == len(b"shares") + mask_keys.NONCE_BYTES + mask_keys.TAG_BYTES
    assert pair.open(sealed, round=1, sender="B") == b"shares"
    assert pair.seal(b"shares", round=1, sender="B", source=source) != sealed  # sealed again, under another nonce
    stranger = PairSecret(study_hash=STUDY, first="A", second="B", key=bytes([1]) * 32)
    elsewhere = PairSecret(study_hash=digest(b"another"), first="A", second="B", key=bytes(32))
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for who, raw, round, sender in (
        (pair, sealed, 2, "B"),
        (pair, sealed, 1, "A"),
        (stranger, sealed, 1, "B"),
        (elsewhere, sealed, 1, "B"),
        (pair, changed, 1, "B"),
        (pair, sealed[:-1], 1, "B"),
        (pair, sealed[:27], 1, "B"),
        (pair, b"", 1, "B"),
    ):
        with pytest.raises(RemoteProtocolError) as refusal:
            who.open(raw, round=round, sender=sender)
        assert (refusal.value.rule, refusal.value.party) == ("bad-packet", sender)
    for sender in ("C", ""):
        with pytest.raises(LocalProtocolError, match="no end"):
            pair.seal(b"shares", round=1, sender=sender, source=source)
    key = pair.round_key(1).reveal()  # a round key that was revealed opens no packet
    with pytest.raises(RemoteProtocolError):
        PairSecret(study_hash=STUDY, first="A", second="B", key=key).open(sealed, round=1, sender="B")


def study_key(name: str, public: bytes, study: bytes = STUDY) -> StudyKey:
    return StudyKey(study_hash=study, party=name, role="client", public=public, signature=b"")


def test_both_ends_agree_once_for_a_study() -> None:
    keys = {name: AgreementKey(digest(b"x", name.encode())) for name in "AB"}
    a, b = (study_key(name, key.public) for name, key in keys.items())
    one, two = masking.agree_pair(keys["A"], mine=a, theirs=b), masking.agree_pair(keys["B"], mine=b, theirs=a)
    assert (one.first, one.second) == (two.first, two.second) == ("A", "B")
    assert one.round_key(5).reveal() == two.round_key(5).reveal()


@pytest.mark.parametrize(
    ("theirs", "cause"),
    [
        (lambda own: study_key("B", own.public), "sent back"),
        (lambda own: study_key("B", LOW_ORDER), "low order"),
        (lambda own: study_key("B", bytes(32)), "low order"),
        (lambda own: study_key("B", b"\xff" * 32), "canonical"),
        (lambda own: study_key("B", bytes(31)), "32 bytes"),
        (lambda own: study_key("B", AgreementKey(bytes([9]) * 32).public, digest(b"another")), "another study"),
        (lambda own: study_key("A", AgreementKey(bytes([9]) * 32).public), "two different ends"),
    ],
)
def test_bad_keys_are_refused(theirs: Callable[[AgreementKey], StudyKey], cause: str) -> None:
    own = AgreementKey(digest(b"x", b"A"))
    with pytest.raises(RemoteProtocolError, match=cause) as refusal:
        masking.agree_pair(own, mine=study_key("A", own.public), theirs=theirs(own))
    assert refusal.value.rule == "bad-study-key"
    assert refusal.value.party == theirs(own).party


def test_someone_elses_key_is_no_end() -> None:
    own, other = AgreementKey(digest(b"x", b"A")), AgreementKey(digest(b"x", b"B"))
    with pytest.raises(LocalProtocolError):
        masking.agree_pair(own, mine=study_key("A", other.public), theirs=study_key("B", own.public))


def test_both_secrets_of_a_client_are_never_used() -> None:
    a = triangle()[0]
    keys = {key.other("A"): key for key in a.keys(1)}
    acc = np.zeros(3, dtype=np.uint64)
    with pytest.raises(LocalProtocolError) as refusal:
        masking.unmask(acc, study_hash=STUDY, round=1, seeds={"A": a.secrets.self_seed}, dropped={"A": keys})
    assert refusal.value.rule == "both-secrets"
    assert not acc.any()


def test_wrapped_keys_open_only_as_they_were_wrapped() -> None:
    a = triangle()[0]
    wrapped = a.wrapped(1)
    good: dict[str, Any] = {"study_hash": STUDY, "round": 1, "party": "A", "neighbours": ["C", "B"]}
    assert sorted(masking.unwrap_round_keys(wrapped, a.secrets.wrapping_key, **good)) == ["B", "C"]
    changes: list[dict[str, Any]] = [
        {"round": 2},
        {"party": "0"},
        {"neighbours": ["B"]},
        {"neighbours": ["B", "D"]},
        {"study_hash": digest(b"another")},
    ]
    for change in changes:
        with pytest.raises(RemoteProtocolError) as refusal:
            masking.unwrap_round_keys(wrapped, a.secrets.wrapping_key, **{**good, **change})
        assert refusal.value.rule == "bad-wrapped-keys"
    for raw, key in (
        (wrapped[:-1], a.secrets.wrapping_key),
        (b"", a.secrets.wrapping_key),
        (wrapped, Secret(bytes(32))),
    ):
        with pytest.raises(RemoteProtocolError):
            masking.unwrap_round_keys(raw, key, **good)
    twice = [*a.keys(1), a.keys(1)[0]]
    with pytest.raises(LocalProtocolError, match="two round keys"):
        masking.wrap_round_keys(twice, a.secrets.wrapping_key, study_hash=STUDY, round=1, party="A")


def test_what_is_no_round_or_pair_is_refused() -> None:
    for round, study in ((-1, STUDY), (2**63, STUDY), (1, b"short")):
        with pytest.raises(LocalProtocolError):
            masking.add_self_mask(np.zeros(1, np.uint64), Secret(bytes(32)), study_hash=study, round=round, party="A")
        with pytest.raises(LocalProtocolError):
            PairSecret(study_hash=study, first="A", second="B", key=bytes(32)).round_key(round)
    with pytest.raises(LocalProtocolError, match="in order"):
        RoundKey(STUDY, 1, "B", "A", bytes(32))
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        RoundKey(STUDY, 1, "A", "B", bytes(16))
    with pytest.raises(LocalProtocolError, match="no end of the pair"):
        RoundKey(STUDY, 1, "A", "B", bytes(32)).add(np.zeros(1, np.uint64), "C")


def test_round_secrets_are_fresh_and_do_not_print() -> None:
    source = AesStream(bytes(32))
    one, two = RoundSecrets.generate(source), RoundSecrets.generate(source)
    drawn = {s.reveal() for r in (one, two) for s in (r.self_seed, r.wrapping_key)}
    assert len(drawn) == 4
    assert not any(secret.hex() in repr(one) for secret in drawn)
