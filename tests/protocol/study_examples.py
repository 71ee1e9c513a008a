"""A consortium, keys and one message of every kind, the same in every test and in the golden vectors."""

from __future__ import annotations

from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.members import Cast, Members
from tallystick.protocol.study import StudyCode, result_digest
from tallystick.protocol.study.messages import (
    Failed,
    Message,
    Progress,
    Propose,
    Result,
    StudyDeclined,
    StudyEnd,
    StudyGoesOn,
    StudyInquiry,
    StudyOpen,
    StudyPaused,
    StudyReady,
    StudyRefused,
    StudyResume,
    StudyStart,
    Ticket,
    Wish,
)
from tallystick.study import study_digest
from tallystick.trust.servers import SERVERS

SEED = bytes(range(32))
STUDY = b'{"study":{"name":"flu"}}'
PROGRAM = "def map_in_client(record):\n    return record\n"
HASH = study_digest(STUDY)
CONSORTIUM = derive(SEED, b"consortium")
REQUEST = bytes(range(16))
PACKED = b"packed result"


def identity(name: str) -> SigningKey:
    return SigningKey.generate(AesStream(derive(SEED, b"identity", name.encode())))


def study_key(name: str, *, draw: int = 1, study: bytes = HASH, role: str | None = None) -> StudyKey:
    key = AgreementKey.generate(AesStream(derive(SEED, b"x25519", name.encode(), bytes([draw]))))
    return key.sign(
        identity(name), study_hash=study, party=name, role=role or ("server" if name[0] == "s" else "client")
    )


def members(clients: int = 4, servers: int = 2) -> Cast:
    s, c = tuple(f"s{j}" for j in range(servers)), tuple(f"c{i}" for i in range(clients))
    return Members(
        consortium_hash=CONSORTIUM,
        board="hub",
        roles={"client": c, "server": s, "aggregator": ("hub",), "analyst": ("ana", "bob")},
        identities={name: identity(name).public for name in (*s, *c)},
    ).cast(SERVERS)


def ticket(name: str, **changes) -> Ticket:
    key = study_key(name, **changes)
    return Ticket(party=name, public=key.public, signature=key.signature)


def start(*names: str, attempt: int = 1, min_clients: int = 2) -> StudyStart:
    return StudyStart(
        study_hash=HASH, attempt=attempt, min_clients=min_clients, tickets=tuple(ticket(name) for name in names)
    )


def ready(name: str, *, attempt: int = 1, min_clients: int = 2, **changes) -> StudyReady:
    key = study_key(name, **changes)
    return StudyReady(
        study_hash=HASH, attempt=attempt, min_clients=min_clients, party=name, public=key.public,
        signature=key.signature,
    )  # fmt: skip


def propose(request: bytes = REQUEST, program: str = PROGRAM) -> Propose:
    return Propose(study_hash=HASH, request=request, consortium_hash=CONSORTIUM, study=STUDY, program=program)


def opening(attempt: int = 1, min_clients: int = 2) -> StudyOpen:
    return StudyOpen(
        study_hash=HASH, attempt=attempt, ready_ms=60_000, min_clients=min_clients, consortium_hash=CONSORTIUM,
        study=STUDY, program=PROGRAM,
    )  # fmt: skip


def every_message() -> dict[str, Message]:
    return {
        "propose": propose(),
        "propose_builtin": propose(program=""),
        "open": opening(),
        "ready": ready("c1"),
        "declined": StudyDeclined(
            study_hash=HASH, attempt=1, party="c2", code=StudyCode.NOT_APPROVED, cause="épsilon is above our policy"
        ),
        "start": start("s0", "s1", "c0", "c2"),
        "end": StudyEnd(study_hash=HASH, attempt=1, code=StudyCode.FINISHED, result=result_digest(HASH, PACKED)),
        "progress": Progress(study_hash=HASH, round=3, rounds=10),
        "result": Result(study_hash=HASH, attempt=1, packed=PACKED),
        "failed": Failed(
            study_hash=HASH, attempt=2, request=REQUEST, final=0, code=StudyCode.TOO_FEW_CLIENTS, round=0, exit_code=4,
            rule="too-few-clients", party="hub", cause="1 clients are ready, the study asks for 2", remedy="Ask them.",
        ),
        "inquiry": StudyInquiry(study_hash=HASH, request=REQUEST),
        "refused": StudyRefused(study_hash=HASH, code=StudyCode.LATE, cause="the study started without this party"),
        "paused": StudyPaused(study_hash=HASH, attempt=1, pause=1),
        "resume": StudyResume(study_hash=HASH, attempt=1, pause=1),
        "goes_on": StudyGoesOn(study_hash=HASH, attempt=1, pause=1),
        "wish": Wish(study_hash=HASH, request=REQUEST, close=1),
    }  # fmt: skip
