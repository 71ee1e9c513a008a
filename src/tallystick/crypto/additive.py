"""Additive shares among m servers, m − 1 of them compressed to 32-byte seeds.

values = share_0 + … + share_{m−1} mod p. All shares but one are expansions of fresh random seeds and travel as
the seed; the remaining one is values − Σ expansions and travels as a vector. Any m − 1 shares are (up to the
generator) independent of the values: m − 1 seeds are random bytes, and a vector share is masked by the uniform
expansion of every seed missing from the coalition.

Who gets the vector rotates over clients and rounds, so the servers' traffic is even; that choice is public and
deterministic. A share is expanded in a context naming study, round, client and server, so a seed sent twice or
to another server stands for unrelated values.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.crypto import field, prg

_ROTATION_LABEL = b"tallystick/vector-server/v1"


@dataclass(frozen=True, eq=False, slots=True)
class SeedShare:
    """A share that travels as its seed."""

    seed: bytes = dataclass_field(repr=False)


@dataclass(frozen=True, eq=False, slots=True)
class VectorShare:
    """A share that travels as a field vector."""

    vector: NDArray[np.uint64] = dataclass_field(repr=False)


Share = SeedShare | VectorShare


def share_context(context: bytes, server: int) -> bytes:
    """The context one server's seed is expanded in: the sharing's context and the server's index (4 bytes)."""
    return context + server.to_bytes(4, "little")


def vector_server_for(study_hash: bytes, round: int, client: str, servers: int) -> int:
    """The index of the server that gets the vector: a hash of study and client picks the first, then turn by turn."""
    first = int.from_bytes(digest(_ROTATION_LABEL, study_hash, client.encode())[:8], "little")
    return (first + round) % servers


def split(
    values: NDArray[np.uint64], *, servers: int, vector_server: int, source: WordSource, context: bytes
) -> tuple[Share, ...]:
    """One share per server, the one at ``vector_server`` a vector, the others seeds drawn from ``source``."""
    if servers < 2 or not 0 <= vector_server < servers:
        raise LocalProtocolError(
            f"no sharing among {servers} servers with the vector at index {vector_server}",
            remedy="Share among two servers or more and choose one of them.",
        )
    if field.check_vector(values).size == 0:
        raise LocalProtocolError("an empty vector is not shared", remedy="A contribution has at least one element.")
    if not field.is_canonical(values):
        raise LocalProtocolError("only canonical vectors are shared", remedy="Encode with crypto.field.encode_signed.")
    rest = values.copy()
    shares: list[Share] = []
    for server in range(servers):
        if server == vector_server:
            shares.append(VectorShare(rest))
        else:
            seed = source.bytes(prg.SEED_BYTES)
            prg.subtract_expanded(rest, seed, share_context(context, server))
            shares.append(SeedShare(seed))
    return tuple(shares)
