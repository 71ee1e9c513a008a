"""What m - 1 servers together see is uniform apart from the noised sum, and the test can fail.

Everything a coalition of all servers but one receives from honest clients is recorded through the real machines:
seeds, vectors, blinds, commitments, the other server's partial. Chi-square on the bytes at a fixed seed; alpha is
1e-4 a test, so a sound protocol fails about never and a planted leak, far beyond, always.
"""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3
from scipy.stats import chi2
from secure_sum_examples import MODEL, STUDY, SameBlind, ZeroNoise, keys, opening, parameters
from tests.crypto.sharing import expand, subtract

from tallystick.core.identifiers import digest
from tallystick.crypto.additive import share_context as server_context
from tallystick.crypto.field import encode_signed, from_bytes, sum_vectors
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol.secure_sum import ClientMachine, MemoryShares, ServerMachine
from tallystick.protocol.secure_sum.messages import Partial, Share, ShareKind, model_digest, share_context, share_digest
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.secure_sum.shares import sum_shares

ALPHA = 1e-4
SIZE = 64


def chi_square_p(values: bytes) -> float:
    """Of the hypothesis that the bytes are uniform."""
    counts = np.bincount(np.frombuffer(values, np.uint8), minlength=256)
    expected = len(values) / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


def low_bytes(vector: bytes) -> bytes:
    """The low 7 bytes of each element: the top one is not quite uniform below p."""
    return np.frombuffer(vector, np.uint8).reshape(-1, 8)[:, :7].tobytes()


def contributions(p, value: int, rounds: range):
    """The shares of a client that sends the same constant again and again."""
    vector = encode_signed(np.full(p.size, value, dtype=np.int64))
    client = ClientMachine(p, "c0")
    for round in rounds:
        client.receive("aggregator", opening(p, round), 0.0)
        out = client.contribute(round, vector, AesStream(derive(bytes(32), round.to_bytes(4, "little"))), 0.0)
        yield [step.message for step in out if hasattr(step, "message")]


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("value", [0, 7])
def test_all_but_one_servers_see_uniform_shares(servers: int, value: int) -> None:
    p = parameters(servers=servers, size=SIZE)
    seen: dict[int, dict[str, list[bytes]]] = {honest: {} for honest in range(servers)}
    for messages in contributions(p, value, range(1, 241)):
        for honest, view in seen.items():
            view.setdefault("commitment of the honest server's share", []).append(messages[0].commitments[honest])
            for share in messages:
                if share.server == honest:
                    continue
                name = "seeds" if share.kind == ShareKind.SEED else "vectors"
                payload = share.payload if share.kind == ShareKind.SEED else low_bytes(share.payload)
                view.setdefault(name, []).append(payload)
                view.setdefault("blinds", []).append(share.blind)
    for honest, view in seen.items():
        assert set(view) >= {"seeds", "vectors", "blinds"}
        for name, parts in view.items():
            assert chi_square_p(b"".join(parts)) > ALPHA, (honest, name)


def test_the_same_view_of_an_unmasked_client_is_flagged() -> None:
    """Negative control: a client that sends its vector as it is, and one that masks only its low 32 bits."""
    bare = encode_signed(np.full(SIZE, 7, dtype=np.int64)).tobytes()
    assert chi_square_p(low_bytes(bare) * 100) < ALPHA
    stream = AesStream(bytes(32))
    half = b"".join(((stream.words(SIZE) >> np.uint64(32)) + np.uint64(7)).tobytes() for _ in range(100))
    assert chi_square_p(low_bytes(half)) < ALPHA


