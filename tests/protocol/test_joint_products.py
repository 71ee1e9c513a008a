"""Joint products on shares: exact, hidden by masks that serve once, and refused from whoever has no part in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.crypto.field import MODULUS
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol.instructions import Persist, Send
from tallystick.protocol.joint_products import (
    DealerMachine,
    HolderMachine,
    JointParameters,
    OwnRows,
    ProductShares,
    decode,
    encode,
)
from tallystick.protocol.joint_products import parameters as limits
from tallystick.protocol.joint_products.messages import Code, Deal, DealWanted, OpenedRows, Refused, RowsWanted
from tallystick.protocol.machine import transition_table
from tallystick.transport.memory_holders import MemoryHolders

STUDY = bytes(range(32))
WIDTHS = {"bank": 3, "hospital": 2, "school": 4}
ROWS = 50


def source(label: bytes = b"deal") -> AesStream:
    return AesStream(derive(bytes(32), label))


def parameters(names: tuple[str, ...] = ("bank", "hospital", "school"), records: int = ROWS) -> JointParameters:
    return JointParameters(
        study_hash=STUDY,
        holders=names,
        widths=tuple(WIDTHS[name] for name in names),
        records=records,
        dealer="dealer",
    )


def rows(p: JointParameters, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(-40_000, 40_001, size=(p.records, p.width(n))).astype(float) for n in p.holders}


def dealt(p: JointParameters, label: bytes = b"deal") -> dict[str, Deal]:
    dealer = DealerMachine(p)
    dealer.deal(source(label))
    return {name: asked(dealer, name) for name in p.holders}


def asked(dealer: DealerMachine, name: str) -> Any:
    (told,) = dealer.receive(name, DealWanted(study_hash=STUDY), 0.0)
    assert told.to == name
    return told.message


def opened(p: JointParameters, name: str, units: np.ndarray, label: bytes = b"deal") -> tuple[HolderMachine, list[Any]]:
    machine = HolderMachine(p, name)
    machine.receive("dealer", dealt(p, label)[name], 0.0)
    return machine, machine.open_rows(units)


@pytest.mark.parametrize("names", [("bank", "hospital"), ("school", "bank", "hospital")])
def test_shares_add_up_to_the_products(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_BYTES", 300)  # several messages each
    p = parameters(names)
    units = rows(p)
    shares = MemoryHolders(p, units, source()).run()
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            whole = (shares[one][one, other].astype(object) + shares[other][one, other].astype(object)) % MODULUS
            exact = units[one].astype(np.int64).astype(object).T @ units[other].astype(np.int64).astype(object)
            assert (whole == exact % MODULUS).all()


def test_what_is_opened_hides_the_rows() -> None:
    """All zeros and the longest rows there are give the same law; with the same mask they differ by the rows alone."""
    p = parameters(("bank", "hospital"), records=20_000)
    same = np.zeros((p.records, 3))
    for units in (same, same + 46_340):
        sent = [s.message for s in opened(p, "bank", units)[1] if isinstance(s, Send)]
        values = np.concatenate([np.frombuffer(m.rows, dtype="<u8") for m in sent]).astype(float) / MODULUS
        counts = np.histogram(values, bins=16, range=(0, 1))[0]
        expected = len(values) / 16
        assert (((counts - expected) ** 2) / expected).sum() < 50  # χ² of 15: beyond once in 10⁵


def test_a_mask_used_twice_gives_the_difference_away() -> None:
    """Planted: what fresh masks prevent. A holder that opened other rows under one mask would show how they differ."""
    p = parameters(("bank", "hospital"))
    units = rows(p)["bank"]
    changed = units.copy()
    changed[7, 1] += 5
    one, other = (
        np.concatenate(
            [np.frombuffer(s.message.rows, dtype="<u8") for s in opened(p, "bank", u)[1] if isinstance(s, Send)]
        )
        for u in (units, changed)
    )
    assert (one != other).sum() == 1  # the planted reuse shows the one cell
    fresh = np.concatenate(
        [
            np.frombuffer(s.message.rows, dtype="<u8")
            for s in opened(p, "bank", changed, b"again")[1]
            if isinstance(s, Send)
        ]
    )
    assert (one == fresh).sum() == 0


def test_rows_are_opened_once_and_masks_dealt_once() -> None:
    p = parameters()
    dealer = DealerMachine(p)
    assert dealer.receive("bank", DealWanted(study_hash=STUDY), 0.0) == []  # nothing is dealt yet
    first = dealer.deal(source())
    assert [type(step) for step in first] == [Persist]  # all of it is kept before anything leaves
    assert first[0].secret
    with pytest.raises(LocalProtocolError, match="serve once"):
        dealer.deal(source(b"again"))
    again = DealerMachine(p)
    again.restore(first[0].record)
    with pytest.raises(LocalProtocolError, match="serve once"):
        again.deal(source())
    assert [asked(again, name) for name in p.holders] == [asked(dealer, name) for name in p.holders]
    (stranger,) = again.receive("server-1", DealWanted(study_hash=STUDY), 0.0)
    assert stranger.message.code == Code.WRONG_PARTY
    machine, sent = opened(p, "bank", rows(p)["bank"])
    assert isinstance(sent[0], Persist)
    assert sent[0].key == "opened"
    with pytest.raises(LocalProtocolError, match="once"):
        machine.open_rows(rows(p)["bank"])
    (refused,) = machine.receive("dealer", dealt(p, b"again")["bank"], 0.0)
    assert refused.message.code == Code.TWO_DEALS
    assert machine.receive("dealer", dealt(p)["bank"], 0.0) == []  # the same once more is no news


def test_after_a_crash_the_same_rows_are_sent_and_no_others() -> None:
    p = parameters()
    units = rows(p)["bank"]
    _, before = opened(p, "bank", units)
    kept = before[0].record
    again = HolderMachine(p, "bank", opened=kept)
    again.receive("dealer", dealt(p)["bank"], 0.0)
    assert [s.message for s in again.open_rows(units)[1:]] == [s.message for s in before[1:]]
    other = HolderMachine(p, "bank", opened=kept)
    other.receive("dealer", dealt(p)["bank"], 0.0)
    with pytest.raises(DataError, match="have changed"):
        other.open_rows(units + 1)


def test_a_restart_in_the_middle_opens_the_same_rows_and_no_second_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when it has opened and heard half: with what it kept it says the same and asks for the rest."""
    monkeypatch.setattr(limits, "ROWS_BYTES", 300)
    p = parameters(("bank", "hospital"))
    units, deals = rows(p), dealt(p)
    records: dict[str, bytes] = {}

    def kept(steps: list[Any]) -> list[Any]:
        records.update({step.key: step.record for step in steps if isinstance(step, Persist)})
        return [step.message for step in steps if isinstance(step, Send)]

    bank, hospital = HolderMachine(p, "bank"), HolderMachine(p, "hospital")
    kept(bank.receive("dealer", deals["bank"], 0.0))
    (first,) = kept(bank.open_rows(units["bank"]))
    hospital.receive("dealer", deals["hospital"], 0.0)
    hospital.open_rows(units["hospital"])
    bank.receive("hospital", hospital.receive("bank", RowsWanted(study_hash=STUDY, first=0), 0.0)[0].message, 0.0)
    again = HolderMachine(p, "bank", opened=records["opened"])
    assert any(isinstance(step, OwnRows) for step in again.begin(records["deal"]))
    (refused,) = again.receive("dealer", dealt(p, b"again")["bank"], 0.0)  # a dealer that forgot
    assert refused.message.code == Code.TWO_DEALS
    assert kept(again.open_rows(units["bank"])) == [first]
    for _ in range(ROWS):
        for wanted in [s.message for s in again.tick(1e9) if isinstance(s, Send)]:
            for said in hospital.receive("bank", wanted, 0.0):
                steps = again.receive("hospital", said.message, 0.0)
                if any(isinstance(step, ProductShares) for step in steps):
                    return
        again._patience.heard()
        again._patience.until = 0.0
    raise AssertionError("it did not end")


