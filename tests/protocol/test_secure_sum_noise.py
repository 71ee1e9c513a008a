"""Exactly this round's draw is in this round's partial, and exactly the source's bytes are a client's seeds.

No statistics: noise and shares are taken off again, coordinate by coordinate, and what is left must be nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from secure_sum_examples import SIZE, SameBlind, keys, opening, parameters
from tests.crypto.sharing import subtract

from tallystick.core.identifiers import digest
from tallystick.crypto import additive, prg
from tallystick.crypto.additive import SeedShare
from tallystick.crypto.field import decode_signed, encode_signed, from_bytes
from tallystick.crypto.prg import SEED_BYTES, AesStream, derive
from tallystick.engines.round_vectors import RoundNoise
from tallystick.protocol.secure_sum import ClientMachine, MemoryShares, Persist, Send, ServerMachine
from tallystick.protocol.secure_sum.messages import Partial, Share, ShareKind
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.secure_sum.records import SeedRecord
from tallystick.protocol.secure_sum.shares import sum_shares
from tallystick.roles.processes.start import _system_streams

ROUNDS = (1, 2, 3, 7)


class Draws(NoiseSource):
    """Noise that says which server and round it is of, and counts how often it was asked."""

    def __init__(self, server: int) -> None:
        self.server, self.asked = server, []

    def draw(self, round: int) -> np.ndarray:
        self.asked.append(round)
        return self.of(round)

    def of(self, round: int) -> np.ndarray:
        return (-1) ** round * (10**6 * (self.server + 1) + 10**3 * round + np.arange(SIZE, dtype=np.int64))


class Sums(MemoryShares):
    """Remembers the sum of all shares of each round before they are dropped."""

    def drop(self, round: int) -> None:
        self.kept = getattr(self, "kept", {})
        if tuple(self.clients(round)):
            self.kept[round] = sum_shares(self, round, sorted(self.clients(round)), SIZE)
        super().drop(round)


def play(kind: type[ServerMachine] = ServerMachine) -> tuple[list[Draws], list[Sums], dict[tuple[int, int], Partial]]:
    """Four rounds among two servers; the partials by server and round."""
    p = parameters(clients=2)
    draws, stores = [Draws(i) for i in range(2)], [Sums() for _ in range(2)]
    machines = {
        name: kind(p, name, key=keys(2)[i], noise=draws[i], blinds=SameBlind(), shares=stores[i])
        for i, name in enumerate(p.servers)
    }
    partials: dict[tuple[int, int], Partial] = {}
    for round in ROUNDS:
        inbox = [("aggregator", server, opening(p, round)) for server in p.servers]
        for client in p.clients:
            machine = ClientMachine(p, client)
            machine.receive("aggregator", opening(p, round), 0.0)
            source = AesStream(derive(bytes(32), client.encode(), bytes([round])))
            steps = machine.contribute(round, encode_signed(np.full(SIZE, 5, dtype=np.int64)), source, 0.0)
            inbox += [(client, step.to, step.message) for step in steps if isinstance(step, Send)]
        while inbox:
            sender, to, message = inbox.pop(0)
            if to not in machines:
                if isinstance(message, Partial):
                    partials[message.server, round] = message
                continue
            for step in machines[to].receive(sender, message, 1.0):
                if isinstance(step, Send):
                    inbox.append((to, step.to, step.message))
                elif hasattr(step, "round") and type(step).__name__ == "Drop":
                    stores[p.server_index[to]].drop(step.round)
    return draws, stores, partials


def check_noise(kind: type[ServerMachine] = ServerMachine) -> None:
    draws, stores, partials = play(kind)
    assert sorted(partials) == [(server, round) for server in range(2) for round in ROUNDS]
    for (server, round), partial in partials.items():
        rest = subtract(from_bytes(partial.vector, SIZE), stores[server].kept[round])
        assert decode_signed(rest).tolist() == draws[server].of(round).tolist(), (server, round)
    assert [source.asked for source in draws] == [list(ROUNDS)] * 2  # once a round, and anew in each


def test_a_partial_holds_the_draw_of_its_own_round_and_of_no_other() -> None:
    check_noise()


class KeepsItsFirstDraw(ServerMachine):
    """Draws once for the whole study."""

    def _on_open(self, sender, message, now):
        source = self._noise
        first = getattr(self, "first", None)
        if first is not None:
            source_draw = source.draw
            source.draw = lambda round: (source_draw(round), first)[1]
        out = super()._on_open(sender, message, now)
        if first is None:
            self.first = self._now.noise
        return out


class ForgetsTheNoise(ServerMachine):
    """Sends the bare sum of shares."""

    def _sum(self, current, agreed):
        current.noise = np.zeros(SIZE, dtype=np.int64)
        return super()._sum(current, agreed)


class AddsItTwice(ServerMachine):
    def _sum(self, current, agreed):
        current.noise = 2 * current.noise
        return super()._sum(current, agreed)


@pytest.mark.parametrize("kind", [KeepsItsFirstDraw, ForgetsTheNoise, AddsItTwice])
def test_planted_bugs_in_a_servers_noise_are_caught(kind: type[ServerMachine]) -> None:
    with pytest.raises(AssertionError):
        check_noise(kind)


# -- where the draws of a deployed server come from ------------------------------------------------------------------


class Plan:
    """As many rounds as there are; each draw is the first words of the stream it is given."""

    rounds = tuple(range(1, 9))
    open = None


def check_streams(stream: Callable[..., object]) -> None:
    labels, draws = [], []

    def noted(*given: bytes) -> object:
        labels.append(given)
        return stream(*given)

    def words(plan: object, source: AesStream) -> np.ndarray:
        return source.words(SIZE).astype(np.int64)

    with patch("tallystick.engines.round_vectors.draw_noise", words):
        for server in ("server-1", "server-2"):
            source = RoundNoise(Plan(), SIZE, server, noted)  # type: ignore[arg-type]
            draws += [source.draw(round).tobytes() for round in Plan.rounds]
    assert len(set(labels)) == len(labels) == 2 * len(Plan.rounds)  # a stream of its own for every round and server
    assert len(set(draws)) == len(draws)
    assert {(label[0], label[2]) for label in labels} == {(b"noise", b"server-1"), (b"noise", b"server-2")}
    assert [int.from_bytes(label[1], "little") for label in labels] == [*Plan.rounds] * 2


def test_every_round_and_server_has_a_stream_of_its_own() -> None:
    check_streams(lambda *labels: AesStream(derive(bytes(32), *labels)))
    check_streams(_system_streams)  # what a deployed role is wired with: fresh at every call, whatever the labels


def test_a_stream_that_forgets_the_round_is_caught() -> None:
    one = AesStream(bytes(32))
    for wrong in (lambda *_: AesStream(bytes(32)), lambda label, _round, server: AesStream(derive(bytes(32), server))):
        with pytest.raises(AssertionError):
            check_streams(wrong)
    check_streams(lambda *_: one)  # one stream read on and on gives draws of their own, too


# -- share seeds -----------------------------------------------------------------------------------------------------


class Counting:
    """A source whose bytes are known: the first call gives 1s, the second 2s, and so on."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def words(self, count: int) -> np.ndarray:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64)

    def bytes(self, count: int) -> bytes:
        self.given.append(bytes([len(self.given) + 1]) * count)
        return self.given[-1]


