"""The sharded sum: the bits of ``sum_shares`` for every number of workers, rejected words and dead workers included."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from spool_shares import make_shares, server_shares

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto import prg
from tallystick.crypto.field import MODULUS
from tallystick.protocol.secure_sum.shares import sum_shares
from tallystick.roles.shares import sharded_sum
from tallystick.roles.shares.sharded_sum import SpoolSum, SumJob, sum_piece
from tallystick.roles.shares.spool import SpoolShares

SIZE, CLIENTS = 4001, 9
AGREED = (0, 1, 2, 4, 5, 7, 8)
SEED = bytes(range(32))


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharded_sum, "LEAST_PIECE", 100)
    store = SpoolShares(tmp_path)
    for share in server_shares(CLIENTS, SIZE):
        store.put(share)
    yield store
    store.close()


@pytest.fixture(scope="module")
def pool():
    with SpoolSum(2) as pool:
        yield pool


@pytest.mark.parametrize("skip", [0, 1, 2, 3, 7, 1000, 32768, 65537])
def test_a_stream_starts_anywhere(skip: int) -> None:
    assert np.array_equal(
        prg.AesStream(SEED, b"x", skip=skip).words(50), prg.AesStream(SEED, b"x").words(skip + 50)[skip:]
    )


def test_the_counter_wraps_as_the_cipher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for low in (2**128 - 3, 2**64 - 3):
        material = bytes(16) + low.to_bytes(16, "big")
        monkeypatch.setattr(prg, "digest", lambda *_, m=material: m)
        whole = prg.AesStream(SEED).words(40)
        for skip in (5, 6, 7, 20):
            assert np.array_equal(prg.AesStream(SEED, skip=skip).words(40 - skip), whole[skip:])


class PlantedStream(prg.AesStream):
    """Keystream with words that no field element is, at given places of the whole stream."""

    __slots__ = ("at",)
    places: tuple[int, ...] = ()

    def __init__(self, key, context=b"", *, skip: int = 0) -> None:
        self.at = skip - skip % 2
        super().__init__(key, context, skip=skip)

    def read_into(self, buffer, count: int) -> None:
        super().read_into(buffer, count)
        for place in self.places:
            if self.at <= place < self.at + count:
                buffer[place - self.at] = MODULUS + place
        self.at += count


@pytest.mark.parametrize("places", [(0,), (3999,), (4000,), (4001,), (5, 6, 7), (99, 100, 2047, 3000), (33_000,)])
@pytest.mark.parametrize("workers", [1, 3])
def test_rejected_words_shift_what_follows(
    spool: SpoolShares, monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...], workers: int
) -> None:
    plain = sum_shares(spool, 1, AGREED, SIZE)
    monkeypatch.setattr(PlantedStream, "places", places)
    monkeypatch.setattr(prg, "AesStream", PlantedStream)
    expected = sum_shares(spool, 1, AGREED, SIZE)
    assert np.array_equal(expected, plain) == (min(places) >= SIZE)  # the plant is seen
    pool = SpoolSum(workers)
    monkeypatch.setattr(pool, "_share_out", lambda *_: None)  # all pieces in this process, where the plant is
    assert np.array_equal(pool.total(spool, 1, AGREED, SIZE), expected)


def test_planted_a_sum_that_ignores_shifts(spool: SpoolShares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlantedStream, "places", (50,))
    monkeypatch.setattr(prg, "AesStream", PlantedStream)
    job = SumJob.of(spool, 1, AGREED, SIZE)
    total, shifted = sum_piece(job, 0, SIZE)
    assert len(shifted) == len(job.seeds) == 3
    assert not np.array_equal(total, sum_shares(spool, 1, AGREED, SIZE))


def test_same_bits_for_every_number_of_workers(spool: SpoolShares, pool: SpoolSum) -> None:
    expected = sum_shares(spool, 1, AGREED, SIZE)
    assert np.array_equal(SpoolSum(1).total(spool, 1, AGREED, SIZE), expected)
    for agreed in (AGREED, (1, 3), (0,), ()):
        assert np.array_equal(pool.total(spool, 1, agreed, SIZE), sum_shares(spool, 1, agreed, SIZE))
    assert len(pool._workers) == 2
    os.kill(pool._workers[0].process.pid, signal.SIGKILL)  # one we started
    pool._workers[0].process.join()
    assert np.array_equal(pool.total(spool, 1, AGREED, SIZE), expected)
    assert len(pool._workers) == 1
    spool.put(make_shares(0, SIZE, round=2)[0])
    assert np.array_equal(pool.total(spool, 2, (0,), SIZE), sum_shares(spool, 2, (0,), SIZE))
    assert len(pool._workers) == 2


def test_pieces_cover_everything_once() -> None:
    for workers in (1, 2, 5):
        for size in (1, 32_768, 32_769, 1_000_003):
            pieces = SpoolSum(workers)._pieces(size)
            assert [low for low, _ in pieces] == [0, *(high for _, high in pieces[:-1])]
            assert pieces[-1][1] == size


def test_a_bad_element_in_the_file_is_refused_not_summed(spool: SpoolShares, pool: SpoolSum) -> None:
    (place, *_), _ = spool.places(1, (0,))
    with Path(place.path).open("r+b") as file:
        file.seek(place.offset + 16)
        file.write(b"\xff" * 8)
    with pytest.raises(RemoteProtocolError, match="modulus"):
        SpoolSum(1).total(spool, 1, AGREED, SIZE)
    with pytest.raises(RemoteProtocolError, match="modulus"):
        pool.total(spool, 1, AGREED, SIZE)


def test_what_cannot_be_summed(spool: SpoolShares) -> None:
    with pytest.raises(LocalProtocolError):
        SpoolSum(0)
    with pytest.raises(LocalProtocolError):
        SpoolSum(1).total(spool, 1, AGREED, SIZE - 1)
    with pytest.raises(KeyError):
        SpoolSum(1).total(spool, 1, (77,), SIZE)
    assert "seed" not in repr(SumJob.of(spool, 1, AGREED, SIZE))
