"""A support vector machine of columns at different institutions, as real processes: the very bits of the simulation,
governed, charged and receipted, through kill -9, under every trust model that sums."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trust.learners_deployment import (
    CLIENTS,
    LABELS,
    LISTENING,
    PEOPLE,
    RECORDS,
    LearnersDeployment,
    frames,
    study,
)
from tests.trust.proxy_deployment import wait_for
from tests.trust.test_secret_states import traces

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.application.studies import words
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.data.held_columns import read_held
from tallystick.engines import held_apart
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol import labels
from tallystick.study import Study
from tallystick.transport.network.node import Node

KILLED = {
    LABELS: (
        "study/ready-kept", "alignment-seed-kept", "alignment-list-1-kept", "blinded-list-sent",
        "alignment-positions-kept", "columns-read-kept", "labels-kept", "memory-kept", "masked-kept", "labels-sent",
        "shares-revealed",
    ),
    "bank": ("columns-read-kept", "memory-kept", "masked-sum-sent"),
    "reducer": (
        "study-key-kept", "open-kept", "round-sent", "masked-sum-kept", "result-kept", "model-kept", "labels-wanted",
        "labels-kept", "study/end-kept",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(LISTENING))
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LearnersDeployment]:
    made = LearnersDeployment(tmp_path_factory.mktemp(request.param), request.param)
    try:
        made.start()
        wait_for(lambda: all((config.parent / "pid").exists() for _, config in made.configs.values()), 180)
        yield made
    finally:
        made.close()


def known_at(config: Path, wanted: Study) -> dict[str, Any] | None:
    """How the study stands on an institution's own machine; None before it has come."""
    try:
        return studies.show(wanted.printed_hash, config)
    except TallystickError:
        return None


def run(deployment: LearnersDeployment, wanted: Study, patience: float = 120) -> dict[str, Any]:
    """Propose, have all stewards approve (no rule may), run."""
    studies.propose_study(wanted, deployment.analyst)
    for name in CLIENTS:
        config = deployment.configs[name][1]
        assert wait_for(lambda config=config: known_at(config, wanted), patience)["waiting"]
        studies.decide(wanted.printed_hash, config, "approve", by="a steward")
    wait_for(lambda: studies.show(wanted.printed_hash, deployment.analyst)["state"] == "approved", patience)
    made: list[dict[str, Any] | TallystickError] = []

    def wait() -> None:
        try:
            made.append(studies.run(wanted.printed_hash, deployment.analyst))
        except TallystickError as error:
            made.append(error)

    analyst = threading.Thread(target=wait)
    analyst.start()
    analyst.join(patience)
    assert made, deployment.log()
    if isinstance(made[0], TallystickError):
        raise made[0]
    return made[0]


