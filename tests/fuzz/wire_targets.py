"""What the fuzzer feeds: every decoder of bytes that somebody else made. The first byte chooses the decoder.

A target returns, whatever it is given. A typed refusal is an answer; anything else that is raised is a finding, and so
is a value that does not encode to the bytes it was read from.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from masked_sum_world import parameters

from tallystick.algorithms.program import unpack_state
from tallystick.core.errors import RemoteProtocolError, StudyError, TallystickError, VerificationError
from tallystick.crypto.certificates import certificate_facts
from tallystick.crypto.key_agreement import AgreementKey, StudyKey, derive_channel
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.sealing import Opener
from tallystick.crypto.shamir import SHARE_BYTES, rebuild
from tallystick.crypto.signing import SigningKey
from tallystick.engines.sandbox import messages as pipes
from tallystick.privacy.chain import KINDS, Link, parse_body
from tallystick.privacy.local.records import PerturbedRecord, RecordShape
from tallystick.protocol import alignment as alignments
from tallystick.protocol import gossip, labels
from tallystick.protocol import joint_products as products
from tallystick.protocol import masked_sum as masks
from tallystick.protocol import secure_sum as sums
from tallystick.protocol import selection as selections
from tallystick.protocol import study as studies
from tallystick.protocol.gossip import codec as gossip_codec
from tallystick.protocol.governance import statements
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.receipt_check import check_receipt
from tallystick.protocol.masked_sum import records as mask_records
from tallystick.protocol.masked_sum.messages import Evidence
from tallystick.protocol.masked_sum.opening import open_evidence
from tallystick.protocol.masked_sum.vouchers import voucher_of
from tallystick.protocol.members import Members
from tallystick.protocol.secure_sum import codec as sum_codec
from tallystick.protocol.secure_sum.records import ClientRecord, EquivocatorsRecord, ResultRecord, RoundRecord
from tallystick.protocol.sparse_model import expand, sparse_parts
from tallystick.protocol.study import codec as study_codec
from tallystick.roles.analyst.connected import _told
from tallystick.roles.governance.messages import unpack_head, unpack_parts
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.governance.results import is_interim
from tallystick.roles.holders import packing
from tallystick.roles.ledger.account import Account
from tallystick.roles.ledger.report import check_export
from tallystick.study.proposed import proposed_study
from tallystick.transport import relayed, wire
from tallystick.transport.network import frames

__all__ = ["KEYS", "TARGETS", "channel", "members", "wire_target"]

LIMIT = 1 << 16
SHAPES = (
    RecordShape(classes=0, values=1, least=0, most=255),
    RecordShape(classes=7, values=2, least=0, most=4095),
    RecordShape(classes=300, values=1, least=0, most=65_535),
    RecordShape(classes=0, values=3, least=-(1 << 48), most=1 << 48),
)
"""Of records that peers publish: candidates of a subset, with and without a class, and added noise."""
NAMES = ("hub", "ana", "bob", "s0", "s1", "c0", "c1", "c2", "c3")
KEYS = {n: SigningKey.generate(AesStream(derive(bytes(range(32)), b"identity", n.encode()))) for n in NAMES}
"""The keys of the golden vectors (tests/protocol/governance_examples.py): their statements have valid signatures."""
PEERS = parameters(every_peer=True)
"""A masked sum in which every peer adds up: evidence is opened, not only decoded."""


def members() -> Members:
    """The consortium of the golden vectors."""
    return Members(
        consortium_hash=derive(bytes(range(32)), b"consortium"),
        board="hub",
        roles={
            "client": ("c0", "c1", "c2", "c3"),
            "server": ("s0", "s1"),
            "aggregator": ("hub",),
            "analyst": ("ana", "bob"),
        },
        identities={name: key.public for name, key in KEYS.items()},
    )


_MEMBERS = members()
_STATE = (np.zeros(3), 0.0)
_SENDER, _RECEIVER = (AgreementKey.generate(AesStream(bytes(32), b"fuzz " + n)) for n in (b"a", b"b"))


def channel() -> object:
    """A sealed channel from a to b."""
    a, b = (
        StudyKey(study_hash=bytes(32), party=name, role="", public=key.public, signature=b"")
        for name, key in (("a", _SENDER), ("b", _RECEIVER))
    )
    return derive_channel(_SENDER, sender=a, receiver=b)


def secure_sum(raw: bytes) -> None:
    try:
        message = sums.decode(raw, limit=LIMIT)
    except RemoteProtocolError:
        message = None
    assert message is None or sums.encode(message) == raw
    with contextlib.suppress(RemoteProtocolError):
        head, start, length = sum_codec.share_head(raw)
        assert (start <= len(raw), length >= 0, head.payload) == (True, True, b"")
    with contextlib.suppress(RemoteProtocolError):
        sum_codec.streamed_share(raw)


def selection(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert selections.encode(selections.decode(raw, limit=LIMIT)) == raw


def gossiped(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert gossip.encode(gossip.decode(raw, limit=LIMIT)) == raw
    with contextlib.suppress(RemoteProtocolError):
        assert gossip_codec.pack_publication(gossip_codec.unpack_publication(raw)) == raw


def relay(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        found = relayed.unwrap(raw, "peer")
        assert len(found.raw) < len(raw)
        found.verify(KEYS["c0"].public)


def masked_sum(raw: bytes) -> None:
    """A message of the masked sum, shares that were told, what survivors have signed, what lies on a disk."""
    with contextlib.suppress(RemoteProtocolError):
        message = masks.decode(raw, limit=LIMIT)
        assert masks.encode(message) == raw
        if isinstance(message, Evidence):
            open_evidence(PEERS, message)
    shares = [raw[at : at + SHARE_BYTES] for at in range(0, min(len(raw), 5 * SHARE_BYTES), SHARE_BYTES)]
    with contextlib.suppress(RemoteProtocolError):
        rebuild(list(enumerate(shares, start=1)), threshold=2)
    for record in ("SecretsRecord", "DealersRecord", "SumRecord", "ResultRecord", "NoiseRecord"):
        with contextlib.suppress(VerificationError):
            assert getattr(mask_records, record).from_bytes(raw).to_bytes() == raw
    with contextlib.suppress(ValueError, RecursionError):  # not JSON, or not what anybody has signed
        voucher_of(json.loads(raw), session=bytes(32), round=1, clients=(0, 1, 2))


def alignment(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert alignments.encode(alignments.decode(raw, limit=LIMIT)) == raw


def told_labels(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert labels.encode(labels.decode(raw, limit=LIMIT)) == raw


def joint_products(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert products.encode(products.decode(raw, limit=LIMIT)) == raw
    with contextlib.suppress(RemoteProtocolError):
        assert packing.pack(packing.unpack(raw, "bank"), len(raw)) == raw


def study_layer(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        study_codec.study_of(raw)
    with contextlib.suppress(RemoteProtocolError):
        assert studies.encode(studies.decode(raw, limit=LIMIT)) == raw


def statement(raw: bytes) -> None:
    try:
        said = statements.decode(raw, party="peer")
    except RemoteProtocolError:
        return
    assert said.encode() == raw
    with contextlib.suppress(VerificationError):
        statements.verify(said, _MEMBERS.identities)
    docket = Docket(said.study_hash, _MEMBERS)
    with contextlib.suppress(TallystickError):
        docket.apply(said)
    docket.standing(1_800_000_000.0)
    if said.kind == "proposal":
        shown = proposed_study(said.body["study"])
        assert all(isinstance(text, str) for text in (shown.name, *shown.columns))


def receipt(raw: bytes) -> None:
    report = check_receipt(raw, members_of=lambda _text: _MEMBERS, plan_of=None)
    with contextlib.suppress(VerificationError):
        report.check()
    with contextlib.suppress(RemoteProtocolError):  # it belongs to another study, or is refused before that
        ReceiptBook(Path("nowhere")).put(b"", raw, sender="peer")


def line(raw: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        kind, study, payload = wire.parse(raw, "peer")
        assert bytes([kind]) + study + payload == raw
    for read in (unpack_parts, unpack_head):
        with contextlib.suppress(RemoteProtocolError):
            read(raw, "peer")


def frame(raw: bytes) -> None:
    with contextlib.suppress(frames.FrameError):
        kind, _, _ = frames.parse(raw)
        if kind == frames.Kind.OPEN:
            length, head = frames.parse_open(raw)
            assert (length > frames.SMALL_BYTES, len(head)) == (True, frames.HEAD_BYTES)
        if kind == frames.Kind.CLOSE:
            assert frames.parse_close(raw)[1].isprintable()
        if kind == frames.Kind.DECLINE:
            frames.parse_decline(raw)


def sealed(raw: bytes) -> None:
    opener = Opener(channel())  # type: ignore[arg-type]
    with contextlib.suppress(RemoteProtocolError):
        opener.open(raw)
    cuts = sorted({0, len(raw), *(b % (len(raw) + 1) for b in raw[:4])})
    with contextlib.suppress(RemoteProtocolError):
        opening = Opener(channel()).opening(len(raw))  # type: ignore[arg-type]
        for start, stop in pairwise(cuts):
            for _ in opening.take(raw[start:stop]):
                pass
        opening.finish()


def sandbox(raw: bytes) -> None:
    """A child's answer: its frame, its header, its state, its refusal."""
    with contextlib.suppress(pipes.BadReply):
        if len(raw) >= pipes.FRAME.size:
            pipes.lengths(raw[: pipes.FRAME.size], body_limit=LIMIT)
    head, _, body = raw.partition(b"\x00")
    with contextlib.suppress(pipes.BadReply):
        told = pipes.header_of(head)
        with contextlib.suppress(pipes.BadReply):
            assert pipes.error_from(told).cause.isprintable()
        state = pipes.decode_state(told, body)
        pipes.same_shape(state, _STATE)
        with contextlib.suppress(StudyError):
            pipes.encode_state(state)


