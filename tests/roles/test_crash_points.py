"""Crash points: enumerated, silent in the product, and complete for what the machines persist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tallystick
from tallystick.roles.storage import crash_points
from tallystick.roles.storage.crash_points import CrashPoint, after_persist, crashpoint, install, points_of

SOURCES = sorted(Path(tallystick.__file__).parent.rglob("*.py"))
ROLES = ("server", "client", "aggregator")


@pytest.fixture
def seen():
    points: list[CrashPoint] = []
    install(points.append)
    yield points
    install(None)


def test_nothing_happens_in_the_product() -> None:
    assert crash_points._handler is None
    crashpoint(CrashPoint.SERVER_NOISE_KEPT)
    after_persist("server", "a key that does not exist")  # not even looked at


def test_a_handler_is_told_the_point(seen: list[CrashPoint]) -> None:
    crashpoint(CrashPoint.SERVER_PARTIAL_SENT)
    after_persist("server", "partial")
    after_persist("aggregator", "study/end")
    assert seen == [CrashPoint.SERVER_PARTIAL_SENT, CrashPoint.SERVER_PARTIAL_KEPT, CrashPoint.AGGREGATOR_END_KEPT]


def test_every_point_belongs_to_a_role() -> None:
    assert {point.role for point in CrashPoint} == set(ROLES)
    assert sum(len(points_of(role)) for role in ROLES) == len(CrashPoint)
    for point in CrashPoint:
        assert re.fullmatch(r"(server|client|aggregator):[a-z-]+", point.value)
        assert point.name.split("_")[0].lower() == point.role
    for (role, _), point in crash_points._AFTER_PERSIST.items():
        assert point.role == role
    assert len(set(crash_points._AFTER_PERSIST.values())) == len(crash_points._AFTER_PERSIST)


MACHINES = {
    "server": ("secure_sum/server.py", "secure_sum/server_agreeing.py", "study/participant.py"),
    "client": ("secure_sum/client.py", "study/participant.py"),
    "aggregator": ("secure_sum/aggregator.py", "study/aggregator.py", "study/gathering.py"),
}


@pytest.mark.parametrize("role", ROLES)
def test_every_record_a_machine_persists_has_a_point(role: str) -> None:
    """``Persist("key", …)`` in the machines' sources, by their syntax trees."""
    keys = set()
    room = Path(tallystick.__file__).parent / "protocol"
    for name in MACHINES[role]:
        for node in ast.walk(ast.parse((room / name).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Persist":
                assert isinstance(node.args[0], ast.Constant), f"{name}: a record's key is to be seen where it is kept"
                keys.add(node.args[0].value)
    assert keys == {key for owner, key in crash_points._AFTER_PERSIST if owner == role}


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
    assert imported == {"__future__", "collections.abc", "enum"}