def check(deployment: LearnersDeployment, wanted: Study, made: dict[str, Any], folder: Path) -> None:
    """The receipt verifies offline, all have paid, and nothing of a single person is left anywhere."""
    found = study_results.verify(write_canonical(made, folder, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"], found
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(wanted.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
    nothing_left(deployment, wanted)


def nothing_left(deployment: LearnersDeployment, wanted: Study) -> None:
    for name in deployment.configs:
        left = deployment.state(name) / wanted.hash.hex()
        wait_for(lambda left=left: not left.exists() or not any(left.iterdir()))
    with sqlite3.connect(f"file:{deployment.state(deployment.coordinator) / 'role.sqlite'}?mode=ro", uri=True) as db:
        of = (wanted.hash,)
        kept = [key for (key,) in db.execute("SELECT key FROM records WHERE study = ?", of)]
        assert all(key.startswith(("study/", "vouchers/", "pause")) for key in kept), kept
        assert db.execute("SELECT count(*) FROM releases WHERE study = ?", of).fetchone() == (0,)


def simulated(deployment: LearnersDeployment, wanted: Study) -> dict[str, Any]:
    """The same study in one process, which takes bad cells as institutions do: a simulation refuses them otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_apart, "read_held", lambda *args, lenient: read_held(*args, lenient=True))
        return _simulated(deployment, wanted)


def _simulated(deployment: LearnersDeployment, wanted: Study) -> dict[str, Any]:
    fed = ts.Federation.simulate(
        list(frames().values()),
        schema=wanted.schema_of_data(),
        names=list(CLIENTS),
        vertical=True,
        trust=deployment.trust,
    )
    estimator, complete = estimator_for(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(estimator.fit_study(fed, complete).model_document()))


def notes(deployment: LearnersDeployment, kind: str) -> list[tuple[str, str, str, bytes]]:
    """(who, to whom, digest, bytes) of all lists or labels that were said."""
    found = []
    for line in (deployment.logs / "notes").read_text().splitlines():
        name, what, to, digest, raw, paid = line.split(" ")
        assert paid in ("released", "committed")  # before anything leaves
        if what == kind:
            found.append((name, to, digest, bytes.fromhex(raw)))
    return found


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_bits_of_the_simulation_governed_charged_and_receipted(
    deployment: LearnersDeployment, tmp_path: Path, kernel: str
) -> None:
    wanted = study(f"exact {kernel}", deployment.trust, kernel=kernel)
    made = run(deployment, wanted)
    assert made["model"] == simulated(deployment, wanted), deployment.log()
    check(deployment, wanted, made, tmp_path)
    shown = " ".join(words.show(studies.show(wanted.printed_hash, deployment.configs["bank"][1])).split())
    for told in (
        "clinic holds dose, ill",
        f"{deployment.coordinator}, who reduces, is told by {LABELS} the label of each of them",
        "your institution learns which of its own people the others have",
        f"one exact number for each of {RECORDS} people",
        "EXACT SUMS ARE RELEASED",
    ):
        assert told in shown, shown
    assert "dealer" not in shown


def test_a_machine_fitted_on_a_connected_federation(deployment: LearnersDeployment) -> None:
    """From a notebook: whoever has the labels is named as reducer where the trust model lets a study name one."""
    columns = study("columns", deployment.trust).schema_of_data()
    fed = ts.Federation.connect(
        deployment.home / "consortium.toml", config=deployment.analyst, schema=columns, records=RECORDS,
        trust=deployment.trust, round_timeout_s=40, approval_timeout_s=100, progress=False,
        identifier={"column": "id", "case": "fold", "blanks": "skip"},
        holders={
            "bank": {"columns": ["x"], "people": PEOPLE},
            "clinic": {"columns": ["dose", "ill"], "people": PEOPLE},
            "school": {"columns": ["marks"], "people": PEOPLE},
        },
    )  # fmt: skip
    model, name = ts.VerticalSVC(max_iter=3), f"connected {deployment.trust}"
    wanted = model.study_for(fed, target="ill", features=None, name=name).replace("data", records=RECORDS)
    left: list[BaseException] = []

    def fit() -> None:
        try:
            model.fit(fed, target="ill", name=name)
        except BaseException as error:  # the thread's end is this test's
            left.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analyst = threading.Thread(target=fit)
        analyst.start()
        for institution in CLIENTS:
            config = deployment.configs[institution][1]
            wait_for(lambda config=config: known_at(config, wanted), 100)
            studies.decide(wanted.printed_hash, config, "approve", by="a steward")
        analyst.join(100)
    assert not left, (left, deployment.log())
    assert model.study_.hash == wanted.hash
    assert json.loads(json.dumps(model.model_document())) == simulated(deployment, wanted)
    assert not model.privacy_.as_dict()["differentially_private"]


def test_labels_are_told_once_to_who_reduces_by_who_has_them(deployment: LearnersDeployment) -> None:
    said = notes(deployment, "Labels")
    assert {(name, to) for name, to, *_ in said} == {(LABELS, deployment.coordinator)}
    each = {labels.decode(raw).study_hash for *_, raw in said}
    assert len({digest for *_, digest, _ in said}) == len(each)
    for *_, raw in said:
        signs = labels.decode(raw).signs
        assert len(signs) == RECORDS
        assert signs.count(0) == RECORDS - 40 + 2  # nobody, no label, no dose: absent, and of neither class
        assert {1, 2} <= set(signs)
    people = [person.encode() for frame in frames().values() for person in frame["id"] if person]
    lists = [raw for *_, raw in notes(deployment, "BlindedList")]
    assert not any(person in raw or person.lower() in raw for raw in lists for person in people)


def test_whoever_neither_learns_nor_reduces_is_not_told_what_rounds_are_about(
    deployment: LearnersDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """p, a number for everybody and round: not in what servers, proxy, dealer or analyst get (sealed parts opened), nor
    in what they keep or log."""
    take, heard = Node.receive, bytearray()

    def receive(self: Any, timeout: float | None = 0.0) -> Any:
        envelope = take(self, timeout)
        heard.extend(envelope.raw if envelope is not None else b"")
        return envelope

    monkeypatch.setattr(Node, "receive", receive)
    wanted = study("unseen", deployment.trust, rounds=6)
    run(deployment, wanted)
    said = [line.split(" ") for line in (deployment.logs / "models").read_text().splitlines()]
    models = {bytes.fromhex(model) for of, model in said if of == wanted.hash.hex()}
    found = traces(models)
    assert len(models) >= 5
    assert len(found) > 100
    assert wanted.hash in heard
    assert not [trace for trace in found if trace in heard], "the analyst was told"
    others = [name for name, (role, _) in deployment.configs.items() if role in ("server", "proxy", "dealer")]
    assert bool(others) == (deployment.trust != "masks")
    for name in others:
        home = deployment.configs[name][1].parent
        assert wanted.hash in (home / "heard").read_bytes()
        for path in (*home.rglob("*"), deployment.logs / f"{name}.log"):
            raw = path.read_bytes() if path.is_file() else b""
            assert not [trace for trace in found if trace in raw or trace.hex().encode() in raw], (name, path)


def test_killed_at_every_step_it_ends_as_if_nothing_had_happened(
    deployment: LearnersDeployment, tmp_path: Path
) -> None:
    if deployment.trust != "masks":
        wanted, killed = study("killed", deployment.trust, timeout=90), {
            LABELS: ("labels-kept", "memory-kept", "labels-sent"),
            deployment.coordinator: ("study-key-kept", "round-sent", "result-kept", "labels-wanted", "labels-kept"),
        }  # fmt: skip
    else:
        wanted, killed = study("killed", timeout=90), KILLED
    for name, steps in killed.items():
        deployment.order(name, *steps)
    made = run(deployment, wanted, 240)
    assert made["model"] == simulated(deployment, wanted), deployment.log()
    check(deployment, wanted, made, tmp_path)
    assert {name: deployment.waiting(name) for name in killed} == {name: [] for name in killed}
    said = [(digest, raw) for *_, digest, raw in notes(deployment, "Labels")]
    last = labels.decode(said[-1][1]).study_hash
    assert len({digest for digest, raw in said if labels.decode(raw).study_hash == last}) == 1


@pytest.mark.parametrize(("who", "fault", "rule"), [(LABELS, "short-labels", "wrong-size")])
def test_labels_that_are_none_end_the_study(deployment: LearnersDeployment, who: str, fault: str, rule: str) -> None:
    planted = deployment.configs[who][1].parent / "planted"
    planted.write_text(fault)
    wanted = study(fault, deployment.trust, timeout=20)
    try:
        deployment.kill(who)
        with pytest.raises(RoundAborted) as caught:
            run(deployment, wanted)
        assert caught.value.rule == rule, caught.value
        assert caught.value.party == who
    finally:
        planted.unlink()
        deployment.kill(who)
    nothing_left(deployment, wanted)


def test_labels_of_somebody_else_count_for_nothing(deployment: LearnersDeployment, tmp_path: Path) -> None:
    planted = deployment.configs["bank"][1].parent / "planted"
    planted.write_text("others-labels")
    wanted = study("others", deployment.trust)
    try:
        deployment.kill("bank")
        made = run(deployment, wanted)
        assert made["model"] == simulated(deployment, wanted), deployment.log()
    finally:
        planted.unlink()
        deployment.kill("bank")
    check(deployment, wanted, made, tmp_path)


def test_a_holder_that_tells_no_labels_is_missed_and_the_study_goes_on_when_it_does(
    deployment: LearnersDeployment, tmp_path: Path
) -> None:
    planted = deployment.configs[LABELS][1].parent / "planted"
    planted.write_text("no-labels")
    wanted = study("silent", deployment.trust, timeout=4)
    try:
        deployment.kill(LABELS)
        with pytest.raises(RoundAborted) as caught:
            run(deployment, wanted)
    finally:
        planted.unlink()
        deployment.kill(LABELS)
    assert (caught.value.rule, caught.value.party) == ("missing-labels", LABELS)
    check_resumed(deployment, wanted, tmp_path)


def test_an_institution_that_stays_away_pauses_the_study(deployment: LearnersDeployment, tmp_path: Path) -> None:
    """Nothing of a single person is released before its end: no interim state. Where it left, the round may be spent:
    then there is no result at all, and what was kept is erased all the same."""
    wanted = study("away", deployment.trust, rounds=40, timeout=4)
    pid = int((deployment.configs["bank"][1].parent / "pid").read_text())
    folder = deployment.state(deployment.coordinator) / wanted.hash.hex()

    def stop() -> None:
        wait_for(lambda: list(folder.glob("*.total")))
        os.kill(pid, signal.SIGSTOP)

    stopped = threading.Thread(target=stop)
    stopped.start()
    try:
        with pytest.raises(RoundAborted) as caught:
            run(deployment, wanted)
        stopped.join()
        with pytest.raises(TallystickError):
            studies.result(wanted.printed_hash, deployment.analyst)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert caught.value.rule == "too-few-clients", caught.value
    ended: RoundAborted | None = None
    try:
        check_resumed(deployment, wanted, tmp_path)
    except RoundAborted as error:
        ended = error
    if ended is not None:
        assert ended.rule == "round-spent", ended
        assert "Nothing usable was released" in str(ended)
        nothing_left(deployment, wanted)


def check_resumed(deployment: LearnersDeployment, wanted: Study, folder: Path) -> None:
    """Paused everywhere, gone on with, and the bits of the simulation all the same."""
    for name in CLIENTS:
        config = deployment.configs[name][1]
        wait_for(lambda config=config: studies.show(wanted.printed_hash, config)["state"] == "paused")
    made = studies.run(wanted.printed_hash, deployment.analyst, wish="resume")
    assert made["model"] == simulated(deployment, wanted), deployment.log()
    check(deployment, wanted, made, folder)
