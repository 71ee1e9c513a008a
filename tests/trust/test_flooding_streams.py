"""What a proxy floods with: a stream of its own for every chunk of every round, whatever the numbers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from tallystick.crypto.prg import AesStream, derive
from tallystick.trust.proxy.proxy import ProxyPart


def flooded(rounds: range, chunks: int) -> dict[tuple[int, int], bytes]:
    """The first bytes that each chunk of each round would be flooded with, by the role's own code."""
    found: dict[tuple[int, int], bytes] = {}

    def streams(study: bytes, *labels: bytes) -> AesStream:
        return AesStream(derive(bytes(32), study, *labels))

    parts = SimpleNamespace(config=SimpleNamespace(workers=1), streams=streams)
    session = SimpleNamespace(process=SimpleNamespace(parts=parts), study_hash=bytes(32))
    for number in rounds:

        def chunk(index: int, source: AesStream, number: int = number) -> bytes:
            found[number, index] = source.words(4).tobytes()
            return b""

        job = SimpleNamespace(
            round=number, parameters=SimpleNamespace(chunks=chunks), chunk=chunk, digest=lambda index, payload: b""
        )
        part: Any = SimpleNamespace(
            session=session,
            _stopped=threading.Event(),
            _keep=lambda job, digests, payload: digests.append(payload),
            files=SimpleNamespace(complete_sum=lambda number: None),
            post=lambda call: None,
        )
        ProxyPart._sum(part, job)  # type: ignore[arg-type]
    return found


def test_no_two_chunks_of_any_round_are_flooded_alike() -> None:
    """Two chunks under one stream would have one flooding: their difference would show both errors, undrowned."""
    found = flooded(range(1, 13), 24)
    assert len(found) == 12 * 24
    assert len(set(found.values())) == len(found)
