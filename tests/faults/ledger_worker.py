"""The test entry point of the ledger: real processes that race for a budget or kill themselves. Not in the wheel.

``python ledger_worker.py`` reads one order (a line of JSON) after another on stdin, forks what the order asks for, and
answers with one line. It imports the product once, so that a process costs a fork.

    race   processes × threads reserve the studies of their own lots at one ledger: who was admitted
    life   studies one after another: reserve, release, let out, commit (or void); dies at a crash point if told to
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from tallystick.core.errors import BudgetExceeded
from tallystick.crypto.signing import SigningKey
from tallystick.privacy.accountant import ORDERS
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import STEPS, Charge, steps
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.storage import crash_points

PARTY, KEY, DATASET = "client-1", SigningKey(b"k" * 32), "default"


def study(number: int) -> bytes:
    return number.to_bytes(32, "big")


@lru_cache
def curve(rho: Fraction) -> tuple[Fraction, ...]:
    return tuple(Fraction(steps(rho * order), STEPS) for order in ORDERS)


def charge(number: int, rho: Fraction) -> Charge:
    return Charge(study=study(number), curve=curve(rho), rho=rho, pure_epsilon=None)


def open_ledger(folder: Path) -> LedgerStore:
    return LedgerStore(folder / "ledger.sqlite", party=PARTY, signing=KEY)


def new_ledger(folder: Path, budget: Budget) -> None:
    with open_ledger(folder) as ledger:
        mark = Fingerprint(location="/records.csv")
        ledger.register(DataSet(name=DATASET, source="/records.csv", fingerprint=mark, group=DATASET), budget)


# -- races -------------------------------------------------------------------------------------------------------------


def race_in_threads(folder: Path, lots: list[list[int]], rho: Fraction, ready: int, go: int) -> list[int]:
    """One thread a lot; every other thread shares the process's first connection. All begin at once.

    Each process has reserved once before any goes on: so each knows a ledger that the others then change, however
    the machine deals out its time.
    """
    shared = open_ledger(folder)
    first = lots[0][0]
    shared.reserve(DATASET, charge(first, rho), study_name=f"study {first}")
    admitted = [first]
    lots = [lots[0][1:], *lots[1:]]
    os.write(ready, b"r")
    os.read(go, 1)  # ends when the parent closes its end

    def run(which: int) -> None:
        ledger = shared if which % 2 == 0 else open_ledger(folder)
        for number in lots[which]:
            try:
                ledger.reserve(DATASET, charge(number, rho), study_name=f"study {number}")
                admitted.append(number)
            except BudgetExceeded:
                pass

    with ThreadPoolExecutor(len(lots)) as pool:
        for done in [pool.submit(run, which) for which in range(len(lots))]:
            done.result()
    return admitted


def race(order: dict[str, Any]) -> dict[str, Any]:
    folder, rho = Path(order["folder"]), Fraction(order["rho"])
    (is_ready, ready), (go, open_gate) = os.pipe(), os.pipe()
    children = []
    for number, lots in enumerate(order["lots"]):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(open_gate)
                admitted = race_in_threads(folder, lots, rho, ready, go)
                (folder / f"admitted-{number}").write_text(json.dumps(admitted))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(ready)
    waiting = len(children)
    while waiting and (seen := os.read(is_ready, waiting)):
        waiting -= len(seen)
    os.close(open_gate)
    os.close(go)
    os.close(is_ready)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    outcomes = [json.loads((folder / f"admitted-{n}").read_text()) for n, code in enumerate(codes) if code == 0]
    return {"codes": codes, "admitted": outcomes}


# -- lives and deaths --------------------------------------------------------------------------------------------------


def note(folder: Path, name: str, line: str) -> None:
    file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode() + b"\n")
    os.fsync(file)
    os.close(file)


def live(folder: Path, studies: list[int], given_back: list[int], rho: Fraction) -> None:
    """As a client lives: everything again from the beginning after a restart; each step is asked for, not assumed."""
    with open_ledger(folder) as ledger:
        for number in studies:
            name = study(number)
            out = (folder / "out").read_text().split() if (folder / "out").exists() else []
            if number in given_back:
                if ledger.standing(name) != "voided":
                    ledger.reserve(DATASET, charge(number, rho))
                    ledger.void(name)
                continue
            ledger.reserve(DATASET, charge(number, rho))
            ledger.release(name)
            if str(number) not in out:
                note(folder, "out", str(number))  # from here on somebody has seen it
            ledger.commit(name, bytes(32))


def dying_at(point: str, visits: int) -> Any:
    left = visits

    def handler(step: str) -> None:
        nonlocal left
        if f"client:{step}" == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return handler


def life(order: dict[str, Any]) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if order.get("point"):
                crash_points.install(dying_at(order["point"], order["visits"]))
            if order.get("after"):
                threading.Timer(order["after"], os.kill, (os.getpid(), signal.SIGKILL)).start()
            live(Path(order["folder"]), order["studies"], order["given_back"], Fraction(order["rho"]))
            code = 0
        finally:
            os._exit(code)
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        answer = {"race": race, "life": life}[order["do"]](order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
