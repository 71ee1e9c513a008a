"""Hostile proposals at a real client. The rule that refuses them is named, by the client's own set_up, whatever
its policy allows and whoever has approved; nothing is reserved and no record is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tallystick.algorithms.program import pack_state
from tallystick.application.studies import views
from tallystick.application.studies import words as study_words
from tallystick.core.errors import PrivacyRefused, RemoteProtocolError, StudyError, TallystickError
from tallystick.core.identifiers import canonical, format_hash
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.data.encoding import encode
from tallystick.engines.client_map import ClientMap
from tallystick.engines.setup import _set_up, set_up
from tallystick.privacy.contribution import Dense
from tallystick.privacy.ledger import Budget
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.governance.statements import Statement, decode, make, signed_bytes
from tallystick.protocol.members import Members
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.review import review
from tallystick.roles.governance.store import STATEMENTS, GovernanceStore
from tallystick.roles.identity.role_config import Policy, RoleConfig
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.processes.client import ClientProcess
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.steward.acceptances import Acceptances
from tallystick.study import Study, study_digest
from tallystick.study.read_columns import columns_read
from tallystick.trust.servers import SERVERS

NOW = 1_800_000_000.0
STUDY = """
[study]
name = "illness"
version = 1
program = "logistic_regression"
target = "ill"
purpose = "Who falls ill?"
[program]
rounds = 2
[privacy]
epsilon = 0.5
delta = 1e-6
[data]
records = 120
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
ill = { type = "category", values = ["no", "yes"] }
"""
CLIENTS = ("c0", "c1", "c2")
KEYS = {
    name: SigningKey.generate(AesStream(derive(bytes(32), b"hostile proposals", name.encode())))
    for name in ("hub", "ana", "s0", "s1", *CLIENTS)
}
MEMBERS = Members(
    consortium_hash=bytes(32),
    board="hub",
    roles={"client": CLIENTS, "server": ("s0", "s1"), "aggregator": ("hub",), "analyst": ("ana",)},
    identities={name: key.public for name, key in KEYS.items()},
)
GOOD = json.loads(Study.parse(STUDY).canonical())
PLAN = summarise(set_up(Study.parse(STUDY).canonical(), "").plan)

# section, key, value, the rule's name (or words of the cause where there is no privacy rule), exit code
HOSTILE: dict[str, tuple[str, str, Any, str, int]] = {
    "epsilon_is_zero": ("privacy", "epsilon", 0.0, "epsilon-is-positive-and-finite", 3),
    "epsilon_is_negative": ("privacy", "epsilon", -1.0, "epsilon-is-positive-and-finite", 3),
    "epsilon_is_infinite": ("privacy", "epsilon", float("inf"), "epsilon-is-positive-and-finite", 3),
    "epsilon_is_not_a_number": ("privacy", "epsilon", float("nan"), "epsilon-is-positive-and-finite", 3),
    "epsilon_is_1e9": ("privacy", "epsilon", 1e9, "epsilon-means-something", 3),
    "epsilon_is_the_smallest_float": ("privacy", "epsilon", 5e-324, "epsilon-is-not-vanishing", 3),
    "epsilon_is_1e-200": ("privacy", "epsilon", 1e-200, "epsilon-is-not-vanishing", 3),
    "epsilon_is_1e308": ("privacy", "epsilon", 1e308, "epsilon-means-something", 3),
    "epsilon_is_true": ("privacy", "epsilon", True, "where a number belongs", 2),
    "epsilon_is_a_text": ("privacy", "epsilon", "0.5", "where a number belongs", 2),
    "epsilon_has_400_digits": ("privacy", "epsilon", 10**400, "not readable", 2),
    "delta_is_the_smallest_float": ("privacy", "delta", 5e-324, "delta-is-not-vanishing", 3),
    "delta_is_1e-200": ("privacy", "delta", 1e-200, "delta-is-not-vanishing", 3),
    "records_2^62": ("data", "records", 2**62, "data.records", 2),
    "records_10^300": ("data", "records", 10**300, "data.records", 2),
    "rounds_last_for_ever": ("trust", "round_timeout_s", 1e308, "time limit", 2),
    "rounds_last_no_time": ("trust", "round_timeout_s", 5e-324, "time limit", 2),
    "rounds_last_infinitely": ("trust", "round_timeout_s", float("inf"), "time limit", 2),
    "version_is_2^62": ("study", "version", 2**62, "study.version", 2),
    "clip_is_2^64": ("program", "clip", 2**64, "program.clip", 2),
    "l2_is_10^30": ("program", "l2", 10**30, "program.l2", 2),
    "nested_keywords": ("program", "clip", json.loads("[" * 40 + "]" * 40), "nested", 2),
    "hidden_category": ("data", "columns", {"age": {"type": "category", "values": ["no", "on\u202e"]}}, "U+202E", 2),
    "hidden_marker": ("data", "missing", {"marker": "\u200b", "policy": "drop"}, "U+200B", 2),
    "hidden_keyword": ("program", "schedule", "auto\u200b", "U+200B", 2),
    "hidden_reader": ("results", "visible_to", ["ana\u200b"], "U+200B", 2),
    "hidden_person": ("privacy", "person", "id\u2060", "U+2060", 2),
    "delta_is_one_record": ("privacy", "delta", 1 / 120, "delta-below-one-record", 3),
    "delta_is_above_one_record": ("privacy", "delta", 0.5, "delta-below-one-record", 3),
    "delta_is_one": ("privacy", "delta", 1.0, "delta-is-a-small-probability", 3),
    "no_rounds": ("program", "rounds", 0, "rounds-are-bounded", 3),
    "rounds_1e9": ("program", "rounds", 10**9, "rounds-are-bounded", 3),
    "rounds_1e9_as_a_float": ("program", "rounds", 1e9, "rounds-are-bounded", 3),
    "min_clients_is_one": ("trust", "min_clients", 1, "a-sum-of-one-hides-nothing", 3),
    "min_clients_is_zero": ("trust", "min_clients", 0, "a-sum-of-one-hides-nothing", 3),
    "one_server": ("trust", "servers", 1, "two-servers-at-least", 3),
    "everybody_colludes": ("trust", "colluding", 2, "one-honest-server", 3),
    "no_noise": ("privacy", "mechanism", "none", "no-noise-only-in-simulation", 3),
    "clip_is_zero": ("program", "clip", 0, "clip", 2),
    "clip_is_1e300": ("program", "clip", 1e300, "clip", 2),
    "bounds_reversed": ("data", "columns", {"age": {"type": "number", "lower": 100.0, "upper": 0.0}}, "above upper", 2),
    "bounds_equal": ("data", "columns", {"age": {"type": "number", "lower": 1.0, "upper": 1.0}}, "equal", 2),
    "bounds_infinite": (
        "data",
        "columns",
        {"age": {"type": "number", "lower": 0.0, "upper": float("inf")}},
        "not finite",
        2,
    ),
}


def changed(*changes: tuple[str, str, Any]) -> bytes:
    """The study with a key changed by hand, past every check of our own tools."""
    raw = json.loads(json.dumps(GOOD))
    for section, key, value in changes:
        if key == "columns":
            told = value["age"]
            raw[section][key]["age"] = told if "values" in told else raw[section][key]["age"] | told
        else:
            raw[section][key] = value
    raw["program"] = dict(sorted(raw["program"].items()))
    return json.dumps(raw, separators=(",", ":")).encode()


def proposal(study: bytes, plan: dict[str, Any] = PLAN) -> Statement:
    """What a hostile analyst signs; the plan is that of an innocent study."""
    body = {
        "study": study.decode(),
        "program": "",
        "hash": format_hash(study_digest(study)),
        "consortium": format_hash(MEMBERS.consortium_hash),
        "created": int(NOW) - 10,
        "expires": int(NOW) + 1000,
        "supersedes": None,
        "purpose": "Who falls ill?",
        "plan": plan,
    }
    return make("proposal", "ana", body, KEYS["ana"])


def approval(asked: Statement, client: str) -> Statement:
    body = {
        "hash": asked.body["hash"],
        "proposal": asked.ident,
        "decision": "approve",
        "reason": "",
        "terms": {},
        "by": "a careless steward",
        "dataset": "",
        "sequence": 1,
        "at": int(NOW),
    }
    return make("decision", client, body, KEYS[client])


class Client:
    """A client process without a network: its own code decides, its statements and ledger are real files."""

    def __init__(self, folder: Path) -> None:
        # The widest policy there can be: everything within the rules is approved without asking anybody.
        policy = Policy(max_epsilon=1e12, min_clients=2, default="approve")
        paths = dict.fromkeys(("path", "consortium", "certificate", "key", "identity", "state"), folder)
        self.config = RoleConfig(**paths, name="c0", role="client", data=folder / "not there.csv", policy=policy)
        self.store = GovernanceStore(folder / STATEMENTS, party="c0", identities=MEMBERS.identities)
        self.ledger = LedgerStore(folder / "ledger.sqlite", party="c0", signing=KEYS["c0"])
        mark = Fingerprint(location="/records.csv")
        made = DataSet(name="default", source=mark.location, fingerprint=mark, group="default")
        kept = self.ledger.register(made, Budget(epsilon=1.0, delta=1e-6), by="steward")
        with closing(Acceptances(folder / STATEMENTS, party="c0")) as accepted:  # of the study as it was meant
            accepted.accept(kept.ident, columns_read(Study.parse(STUDY)), by="steward", at=NOW)
        exchange = Exchange(
            self.store, MEMBERS, "c0", KEYS["c0"], send=lambda _to, _raw: None, wall=lambda: NOW, heard=self.heard
        )
        self.process: Any = SimpleNamespace(
            name="c0",
            exchange=exchange,
            ledger=self.ledger,
            parts=SimpleNamespace(config=self.config),
            check_ledger=lambda: None,
            members=MEMBERS,
        )
        self.process._consider = lambda study: ClientProcess._consider(self.process, study)

    def heard(self, statement: Statement) -> None:
        ClientProcess.heard(self.process, statement)

    def hear(self, statement: Statement) -> Statement | None:
        """A statement arrives; what the client says to it by itself, if anything."""
        self.process.exchange.receive("hub", 1, len(statement.encode()).to_bytes(4, "little") + statement.encode())
        own = [s for s in self.store.statements(statement.study_hash) if s.kind == "decision" and s.signer == "c0"]
        return own[-1] if own else None

    def decide(self, study: bytes) -> None:
        """What the client does when the aggregator opens the study: the last word before it takes part."""
        setup = set_up(study, "")
        session: Any = SimpleNamespace(
            own=self.process, process=self.process, study_hash=study_digest(study), cast=MEMBERS.cast(SERVERS)
        )
        ClientSession.decide(session, setup)

    def untouched(self) -> bool:
        """Whether nothing was reserved."""
        return not self.ledger.view("default").spent.fits and self.ledger.head().sequence == self.first

    def __enter__(self) -> Client:
        self.first = self.ledger.head().sequence
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.ledger.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(tmp_path) as made:
        yield made


def test_an_innocent_proposal_is_approved_and_reserved(client: Client) -> None:
    """The negative control: through the same code, nothing is refused."""
    study = changed()
    said = client.hear(proposal(study))
    assert said is not None
    assert (said.body["decision"], said.body["by"]) == ("approve", "policy: default")
    for other in ("c1", "c2"):
        client.hear(approval(proposal(study), other))
    client.decide(study)
    assert client.ledger.view("default").spent.fits == 1


def refused_everywhere(client: Client, study: bytes, rule: str, code: int) -> None:
    with pytest.raises(TallystickError) as refusal:
        set_up(study, "")
    error = refusal.value
    assert error.exit_code == code
    assert isinstance(error, PrivacyRefused if code == 3 else StudyError)
    assert (error.rule == rule) if code == 3 else (rule in error.cause)
    asked = proposal(study)
    said = client.hear(asked)
    assert said is not None
    assert said.body["decision"] == "reject"
    if code == 3:
        assert said.body["by"] == f"policy: {rule}"
    else:
        assert rule in said.body["reason"]
    seen = review(asked, client.config, client.ledger)
    assert (seen.setup, seen.charge, seen.verdict.decision) == (None, None, "reject")
    assert seen.problem
    with pytest.raises(TallystickError):  # even if every steward had waved it through
        client.decide(study)
    assert client.untouched()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_proposal_is_refused_by_its_rule(client: Client, name: str) -> None:
    section, key, value, rule, code = HOSTILE[name]
    refused_everywhere(client, changed((section, key, value)), rule, code)


def test_a_sum_that_would_wrap_around(client: Client) -> None:
    study = changed(("privacy", "delta", 1e-30), ("data", "records", 10**18))
    refused_everywhere(client, study, "bits", 2)
    with pytest.raises(StudyError) as refusal:
        set_up(study, "")
    assert refusal.value.rule == "headroom"


@pytest.mark.parametrize("clip", [2.0**-20, 0.01])
def test_a_bound_smaller_than_the_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: float) -> None:
    """A bound that a program's vectors exceed is no lie about sensitivity: the platform clips to that very bound.

    The program sends what it likes, as long as it likes; what leaves is as short as the noise was made for.
    """
    setup = set_up(changed(("program", "clip", clip)), "")
    program: Any = setup.design.program
    table = tmp_path / "records.csv"
    table.write_text("age,sex,ill\n50,f,no\n", encoding="utf-8")
    records = encode(table, setup.study.schema_of_data(), features=None, target="ill", missing=None, party="c0")
    mapped = ClientMap(program, records, setup.template, compiled=None, persons=None)
    model = pack_state(program.query(setup.template))
    for plan in setup.plan.rounds:
        sent = []
        for value in (1e6, -1e6, 3.0, 1e-12):
            vector = np.full((1, plan.grid.size), value)
            monkeypatch.setattr(type(program), "map_block", lambda _self, _prepared, _state, v=vector: Dense(values=v))
            sent.append(mapped.contribute(model, plan))
        ends = np.cumsum([0, *(n.group.size for n in plan.noise)])
        for noise, start, stop, bound in zip(plan.noise, ends, ends[1:], plan.grid.integer_bounds):
            parts = [vector[start:stop] for vector in sent]
            assert max(map(_squared, parts)) <= bound**2
            assert _squared(parts[0]) > (0.99 * bound) ** 2  # it was cut to its bound: the test can fail
            assert all(_squared(a - b) <= noise.sensitivity**2 for a in parts for b in parts)
            assert noise.parameter * 2 * noise.rho >= Fraction(noise.sensitivity) ** 2  # one honest server suffices


def _squared(vector: np.ndarray) -> int:
    return sum(int(x) ** 2 for x in vector)


def test_a_plan_that_is_not_the_studys_own(client: Client) -> None:
    """Less noise on paper than the study makes: the summary is derived anew and compared."""
    lie = json.loads(json.dumps(PLAN))
    lie["words"] = ["perfectly private"]
    said = client.hear(proposal(changed(), lie))
    assert said is not None
    assert (said.body["decision"], said.body["by"]) == ("reject", "policy: plan-summary")
    assert client.untouched()


@pytest.mark.parametrize(
    "study",
    [
        changed().replace(b'"version":1', b'"version": 1'),
        changed().replace(b'"version":1,', b""),
        changed().replace(b'"records":120', b'"records":120,"seed":7'),
        changed().replace(b'"records":120', b'"' + b"x" * 100_000 + b'":1,"records":120'),
        changed().replace(b'"records":120', b'"records":' + b"9" * 4000),
        changed().replace(b'"values":["f","m"]', b'"values":["\\u001b[2J","\\u001b[2J"]'),
    ],
    ids=["blank", "default left out", "unknown key", "long unknown key", "long number", "control characters"],
)
def test_odd_studies_are_refused_in_words_that_can_be_shown(client: Client, study: bytes) -> None:
    said = client.hear(proposal(study))
    assert said is not None
    assert said.body["decision"] == "reject"
    assert said.body["reason"].isprintable()
    assert client.untouched()


HIDDEN = ("\u202e", "\u200b", "\u2066", "\ufe0f", "\u3164", "\x1b[2J", "\x00", "e\u0301", "a" + "\u0323" * 20)


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
@pytest.mark.parametrize("key", ["name", "program", "target"])
def test_a_proposal_with_a_name_nobody_can_read_is_not_kept(client: Client, key: str, hidden: str) -> None:
    """It could not be signed by our own tools; signed by others, it is refused before it is stored or shown."""
    study = changed(("study", key, f"in{hidden}come"))
    with pytest.raises(StudyError, match="cannot be signed"):
        proposal(study)
    for where in (key, "column", "feature"):
        raw = json.loads(study)
        if where != key:
            raw["study"][key] = "ill"
        if where == "column":
            raw["data"]["columns"][f"a{hidden}"] = raw["data"]["columns"].pop("age")
        if where == "feature":
            raw["study"]["features"] = [f"a{hidden}"]
        forged = signed_past_our_tools(json.dumps(raw, separators=(",", ":")).encode())
        with pytest.raises(RemoteProtocolError):
            client.process.exchange.receive("hub", 1, len(forged).to_bytes(4, "little") + forged)
    assert client.store.statements() == ()


@pytest.mark.parametrize("hidden", HIDDEN[:6], ids=ascii)
@pytest.mark.parametrize("field", ["purpose", "plan"])
def test_words_of_a_proposal_that_nobody_can_read(client: Client, field: str, hidden: str) -> None:
    value = f"for{hidden}ever" if field == "purpose" else PLAN | {"words": [f"private{hidden}"]}
    forged = signed_past_our_tools(changed(), **{field: value})
    with pytest.raises(RemoteProtocolError):
        client.process.exchange.receive("hub", 1, len(forged).to_bytes(4, "little") + forged)


def signed_past_our_tools(study: bytes, **fields: Any) -> bytes:
    body = dict(proposal(changed()).body) | {"study": study.decode(), "hash": format_hash(study_digest(study))} | fields
    said = {"kind": "proposal", "signer": "ana", "body": body}
    signature = KEYS["ana"].sign(signed_bytes("proposal", "ana", body))
    return canonical(said | {"signature": signature.hex()})


@pytest.mark.parametrize(
    "study",
    [
        b'{"study":{}}',
        b'{"study":{"name":1,"version":"x","features":[1,{}]},"privacy":[],"trust":7,"data":{"columns":{}},"results":0}',
        b'{"study":{"name":"x","version":1e308},"privacy":{"epsilon":NaN,"mechanism":["none"]},"results":{"visible_to":[[]]}}',
        b'{"study":{"name":"' + b"x" * 100_000 + b'"},"privacy":{"epsilon":"1"},"data":{"columns":[1]}}',
        b'{"study":{"version":' + b"9" * 300 + b'},"privacy":{"epsilon":' + b"9" * 300 + b"}}",
        b'{"study":{"version":' + b"9" * 4000 + b"}}",
    ],
    ids=["empty", "wrong types", "not finite", "long", "large", "too large"],
)
def test_what_is_no_study_is_listed_shown_and_refused(client: Client, study: bytes) -> None:
    """Everybody keeps a proposal that was signed, and must be able to look at it."""
    asked = proposal(study)
    said = client.hear(asked)
    assert said is not None
    assert said.body["decision"] == "reject"
    standing = client.process.exchange.standing(asked.study_hash)
    found = {"action": "show", **views.about(asked), **views.stands(standing), "contents": views._contents(asked)}
    json.dumps(found, allow_nan=False)
    for words in (study_words.show(found), study_words.standing(found), study_words.listing({"studies": [found]})):
        assert words.replace("\n", "").isprintable()
    assert client.untouched()


def test_a_study_that_no_rule_foresaw_is_refused_and_not_a_fault(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the planner raises on a stranger's numbers, a client answers, and stays well."""
    for error in (ZeroDivisionError("rho"), OverflowError(34, "range"), MemoryError(), RecursionError(), KeyError("x")):

        def planning(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("tallystick.engines.setup.plan_study", planning)
        _set_up.cache_clear()  # as a client that has not met the study
        with pytest.raises(StudyError) as refusal:
            set_up(changed(), "")
        assert refusal.value.rule == "study-without-plan"
        seen = review(proposal(changed()), client.config, client.ledger)
        assert (seen.verdict.decision, seen.verdict.rule) == ("reject", "study-without-plan")


def test_a_proposal_signed_by_nobody_is_not_considered(client: Client) -> None:
    raw = json.loads(proposal(changed()).encode())
    raw["signature"] = "00" * 64
    with pytest.raises(TallystickError):
        client.hear(decode(canonical(raw)))
    assert client.store.statements() == ()