def test_rows_that_come_early_wait_for_the_mask() -> None:
    p = parameters(("bank", "hospital"))
    units = rows(p)
    _, sent = opened(p, "hospital", units["hospital"])
    machine = HolderMachine(p, "bank")
    for step in sent:
        if isinstance(step, Send):
            assert machine.receive("hospital", step.message, 0.0) == []
    assert any(isinstance(s, OwnRows) for s in machine.receive("dealer", dealt(p)["bank"], 0.0))
    assert any(isinstance(s, ProductShares) for s in machine.open_rows(units["bank"]))


def test_rows_beyond_the_last_change_nothing_even_when_all_are_there() -> None:
    p = parameters(("bank", "hospital"))
    units = rows(p)
    machine, _ = opened(p, "bank", units["bank"])
    beyond = OpenedRows(study_hash=STUDY, first=ROWS, rows=b"")
    assert machine.receive("hospital", beyond, 0.0) == []
    for step in opened(p, "hospital", units["hospital"])[1]:
        if isinstance(step, Send):
            assert any(isinstance(s, ProductShares) for s in machine.receive("hospital", step.message, 0.0))
    assert machine.receive("hospital", beyond, 0.0) == []


def test_strangers_and_wrong_shapes_are_refused() -> None:
    p = parameters(("bank", "hospital"))
    units = rows(p)

    def code(machine: HolderMachine, sender: str, message: Any) -> Code:
        (answer,) = machine.receive(sender, message, 0.0)
        return Code(answer.message.code)

    machine = HolderMachine(p, "bank")
    deal = dealt(p)["bank"]
    assert code(machine, "hospital", deal) == Code.WRONG_PARTY
    assert code(machine, "dealer", Deal(study_hash=STUDY, records=ROWS, seed=bytes(32), shares=b"")) == Code.WRONG_SHAPE
    assert (
        code(machine, "dealer", Deal(study_hash=STUDY, records=ROWS + 1, seed=deal.seed, shares=deal.shares))
        == Code.WRONG_SHAPE
    )
    beyond = Deal(study_hash=STUDY, records=ROWS, seed=deal.seed, shares=b"\xff" * len(deal.shares))
    assert code(machine, "dealer", beyond) == Code.MALFORMED
    assert (
        code(machine, "dealer", Deal(study_hash=bytes(32), records=ROWS, seed=bytes(32), shares=b""))
        == Code.WRONG_STUDY
    )
    machine, _ = opened(p, "bank", units["bank"])
    rows_of = next(s.message for s in opened(p, "hospital", units["hospital"])[1] if isinstance(s, Send))
    assert code(machine, "dealer", rows_of) == Code.WRONG_PARTY  # the dealer has no other part
    assert machine.receive("hospital", OpenedRows(study_hash=STUDY, first=3, rows=rows_of.rows), 0.0) == []
    assert code(machine, "dealer", RowsWanted(study_hash=STUDY, first=0)) == Code.WRONG_PARTY
    assert code(machine, "hospital", RowsWanted(study_hash=STUDY, first=ROWS)) == Code.WRONG_SHAPE
    assert code(machine, "hospital", OpenedRows(study_hash=STUDY, first=0, rows=rows_of.rows[:-8])) == Code.MALFORMED
    assert (
        code(machine, "hospital", OpenedRows(study_hash=STUDY, first=0, rows=b"\xff" * len(rows_of.rows)))
        == Code.MALFORMED
    )
    flood = HolderMachine(p, "bank")
    longer = OpenedRows(study_hash=STUDY, first=0, rows=bytes(limits.ROWS_BYTES + 8))
    assert code(flood, "hospital", longer) == Code.WRONG_SHAPE  # no more is kept than a message has


