"""``engine = "spark"`` in role files: a client that maps and a server that sums in a cluster, both killed on the way.

One consortium of real processes beside a standalone master with two workers. Client-1 has its records in a folder of
Parquet files and server-1 its shares in its spool; what executors do with them has to give the simulation's bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from consortium_fixture import PATIENCE, Parties, bits, frames, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once
from tests.engines.spark_clusters import (
    STANDALONE,
    executors_of,
    free_port,
    kill_an_executor,
    spark_home,
    standalone_master,
)

CLIENT, SERVER = "client-1", "server-1"
LONG = 5 * PATIENCE
"""Java takes its time on a machine that does much else."""
SUMMED = "executors summed 3 shares in "


class OnSpark(Parties):
    """A consortium with one client and one server in a cluster."""

    def __init__(self, folder: Path) -> None:
        files = [folder / "records" / str(number) for number in range(3)]
        for file, frame in zip(files, frames(3)):
            file.mkdir(parents=True)
            table = pa.table(frame)
            pq.write_table(table.slice(0, 11), file / "0.parquet")
            pq.write_table(table.slice(11), file / "1.parquet")
        super().__init__(folder / "parties", files=files)
        self.ports = {name: free_port() for name in (CLIENT, SERVER)}
        for name, port in self.ports.items():
            config = self.configs[name][1]
            conf = STANDALONE | {"spark.driver.port": str(port)}
            pairs = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in conf.items())
            text = config.read_text().replace("[role]", '[role]\nengine = "spark"')
            config.write_text(f'{text}\n[spark]\nmaster = "{standalone_master()}"\nconf = {{ {pairs} }}\n')

    def come_up(self, name: str) -> None:
        """Start one of the two, when no executor of its last life is left."""
        wait_for(lambda: not executors_of(self.ports[name]))
        self.start(name, least_piece=1)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnSpark]:
    spark_home()
    made = OnSpark(tmp_path_factory.mktemp("spark"))
    try:
        made.start(*(name for name in made.configs if name not in made.ports))
        made.start(*made.ports, least_piece=1)
        wait_for(lambda: all(f" {name} is up" in made.log(name) for name in made.configs), LONG)
        yield made
    finally:
        made.close()


def test_roles_that_are_killed_come_back_to_the_same_bytes(consortium: OnSpark) -> None:
    """The client when one server has its share and the other not, the server with its partial sum kept and not sent."""
    study = consortium.study(rounds=3, round_timeout_s=600)
    expected = consortium.simulated(study)
    consortium.die_at(CLIENT, CrashPoint.CLIENT_SHARE_SENT.value, 3)
    consortium.die_at(SERVER, CrashPoint.SERVER_PARTIAL_KEPT.value, 2)
    running = consortium.fit_in_background(study, round_timeout_s=600)
    for name in (CLIENT, SERVER):
        assert consortium.wait_dead(name, LONG) == -9, consortium.logs()
        consortium.come_up(name)
    model = running.result(LONG)
    assert bits(model) == bits(expected), consortium.logs()
    assert model.contributors_ == expected.contributors_  # a client that answers twice, and otherwise, is put out
    rounds = len(expected.history_)
    check_said_once(consortium, study, rounds=rounds)
    assert consortium.log(SERVER).count(SUMMED) >= rounds, consortium.log(SERVER)


def test_executors_that_are_killed_change_nothing(consortium: OnSpark) -> None:
    study = consortium.study(rounds=3, round_timeout_s=600)
    expected = consortium.simulated(study)
    before = consortium.log(SERVER).count(SUMMED)
    consortium.hold_at(CLIENT, CrashPoint.CLIENT_SHARES_SENT.value)
    running = consortium.fit_in_background(study, round_timeout_s=600)
    wait_for(lambda: consortium.noted("held", CLIENT), LONG)  # its records are encoded, in the executors' cache
    for port in consortium.ports.values():
        assert kill_an_executor(port) == 2
    consortium.let_go(CLIENT)
    assert bits(running.result(LONG)) == bits(expected), consortium.logs()
    check_said_once(consortium, study, rounds=len(expected.history_))
    assert consortium.log(SERVER).count(SUMMED) == before + len(expected.history_)
    assert "the cluster did not sum" not in consortium.log(SERVER)
