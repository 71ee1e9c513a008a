"""Real shares of one round, made by the client machine's own functions."""

from __future__ import annotations

import numpy as np

from tallystick.crypto.additive import SeedShare, split
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol.secure_sum.messages import Share, ShareKind, share_context, share_digest

STUDY, MODEL = b"\x07" * 32, b"\x08" * 32


def make_shares(client: int, size: int, *, round: int = 1, servers: int = 2, vector_server: int = 0) -> list[Share]:
    """One client's shares, one per server, with true commitments."""
    source = AesStream(derive(bytes(32), b"spool", bytes([client % 256, client >> 8, round])))
    values = source.words(size) % np.uint64(1000)
    context = share_context(STUDY, round, client, servers, size, MODEL)
    parts = split(values, servers=servers, vector_server=vector_server, source=source, context=context)
    blinds = [source.bytes(32) for _ in parts]
    kinds = [ShareKind.SEED if isinstance(part, SeedShare) else ShareKind.VECTOR for part in parts]
    payloads = [part.seed if isinstance(part, SeedShare) else part.vector.tobytes() for part in parts]
    digests = [share_digest(context, j, kinds[j], blinds[j], payloads[j]) for j in range(servers)]
    return [
        Share(
            study_hash=STUDY, round=round, client=client, server=j, size=size, kind=kinds[j], model_hash=MODEL,
            commitments=tuple(digests), blind=blinds[j], payload=payloads[j],
        )
        for j in range(servers)
    ]  # fmt: skip


def server_shares(clients: int, size: int, *, round: int = 1) -> list[Share]:
    """What server 0 of two gets: vectors and seeds by turns."""
    return [make_shares(c, size, round=round, vector_server=c % 2)[0] for c in range(clients)]
