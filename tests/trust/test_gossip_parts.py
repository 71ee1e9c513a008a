"""A peer whose files were set back draws nothing while the board is away, and nothing but what it has attested to.

That what it draws is what it drew: ``test_draw_key``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.trust.test_gossip_publishing import PUBLISHING, STUDY, frame, source, study_records

from tallystick.protocol.instructions import Compute
from tallystick.trust.gossip.parts import PeerPart


class Machine:
    """As much of one as a draw needs."""

    published: bytes | None = None

    def __init__(self) -> None:
        self.drawn: list[bytes] = []
        self.withdrawn = False

    def publish(self, body: bytes) -> list[Any]:
        self.drawn.append(body)
        return []

    def withdraw(self) -> list[Any]:
        self.withdrawn = True
        return []

    def tick(self, _now: float) -> list[Any]:
        return []


@pytest.fixture
def part() -> Any:
    made: Any = object.__new__(PeerPart)
    exchange = SimpleNamespace(
        name="peer-01", members=SimpleNamespace(board="relay"), in_step=lambda _board: True, said=(),
    )  # fmt: skip
    exchange.docket = lambda _study: SimpleNamespace(statements=lambda *_: exchange.said)
    process = SimpleNamespace(
        name="peer-01", exchange=exchange, now=lambda: 100.0, wake=lambda *_: None, health=SimpleNamespace(rounds=0),
        draws=SimpleNamespace(words=lambda *_: source(), give_up=lambda _study: None),
    )  # fmt: skip
    made.session = SimpleNamespace(
        process=process, study_hash=STUDY.hash, charged_here=True, compute=lambda step: made.answer(step, RECORDS)
    )
    made.machine, made.publishing, made.drive = Machine(), PUBLISHING, list
    made._waiting = None
    return made


RECORDS = study_records(STUDY, frame(5, 1), lenient=True)
STEP = Compute(1, b"")
OTHER = SimpleNamespace(signer="peer-01", body={"partials": ["sha256:" + 64 * "0"]})


def test_it_draws_once_it_is_in_step_with_the_board(part: Any) -> None:
    exchange = part.session.process.exchange
    exchange.in_step = lambda _board: False
    part.answer(STEP, RECORDS)
    part.tick()
    assert part.machine.drawn == []
    exchange.in_step = lambda _board: True
    part.tick()
    assert len(part.machine.drawn) == 1


def test_a_peer_that_was_set_back_while_the_board_is_away_does_not_draw_again_however_long_that_is(part: Any) -> None:
    exchange = part.session.process.exchange
    exchange.in_step = lambda _board: False
    part.answer(STEP, RECORDS)
    for later in (111.0, 1e4, 1e6):
        part.session.process.now = lambda later=later: later
        part.tick()
    assert part.machine.drawn == []
    exchange.in_step, exchange.said = lambda _board: True, (OTHER,)
    part.tick()
    assert part.machine.drawn == []
    assert part.machine.withdrawn


def test_where_it_has_attested_to_other_records_it_publishes_nothing(part: Any) -> None:
    part.session.process.exchange.said = (SimpleNamespace(signer="peer-02"), OTHER)
    part.answer(STEP, RECORDS)
    assert part.machine.drawn == []
    assert part.machine.withdrawn


def test_what_is_published_is_not_drawn_again(part: Any) -> None:
    part.machine.published = b"kept"
    part.answer(STEP, RECORDS)
    assert part.machine.drawn == []
