"""Governed studies with real roles: proposed, decided by stewards, charged, countersigned, receipted, and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consortium_fixture import Parties, wait_for
from crash_point_list import CrashPoint

import tallystick as ts
from tallystick.application import doctor, studies, study_results
from tallystick.application import ledger as ledgers
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import readable, write_canonical, write_result
from tallystick.application.studies import words as study_words
from tallystick.core.errors import (
    BudgetExceeded,
    NotApproved,
    RoundAborted,
    StudyError,
    TallystickError,
    VerificationError,
)
from tallystick.core.identifiers import canonical, parse_hash
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.study import Study


@pytest.fixture
def asking(parties: Parties) -> Parties:
    """Clients whose stewards decide, with a budget for one study of epsilon 1."""
    for name in parties.clients:
        set_key(parties, name, 'default = "approve"', 'default = "ask"')
        set_key(parties, name, "budget_epsilon = 1000.0", "budget_epsilon = 1.0")
    return parties


def set_key(parties: Parties, name: str, old: str, new: str) -> None:
    config = parties.configs[name][1]
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))


def config_of(parties: Parties, name: str) -> Path:
    return parties.analyst if name == "analyst" else parties.configs[name][1]


def wait_known(parties: Parties, study: Study | bytes, *names: str) -> None:
    wanted = study.hash if isinstance(study, Study) else study

    def known(name: str) -> bool:
        with PartyFiles.of(config_of(parties, name)) as place:
            return any(h == wanted for h in place.store.hashes())

    wait_for(lambda: all(known(name) for name in names or parties.clients))


def stands(parties: Parties, study: Study) -> dict[str, Any]:
    return studies.show(study.printed_hash, parties.analyst)


def decide(parties: Parties, study: Study, name: str, decision: str, **options: Any) -> dict[str, Any]:
    return studies.decide(study.printed_hash, config_of(parties, name), decision, by="a steward", **options)


def approve_all(parties: Parties, study: Study) -> None:
    wait_known(parties, study)
    for name in parties.clients:
        decide(parties, study, name, "approve")
    wait_for(lambda: stands(parties, study)["state"] == "approved")


def ledger_of(parties: Parties, name: str) -> LedgerStore:
    place = PartyFiles.of(config_of(parties, name))
    place.close()
    return LedgerStore(place.config.state / LEDGER, party=name, signing=place.identity.signing)


def standing_of(parties: Parties, name: str, study: Study) -> str | None:
    with ledger_of(parties, name) as ledger:
        return ledger.standing(study.hash)


def test_a_study_from_proposal_to_receipt(asking: Parties, tmp_path: Path) -> None:
    parties = asking
    noted = tmp_path / "noted"
    tell_by_command(parties, "client-1", f'echo "$1 $TALLYSTICK_STUDY $TALLYSTICK_EPSILON" >> {noted}')
    tell_by_command(parties, "client-2", "exit 1")  # a hook that fails stops nobody
    parties.start()
    study = parties.study()
    with pytest.raises(RoundAborted, match="no study has come to wait"):
        studies.wait(config_of(parties, "client-1"), timeout=0)
    studies.propose_study(study, parties.analyst)
    waiting = studies.wait(config_of(parties, "client-1"), timeout=60)
    assert [one["study"]["hash"] for one in waiting["studies"]] == [study.printed_hash]
    assert f"tallystick study show {study.printed_hash[7:19]}" in study_words.waiting(waiting)
    assert study.study.name in waits_in_doctor(parties, "client-1")
    wait_for(noted.exists)
    assert noted.read_text() == f"{study.printed_hash} {study.study.name} 1\n"
    wait_for(lambda: "the steward was not told of 1 waiting studies" in parties.log("client-2"))
    with pytest.raises(StudyError, match="already"):
        studies.propose_study(study, parties.analyst)
    wait_known(parties, study)
    shown = studies.show(study.printed_hash, config_of(parties, "client-1"))
    assert shown["own"]["fits"] is True
    assert shown["own"]["verdict"] == "ask"
    with pytest.raises(NotApproved) as refused:
        studies.run(study.printed_hash, parties.analyst)
    assert refused.value.exit_code == 5
    approve_all(parties, study)
    assert waits_in_doctor(parties, "client-1") == "no study waits for a decision"
    made = studies.run(study.printed_hash, parties.analyst)
    assert made["receipt"] is not None
    assert made["participants"]["clients"] == 3
    again = studies.result(study.printed_hash, parties.analyst)  # the stored one: nothing is charged twice
    assert (again["released"], again["receipt"]) == (made["released"], made["receipt"])

    line = write_canonical(made, tmp_path / "line", "result.json")  # as earlier versions wrote it
    file = write_result(made, tmp_path)
    assert len(file.read_text().splitlines()) > 50
    for one in (line, file):
        found = study_results.verify(one, parties.home / "consortium.toml")
        assert found["sound"]
    model = ts.load(file, consortium=parties.home / "consortium.toml")
    assert model.model_document() == made["model"]
    assert studies.answer(made, parties.analyst) == model.answer()
    assert studies.answer({**made, "receipt": None}, parties.analyst) == model.answer()
    named = f"{study.study.name}@{study.study.version}"
    assert studies.show(named, parties.analyst)["study"]["hash"] == study.printed_hash
    assert found["participants"] == parties.clients
    check_tampering(file, tmp_path / "tampered.json")

    wait_for(lambda: all(standing_of(parties, name, study) == "committed" for name in parties.clients))
    with ledger_of(parties, "client-1") as ledger:
        report = ledger.verify(PartyFiles.of(config_of(parties, "client-1")).members.identities)
        assert report is not None
        with pytest.raises(BudgetExceeded):
            ledger.preview(
                "default",
                ledger.view("default")
                .entries[0]
                .charge.__class__(**{**vars(ledger.view("default").entries[0].charge), "study": bytes(32)}),
            )

    # The servers are asked through the running client, and one that is gone is named.
    config = config_of(parties, "client-1")
    asked = ledgers.verify(config)
    assert (set(asked["asked"]), asked["silent"]) == ({"server-1", "server-2"}, [])
    assert set(asked["asked"].values()) == set(asked["countersigned"].values())
    assert "server-1 has seen link" in ledgers.describe(asked)

    # A second study, over the budget: the clients say no by themselves, and no steward can say yes.
    second = parties.study()
    studies.propose_study(second, parties.analyst)
    wait_for(lambda: stands(parties, second)["state"] == "refused")
    assert {d["reason"] for d in stands(parties, second)["rejected"]} == {"The data set's budget does not cover it."}
    with pytest.raises(BudgetExceeded):
        decide(parties, second, "client-1", "approve")
    with pytest.raises(NotApproved):
        studies.run(second.printed_hash, parties.analyst)
    receipts = [parties.state(name) / "receipts" / f"{study.hash.hex()}.json" for name in parties.configs]
    wait_for(lambda: all(path.exists() for path in receipts))  # everybody has it


def tell_by_command(parties: Parties, name: str, script: str) -> None:
    config = parties.configs[name][1]
    config.write_text(f"{config.read_text()}\n[notify]\ncommand = {json.dumps(['/bin/sh', '-c', script, 'tell'])}\n")


def waits_in_doctor(parties: Parties, name: str) -> str:
    (found,) = [f for f in doctor.examine(config_of(parties, name))["findings"] if f["check"] == "waiting"]
    return str(found["what"])


def check_tampering(file: Path, copy: Path) -> None:
    """Every 139th byte of a result changed: always found, always exit 6 (or not even JSON any more)."""
    raw = bytearray(file.read_bytes())
    for place in range(0, len(raw), 139):
        changed = bytes(raw[:place]) + bytes([raw[place] ^ 1]) + bytes(raw[place + 1 :])
        copy.write_bytes(changed)
        with pytest.raises(VerificationError) as found:
            study_results.verify(copy)
        assert found.value.exit_code == 6
        assert found.value.cause
    told = json.loads(bytes(raw))
    told["model"]["coef"][0][0] += 0.5  # a forger who writes it down properly
    for text in (canonical(told), readable(told).encode()):
        copy.write_bytes(text + b"\n")
        with pytest.raises(VerificationError):
            study_results.verify(copy)
    for text in (raw.replace(b'\n  "', b'\n   "', 1), raw + b"\n", raw.replace(b": ", b":", 1)):  # blanks count too
        copy.write_bytes(text)
        with pytest.raises(VerificationError):
            ts.load(copy)


def test_refusal_counter_proposal_and_change_of_mind(asking: Parties) -> None:
    parties = asking
    parties.start()
    study = parties.study()
    studies.propose_study(study, parties.analyst)
    wait_known(parties, study)
    decide(parties, study, "client-1", "approve")
    with pytest.raises(StudyError, match="below"):
        decide(parties, study, "client-2", "counter", epsilon=1.0)
    decide(parties, study, "client-2", "counter", epsilon=0.5, reason="half would do")
    decide(parties, study, "client-3", "reject", reason="not now")
    wait_for(lambda: len(stands(parties, study)["rejected"]) == 1 and len(stands(parties, study)["countered"]) == 1)
    told = stands(parties, study)
    assert told["state"] == "refused"
    assert [d["terms"] for d in told["countered"]] == [{"epsilon": 0.5}]
    assert [d["reason"] for d in told["rejected"]] == ["not now"]

    lower = study.replace("privacy", epsilon=0.5).replace("study", version=2)  # a lower cap is a new version
    studies.propose_study(lower, parties.analyst, supersedes=study.printed_hash)
    approve_all(parties, lower)
    assert stands(parties, study)["state"] == "superseded"
    decide(parties, lower, "client-3", "reject", reason="a second thought")
    wait_for(lambda: stands(parties, lower)["state"] == "refused")
    decide(parties, lower, "client-3", "approve")
    wait_for(lambda: stands(parties, lower)["state"] == "approved")
    studies.withdraw(lower.printed_hash, parties.analyst, reason="another plan")
    wait_for(lambda: stands(parties, lower)["state"] == "withdrawn")
    with pytest.raises(NotApproved):
        studies.run(lower.printed_hash, parties.analyst)
    with pytest.raises(NotApproved):
        decide(parties, lower, "client-3", "approve")
    assert all(standing_of(parties, name, lower) is None for name in parties.clients)  # nothing was ever charged


def test_rules_decide_without_a_person(asking: Parties) -> None:
    parties = asking
    for name in parties.clients:
        config = parties.configs[name][1]
        rule = '[[policy.rules]]\nwhen = { epsilon_above = 0.5 }\nthen = "reject"\nbecause = "up to 0.5 only"\n'
        yes = '[[policy.rules]]\nwhen = { columns_only = ["x", "z", "y"] }\nthen = "approve"\n'
        config.write_text(config.read_text() + "\n" + rule + yes)
        assert len(load_role_config(config).policy.rules) == 2  # type: ignore[union-attr]
    parties.start()
    dear = parties.study(epsilon=0.6)
    with pytest.raises(NotApproved, match="refused"):
        parties.fit(dear)
    assert {d["reason"] for d in stands(parties, dear)["rejected"]} == {"up to 0.5 only"}
    cheap = parties.study(epsilon=0.5)
    assert parties.fit(cheap).contributors_ == tuple(parties.clients)
    assert {d["by"] for d in stands(parties, cheap)["approved"]} == {"policy: rule 2"}


def test_a_rolled_back_ledger_is_found_before_anything_is_spent(parties: Parties) -> None:
    parties.start()
    parties.fit(parties.study())
    parties.kill("client-1")
    old = parties.folder / "old state"
    shutil.copytree(parties.state("client-1"), old)
    parties.start("client-1")
    parties.fit(parties.study())
    parties.kill("client-1")
    shutil.rmtree(parties.state("client-1"))
    old.rename(parties.state("client-1"))  # the whole state, so nothing on this machine tells
    config = config_of(parties, "client-1")
    assert ledgers.verify(config, offline=True)["asked"] is None
    with pytest.raises(VerificationError, match="rolled back: it ends at link") as caught:
        ledgers.verify(config)  # nobody runs here: the servers are asked directly
    assert (caught.value.rule, caught.value.exit_code) == ("ledger-seen-elsewhere", 6)
    parties.kill("server-1")
    with pytest.raises(VerificationError, match="server-2 has seen"):
        ledgers.verify(config)
    parties.start("server-1")
    parties.start("client-1")
    study = parties.study(min_clients=2)
    set_minimum(parties, 2)
    wait_for(lambda: "rolled back" in parties.log("client-1"))
    model_or_error = parties.fit_in_background(study).end()
    assert not isinstance(model_or_error, TallystickError) or "client-1" in str(model_or_error)
    assert standing_of(parties, "client-1", study) in (None, "voided")


def set_minimum(parties: Parties, clients: int) -> None:
    for name in parties.clients:
        if name != "client-1" and parties.alive(name):
            parties.kill(name)
            set_key(parties, name, "min_clients = 3", f"min_clients = {clients}")
            parties.start(name)


@pytest.mark.parametrize("point", [CrashPoint.CLIENT_SHARE_SENT, CrashPoint.CLIENT_KEYS_ERASED], ids=str)
def test_a_killed_client_is_charged_once(parties: Parties, point: CrashPoint) -> None:
    parties.start()
    study = parties.study()
    parties.die_at("client-2", point.value, 1)
    running = parties.fit_in_background(study)
    parties.wait_dead("client-2")
    assert standing_of(parties, "client-2", study) in ("released", "committed")  # before the first share left
    parties.start("client-2")
    running.result()
    wait_for(lambda: standing_of(parties, "client-2", study) == "committed")
    with ledger_of(parties, "client-2") as ledger:
        assert ledger.view("default").spent.fits == 1


def test_results_are_for_those_the_study_names(parties: Parties) -> None:
    parties.start()
    raw = parties.study().model_dump()
    raw["results"]["visible_to"] = ["client-1"]
    study = Study.from_dict(raw)
    with pytest.raises(NotApproved, match="client-1 only"):
        parties.fit(study)
    wait_for(lambda: stands(parties, study)["state"] == "finished")  # it ran; this analyst just may not see it
    with pytest.raises(NotApproved, match="client-1 only"):
        studies.result(study.printed_hash, parties.analyst)
    assert studies.receipt(study.printed_hash, parties.analyst, parties.folder / "r")["file"]
    kept = {name: parties.state(name) / "results" / f"{study.hash.hex()}.packed" for name in parties.clients}
    wait_for(kept["client-1"].exists)
    assert kept["client-1"].stat().st_mode & 0o777 == 0o600
    made = studies.result(study.printed_hash, config_of(parties, "client-1"))
    assert made["model"]["coef"]
    assert not kept["client-2"].exists()
    with pytest.raises(NotApproved):
        studies.result(study.printed_hash, config_of(parties, "client-2"))


def test_a_program_of_ones_own_from_python(parties: Parties) -> None:
    """``ProgramEstimator`` on a connected federation: the file travels, a person approves its hash, then it runs."""
    text = (
        "import numpy as np\nimport tallystick as ts\n\n\n"
        "class Sums(ts.Program):\n    rounds = 1\n    bound = 3.0\n\n"
        "    def init(self, public):\n        return np.zeros(2)\n\n"
        "    def map_in_client(self, record, state):\n        return np.array([record[0], record[1]])\n\n"
        "    def reduce_in_aggregator(self, total, state):\n        return total\n"
    )
    config = config_of(parties, "client-1")  # neither a rule nor "approve" by default holds for a file nobody has read
    config.write_text(config.read_text() + '\n[[policy.rules]]\nwhen = { epsilon_at_most = 1.0 }\nthen = "approve"\n')
    parties.start()
    model = ts.ProgramEstimator.from_text(text, name="sums.py", epsilon=1.0)
    with pytest.raises(NotApproved, match="open"):
        model.fit(parties.federation(approval_timeout_s=6), features=["x", "z"])
    shown = studies.listing(parties.analyst)["studies"][0]
    assert shown["program"] == "Sums.py"
    wait_known(parties, parse_hash(shown["study"]["hash"]))  # on a slow machine it is still on its way to the clients
    seen = studies.show(shown["study"]["hash"], config)
    assert text in seen["contents"]["program_text"]
    assert (seen["own"]["decided"], seen["own"]["verdict"], seen["own"]["verdict_rule"]) == (
        None,
        "ask",
        "program-file",
    )
    assert "rule 1 would approve, but does not name the file" in " ".join(study_words.show(seen).split())
    wait_for(lambda: "does not name the file" in parties.log("client-1"))  # its own look at it takes a while
    for name in parties.clients:
        studies.decide(shown["study"]["hash"], config_of(parties, name), "approve")
    model.fit(parties.federation(), features=["x", "z"])
    assert model.state_.shape == (2,)
    with pytest.raises(StudyError, match="cannot travel"):
        ts.ProgramEstimator(Live(), epsilon=1.0).fit(parties.federation(), features=["x", "z"])


class Live(ts.Program):
    """Written in a session: nothing a steward could read."""

    rounds = 1
    bound = 1.0

    def init(self, public: ts.Public) -> Any:
        return np.zeros(1)

    def map_in_client(self, record: Any, state: Any) -> Any:
        return np.array([record[0]])

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total
