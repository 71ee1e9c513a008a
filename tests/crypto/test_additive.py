"""Additive shares: the sum is exact, no single share tells anything, contexts bind, vectors rotate."""

from __future__ import annotations

from collections import Counter

import crypto_reference as reference
import numpy as np
import pytest
import sharing
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto import additive, field, prg
from tallystick.crypto.additive import SeedShare, VectorShare

CONTEXT = reference.context_for(digest(b"study"), 3, "Hospital A")
ALPHA = 1e-6  # per test; the streams are fixed, so a passing test stays passing


def source(name: str = "source") -> prg.AesStream:
    return prg.AesStream(digest(name.encode()))


def expanded(share: SeedShare | VectorShare, size: int, server: int, context: bytes = CONTEXT) -> NDArray[np.uint64]:
    total = np.zeros(size, dtype=np.uint64)
    sharing.add_share_into(total, share, server=server, context=context)
    return total


def looks_uniform(vector: NDArray[np.uint64]) -> bool:
    """Chi-square at level ALPHA on the 256 values of the top byte and of the lowest byte.

    The top byte's last cell is smaller by 2^-32 of the field: far below what 2^18 draws can see.
    """
    limit = chi2.isf(ALPHA / 2, 255)
    for shift in (56, 0):
        counts = np.bincount(((vector >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        mean = vector.size / 256
        if float(((counts - mean) ** 2).sum()) / mean > limit:
            return False
    return True


@settings(deadline=None, max_examples=60)
@given(
    servers=st.integers(2, 5),
    chosen=st.integers(0, 4),
    values=st.lists(st.integers(0, P - 1), min_size=1, max_size=100),
    key=st.binary(min_size=32, max_size=32),
    context=st.binary(max_size=40),
)
def test_shares_combine_to_the_values(servers: int, chosen: int, values: list[int], key: bytes, context: bytes) -> None:
    chosen %= servers
    vector = np.array(values, dtype=np.uint64)
    shares = additive.split(vector, servers=servers, vector_server=chosen, source=prg.AesStream(key), context=context)
    assert [isinstance(share, VectorShare) for share in shares] == [server == chosen for server in range(servers)]
    assert len({share.seed for share in shares if isinstance(share, SeedShare)}) == servers - 1
    assert sharing.combine(shares, len(values), context).tolist() == values
    assert vector.tolist() == values
    alone = [expanded(share, len(values), server, context) for server, share in enumerate(shares)]
    assert [sum(column) % P for column in zip(*(a.tolist() for a in alone))] == values


@settings(deadline=None, max_examples=20)
@given(clients=st.integers(1, 8), servers=st.integers(2, 5), size=st.integers(1, 50), seed=st.integers(0, 2**32))
def test_server_sums_add_up_to_the_sum_over_clients(clients: int, servers: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    totals = rng.integers(-(2**40), 2**40, (clients, size))
    stream, study = source(), digest(b"study")
    sums = [np.zeros(size, dtype=np.uint64) for _ in range(servers)]
    for client, row in enumerate(totals):
        name = f"client-{client}"
        context = reference.context_for(study, 5, name)
        chosen = additive.vector_server_for(study, 5, name, servers)
        shares = additive.split(
            field.encode_signed(row), servers=servers, vector_server=chosen, source=stream, context=context
        )
        for server, share in enumerate(shares):
            sharing.add_share_into(sums[server], share, server=server, context=context, party=name)
    assert np.array_equal(field.decode_signed(field.sum_vectors(sums)), totals.sum(axis=0))


@pytest.mark.parametrize("servers", [2, 3, 5])
@pytest.mark.parametrize("value", [0, 1, P - 1])
def test_every_single_share_is_uniform(servers: int, value: int) -> None:
    size = 2**18
    values = np.full(size, value, dtype=np.uint64)
    shares = additive.split(values, servers=servers, vector_server=servers - 1, source=source(), context=CONTEXT)
    partial = np.zeros(size, dtype=np.uint64)
    for server, share in enumerate(shares):
        assert looks_uniform(expanded(share, size, server))
        sharing.add_share_into(partial, share, server=server, context=CONTEXT)
        if server < servers - 1:
            assert looks_uniform(partial)  # nor does any proper set of servers see anything
    assert not looks_uniform(partial)  # all of them together see the values


def test_the_uniformity_test_can_fail() -> None:
    uniform = sharing.expand(digest(b"control"), 2**18, b"")
    assert looks_uniform(uniform)
    assert not looks_uniform(np.zeros(2**18, dtype=np.uint64))
    assert not looks_uniform(uniform >> np.uint64(1))  # masks from half the range
    assert not looks_uniform(uniform & ~np.uint64(1))  # a constant low bit
    twentieth = uniform.copy()
    twentieth[::20] = 5  # one element in twenty sent in clear
    assert not looks_uniform(twentieth)


def test_a_seed_used_twice_would_show() -> None:
    """Planted bug: were one seed expanded in the same context for two contributions, their difference is bare."""
    a, b = np.arange(64, dtype=np.uint64), np.zeros(64, dtype=np.uint64)
    again = [additive.split(v, servers=2, vector_server=1, source=source(), context=CONTEXT)[1].vector for v in (a, b)]
    assert np.array_equal(sharing.subtract(*again), a)
    other_round = reference.context_for(digest(b"study"), 4, "Hospital A")
    fresh = [
        additive.split(v, servers=2, vector_server=1, source=source(), context=c)[1].vector
        for v, c in ((a, CONTEXT), (b, other_round))
    ]
    assert not set(sharing.subtract(*fresh).tolist()) & set(a.tolist())


def test_successive_splits_draw_fresh_seeds() -> None:
    stream, values = source(), np.arange(8, dtype=np.uint64)
    splits = [additive.split(values, servers=3, vector_server=1, source=stream, context=CONTEXT) for _ in range(50)]
    seeds = {share.seed for shares in splits for share in shares if isinstance(share, SeedShare)}
    assert len(seeds) == 100
    assert len({shares[1].vector.tobytes() for shares in splits}) == 50


def test_the_context_names_study_round_client_and_server() -> None:
    study, other = digest(b"study"), digest(b"other")
    contexts = [
        additive.share_context(reference.context_for(s, r, c), server)
        for s in (study, other)
        for r in (0, 1, 2**40)
        for c in ("a", "b", "ab", "Hôpital")
        for server in (0, 1, 255, 256)
    ]
    assert len(set(contexts)) == len(contexts)
    assert len({sharing.expand(bytes(32), 2, context).tobytes() for context in contexts}) == len(contexts)


def test_a_share_taken_elsewhere_is_worthless() -> None:
    values = np.arange(32, dtype=np.uint64)
    shares = additive.split(values, servers=3, vector_server=0, source=source(), context=CONTEXT)
    elsewhere = reference.context_for(digest(b"study"), 3, "Hospital B")
    assert sharing.combine(shares, 32, elsewhere).tolist() != values.tolist()
    swapped = (shares[0], shares[2], shares[1])
    assert sharing.combine(swapped, 32, CONTEXT).tolist() != values.tolist()


@pytest.mark.parametrize("servers", [2, 3, 4, 5])
def test_vectors_rotate(servers: int) -> None:
    study = digest(b"study")
    over_rounds = [additive.vector_server_for(study, round, "Hospital A", servers) for round in range(4 * servers)]
    assert Counter(over_rounds) == dict.fromkeys(range(servers), 4)
    for round in range(3):
        load = Counter(additive.vector_server_for(study, round, f"client-{i}", servers) for i in range(3000))
        counts = [load[server] for server in range(servers)]
        statistic = sum((c - 3000 / servers) ** 2 for c in counts) / (3000 / servers)
        assert statistic < chi2.isf(ALPHA, servers - 1)
    other = [additive.vector_server_for(digest(b"other"), 0, f"client-{i}", servers) for i in range(100)]
    assert other != [additive.vector_server_for(study, 0, f"client-{i}", servers) for i in range(100)]


@pytest.mark.parametrize(("servers", "chosen"), [(1, 0), (0, 0), (2, 2), (3, -1)])
def test_impossible_sharings_are_refused(servers: int, chosen: int) -> None:
    values = np.zeros(4, dtype=np.uint64)
    with pytest.raises(LocalProtocolError, match="servers"):
        additive.split(values, servers=servers, vector_server=chosen, source=source(), context=CONTEXT)


@pytest.mark.parametrize("values", [np.zeros(0, dtype=np.uint64), np.array([P], dtype=np.uint64), np.zeros(3)])
def test_only_canonical_vectors_are_shared(values: NDArray[np.uint64]) -> None:
    with pytest.raises(LocalProtocolError):
        additive.split(values, servers=2, vector_server=0, source=source(), context=CONTEXT)


def test_what_is_not_a_sharing_does_not_add_up() -> None:
    shares = additive.split(np.arange(4, dtype=np.uint64), servers=3, vector_server=1, source=source(), context=CONTEXT)
    for wrong in ((shares[0], shares[2]), (shares[1], shares[1], shares[0]), ()):
        assert sharing.combine(wrong, 4, CONTEXT).tolist() != [0, 1, 2, 3]
    with pytest.raises(RemoteProtocolError, match="4 elements arrived where 5"):
        sharing.combine(shares, 5, CONTEXT)
    with pytest.raises(RemoteProtocolError, match="not below"):
        sharing.combine((shares[0], VectorShare(np.full(4, P, dtype=np.uint64)), shares[2]), 4, CONTEXT)


def test_a_refused_vector_share_names_the_client() -> None:
    acc = np.ones(4, dtype=np.uint64)
    bad = VectorShare(np.full(4, P, dtype=np.uint64))
    with pytest.raises(RemoteProtocolError) as refusal:
        sharing.add_share_into(acc, bad, server=0, context=CONTEXT, party="Hospital B")
    assert refusal.value.party == "Hospital B"
    assert acc.tolist() == [1, 1, 1, 1]


def test_shares_do_not_print() -> None:
    seed = b"secret-seed-secret-seed-secret-s"
    for share, shown in (
        (SeedShare(seed), "SeedShare()"),
        (VectorShare(np.full(3, 987654321, dtype=np.uint64)), "VectorShare()"),
    ):
        assert repr(share) == str(share) == f"{share}" == shown
        assert repr([share]) == f"[{shown}]"


def test_reference_agrees_on_a_whole_sharing() -> None:
    key = digest(b"key")
    values = [0, 1, P - 1, 2**63]
    seeds = reference.source_bytes(key, b"", [32, 32])
    want = reference.split(values, 3, 1, seeds, CONTEXT)
    got = additive.split(
        np.array(values, dtype=np.uint64), servers=3, vector_server=1, source=prg.AesStream(key), context=CONTEXT
    )
    assert [got[0].seed, got[1].vector.tolist(), got[2].seed] == want
