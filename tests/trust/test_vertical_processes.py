"""Institutions with different columns as real processes: the bits of the simulation, governed, charged, receipted."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust.proxy_deployment import wait_for
from tests.trust.vertical_deployment import (
    AT_BANK,
    AT_HOSPITAL,
    CLIENTS,
    SHARED,
    VerticalDeployment,
    exactly_written,
    frames,
    study,
)
from tests.trust.vertical_role import SEED

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.application.studies import words
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol import alignment as lists
from tallystick.protocol import joint_products as products
from tallystick.study import Study

KILLED = {
    "bank": (
        "study/ready-kept", "alignment-seed-kept", "alignment-people-kept", "alignment-list-0-kept",
        "blinded-list-sent", "alignment-positions-kept", "opened-kept", "opened-rows-sent",
        "seed-kept", "contribution-kept", "shares-sent-to-all-servers",
    ),
    "hospital": ("alignment-list-0-kept", "deal-wanted-sent", "deal-kept", "products-shared"),
    "dealer": ("study/start-kept", "dealt-kept", "deal-sent"),
    "server-1": ("round-kept", "partial-kept"),
    "aggregator": ("round-sent",),
}  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerticalDeployment]:
    made = VerticalDeployment(tmp_path_factory.mktemp("apart"))
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


def run(deployment: VerticalDeployment, wanted: Study, patience: float = 100) -> dict[str, Any]:
    """Propose, have both stewards approve (no rule may), run."""
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


def check(deployment: VerticalDeployment, wanted: Study, made: dict[str, Any], folder: Path) -> None:
    """The receipt verifies offline, both have paid, and no secret is left anywhere."""
    assert made["privacy"]["trust"]["dealer"] == "dealer"
    found = study_results.verify(write_canonical(made, folder, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"], found
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(wanted.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
    for name in deployment.configs:
        left = deployment.state(name) / wanted.hash.hex()
        wait_for(lambda left=left: not left.exists() or not any(left.iterdir()))


def simulated(wanted: Study) -> dict[str, Any]:
    """The same study in one process, under the seed of the servers' noise."""
    fed = ts.Federation.simulate(
        list(frames().values()), schema=wanted.schema_of_data(), names=list(CLIENTS), vertical=True, seed=SEED
    )
    estimator, complete = estimator_for(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(estimator.fit_study(fed, complete).model_document()))


