"""Small ledgers for the tests of the roles."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from tallystick.crypto.signing import SigningKey
from tallystick.privacy.accountant import ORDERS, rho_from_epsilon
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import STEPS, Charge, steps
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.store import LedgerStore

PARTY = "client-1"
KEY, SERVER_KEYS = SigningKey(b"k" * 32), {name: SigningKey(name.encode() * 4) for name in ("server-1", "server-2")}
IDENTITIES = {PARTY: KEY.public, **{name: key.public for name, key in SERVER_KEYS.items()}}
BUDGET = Budget(epsilon=1.0, delta=1e-6)
WHOLE = rho_from_epsilon(1.0, 1e-6)


def study(number: int) -> bytes:
    return number.to_bytes(32, "big")


def charge(number: int, rho: Fraction = WHOLE / 8, *, private: bool = True, neighbours: str = "replace-one") -> Charge:
    curve = tuple(Fraction(steps(rho * order), STEPS) for order in ORDERS)
    return Charge(study=study(number), curve=curve, rho=rho, pure_epsilon=None, private=private, neighbours=neighbours)


def dataset(name: str = "default", group: str | None = None, **mark: str) -> DataSet:
    found = Fingerprint(**{"location": f"/{name}.csv", **mark})
    return DataSet(name=name, source=found.location, fingerprint=found, group=group or name)


def open_ledger(folder: Path, *, party: str = PARTY, key: SigningKey = KEY) -> LedgerStore:
    return LedgerStore(folder / "ledger.sqlite", party=party, signing=key)


def short_charge(number: int) -> Charge:
    """A charge whose curve takes few bytes, where every byte of it is going to be changed in turn."""
    return replace(charge(number), curve=(Fraction(1, STEPS),) * len(ORDERS))


def small_ledger(folder: Path, *, party: str = PARTY, key: SigningKey = KEY) -> None:
    """Seven links: a data set, its budget, a study through its states, one given back."""
    with open_ledger(folder, party=party, key=key) as ledger:
        ledger.register(dataset(), BUDGET, by="steward")
        ledger.reserve("default", short_charge(1), study_name="one")
        ledger.release(study(1))
        ledger.commit(study(1), b"r" * 32)
        ledger.reserve("default", short_charge(2), study_name="two")
        ledger.void(study(2), reason="too few clients")


def copy(folder: Path, to: Path) -> Path:
    """All of a ledger's files, as a backup takes them."""
    to.mkdir()
    for file in folder.glob("ledger.*"):
        shutil.copy2(file, to / file.name)
    return to


@contextlib.contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    """The file under a ledger, as a burglar opens it."""
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        yield db


def countersign(ledger: LedgerStore, number: int, server: str = "server-1") -> Statement:
    """What a server says about the charge of a study."""
    body = ledger.charge_body(study(number))
    facts = {key: body[key] for key in ("hash", "ledger", "sequence", "head")}
    return make("countersignature", server, {**facts, "client": PARTY}, SERVER_KEYS[server])
