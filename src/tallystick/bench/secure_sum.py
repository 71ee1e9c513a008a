"""``tallystick bench secure-sum``: sharing at a client, summing at a server, bytes on the wire.

1,000 clients × 100,000 entries, 3 servers. Ratio = reference cost / ours: 1 is as fast as the reference, higher is
better. Times are CPU seconds of this thread, the best of a few runs, because machines are shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tallystick.bench.measuring import RoundNoise, best_seconds, row
from tallystick.core.identifiers import digest
from tallystick.crypto.additive import split
from tallystick.crypto.field import sum_vectors, uniform
from tallystick.crypto.prg import add_expanded, system_stream
from tallystick.transport.rounds import MemoryRounds

_STUDY = digest(b"bench secure-sum")
_CHUNK = 256 * 1024


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """The rows ``server-sum``, ``seed-expansion``, ``client-share`` and ``upload-bytes``."""
    clients, size, servers = (100, 20_000, 3) if quick else (1000, 100_000, 3)
    source = system_stream()
    # 50 distinct vectors, visited in turn: 40 MB, more than the caches hold, like a stream of uploads.
    vectors = [uniform(size, source) for _ in range(50)]
    turns = [vectors[i % 50] for i in range(clients)]
    gigabytes = 8 * size * clients / 1e9

    def reference_sum() -> None:
        acc = np.zeros(size, dtype=np.uint64)
        for v in turns:
            np.add(acc, v, out=acc)

    plain = best_seconds(reference_sum)
    ours = best_seconds(lambda: sum_vectors(turns))
    table = [_row("server-sum", gigabytes / ours, "GB/s of vectors", gigabytes / plain, plain / ours)]

    seeds = [source.bytes(32) for _ in range(clients)]
    acc = np.zeros(size, dtype=np.uint64)

    def expand_all() -> None:
        for seed in seeds:
            add_expanded(acc, seed, b"bench")

    raw = best_seconds(lambda: _raw_aes(8 * size * clients))
    expanded = best_seconds(expand_all)
    table.append(_row("seed-expansion", gigabytes / expanded, "GB/s of vectors", gigabytes / raw, raw / expanded))

    some = turns[: max(1, clients // 10)]

    def share_all() -> None:
        for number, v in enumerate(some):
            split(v, servers=servers, vector_server=number % servers, source=source, context=number.to_bytes(32))

    shared = best_seconds(share_all)
    added = best_seconds(lambda: [np.add(v, v) for v in some])
    part = 8 * size * len(some) / 1e9
    table.append(_row("client-share", part / shared, "GB/s of vectors", part / added, added / shared))

    table.append(_upload(size, servers))
    return table


def _upload(size: int, servers: int) -> dict[str, Any]:
    """One real round through the protocol machines: encoded bytes per client, to all servers together."""
    few = 6
    names = [f"client-{i}" for i in range(few)]
    values = np.arange(size, dtype=np.int64) - size // 2
    rounds = MemoryRounds.create(
        study_hash=_STUDY,
        size=size,
        clients=names,
        servers=[f"server-{i}" for i in range(servers)],
        noise=[RoundNoise(size)] * servers,
        source=system_stream(),
        honest=1,
        min_clients=3,
        result_limit=2**60,
    )
    rounds.run_round(1, b"", dict.fromkeys(names, lambda _model: values))
    uploaded = sum(rounds.bytes_up.values()) / few
    return _row("upload-bytes", uploaded, "bytes per client", 8.0 * size, 8 * size / uploaded)


def _raw_aes(count: int) -> None:
    """The raw AES-128-CTR keystream, written into a reused buffer chunk by chunk."""
    encryptor = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
    zeros = bytes(_CHUNK)
    buffer = bytearray(_CHUNK + 15)
    for done in range(0, count, _CHUNK):
        encryptor.update_into(zeros[: min(_CHUNK, count - done)], buffer)


def _row(case: str, value: float, unit: str, reference: float, ratio: float) -> dict[str, Any]:
    return row(case, round(value, 3), unit, round(reference, 3), round(ratio, 3))