def said(deployment: VerticalDeployment) -> dict[tuple[str, ...], set[str]]:
    """Whatever was said about one thing, by whom: digests of the different messages."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, kind, to, digest, raw in notes(deployment):
        if kind in ("BlindedList", "OpenedRows", "Deal"):
            message: Any = (lists if kind == "BlindedList" else products).decode(raw)
            about = {"BlindedList": ("owner", "hops"), "OpenedRows": ("first",), "Deal": ()}[kind]
            which = [str(getattr(message, fact)) for fact in about] or [to]
            found.setdefault((message.study_hash.hex(), name, kind, *which), set()).add(digest)
    return found


def notes(deployment: VerticalDeployment) -> list[tuple[str, str, str, str, bytes]]:
    """(who, what, to whom, digest, bytes) of all that institutions and dealer said to each other."""
    found = []
    for line in (deployment.logs / "notes").read_text().splitlines():
        name, kind, to, digest, raw, paid = line.split(" ")
        assert paid in (["released", "committed"] if name in CLIENTS else ["-"])  # before anything leaves
        found.append((name, kind, to, digest, bytes.fromhex(raw)))
    return found


def test_the_bits_of_the_simulation_governed_charged_and_receipted(
    deployment: VerticalDeployment, tmp_path: Path
) -> None:
    wanted = study()
    made = run(deployment, wanted)
    assert made["model"] == simulated(wanted), deployment.log()
    check(deployment, wanted, made, tmp_path)
    shown = " ".join(words.show(studies.show(wanted.printed_hash, deployment.configs["hospital"][1])).split())
    for told in (
        "hospital holds z; a record's encoded columns there are cut to length 1.0; its list of people is 70 long.",
        "your institution learns which of its own people the others have",
        "Institutions are trusted to follow the protocol",
        "so could the dealer together with any institution",
        "69 people are named",
        "Nothing is left to decide: the study is finished.",
        "So far, this study among it: 1 fit(s) together: epsilon = 50",
        "Without it: nothing spent.",
    ):
        assert told in shown, shown
    assert "decide anew" not in shown


def test_killed_at_every_step_it_ends_as_if_nothing_had_happened(
    deployment: VerticalDeployment, tmp_path: Path
) -> None:
    wanted = study("killed", program="vertical_classifier", target="label", timeout=90)
    for name, steps in KILLED.items():
        deployment.order(name, *steps)
    made = run(deployment, wanted, 150)
    assert made["model"] == simulated(wanted), deployment.log()
    check(deployment, wanted, made, tmp_path)
    assert {name: deployment.waiting(name) for name in KILLED} == {name: [] for name in KILLED}
    assert all(len(digests) == 1 for digests in said(deployment).values())  # no second mask, list or opening
    assert len([1 for _, kind, to, *_ in notes(deployment) if (kind, to) == ("OpenedRows", "hospital")]) > 3


def test_components_of_columns_apart(deployment: VerticalDeployment, tmp_path: Path) -> None:
    """And lists that are long enough to be streamed: what is sealed after them must not overtake them."""
    wanted = study("components", program="pca", target=None, more="[program]\nn_components = 2", people=2_100)
    made = run(deployment, wanted)
    assert made["model"] == simulated(wanted), deployment.log()
    check(deployment, wanted, made, tmp_path)


def test_what_institutions_say_to_each_other_tells_no_identifier_and_no_value(deployment: VerticalDeployment) -> None:
    """Everything that left an institution for another or for the dealer in the studies above, before it was sealed."""
    seen: dict[str, list[bytes]] = {}
    for name, kind, to, _, raw in notes(deployment):
        assert (name in CLIENTS, to) in {(True, "bank"), (True, "hospital"), (True, "dealer"), (False, to)}
        seen.setdefault(kind, []).append(raw)
        if to == "dealer":
            assert kind == "DealWanted"
            assert len(raw) == 8 + 32  # which study, and nothing else
    assert set(seen) <= {"BlindedList", "Wanted", "OpenedRows", "RowsWanted", "DealWanted", "Deal"}
    people = [person.encode() for frame in frames().values() for person in frame["id"] if person]
    assert not any(person in raw or person.lower() in raw for raw in seen["BlindedList"] for person in people)
    points = [m.points for m in map(lists.decode, set(seen["BlindedList"]))]
    opened = b"".join(products.decode(raw).rows for raw in set(seen["OpenedRows"]))
    for text in (b"".join(points), opened):
        counts = np.bincount(np.frombuffer(text, np.uint8) >> 4, minlength=16)
        expected = counts.sum() / 16
        assert ((counts - expected) ** 2 / expected).sum() < 50  # χ² of 15: beyond once in 10⁵
    lists_of: dict[bytes, set[int]] = {}
    for message in map(lists.decode, set(seen["BlindedList"])):
        lists_of.setdefault(message.study_hash, set()).add(len(message.points) // 32)
    assert all(
        sizes in ({AT_BANK, AT_HOSPITAL}, {2_100, AT_HOSPITAL}) for sizes in lists_of.values()
    )  # not how many there really are


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (exactly_written(), "the institutions have nobody in common"),
        (study("more", timeout=20).replace("data", records=50), "the institutions share 60"),
    ],
)
def test_what_is_found_wrong_when_all_are_compared_ends_the_study(
    deployment: VerticalDeployment, wanted: Study, told: str
) -> None:
    """Outside, institutions are unavailable; why stands in their own logs. Nothing is opened, and it stays charged."""
    opened = len([1 for _, kind, *_ in notes(deployment) if kind in ("OpenedRows", "DealWanted")])
    with pytest.raises(RoundAborted) as caught:
        run(deployment, wanted)
    assert caught.value.rule == "too-few-clients"
    assert told not in str(caught.value)
    assert all(told in (deployment.logs / f"{name}.log").read_text() for name in CLIENTS)
    assert opened == len([1 for _, kind, *_ in notes(deployment) if kind in ("OpenedRows", "DealWanted")])
    for name in CLIENTS:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            assert ledger.standing(wanted.hash) == "released"
            spent = ledger.view(files.config.dataset).spent.statement
        found = studies.show(wanted.printed_hash, deployment.configs[name][1])
        assert (found["state"], found["own"]["budget_after"]) == ("paused", spent)  # as budget show has it
        assert found["own"]["open_decisions"] == ["reject", "counter"]
        shown = " ".join(words.show(found).split())
        assert "So far, this study among it: " + " ".join(spent.split()) in shown
        assert "you may still take your approval back: tallystick study reject" in shown


def test_a_list_that_is_longer_than_registered_ends_the_study(deployment: VerticalDeployment) -> None:
    planted = deployment.configs["bank"][1].parent / "planted"
    planted.write_text("longer-list")
    try:
        deployment.kill("bank")
        with pytest.raises(RoundAborted) as caught:
            run(deployment, study("longer", timeout=20))
        assert caught.value.rule == "too-few-clients"
        log = (deployment.logs / "hospital.log").read_text()
        assert "the list has not the size it is bound to" in log
        assert not [m for m in notes(deployment) if m[1] == "OpenedRows" and m[4][8:40] == lists_of_last(deployment)]
    finally:
        planted.unlink()
        deployment.kill("bank")


def test_a_file_that_changes_after_alignment_joins_nobody_elses_rows(deployment: VerticalDeployment) -> None:
    planted, source = deployment.configs["bank"][1].parent / "planted", deployment.logs / "bank.csv"
    there = source.read_text()
    planted.write_text("turned-file")
    try:
        deployment.kill("bank")
        wanted = study("turned")
        assert run(deployment, wanted)["model"] == simulated(wanted)
        assert source.read_text().splitlines()[1:] == there.splitlines()[:0:-1]  # it was changed
    finally:
        planted.unlink()
        source.write_text(there)
        deployment.kill("bank")


def lists_of_last(deployment: VerticalDeployment) -> bytes:
    """The study that lists were shown in last."""
    return lists.decode([raw for _, kind, _, _, raw in notes(deployment) if kind == "BlindedList"][-1]).study_hash


def connected(deployment: VerticalDeployment) -> ts.Federation:
    """The same institutions as an analyst reaches them from a notebook."""
    columns = study().schema_of_data()
    columns = ts.Schema({**columns, "label": ts.Category(["no", "yes"])})
    return ts.Federation.connect(
        deployment.home / "consortium.toml", config=deployment.analyst, schema=columns, records=SHARED, dealer="dealer",
        identifier={"column": "id", "case": "fold", "blanks": "skip"}, round_timeout_s=40, approval_timeout_s=100,
        holders={
            "bank": {"columns": ["x", "y", "c", "label"], "people": AT_BANK},
            "hospital": {"columns": ["z"], "people": AT_HOSPITAL, "norm": 1.0},
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "target", "features"),
    [
        (ts.VerticalRidge(epsilon=50.0, delta=1e-6), "y", ["x", "c", "z"]),
        (ts.VerticalClassifier(epsilon=50.0, delta=1e-6), "label", ["x", "c", "z"]),
        (ts.PCA(n_components=2, epsilon=50.0, delta=1e-6), None, ["x", "c", "z"]),
    ],
)
def test_a_connected_federation_proposes_a_study_of_columns_apart(
    deployment: VerticalDeployment, model: Any, target: str | None, features: list[str]
) -> None:
    """Stewards approve what was proposed; the model is the simulation's to the bit, and the norm not stated its own."""
    fed, name = connected(deployment), f"connected {type(model).__name__}"
    wanted = model.study_for(fed, target=target, features=features, name=name).replace("data", records=SHARED)
    left: list[BaseException] = []

    def fit() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(fed, target=target, features=features, name=name)
        except BaseException as error:  # the thread's end is this test's
            left.append(error)

    analyst = threading.Thread(target=fit)
    analyst.start()
    for institution in CLIENTS:
        config = deployment.configs[institution][1]
        wait_for(lambda config=config: known_at(config, wanted), 100)
        studies.decide(wanted.printed_hash, config, "approve", by="a steward")
    analyst.join(100)
    assert not left, (left, deployment.log())
    assert model.study_.hash == wanted.hash
    assert json.loads(json.dumps(model.model_document())) == simulated(wanted)
    assert wanted.data.holders is not None
    assert wanted.data.holders["hospital"].norm == 1.0
    alone = ts.Federation.simulate(list(frames().values()), schema=fed.schema, names=list(CLIENTS), vertical=True)
    made = model.study_for(alone, target=target, features=features)
    assert made.data.holders is not None
    assert wanted.data.holders["bank"].norm == made.data.holders["bank"].norm
    assert model.contributors_ == CLIENTS
    assert fed.spent.epsilon > 0


def test_a_support_vector_machine_leaves_the_federations_dealer_out(deployment: VerticalDeployment) -> None:
    fed = connected(deployment)
    wanted = ts.VerticalSVC().study_for(fed, target="label", features=["x", "z"])
    assert wanted.trust.dealer is None  # type: ignore[attr-defined]
    assert ts.VerticalRidge().study_for(fed, target="y", features=["x", "z"]).trust.dealer == "dealer"  # type: ignore[attr-defined]