def test_a_coalition_cannot_test_a_guess_against_the_commitment() -> None:
    """The seeds' owners know the vector share up to the sum: an unblinded hash of it would confirm a guess."""
    p = parameters(size=SIZE)
    (messages,) = contributions(p, 7, range(1, 2))
    honest = p.vector_server(1, 0)
    mine = messages[1 - honest]
    context = share_context(STUDY, 1, 0, 2, SIZE, model_digest(STUDY, 1, MODEL))
    known = expand(mine.payload, SIZE, server_context(context, 1 - honest))
    guess = subtract(encode_signed(np.full(SIZE, 7, dtype=np.int64)), known).tobytes()
    assert guess == messages[honest].payload  # the right guess gives the other share to the byte ...
    plain = share_digest(context, honest, ShareKind.VECTOR, b"", guess)
    for blind in (b"", bytes(32), mine.blind):  # ... and yet nothing the coalition has checks it
        assert share_digest(context, honest, ShareKind.VECTOR, blind, guess) != mine.commitments[honest]
    tag, hashed = bytes((honest, 0, ShareKind.VECTOR)), blake3(messages[honest].payload).digest()
    control = digest(b"tallystick/secure-sum/commit/2", context, tag, b"", hashed)
    assert plain == control  # without a blind it would have been that


class Flat(NoiseSource):
    """Noise that is uniform on a small range: all a coalition may learn is the sum plus this."""

    def __init__(self, label: bytes) -> None:
        self._stream = AesStream(derive(bytes(32), label))

    def draw(self, round: int) -> np.ndarray:
        return (self._stream.words(SIZE) % np.uint64(256)).astype(np.int64)


class LeaksItsShares(ServerMachine):
    """Planted: adds no shares at all, so its partial is its bare noise."""

    def _sum(self, current, agreed):
        return np.zeros(self.parameters.size, dtype=np.uint64)


def partials(kind: type[ServerMachine], rounds: range) -> list[tuple[bytes, np.ndarray]]:
    """Per round: the honest server's partial, and what is left of it when the coalition has taken off all it knows."""
    p = parameters(clients=2, size=SIZE)
    found = []
    machines = {}
    stores = {name: MemoryShares() for name in p.servers}
    for name, machine, noise in (("s0", kind, Flat(b"honest")), ("s1", ServerMachine, ZeroNoise(SIZE))):
        machines[name] = machine(
            p, name, key=keys(2)[p.server_index[name]], noise=noise, blinds=SameBlind(), shares=stores[name]
        )
    clients = [ClientMachine(p, name) for name in p.clients]
    for round in rounds:
        inbox = [("aggregator", to, opening(p, round)) for to in p.servers]
        for client in clients:
            client.receive("aggregator", opening(p, round), 0.0)
            vector = encode_signed(np.full(SIZE, 1000, dtype=np.int64))
            source = AesStream(derive(bytes(32), client.name.encode(), round.to_bytes(4, "little")))
            steps = client.contribute(round, vector, source, 0.0)
            inbox += [(client.name, s.to, s.message) for s in steps if isinstance(getattr(s, "message", None), Share)]
        mine = None
        while inbox:
            sender, to, message = inbox.pop(0)
            if to == "aggregator":
                if isinstance(message, Partial) and sender == "s0":
                    mine = from_bytes(message.vector, SIZE)
                continue
            if to in p.servers:
                inbox += [(to, s.to, s.message) for s in machines[to].receive(sender, message, 0.0) if hasattr(s, "to")]
        coalition = sum_shares(stores["s1"], round, (0, 1), SIZE)
        stores["s0"].drop(round)
        stores["s1"].drop(round)
        found.append((mine.tobytes(), sum_vectors((mine, coalition))))
    return found


def test_a_partial_is_uniform_and_opens_only_to_the_noised_sum() -> None:
    rounds = partials(ServerMachine, range(1, 121))
    assert chi_square_p(low_bytes(b"".join(raw for raw, _ in rounds))) > ALPHA
    opened = np.concatenate([total for _, total in rounds]).astype(np.int64) - 2000
    assert opened.min() >= 0
    assert opened.max() <= 255
    assert chi_square_p(opened.astype(np.uint8).tobytes()) > ALPHA


def test_a_partial_without_shares_is_flagged() -> None:
    rounds = partials(LeaksItsShares, range(1, 41))
    assert chi_square_p(low_bytes(b"".join(raw for raw, _ in rounds))) < ALPHA
