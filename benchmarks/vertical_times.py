"""What two institutions with different columns pay for alignment and for joint products: the deployed machines, whole.

    python -m benchmarks.vertical_times [--people 100000] [--rows 100000] [--columns 50]

Every message is encoded and decoded; all parties run in this process one after the other, so each is told its own
processor time. Sockets, disks and the sum among the servers are not in it.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tallystick.crypto.prg import system_stream
from tallystick.protocol import alignment, joint_products
from tallystick.protocol.instructions import Send

PARTIES = ("bank", "hospital")
STUDY = bytes(32)


class Clocks:
    """Processor seconds and bytes sent of each party."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.sent: dict[str, int] = {}

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return found

    def told(self) -> str:
        return "; ".join(f"{n} {s:.2f} s, {self.sent.get(n, 0) / 1e6:.1f} MB sent" for n, s in self.seconds.items())


def aligned(people: int) -> tuple[Clocks, int]:
    """Half of each institution's people are at the other, too."""
    own = {"bank": range(people), "hospital": range(people // 2, people // 2 + people)}
    names = {name: [f"person-{i}" for i in them] for name, them in own.items()}
    facts = alignment.AlignmentParameters(
        study_hash=STUDY, parties=PARTIES, sizes=(people, people), data_sets=(b"a" * 32, b"b" * 32)
    )
    machines = {n: alignment.AligningMachine(facts, n, seed=system_stream().bytes(32)) for n in PARTIES}
    clocks, queue, found = Clocks(), deque[tuple[str, str, bytes]](), dict[str, int]()

    def carry_out(name: str, steps: Iterable[Any]) -> None:
        for step in steps:
            if isinstance(step, Send):
                raw = clocks.run(name, lambda m=step.message: alignment.encode(m))  # type: ignore[misc]
                clocks.sent[name] = clocks.sent.get(name, 0) + len(raw)
                queue.append((name, step.to, raw))
            elif isinstance(step, alignment.Aligned):
                found[name] = len(step.positions)

    for name, machine in machines.items():
        carry_out(name, clocks.run(name, lambda m=machine, n=name: m.start(names[n])))  # type: ignore[misc]
    while queue:
        sender, to, raw = queue.popleft()
        carry_out(to, clocks.run(to, lambda t=to, s=sender, r=raw: machines[t].receive_bytes(s, r, 0.0)))  # type: ignore[misc]
    assert set(found.values()) == {people - people // 2}
    return clocks, found["bank"]


def multiplied(rows: int, columns: int) -> Clocks:
    """Masks dealt, rows opened, shares of products."""
    facts = joint_products.JointParameters(
        study_hash=STUDY, holders=PARTIES, widths=(columns, columns), records=rows, dealer="dealer"
    )
    rng = np.random.default_rng(1)
    units = {name: rng.integers(-40_000, 40_001, size=(rows, columns)).astype(float) for name in PARTIES}
    clocks, queue, ended = Clocks(), deque[tuple[str, str, bytes]](), set[str]()
    dealer = joint_products.DealerMachine(facts)
    clocks.run("dealer", lambda: dealer.deal(system_stream()))
    holders = {name: joint_products.HolderMachine(facts, name) for name in PARTIES}

    def carry_out(name: str, steps: Iterable[Any]) -> None:
        for step in steps:
            if isinstance(step, Send):
                raw = clocks.run(name, lambda m=step.message: joint_products.encode(m))  # type: ignore[misc]
                clocks.sent[name] = clocks.sent.get(name, 0) + len(raw)
                queue.append((name, step.to, raw))
            elif isinstance(step, joint_products.OwnRows):
                carry_out(name, clocks.run(name, lambda n=name: holders[n].open_rows(units[n])))  # type: ignore[misc]
            elif isinstance(step, joint_products.ProductShares):
                ended.add(name)

    for name, holder in holders.items():
        carry_out(name, clocks.run(name, holder.begin))
    while queue:
        sender, to, raw = queue.popleft()
        machine: Any = dealer if to == "dealer" else holders[to]
        carry_out(to, clocks.run(to, lambda m=machine, s=sender, r=raw: m.receive_bytes(s, r, 0.0)))  # type: ignore[misc]
    assert ended == set(PARTIES)
    return clocks


def main() -> None:
    parser = argparse.ArgumentParser(description="Alignment and joint products of two institutions.")
    parser.add_argument("--people", type=int, default=100_000, help="on each institution's list")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50, help="of each institution")
    told = parser.parse_args()
    if told.people:
        began = time.perf_counter()
        clocks, shared = aligned(told.people)
        whole = time.perf_counter() - began
        print(f"alignment of {told.people:,} people a side, {shared:,} shared: {clocks.told()}; all {whole:.1f} s")
    if told.rows:
        multiplied(64, told.columns)  # compiled kernels
        began = time.perf_counter()
        clocks = multiplied(told.rows, told.columns)
        whole = time.perf_counter() - began
        print(f"products of {told.rows:,} rows x ({told.columns} + {told.columns}): {clocks.told()}; all {whole:.1f} s")


if __name__ == "__main__":
    main()
