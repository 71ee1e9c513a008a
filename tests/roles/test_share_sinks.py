"""Shares that stream into the spool: any cut of the bytes, bad senders, wrong rounds, two transfers, one fsync."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_shares import MODEL, STUDY, make_shares

from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.field import MODULUS
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.prg import AesStream, system_stream
from tallystick.crypto.sealing import CHUNK_BYTES
from tallystick.crypto.signing import SigningKey
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.codec import encode, encode_parts, share_head
from tallystick.protocol.secure_sum.messages import (
    Accepted,
    Code,
    RoundOpen,
    Share,
    ShareDigest,
    ShareKind,
    model_digest,
    share_context,
    share_digest,
)
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.study.roster import Roster
from tallystick.roles.shares.share_sinks import Arrival, ShareArrivals
from tallystick.roles.shares.spool import SpoolShares
from tallystick.transport.network.admission import Unwanted
from tallystick.transport.network.frame_buffers import FrameBuffer
from tallystick.transport.network.frames import HEADER_BYTES as FRAME_HEADER
from tallystick.transport.network.frames import Kind
from tallystick.transport.wire import HEADER_BYTES, SEALED, Seals
from tallystick.trust.servers.parts import sum_parameters
from tallystick.trust.servers.server import ServerPart

SERVERS, CLIENTS = ("server-1", "server-2"), ("client-0", "client-1", "client-2")
SIZE = 20_000  # 160 KB: more than one frame, less than a chunk
LONG = 600_000  # 4.8 MB: three chunks
SOURCE = AesStream(bytes(range(32)), b"share sinks")


def roster_and_keys() -> tuple[Roster, dict[str, AgreementKey], SigningKey]:
    own = {name: AgreementKey.generate(SOURCE) for name in (*SERVERS, *CLIENTS)}
    signing = SigningKey.generate(SOURCE)
    roster = Roster(
        study_hash=STUDY, attempt=1, consortium_hash=bytes(32), coordinator="aggregator", helpers=SERVERS,
        clients=CLIENTS, min_clients=2, helper_identities=(signing.public, SigningKey.generate(SOURCE).public),
        keys={
            name: StudyKey(study_hash=STUDY, party=name, role="", public=key.public, signature=b"")
            for name, key in own.items()
        },
    )  # fmt: skip
    return roster, own, signing


class World:
    """Server 1 of two, and its clients' sealed channels to it."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self.roster, keys, self.signing = roster_and_keys()
        self.parameters = replace_study(
            sum_parameters(self.roster, size=size, honest=1, colluding=1, result_limit=2**40)
        )
        self.spool = SpoolShares(folder / "spool", party="server-1")
        self.round, self.announced = 1, 0
        self.refused: list[tuple[str, int, Code]] = []
        self.seals = {
            name: Seals(AgreementKey(keys[name].reveal()), name, self.roster, SOURCE, 1)
            for name in ("server-1", *CLIENTS)
        }
        self.arrivals = ShareArrivals(
            self.parameters, self.spool, self.seals["server-1"], round_now=lambda: self.round, announce=self._announce,
            refuse=lambda sender, round, code: self.refused.append((sender, round, code)),
        )  # fmt: skip

    def _announce(self) -> None:
        self.announced += 1

    def sealed(self, client: int, share: Share) -> bytes:
        pieces, length = self.seals[CLIENTS[client]].seal("server-1", *encode_parts(share))
        raw = b"".join(bytes(piece.view() if isinstance(piece, FrameBuffer) else piece) for piece in pieces)
        assert len(raw) == length
        return raw

    def send(self, client: int, raw: bytes, step: int = 1 << 19) -> None:
        """As the network does: chunk by chunk, abort on any failure."""
        sink = self.arrivals.sink(CLIENTS[client], len(raw))
        try:
            for at in range(0, len(raw), step):
                sink.write(memoryview(raw)[at : at + step])
        except BaseException:
            sink.abort()
            raise
        sink.close()

    def file_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.spool._directory.glob("*"))


def replace_study(parameters: sums.SumParameters) -> sums.SumParameters:
    return replace(parameters, study_hash=STUDY)  # the shares of the examples are of this one


