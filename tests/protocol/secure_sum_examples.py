"""Keys, parameters and one message of every kind, the same in every test and in the golden vectors."""

from __future__ import annotations

import numpy as np

from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.secure_sum import (
    AggregatorMachine,
    ClientMachine,
    Compute,
    MemoryShares,
    ServerMachine,
    SumParameters,
)
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Confirmed,
    Inquiry,
    Message,
    Partial,
    ReceivedList,
    Refused,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Share,
    ShareKind,
    Start,
    StillIn,
    model_digest,
)
from tallystick.protocol.secure_sum.open_round import NoiseSource

SEED = bytes(range(32))
STUDY = derive(SEED, b"study")
MODEL = np.array([0.5, -2.0]).tobytes()
SPARSE_MODEL = np.array([0.0, 0.0, -0.0, 0.0, 0.0, 1.5, 0.0]).tobytes()
SIZE = 5


class SameBlind:
    """The same blind at every draw: what two runs say can be compared to the byte. No deployed server has it."""

    def words(self, count: int) -> np.ndarray:
        return np.zeros(count, dtype=np.uint64)

    def bytes(self, count: int) -> bytes:
        return b"\0" * count


class ZeroNoise(NoiseSource):
    """No noise: in tests only."""

    def __init__(self, size: int = SIZE) -> None:
        self.size, self.draws = size, 0

    def draw(self, round: int) -> np.ndarray:
        self.draws += 1
        return np.zeros(self.size, dtype=np.int64)


def keys(count: int) -> list[SigningKey]:
    return [SigningKey.generate(AesStream(derive(SEED, b"key", bytes([j])))) for j in range(count)]


def parameters(clients: int = 3, servers: int = 2, **changes) -> SumParameters:
    given = {
        "study_hash": STUDY,
        "size": SIZE,
        "servers": tuple(f"s{j}" for j in range(servers)),
        "clients": tuple(f"c{i}" for i in range(clients)),
        "server_keys": tuple(key.public for key in keys(servers)),
        "honest": 1,
        "min_clients": 2,
        "result_limit": 10**6,
        "model_size": 2,
    }
    return SumParameters(**{**given, **changes})


def opening(p: SumParameters, round: int = 1, model: bytes = MODEL, **changes) -> RoundOpen:
    given = {
        "study_hash": p.study_hash,
        "round": round,
        "deadline_ms": 60_000,
        "model_hash": model_digest(p.study_hash, round, model),
        "model": model,
    }
    return RoundOpen(**{**given, **changes})


def secret_opening(p: SumParameters, round: int = 1, model: bytes = MODEL, **changes) -> SecretOpen:
    """Of a study whose models tell of single people: what clients get; servers get ``hashed()`` of it."""
    blind = derive(SEED, b"blind", bytes([round]))
    given = {
        "study_hash": p.study_hash,
        "round": round,
        "deadline_ms": 60_000,
        "model_hash": model_digest(p.study_hash, round, model, blind),
        "model": model,
        "blind": blind,
    }
    return SecretOpen(**{**given, **changes})


def server(p: SumParameters, name: str = "s0", noise=None) -> ServerMachine:
    return ServerMachine(
        p,
        name,
        key=keys(len(p.servers))[p.server_index[name]],
        noise=noise or ZeroNoise(p.size),
        blinds=SameBlind(),
        shares=MemoryShares(),
    )


def shares(
    p: SumParameters, client: str, values, round: int = 1, label: bytes = b"", model: bytes = MODEL
) -> list[Share]:
    """The shares a client sends for these totals."""
    machine = ClientMachine(p, client)
    (compute,) = machine.receive("aggregator", opening(p, round, model), 0.0)
    assert isinstance(compute, Compute)
    vector = np.array([value % (2**64 - 2**32 + 1) for value in values], dtype=np.uint64)
    out = machine.contribute(round, vector, AesStream(derive(SEED, client.encode(), label)), 0.0)
    return [step.message for step in out if hasattr(step, "message")]


def aggregator(p: SumParameters) -> AggregatorMachine:
    return AggregatorMachine(p)


def every_message() -> dict[str, Message]:
    """One of each, from fixed seeds."""
    p = parameters()
    first, second = shares(p, "c1", [1, 2, 3, -4, 0])
    mark = derive(SEED, b"mark")
    starts = (
        Start(boot=3, value=bytes(range(16)), noise=derive(SEED, b"noise")),
        Start(boot=70_000, value=bytes(16), noise=mark),
    )
    signer = keys(1)[0]
    received = ReceivedList(
        study_hash=STUDY,
        round=7,
        server=0,
        start=starts[0],
        model_hash=mark,
        clients=(0, 2),
        digests=(mark, STUDY),
        equivocators=(1,),
    )
    agreement = Agreement(study_hash=STUDY, round=7, server=1, honest=1, model_hash=mark, starts=starts, clients=(0, 2))
    partial = Partial(
        study_hash=STUDY,
        round=7,
        server=0,
        start=starts[0],
        agreement=agreement.digest(),
        size=2,
        vector=bytes(8) + b"\x07" + bytes(7),
    )

    def signed(message):
        from dataclasses import replace

        return replace(message, signature=signer.sign(message.signed_part()))

    vector, seed = (first, second) if first.kind == ShareKind.VECTOR else (second, first)
    return {
        "round_open": opening(p),
        "round_open_sparse": opening(p, model=SPARSE_MODEL),
        "share_seed": seed,
        "share_vector": vector,
        "accepted": Accepted(study_hash=STUDY, round=7, digest=mark),
        "refused": Refused(study_hash=STUDY, round=7, code=Code.LATE, cause="too late by a minute"),
        "received_list": signed(received),
        "agreement": signed(agreement),
        "partial": signed(partial),
        "abort": Abort(
            study_hash=STUDY, round=7, code=Code.MISSING_SERVER, party="s1", cause="silent", remedy="Restart s1."
        ),
        "round_closed": RoundClosed(study_hash=STUDY, round=7, agreement=mark),
        "inquiry": Inquiry(study_hash=STUDY, round=7),
        "confirmed": Confirmed(study_hash=STUDY, round=7, digest=mark, complete=1, mark=mark[:16]),
        "still_in": StillIn(study_hash=STUDY, round=7, mark=mark[:16]),
        "hash_open": secret_opening(p).hashed(),
        "secret_open": secret_opening(p),
    }