def test_a_dealer_is_nobody_else() -> None:
    with pytest.raises(LocalProtocolError, match="dealer holds columns"):
        JointParameters(study_hash=STUDY, holders=("a", "b"), widths=(1, 1), records=1, dealer="a")
    with pytest.raises(LocalProtocolError, match="two or more"):
        JointParameters(study_hash=STUDY, holders=("a",), widths=(1,), records=1, dealer="d")


@pytest.mark.parametrize(
    "message",
    [
        Deal(study_hash=STUDY, records=3, seed=bytes(32), shares=b"12345678"),
        OpenedRows(study_hash=STUDY, first=9, rows=b"abc"),
        Refused(study_hash=STUDY, code=Code.WRONG_SHAPE, cause="no"),
        DealWanted(study_hash=STUDY),
        RowsWanted(study_hash=STUDY, first=3),
    ],
)
def test_a_message_has_one_encoding(message: Any) -> None:
    raw = encode(message)
    assert decode(raw) == message
    for bad in (raw[:-1], raw + b"\0", b"XXXX" + raw[4:]):
        with pytest.raises(RemoteProtocolError):
            decode(bad)


def test_the_page_shows_the_tables() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "protocols" / "vertical.md").read_text(encoding="utf-8")
    for machine in (DealerMachine, HolderMachine):
        assert transition_table(machine.TRANSITIONS) in page
