"""Labels told to whoever reduces: once, whole, signed, by the one who has them, to a key that is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.instructions import Aborted, Persist, Send, Wake
from tallystick.protocol.labels import Held, LabelsParameters, TakingMachine, TellingMachine, Told, decode, encode
from tallystick.protocol.labels.messages import Code, Labels, LabelsWanted, Refused
from tallystick.protocol.machine import transition_table

SESSION, STUDY = bytes(range(32)), bytes(range(1, 33))
SIGNS = np.array([1.0, -1.0, 0.0, 1.0])


def signing(name: str) -> SigningKey:
    return SigningKey.generate(AesStream(derive(bytes(32), name.encode())))


KEYS = {name: signing(name) for name in ("clinic", "bank", "reducer")}
PARAMETERS = LabelsParameters(
    study_hash=SESSION,
    study=STUDY,
    holder="clinic",
    reducer="reducer",
    reducer_role="reducer",
    records=4,
    identities={name: key.public for name, key in KEYS.items()},
)


def key(label: str = "x25519", *, by: str = "reducer", study: bytes = STUDY, role: str = "reducer") -> StudyKey:
    own = AgreementKey.generate(AesStream(derive(bytes(32), label.encode())))
    return own.sign(KEYS[by], study_hash=study, party="reducer", role=role)


def taker(records: dict[str, bytes] | None = None) -> TakingMachine:
    return TakingMachine(PARAMETERS, key(), records or {})


def teller(records: dict[str, bytes] | None = None) -> TellingMachine:
    return TellingMachine(PARAMETERS, records or {})


def labels(signs: bytes = bytes([1, 2, 0, 1]), *, by: str = "clinic", **other: Any) -> Labels:
    made = {"study_hash": SESSION, "signature": KEYS[by].sign(PARAMETERS.signed(signs)), "signs": signs}
    return Labels(**{**made, **other})


def wanted(one: StudyKey | None = None, **other: Any) -> LabelsWanted:
    one = one or key()
    return LabelsWanted(**{"study_hash": SESSION, "public": one.public, "signature": one.signature, **other})


def refusal(steps: list[Any]) -> Code:
    assert not [step for step in steps if isinstance(step, (Persist, Told, Held))]
    said = [step.message for step in steps if isinstance(step, Send)]
    assert [type(message) for message in said] == [Refused]
    return Code(said[0].code)


def test_they_are_asked_for_kept_at_both_and_told() -> None:
    reducer, holder = taker(), teller()
    asked, again = reducer.begin(0.0)
    assert isinstance(again, Wake)
    assert holder.receive_bytes("reducer", encode(asked.message), 0.0) == []  # no rows yet
    kept, to, told = holder.have(SIGNS, KEYS["clinic"])
    assert (kept.secret, to.key.public, told.to) == (True, key().public, "reducer")
    held, found = reducer.receive_bytes("clinic", encode(told.message), 0.0)
    assert (held.secret, held.record) == (True, kept.record)
    assert (found.labels == SIGNS).all()
    assert reducer.tick(100.0) == []
    # The other way round: rows first.
    early = teller()
    assert [type(step) for step in early.have(SIGNS, KEYS["clinic"])] == [Persist]
    steps = early.receive("reducer", asked.message, 0.0)
    assert [type(step) for step in steps] == [Held, Send]
    assert steps[1].message == told.message


def test_whoever_is_not_answered_asks_again_and_is_told_the_same() -> None:
    reducer, holder = taker(), teller()
    first = reducer.begin(0.0)[0]
    assert reducer.tick(0.5) == []
    assert reducer.tick(5.0)[0] == first
    holder.have(SIGNS, KEYS["clinic"])
    told = [holder.receive("reducer", first.message, 0.0)[-1].message for _ in range(3)]
    assert told[0] == told[1] == told[2]
    assert len(reducer.receive("clinic", told[0], 0.0)) == 2
    assert reducer.receive("clinic", told[1], 0.0) == []


def test_after_a_crash_the_same_bytes_and_no_others() -> None:
    holder = teller()
    kept = holder.have(SIGNS, KEYS["clinic"])[0]
    restarted = teller({kept.key: kept.record})
    assert restarted.have(SIGNS, KEYS["clinic"]) == []
    assert encode(restarted.receive("reducer", wanted(), 0.0)[-1].message) == kept.record
    with pytest.raises(DataError) as caught:
        teller({kept.key: kept.record}).have(-SIGNS, KEYS["clinic"])
    assert caught.value.rule == "records-are-those-shown"
    with pytest.raises(LocalProtocolError):
        teller().have(SIGNS[:3], KEYS["clinic"])
    reducer = taker({kept.key: kept.record})
    (found,) = reducer.begin(0.0)
    assert (found.labels == SIGNS).all()
    assert refusal(reducer.receive("clinic", labels(bytes([1, 2, 1, 1])), 0.0)) is Code.OTHER_LABELS


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (labels(bytes([1, 2, 0])), Code.WRONG_SIZE),
        (labels(bytes(5)), Code.WRONG_SIZE),
        (labels(b""), Code.WRONG_SIZE),
        (labels(bytes([1, 2, 0, 3])), Code.NO_LABELS),
        (labels(bytes([1, 2, 0, 255])), Code.NO_LABELS),
        (labels(by="bank"), Code.LABELS_SIGNATURE),
        (labels(signature=KEYS["clinic"].sign(PARAMETERS.signed(bytes(4)))), Code.LABELS_SIGNATURE),
    ],
)
def test_a_vector_that_is_none_ends_the_study(message: Labels, code: Code) -> None:
    reducer = taker()
    reducer.begin(0.0)
    steps = reducer.receive("clinic", message, 0.0)
    assert refusal(steps) is code
    (ended,) = [step for step in steps if isinstance(step, Aborted)]
    assert (ended.error.rule, ended.error.party) == (code.name.lower().replace("_", "-"), "clinic")


def test_what_others_say_counts_for_nothing() -> None:
    reducer = taker()
    reducer.begin(0.0)
    for sender, message, code in (
        ("bank", labels(by="bank"), Code.WRONG_PARTY),
        ("bank", labels(), Code.WRONG_PARTY),
        ("clinic", labels(study_hash=STUDY), Code.WRONG_STUDY),
        ("clinic", wanted(), Code.NOT_EXPECTED),
    ):
        steps = reducer.receive(sender, message, 0.0)
        assert refusal(steps) is code
        assert not [step for step in steps if isinstance(step, Aborted)]
    assert reducer.receive("bank", Refused(study_hash=SESSION, code=1, cause="no"), 0.0) == []
    assert len(reducer.receive("clinic", labels(), 0.0)) == 2
    holder = teller()
    holder.have(SIGNS, KEYS["clinic"])
    assert holder.receive("bank", Refused(study_hash=SESSION, code=1, cause="no"), 0.0) == []


@pytest.mark.parametrize(
    ("sender", "message", "code"),
    [
        ("bank", wanted(), Code.WRONG_PARTY),
        ("reducer", wanted(key(by="bank")), Code.BAD_STUDY_KEY),
        ("reducer", wanted(key(study=SESSION)), Code.BAD_STUDY_KEY),
        ("reducer", wanted(key(role="client")), Code.BAD_STUDY_KEY),
        ("reducer", wanted(public=bytes(32)), Code.BAD_STUDY_KEY),
        ("reducer", wanted(study_hash=STUDY), Code.WRONG_STUDY),
        ("reducer", labels(), Code.NOT_EXPECTED),
    ],
)
def test_labels_are_told_to_the_key_of_who_reduces(sender: str, message: Any, code: Code) -> None:
    holder = teller()
    holder.have(SIGNS, KEYS["clinic"])
    assert refusal(holder.receive(sender, message, 0.0)) is code


def test_they_are_told_to_one_key() -> None:
    holder = teller()
    holder.have(SIGNS, KEYS["clinic"])
    assert len(holder.receive("reducer", wanted(), 0.0)) == 2
    assert refusal(holder.receive("reducer", wanted(key("another")), 0.0)) is Code.BAD_STUDY_KEY


def test_either_side_that_is_refused_ends() -> None:
    said = Refused(study_hash=SESSION, code=int(Code.BAD_STUDY_KEY), cause="another key")
    for machine, sender in ((taker(), "clinic"), (teller(), "reducer")):
        (ended,) = machine.receive(sender, said, 0.0)
        assert ended.error.rule == "bad-study-key"


def test_a_message_has_one_encoding_and_a_limit() -> None:
    for message in (labels(), wanted(), Refused(study_hash=SESSION, code=Code.NO_LABELS, cause="no")):
        raw = encode(message)
        assert decode(raw) == message
        for wrong in (raw[:-1], raw + b"\0", b"TALN" + raw[4:]):
            with pytest.raises(RemoteProtocolError):
                decode(wrong)
        with pytest.raises(RemoteProtocolError) as caught:
            decode(raw, limit=len(raw) - 1)
        assert caught.value.rule == "too-long"
    (answer,) = taker().receive_bytes("clinic", b"nothing", 0.0)
    assert answer.message.code == Code.MALFORMED


def test_the_page_shows_the_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols" / "vertical.md").read_text(encoding="utf-8")
    assert transition_table(TakingMachine.TRANSITIONS) in page
    assert transition_table(TellingMachine.TRANSITIONS) in page
