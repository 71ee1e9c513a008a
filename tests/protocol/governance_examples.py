"""A consortium, its keys and one statement of every kind, the same in every test and in the golden vectors."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tallystick.core.identifiers import format_hash
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.plan_summary import plan_digest
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.members import Members
from tallystick.study import study_digest

SEED = bytes(range(32))
CONSORTIUM = derive(SEED, b"consortium")
PROGRAM = "class Mean(ts.Program):\n\trounds = 2\n"
LEDGER = bytes(range(16)).hex()
T0 = 1_800_000_000
WEEK = 7 * 86400
SERVERS = ("s0", "s1")
CLIENTS = ("c0", "c1", "c2", "c3")
NAMES = ("hub", "ana", "bob", *SERVERS, *CLIENTS)
KEYS = {n: SigningKey.generate(AesStream(derive(SEED, b"identity", n.encode()))) for n in (*NAMES, "c9", "eve")}
PLAN: dict[str, Any] = {
    "rounds": 2,
    "rho": "1/20",
    "noise": [[1, ["1000/3", "40/1"]], [2, ["500/1", "40/1"]]],
    "words": ["epsilon = 0.5 per record"],
    "privacy": {"epsilon": 0.5, "delta": 1e-06, "differentially_private": True},
}


def members(clients: int = 4) -> Members:
    names = tuple(f"c{i}" for i in range(clients))
    for name in names:
        KEYS.setdefault(name, SigningKey.generate(AesStream(derive(SEED, b"identity", name.encode()))))
    return Members(
        consortium_hash=CONSORTIUM,
        board="hub",
        roles={"client": names, "server": SERVERS, "aggregator": ("hub",), "analyst": ("ana", "bob")},
        identities={n: KEYS[n].public for n in ("hub", "ana", "bob", *SERVERS, *names)},
    )


def study_text(version: int = 1, *, program: str = "", min_clients: int | None = 3) -> str:
    stated = format_hash(hashlib.sha256(program.encode()).digest()) if program else None
    study = {
        "study": {"name": "flu", "version": version, "program_hash": stated},
        "privacy": {"epsilon": 0.5},
        "trust": {"min_clients": min_clients},
    }
    return json.dumps(study, separators=(",", ":"))


def hash_of(text: str) -> str:
    return format_hash(study_digest(text.encode()))


STUDY = study_text()
HASH = hash_of(STUDY)
RESULT = format_hash(derive(SEED, b"result"))


def digest_of(label: str) -> str:
    return format_hash(derive(SEED, label.encode()))


def proposal(signer: str = "ana", **changes: Any) -> Statement:
    text = changes.pop("study", STUDY)
    body = {
        "study": text,
        "program": "",
        "hash": hash_of(text),
        "consortium": format_hash(CONSORTIUM),
        "created": T0,
        "expires": T0 + WEEK,
        "supersedes": None,
        "purpose": "How many had the flu?",
        "plan": PLAN,
    }
    return make("proposal", signer, body | changes, KEYS[signer])


PROPOSAL = proposal()


def decision(signer: str, what: str = "approve", sequence: int = 1, **changes: Any) -> Statement:
    body = {
        "hash": HASH,
        "proposal": PROPOSAL.ident,
        "decision": what,
        "reason": "" if what == "approve" else "too much",
        "terms": {"epsilon": 0.25, "columns": ["age"]} if what == "counter" else {},
        "by": "Dr. Wong",
        "dataset": "ward 7",
        "sequence": sequence,
        "at": T0 + 100 + sequence,
    }
    return make("decision", signer, body | changes, KEYS[signer])


def withdrawal(signer: str = "ana", **changes: Any) -> Statement:
    return make("withdrawal", signer, {"hash": HASH, "reason": "a mistake", "at": T0 + 500} | changes, KEYS[signer])


def start(rests: list[Statement], signer: str = "hub", **changes: Any) -> Statement:
    body = {
        "hash": HASH,
        "proposal": PROPOSAL.ident,
        "attempt": 1,
        "at": T0 + 1000,
        "parties": [*SERVERS, *[a.signer for a in rests]],
        "approvals": {a.signer: a.ident for a in rests},
    }
    return make("start", signer, body | changes, KEYS[signer])


def outcome(signer: str = "hub", **changes: Any) -> Statement:
    body = {"hash": HASH, "result": RESULT, "code": "finished", "at": T0 + 2000}
    return make("outcome", signer, body | changes, KEYS[signer])


def pause(signer: str = "hub", **changes: Any) -> Statement:
    body = {"hash": HASH, "number": 1, "result": RESULT, "rounds": 4, "code": "missing-server", "party": "s1"}
    return make("pause", signer, body | {"at": T0 + 1900} | changes, KEYS[signer])


def charge(signer: str, **changes: Any) -> Statement:
    body = {
        "hash": HASH,
        "ledger": LEDGER,
        "dataset": "ward 7",
        "sequence": 3,
        "head": digest_of(f"head of {signer}"),
        "rho": "1/20",
        "spent_rho": "3/20",
        "at": T0 + 900,
    }
    return make("charge", signer, body | changes, KEYS[signer])


def countersignature(signer: str, charged: Statement, **changes: Any) -> Statement:
    body = {"hash": HASH, "client": charged.signer} | {k: charged.body[k] for k in ("ledger", "sequence", "head")}
    return make("countersignature", signer, body | changes, KEYS[signer])


def attestation(signer: str, clients: tuple[str, ...] = ("c0", "c1", "c2"), **changes: Any) -> Statement:
    body = {
        "hash": HASH,
        "plan": plan_digest(PLAN),
        "rounds": 2,
        "noise": PLAN["noise"],
        "participants": [[1, list(clients)]],
        "partials": [digest_of(f"partial {r} of {signer}") for r in (1, 2)],
        "boot": 4,
    }
    return make("attestation", signer, body | changes, KEYS[signer])


def every_kind() -> dict[str, Statement]:
    """One statement of every kind, and a proposal with a program file."""
    approved = [decision(c) for c in ("c0", "c1", "c2")]
    charged = charge("c0")
    return {
        "proposal": PROPOSAL,
        "proposal with a program": proposal(
            study=study_text(2, program=PROGRAM), program=PROGRAM, supersedes=HASH, purpose="Grüße, für Dr. 王"
        ),
        "approval": approved[0],
        "rejection": decision("c3", "reject", reason="The purpose is not ours."),
        "counter": decision("c3", "counter", 2),
        "withdrawal": withdrawal(),
        "start": start(approved),
        "outcome": outcome(),
        "failure": outcome(result="", code="too-few-clients"),
        "pause": pause(),
        "end of a pause": pause(code="resumed", result="", party=""),
        "charge": charged,
        "countersignature": countersignature("s1", charged),
        "attestation": attestation("s0"),
    }


def finished(clients: tuple[str, ...] = ("c0", "c1", "c2")) -> list[Statement]:
    """Everything that is said of a study that went well, one client having refused."""
    approved = [decision(c) for c in clients]
    charged = [charge(c) for c in clients]
    signed = [countersignature(s, one) for one in charged for s in SERVERS]
    said = [PROPOSAL, *approved, decision("c3", "reject"), start(approved), *charged, *signed, outcome()]
    return [*said, *(attestation(s, clients) for s in SERVERS)]