def vector(client: int, size: int = SIZE, round: int = 1) -> Share:
    return make_shares(client, size, round=round)[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@settings(deadline=None, max_examples=15)
@given(step=st.integers(1 << 10, 3 << 20), size=st.integers(9_000, LONG))
def test_any_cut_gives_the_share_and_its_commitment(tmp_path_factory: Any, step: int, size: int) -> None:
    world = World(tmp_path_factory.mktemp("cut"), size)
    sent = vector(1, size)
    world.send(1, world.sealed(1, sent), step)
    (arrival,) = world.arrivals.take()
    assert encode(replace(arrival.share, payload=bytes(arrival.share.payload))) == encode(sent)
    assert arrival.commitment == sent.commitments[0]
    assert len(world.spool) == 0  # invisible until the machine has put it
    world.spool.put(arrival.share)
    arrival.settle()
    assert bytes(world.spool.get(1, 1).payload) == sent.payload


def test_the_commitment_by_parts_is_the_commitment() -> None:
    share = vector(2, 5_000)
    context = share_context(STUDY, 1, 2, 2, 5_000, MODEL)
    by_parts = ShareDigest(context, 0, ShareKind.VECTOR, share.blind)
    for at in range(0, len(share.payload), 999):
        by_parts.update(share.payload[at : at + 999])
    assert by_parts.digest() == share_digest(context, 0, ShareKind.VECTOR, share.blind, share.payload)
    head, start, length = share_head(encode(share)[:4096])
    assert head == replace(share, payload=b"")
    assert encode(share)[start : start + length] == share.payload


def test_a_changed_payload_has_another_commitment(world: World) -> None:
    sent = vector(0)
    payload = bytearray(sent.payload)
    payload[80_001] ^= 1
    world.send(0, world.sealed(0, replace(sent, payload=bytes(payload))))
    (arrival,) = world.arrivals.take()
    assert arrival.commitment != sent.commitments[0]  # which the machine refuses: BAD_COMMITMENT


@pytest.mark.parametrize("where", [40, 70, 90_000, -1])
def test_a_changed_byte_leaves_nothing(world: World, where: int) -> None:
    raw = bytearray(world.sealed(0, vector(0)))
    raw[where] ^= 1
    with pytest.raises(RemoteProtocolError):
        world.send(0, bytes(raw))
    assert not world.arrivals.take()
    assert len(world.spool) == 0


ACROSS = (CHUNK_BYTES - 225) // 8  # the element that lies across the end of the first chunk


@pytest.mark.parametrize("step", [1 << 21, 700_001, 4096])
@pytest.mark.parametrize("place", [0, ACROSS - 1, ACROSS, ACROSS + 1, LONG - 1])
def test_an_element_that_is_not_below_p_wherever_it_is(tmp_path: Path, place: int, step: int) -> None:
    world, good = World(tmp_path, LONG), vector(0, LONG)
    for value, fits in ((MODULUS - 1, True), (MODULUS, False), (2**64 - 1, False)):
        payload = bytearray(good.payload)
        payload[8 * place : 8 * place + 8] = value.to_bytes(8, "little")
        raw = world.sealed(0, replace(good, payload=bytes(payload)))
        if fits:
            world.send(0, raw, step)
            (arrival,) = world.arrivals.take()
            arrival.settle()
        else:
            with pytest.raises(RemoteProtocolError) as refusal:
                world.send(0, raw, step)
            assert refusal.value.rule == "not-a-field-element"
    assert not world.arrivals.take()
    assert len(world.spool) == 0


def test_a_transfer_that_breaks_off_gives_its_room_back(tmp_path: Path) -> None:
    world = World(tmp_path, LONG)
    sizes = set()
    for _ in range(4):
        raw = world.sealed(0, vector(0, LONG))
        sink = world.arrivals.sink("client-0", len(raw))
        sink.write(memoryview(raw)[:2_200_000])
        with pytest.raises(RemoteProtocolError):
            sink.close()
        sink.abort()
        sizes.add(world.file_bytes())
    assert len(sizes) == 1
    world.send(0, world.sealed(0, vector(0, LONG)))
    assert len(world.arrivals.take()) == 1
    assert world.file_bytes() == sizes.pop()


def test_a_replayed_transfer_is_refused(world: World) -> None:
    raw = world.sealed(0, vector(0))
    world.send(0, raw)
    world.arrivals.take()[0].settle()
    with pytest.raises(RemoteProtocolError, match="replayed"):
        world.send(0, raw)


def test_a_short_message_opened_meanwhile_overtakes_the_long_one(world: World) -> None:
    raw = world.sealed(0, vector(0))
    later = world.sealed(0, make_shares(0, SIZE, vector_server=1)[0])
    sink = world.arrivals.sink("client-0", len(raw))
    sink.write(memoryview(raw))
    world.seals["server-1"].open("client-0", memoryview(later)[33:])
    with pytest.raises(RemoteProtocolError, match="replayed or reordered"):
        sink.close()


def test_a_share_in_another_name_is_refused(world: World) -> None:
    with pytest.raises(RemoteProtocolError, match="the client it names"):
        world.send(1, world.sealed(1, vector(0)))
    with pytest.raises(RemoteProtocolError):
        world.send(1, world.sealed(0, vector(0)))  # sealed by another party than the line's
    assert world.file_bytes() == 0


@pytest.mark.parametrize("length", [10, 33, 100, 1 << 30])
def test_lengths_no_share_can_have_are_unwanted(world: World, length: int) -> None:
    with pytest.raises(Unwanted):
        world.arrivals.sink("client-0", length)


def test_strangers_are_unwanted(world: World) -> None:
    for name in ("server-2", "aggregator", "nobody"):
        with pytest.raises(Unwanted):
            world.arrivals.sink(name, 200_000)


@pytest.mark.parametrize(
    ("now", "round", "code"), [(3, 2, Code.PAST_ROUND), (1, 3, Code.TOO_EARLY), (0, 2, Code.TOO_EARLY)]
)
def test_other_rounds_get_no_room_and_an_answer(world: World, now: int, round: int, code: Code) -> None:
    world.round = now
    with pytest.raises(Unwanted):
        world.send(0, world.sealed(0, vector(0, round=round)))
    assert world.refused == [("client-0", round, code)]
    assert world.file_bytes() == 0


def test_the_next_round_has_room_while_the_loop_opens_it(world: World) -> None:
    world.send(0, world.sealed(0, vector(0, round=2)))
    assert world.arrivals.take()[0].share.round == 2


def test_no_second_transfer_while_the_first_waits_for_the_machine(world: World) -> None:
    sent = vector(0)
    world.send(0, world.sealed(0, sent))
    with pytest.raises(Unwanted):
        world.send(0, world.sealed(0, sent))
    (arrival,) = world.arrivals.take()
    assert bytes(arrival.share.payload) == sent.payload  # nobody wrote where it lies
    arrival.settle()
    world.send(0, world.sealed(0, sent))
    assert len(world.arrivals.take()) == 1


def test_a_client_that_dials_again_ends_its_old_transfer(world: World) -> None:
    sent = vector(0)
    old = world.sealed(0, sent)
    sink = world.arrivals.sink("client-0", len(old))
    sink.write(memoryview(old))
    new = world.sealed(0, sent)
    world.send(0, new)
    with pytest.raises(RemoteProtocolError):
        sink.close()
    assert len(world.arrivals.take()) == 1


def test_a_round_that_ends_ends_its_transfers(tmp_path: Path) -> None:
    world = World(tmp_path, LONG)
    raw = world.sealed(0, vector(0, LONG))
    sink = world.arrivals.sink("client-0", len(raw))
    sink.write(memoryview(raw)[:2_200_000])
    world.spool.drop(1)
    with pytest.raises(Unwanted):
        sink.write(memoryview(raw)[2_200_000:])
    sink.abort()


class _Process:
    """A loop that does at once what it is asked."""

    name, role = "server-1", "server"

    def __init__(self) -> None:
        self.events: list[Any] = []

    def now(self) -> float:
        return 0.0

    def post_for(self, _session: object, work: Any) -> None:
        self.events.append(work)

    soon = post_for

    def wake(self, *_arguments: object) -> None:
        return


class _NoNoise(NoiseSource):
    def draw(self, round: int) -> Any:
        import numpy as np

        return np.zeros(SIZE, dtype=np.int64)


class _Part(ServerPart):
    """Notes what is done, in order."""

    def __init__(self, world: World) -> None:
        process, self.log = _Process(), []  # type: ignore[var-annotated]
        self.spool, self.parameters = world.spool, world.parameters
        self.session = SimpleNamespace(process=process, study_hash=STUDY, seals=world.seals["server-1"])
        self.drive = lambda steps: self.log.extend(s for s in steps if isinstance(s, sums.Send))  # type: ignore[assignment]
        self.machine = sums.ServerMachine(
            world.parameters,
            "server-1",
            key=world.signing,
            noise=_NoNoise(),
            blinds=system_stream(),
            shares=world.spool,
        )
        self.arrivals = world.arrivals = self.open_for_shares(self.machine, self.spool, self.session.seals)

    def step(self, step: Any) -> None:
        self.log.append(step)


def test_one_fsync_for_all_that_wait_and_nobody_is_answered_before_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.parameters = replace(world.parameters, model_size=0)
    session = _Part(world)
    opening = RoundOpen(study_hash=STUDY, round=1, deadline_ms=1000, model_hash=model_digest(STUDY, 1, b""), model=b"")
    session.machine.receive("aggregator", opening, 0.0)
    model = opening.model_hash
    for client in (0, 1):
        machine = sums.ClientMachine(world.parameters, CLIENTS[client])
        machine.receive("aggregator", opening, 0.0)
        import numpy as np

        steps = machine.contribute(1, np.zeros(SIZE, dtype=np.uint64), SOURCE, 0.0)
        share = next(s.message for s in steps if isinstance(s, sums.Send) and s.to == "server-1")
        assert isinstance(share, Share)
        assert share.model_hash == model
        raw = world.sealed(client, share)
        if share.kind == ShareKind.VECTOR:
            world.send(client, raw)
        else:
            session.receive(CLIENTS[client], SEALED, memoryview(raw)[33:])
    assert session.log == []
    assert len(session.session.process.events) == 1  # told once, whoever came first
    session.session.process.events[0]()
    assert isinstance(session.log[0], sums.Sync)
    told = [step for step in session.log[1:] if isinstance(step.message, Accepted)]
    assert [step.to for step in told] == ["client-0", "client-1"]
    assert sum(isinstance(step, sums.Sync) for step in session.log) == 1
    assert len(world.spool) == 2


def test_a_share_the_machine_refuses_gives_its_room_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    session = _Part(world)
    world.arrivals.put(Arrival("client-0", vector(0)))  # no round is open
    session.session.process.events[0]()
    (said,) = session.log
    assert said.message.code in (Code.TOO_EARLY, Code.WRONG_SHAPE, Code.BAD_COMMITMENT)
    assert len(world.spool) == 0


def test_long_messages_that_are_sealed_at_the_same_time_do_not_share_memory(tmp_path: Path) -> None:
    """Buffers belong to the process: what one client seals must never show up in the frame of another."""
    world = World(tmp_path, size=700_000)
    plain = [bytes([number]) * 5_600_000 for number in range(len(CLIENTS))]
    sent: list[list[bytes]] = [[] for _ in CLIENTS]
    streams = [world.seals[name].seal("server-1", raw)[0] for name, raw in zip(CLIENTS, plain)]
    while streams:
        for number, stream in enumerate(list(streams)):
            piece = next(stream, None)
            if piece is None:
                streams = []
            elif isinstance(piece, FrameBuffer):
                sent[number].append(piece.framed(Kind.DATA, 1, 0)[FRAME_HEADER:])
    for name, raw, pieces in zip(CLIENTS, plain, sent):
        assert len(pieces) == 3
        assert world.seals["server-1"].open(name, memoryview(b"".join(pieces))[HEADER_BYTES:]) == raw