def model(raw: bytes) -> None:
    """A sparse model and a dense one."""
    size = int.from_bytes(raw[:3], "little")
    with contextlib.suppress(RemoteProtocolError):
        dense = expand(memoryview(raw)[3:], size)
        assert (len(dense), b"".join(sparse_parts(dense) or [])) == (size, raw[3:])
    with contextlib.suppress(RemoteProtocolError):
        unpack_state(raw, _STATE)


def ledger(raw: bytes) -> None:
    """A link of a chain, an exported chain."""
    kind = KINDS[raw[0] % len(KINDS)] if raw else "grant"
    link = Link(sequence=1, kind=kind, body=raw[1:], previous=bytes(32), hash=bytes(32), signature=bytes(64))
    with contextlib.suppress(VerificationError):
        parse_body(link)
        account = Account()
        account.apply(link)
        for group in account.groups.values():
            group.totals.spent()
    with contextlib.suppress(VerificationError):
        check_export(raw, _MEMBERS.identities)


def stored(raw: bytes) -> None:
    """What a machine finds on its disk."""
    for record in (RoundRecord, ClientRecord, EquivocatorsRecord, ResultRecord):
        with contextlib.suppress(VerificationError):
            assert record.from_bytes(raw).to_bytes() == raw  # type: ignore[attr-defined]


def result(raw: bytes) -> None:
    is_interim(raw)
    with contextlib.suppress(RemoteProtocolError):
        told = _told(raw, 10)
        assert len(told["history"]) in (1, len(told["contributors"]))
        assert len(told["contributors"]) <= 10


def certificate(raw: bytes) -> None:
    with contextlib.suppress(TallystickError):
        certificate_facts(raw)


def perturbed(raw: bytes) -> None:
    for shape in SHAPES:
        with contextlib.suppress(RemoteProtocolError):
            assert PerturbedRecord.from_bytes(raw, shape).to_bytes(shape) == raw


TARGETS: tuple[Callable[[bytes], None], ...] = (
    secure_sum,
    study_layer,
    statement,
    receipt,
    line,
    frame,
    sealed,
    sandbox,
    model,
    ledger,
    stored,
    result,
    certificate,
    selection,
    perturbed,
    gossiped,
    relay,
    masked_sum,
    joint_products,
    alignment,
    told_labels,
)


def wire_target(data: bytes) -> None:
    """One input of the fuzzer."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])
