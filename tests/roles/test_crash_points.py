"""Crash points: enumerated, silent in the product, and complete for what the machines persist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.faults.crash_point_list import CrashPoint

import tallystick
from tallystick.roles.storage import crash_points
from tallystick.roles.storage.crash_points import crashpoint, install

PACKAGE = Path(tallystick.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
ROLES = ("server", "client", "aggregator")
OF_A_DRAW = {"draw-message-sent"}
"""Of computing parties, who are killed there (and after ``drawing-kept``) in tests/trust/test_parties_deployed.py."""
OF_PEERS = {"records-drawn", "publication-noted", "publication-attested"}  # tests/trust/test_gossip_processes.py
OF_MASKS = {
    "dealing-sent", "packets-relayed", "masked-sum-sent", "survivors-named", "survivors-signed", "quorum-told",
    "shares-revealed", "evidence-sent",
}  # fmt: skip
"""Of masked sums, whose clients and reducer are killed there in tests/trust/test_masks_processes.py."""
OF_HOLDERS = {"blinded-list-sent", "deal-wanted-sent", "opened-rows-sent", "products-shared", "deal-sent"}
"""Of institutions with different columns and their dealer, in tests/trust/test_vertical_processes.py."""
OF_LABELS = {"labels-wanted", "labels-sent"}
"""Of who reduces and of the institution that tells it the labels, in tests/trust/test_learners_processes.py."""
RECORDS = {"Persist": "kept", "Forget": "erased"}
KINDS = ("reserve", "release", "commit", "void")  # of links: what a study does to a ledger


def steps_of(role: str) -> set[str]:
    return {point.value.partition(":")[2] for point in CrashPoint if point.role == role}


@pytest.fixture
def seen():
    points: list[str] = []
    install(points.append)
    yield points
    install(None)


def test_nothing_happens_in_the_product() -> None:
    assert crash_points._handler is None
    crashpoint("round-kept")


def test_a_handler_is_told_the_step(seen: list[str]) -> None:
    crashpoint("partial-sent")
    crashpoint("study/end-kept")
    assert seen == ["partial-sent", "study/end-kept"]


def test_every_point_belongs_to_a_role() -> None:
    assert {point.role for point in CrashPoint} == set(ROLES)
    for point in CrashPoint:
        assert re.fullmatch(r"(server|client|aggregator):[a-z/-]+", point.value)
        assert point.name.split("_")[0].lower() == point.role


MACHINES = {
    "server": (
        "secure_sum/server.py",
        "secure_sum/server_agreeing.py",
        "noise_draws.py",
        "study/participant.py",
        "study/waiting.py",
    ),
    "client": ("secure_sum/client.py", "study/participant.py", "study/waiting.py"),
    "aggregator": ("secure_sum/aggregator.py", "study/aggregator.py", "study/gathering.py", "study/pausing.py"),
}


@pytest.mark.parametrize("role", ROLES)
def test_every_record_a_machine_persists_has_a_point(role: str) -> None:
    """``Persist("key", …)`` in the machines' sources, by their syntax trees: the driver tells ``key-kept``."""
    for name in MACHINES[role]:
        for node in ast.walk(ast.parse((PACKAGE / "protocol" / name).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RECORDS:
                assert isinstance(node.args[0], ast.Constant), f"{name}: a record's key is to be seen where it is kept"
                assert f"{node.args[0].value}-{RECORDS[node.func.id]}" in steps_of(role), name


def test_every_call_in_the_sources_is_listed_and_the_list_holds_nothing_else() -> None:
    told = {
        f"{node.args[0].value}-{RECORDS[node.func.id]}"
        for names in MACHINES.values()
        for name in names
        for node in ast.walk(ast.parse((PACKAGE / "protocol" / name).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RECORDS
    }
    told |= {f"ledger-{kind}-{step}" for kind in KINDS for step in ("written", "kept", "anchored")}
    built = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "crashpoint":
                if isinstance(node.args[0], ast.Constant):
                    told.add(node.args[0].value)
                else:
                    built.append((path.name, ast.unparse(node.args[0])))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_SENT":
                told |= {ast.literal_eval(value) for value in node.value.values}  # type: ignore[attr-defined]
    elsewhere = OF_A_DRAW | OF_MASKS | OF_PEERS | OF_HOLDERS | OF_LABELS
    assert told == {step for role in ROLES for step in steps_of(role)} | elsewhere
    assert sorted(built) == [
        ("coordinator.py", "point"),
        ("file.py", "f'ledger-{links[-1].kind}-anchored'"),
        ("file.py", "f'ledger-{links[-1].kind}-kept'"),
        ("file.py", "f'ledger-{links[-1].kind}-written'"),
        ("part.py", "f'{key}-erased'"),
        ("part.py", "f'{key}-kept'"),
        ("parts.py", "point"),
        ("server.py", "point"),
        ("work.py", "point"),
    ]


def test_no_shipped_code_installs_a_handler_or_asks_the_environment() -> None:
    for path in SOURCES:
        text = path.read_text()
        if path.name != "crash_points.py" and "crash_points" in text:
            assert not re.search(r"crash_points import [^\n]*\binstall\b|crash_points\.(install|_handler)", text), path
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("crash_points"):
                    assert "install" not in {alias.name for alias in node.names}, path
    own = Path(crash_points.__file__).read_text()
    imported = {
        name
        for node in ast.walk(ast.parse(own))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported == {"__future__", "collections.abc"}
