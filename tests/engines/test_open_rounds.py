"""A program that chooses what each round costs: simulated with the real machines, and refused when it asks too much.

The program looks for the cell with the largest count: a cheap look at all of them, then a dear one. Its states begin
with the price of the next round. What a malicious coordinator could try is tried on a server's machine: a price beyond
the reservation, a second price for one round, a crash in between.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.protocol.secure_sum_examples import SameBlind, keys, opening, parameters
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import PrivacyRefused, RoundAborted
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.client_map import ClientMap
from tallystick.engines.engine import run_paid
from tallystick.engines.planning import plan_study
from tallystick.engines.round_vectors import RoundNoise
from tallystick.privacy.contribution import Dense
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Ledger
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.governance.plan_summary import noise_of, summarise, within_reservation
from tallystick.protocol.instructions import Persist, Send
from tallystick.protocol.secure_sum import MemoryShares, ServerMachine
from tallystick.protocol.secure_sum.messages import Code, Refused
from tallystick.protocol.secure_sum.records import NoiseRecord
from tallystick.study import Study

CELLS, ROUNDS = 4, 4
LEAST = PARTS // 16


class State(NamedTuple):
    price: float
    counts: np.ndarray


class Adaptive(BlockProgram):
    """Prices in the order given; the state is the last noisy counts."""

    def __init__(self, prices: tuple[int, ...]) -> None:
        self.prices, self.at = prices, 0

    def init(self, public: Public) -> State:
        self.at = 0
        return State(self.prices[0], np.zeros(CELLS))

    def prepare(self, features: np.ndarray, target: Any) -> np.ndarray:
        return np.eye(CELLS)[features[:, 0].astype(int)]

    def map_block(self, prepared: np.ndarray, state: State) -> Dense:
        return Dense(values=prepared)

    def reduce_in_aggregator(self, total: np.ndarray, state: State) -> State:
        self.at += 1
        return State(self.prices[self.at] if self.at < len(self.prices) else LEAST, total)

    def finished(self, state: State) -> bool:
        return self.at == len(self.prices)


class Rows:
    def __init__(self, features: np.ndarray) -> None:
        self.features, self.target = features, None


def made(prices: tuple[int, ...], **privacy: Any) -> tuple[Study, Adaptive, SumPlan]:
    study = Study.from_dict(
        {
            "study": {"name": "adaptive", "program": "adaptive"},
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "neighbours": "add-remove", **privacy},
        }
    )
    program = Adaptive(prices)
    design = SumDesign(
        program=program, groups=((Group(name="cells", size=CELLS, bound=1.0),),) * ROUNDS, least_price=LEAST
    )
    plan = plan_study(study, design, allow_not_private=True)
    assert isinstance(plan, SumPlan)
    return study, program, plan


def run(prices: tuple[int, ...], ledger: Ledger | None = None, **privacy: Any) -> Any:
    study, program, plan = made(prices, **privacy)
    rows = np.repeat(np.arange(CELLS), [400, 100, 50, 50])[:, None].astype(float)
    start = program.init(Public(features=()))
    servers = simulated_servers(
        study=study,
        plan=plan,
        program=program,
        template=start,
        clients={f"client-{i}": ClientMap(program, Rows(rows[i::3]), start) for i in range(3)},
        min_clients=3,
        records=len(rows),
        stream=lambda *labels: AesStream(derive(bytes(32), *labels)),
    )
    ledger = Ledger() if ledger is None else ledger
    return run_paid(servers, plan, study=study.hash, ledger=ledger), servers, plan


@pytest.mark.parametrize("privacy", [{}, {"mechanism": "laplace", "delta": 0.0}], ids=["gaussian", "laplace"])
def test_prices_are_chosen_as_rounds_come_and_the_whole_is_charged(privacy: dict[str, Any]) -> None:
    ledger = Ledger()
    prices = (LEAST, PARTS // 4, PARTS // 2)
    outcome, servers, plan = run(prices, ledger, **privacy)
    assert len(outcome.history) == 3
    (entry,) = ledger.entries
    assert entry.committed
    assert entry.charge.rho == plan.rho
    kept = [Prices.from_bytes(servers._rounds.records[f"server-{i}"]["prices"]).by_round for i in (1, 2)]
    assert kept == [dict(enumerate(prices, start=1))] * 2
    attested = noise_of(plan.noise_parameters(3, Prices(kept[0])))
    said = summarise(plan)["open"]
    assert within_reservation(said, attested, 3)
    assert not within_reservation(said, noise_of(plan.noise_parameters(3, Prices(dict.fromkeys((1, 2, 3), PARTS)))), 3)
    assert not within_reservation(said, [[1, ["1/2", "1/3"]]], 3)  # of other groups
    errors = [float(np.abs(s.counts - [400, 100, 50, 50]).max()) for s in outcome.history]
    assert errors[2] < 40  # the dear round


def test_a_dearer_round_has_less_noise_in_the_total() -> None:
    draws = {}
    for price in (LEAST, PARTS // 2):
        errors = [np.asarray(run((price, price))[0].history[i].counts) - [400, 100, 50, 50] for i in (0, 1)]
        draws[price] = float(np.abs(errors).mean())
    assert draws[PARTS // 2] < draws[LEAST]  # by √8 in expectation; seeded


def test_a_program_that_asks_for_more_than_is_left_is_refused_and_stays_charged() -> None:
    ledger = Ledger()
    with pytest.raises(RoundAborted, match="more than is left"):
        run((PARTS // 2, PARTS // 2, LEAST), ledger)
    assert len(ledger.entries) == 1  # two rounds were released: what was reserved stays spent


@pytest.mark.parametrize("price", [LEAST - 1, PARTS + 1, LEAST + 0.5])
def test_a_price_that_is_none_is_refused_before_anything_is_drawn(price: float) -> None:
    with pytest.raises(PrivacyRefused, match="no price"):
        run((price,))  # type: ignore[arg-type]


# -- a malicious coordinator, at a server's machine -------------------------------------------------------------------


def model(price: float) -> bytes:
    return struct.pack("<2d", price, 0.0)


class Server:
    """One server that can be killed after so many of its records were kept."""

    def __init__(self) -> None:
        _, _, self.plan = made((LEAST,))
        self.p = parameters(size=CELLS)
        self.records: dict[str, bytes] = {}
        self.boot = 0
        self.start()

    def start(self) -> None:
        noise = RoundNoise(
            self.plan, CELLS, "s0", lambda *labels: AesStream(derive(bytes(32), *labels)),
            admitted=self.records.get("prices"),
        )  # fmt: skip
        self.boot += 1
        self.machine, _ = ServerMachine.restore(
            self.p, "s0", self.records, key=keys(2)[0], noise=noise, blinds=SameBlind(), shares=MemoryShares(),
            boot=self.boot, now=0.0,
        )  # fmt: skip

    def open(self, round: int, price: float, *, kept: int | None = None) -> list[Any]:
        steps = self.machine.receive("aggregator", opening(self.p, round, model(price)), 0.0)
        for step in [s for s in steps if isinstance(s, Persist)][:kept]:
            self.records[step.key] = step.record
        return [s.message.code for s in steps if isinstance(s, Send) and isinstance(s.message, Refused)]


def test_a_server_refuses_beyond_the_reservation_whatever_the_coordinator_says() -> None:
    server = Server()
    assert server.open(1, PARTS // 2) == []
    assert server.open(2, PARTS // 2 + 1) == [Code.BAD_MODEL]
    assert server.open(2, PARTS // 2) == []
    assert server.open(3, LEAST) == [Code.BAD_MODEL]


def test_the_filter_survives_a_crash_between_any_two_records() -> None:
    seen = set()
    for kept in range(6):
        server = Server()
        assert server.open(1, PARTS // 2) == []
        assert server.open(2, PARTS // 4, kept=kept) == []
        server.start()
        taken = 2 in Prices.from_bytes(server.records["prices"]).by_round
        drawn = NoiseRecord.from_bytes(server.records["noise"]).round == 2
        assert taken or not drawn  # noise that was drawn at a price would pass for that of another one
        seen.add((taken, server.machine.round))
        if taken and server.machine.round == 1:  # the price was kept before the round: no other one is taken for it
            assert server.open(2, PARTS // 2) == [Code.BAD_MODEL]
        assert server.open(2, PARTS // 4) == []
        assert Prices.from_bytes(server.records["prices"]).by_round == {1: PARTS // 2, 2: PARTS // 4}
        server.start()
        assert server.open(3, PARTS // 2) == [Code.BAD_MODEL]
    assert seen == {(False, 1), (True, 1), (True, 2)}  # every place between the records was visited


@pytest.mark.parametrize("price", [LEAST, PARTS // 3, PARTS])
def test_the_noise_of_a_round_is_that_of_its_price_to_the_bit(price: int) -> None:
    server = Server()
    assert server.open(1, price) == []
    assert server.plan.open is not None
    stream = AesStream(derive(bytes(32), b"noise", (1).to_bytes(8, "little"), b"s0"))
    wanted = draw_noise(server.plan.open.priced(server.plan.rounds[0], price), stream)
    assert NoiseRecord.from_bytes(server.records["noise"]).noise.tolist() == wanted.tolist()


def test_planted_a_filter_that_is_not_kept_is_caught() -> None:
    """The negative control of the test above: without its record a restarted server admits what it must not."""
    server = Server()
    assert server.open(1, PARTS // 2) == []
    assert server.open(2, PARTS // 2) == []
    del server.records["prices"]
    server.start()
    assert server.open(3, PARTS // 2) == []
