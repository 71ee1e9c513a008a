"""A deployed server of a study whose prices are left open: its own files hold the filter, whatever ends it, whenever.

The part is the real one, with its real store; what a kill −9 leaves is what was durable at the crash point.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.engines.test_open_rounds import CELLS, LEAST, made
from tests.protocol.secure_sum_examples import opening
from tests.protocol.study_examples import CONSORTIUM, identity, study_key

from tallystick.crypto.prg import AesStream, derive
from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.protocol.secure_sum import decode
from tallystick.protocol.secure_sum.messages import Abort, Code, Refused
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes import part
from tallystick.roles.storage.stores import RoleStore
from tallystick.transport.wire import SUM, parse
from tallystick.trust.servers.server import ServerPart

STUDY, PROGRAM, PLAN = made((LEAST,))
NAMES = ("s0", "s1", "c0", "c1", "c2")
ROSTER = Roster(
    study_hash=STUDY.hash, attempt=1, consortium_hash=CONSORTIUM, coordinator="hub", helpers=NAMES[:2],
    clients=NAMES[2:], min_clients=3, helper_identities=tuple(identity(n).public for n in NAMES[:2]),
    keys={n: study_key(n, study=STUDY.hash) for n in NAMES},
)  # fmt: skip
START = PROGRAM.init(None)  # type: ignore[arg-type]


class Killed(Exception):  # noqa: N818
    pass


class Server:
    """A server's part of the study; started again it has its files and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent = folder, list[Any]()
        self.kill_at: Callable[[str], bool] = lambda _point: False
        self.store: RoleStore | None = None
        self.start()

    def start(self) -> None:
        if self.store is not None:
            self.part.close()
            self.store.close()
        self.store = RoleStore(self.folder / "s0.sqlite", party="s0")
        self.store.add_study(STUDY.hash, STUDY.canonical(), "")
        parts = SimpleNamespace(
            identity=SimpleNamespace(signing=identity("s0")),
            streams=lambda *labels: AesStream(derive(bytes(32), bytes([self.store.boot]), *labels)),  # type: ignore[union-attr]
        )
        process = SimpleNamespace(
            name="s0", parts=parts, store=self.store, now=lambda: 0.0, directory=lambda _study: self.folder / "spool",
            health=SimpleNamespace(rounds=0), wake=lambda *_: None,
            send=lambda to, raw, *_: self.sent.append((to, bytes(raw))),
        )  # fmt: skip
        session = SimpleNamespace(
            process=process, study_hash=STUDY.hash, seals=None, keeps=True, held_round=0, secret_rounds=False
        )
        setup = SimpleNamespace(
            study=STUDY,
            plan=PLAN,
            sum_plan=PLAN,
            size=CELLS,
            template=START,
            design=SimpleNamespace(program=PROGRAM, tells_of_people=False),
        )
        self.part = ServerPart(session, setup, ROSTER)  # type: ignore[arg-type]

    def open(self, round: int, price: float) -> list[Any]:
        """The codes that the round is refused or given up with; what it keeps is on disk, up to where it is killed."""
        self.sent.clear()
        model = np.array([price, *np.zeros(CELLS)]).astype("<f8").tobytes()
        self.part.drive(self.part.machine.receive("hub", opening(self.part.parameters, round, model), 0.0))
        said = [
            decode(bytes(payload)) for kind, _, payload in (parse(raw, "s0") for _, raw in self.sent) if kind == SUM
        ]
        return [m.code for m in said if isinstance(m, (Refused, Abort)) and m.round == round]

    def prices(self) -> dict[int, int]:
        assert self.store is not None
        return dict(Prices.from_bytes(self.store.records(STUDY.hash).get("prices", b"")).by_round)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Server(tmp_path)

    def crashpoint(name: str) -> None:
        if made.kill_at(name):
            raise Killed(name)

    monkeypatch.setattr(part, "crashpoint", crashpoint)
    yield made
    made.part.close()
    assert made.store is not None
    made.store.close()


def test_a_server_started_again_knows_what_it_has_admitted(server: Server) -> None:
    assert server.open(1, PARTS // 2) == []
    server.start()
    assert server.open(2, PARTS // 2 + 1) == [Code.BAD_MODEL]
    assert server.open(2, PARTS // 2) == []
    server.start()
    assert server.open(3, LEAST) == [Code.BAD_MODEL]
    assert server.prices() == {1: PARTS // 2, 2: PARTS // 2}


@pytest.mark.parametrize("point", ["prices-kept", "noise-kept", "round-kept"])
def test_killed_while_it_opens_a_round_it_keeps_that_rounds_price(server: Server, point: str) -> None:
    assert server.open(1, PARTS // 2) == []
    server.kill_at = lambda name: name == point
    with pytest.raises(Killed):
        server.open(2, PARTS // 4)
    server.kill_at = lambda _name: False
    server.start()
    assert server.prices() == {1: PARTS // 2, 2: PARTS // 4}
    wanted = Code.TWO_MODELS if point == "round-kept" else Code.BAD_MODEL  # one price a round
    assert wanted in server.open(2, PARTS // 2)
    assert server.open(3, PARTS // 4 + 1) == [Code.BAD_MODEL]
    server.start()
    assert server.open(3, PARTS // 4) == []