def check_seeds_of_a_split() -> None:
    for servers in (2, 3, 5):
        for chosen in range(servers):
            source = Counting()
            made = additive.split(
                np.arange(SIZE, dtype=np.uint64), servers=servers, vector_server=chosen, source=source, context=b"c"
            )
            seeds = [part.seed for part in made if isinstance(part, SeedShare)]
            assert seeds == [bytes([i]) * SEED_BYTES for i in range(1, servers)]  # each from the source, none twice
            assert source.given == seeds


def test_the_seeds_of_a_split_are_the_sources_bytes() -> None:
    check_seeds_of_a_split()


def check_seeds_of_a_client() -> None:
    p, source = parameters(servers=3), AesStream(digest(b"a client's source"))
    twin = AesStream(digest(b"a client's source"))
    seeds, payloads = [], []
    for client in ("c0", "c1"):
        machine = ClientMachine(p, client)
        for round in ROUNDS:
            machine.receive("aggregator", opening(p, round), 0.0)
            steps = machine.contribute(round, np.zeros(SIZE, dtype=np.uint64), source, 0.0)
            (kept,) = [s.record for s in steps if isinstance(s, Persist) and s.secret]
            seeds.append(SeedRecord.from_bytes(kept).seed)
            shares = [step.message for step in steps if isinstance(step, Send) and isinstance(step.message, Share)]
            payloads += [share.payload for share in shares if share.kind == ShareKind.SEED]
            payloads += [share.blind for share in shares]
    assert seeds == [twin.bytes(SEED_BYTES) for _ in seeds]  # drawn anew for every round, and nothing else
    assert len(payloads) == len(set(payloads)) == 2 * len(ROUNDS) * (2 + 3)
    assert all(any(payload) for payload in payloads)
    assert not set(payloads) & set(seeds)  # what is kept to repeat oneself is not what travels


def test_a_clients_seeds_are_drawn_anew_in_every_round_and_never_zero() -> None:
    check_seeds_of_a_client()


def zero_seeds(values, *, servers, vector_server, source, context):
    """Every seed is zero: a server that knows the others' indices knows their shares."""

    class Zeros(Counting):
        def bytes(self, count: int) -> bytes:
            return bytes(count)

    return additive_split(values, servers=servers, vector_server=vector_server, source=Zeros(), context=context)


def one_seed(values, *, servers, vector_server, source, context):
    """All servers of one sharing get the same seed."""
    seed = source.bytes(SEED_BYTES)
    rest, made = values.copy(), []
    for server in range(servers):
        if server == vector_server:
            made.append(additive.VectorShare(rest))
        else:
            prg.subtract_expanded(rest, seed, additive.share_context(context, server))
            made.append(SeedShare(seed))
    return tuple(made)


additive_split = additive.split


@pytest.mark.parametrize("wrong", [zero_seeds, one_seed])
def test_planted_bugs_in_the_seeds_are_caught(wrong: Callable[..., object]) -> None:
    with patch.object(additive, "split", wrong), pytest.raises(AssertionError):
        check_seeds_of_a_split()
    with patch("tallystick.protocol.secure_sum.client.split", wrong), pytest.raises(AssertionError):
        check_seeds_of_a_client()


def test_a_client_that_keeps_its_seed_is_caught() -> None:
    real = ClientMachine.contribute

    def same(machine, round, vector, source, now):
        return real(machine, round, vector, AesStream(bytes(32)), now)

    with patch.object(ClientMachine, "contribute", same), pytest.raises(AssertionError):
        check_seeds_of_a_client()
