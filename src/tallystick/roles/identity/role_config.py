"""The file a role is started with: ``tallystick server start --config role.toml``.

    [role]     name, role, consortium, certificate, key, identity (files beside this one), state (folder),
               listen = "host:port" (server, aggregator), workers = 1
    [data]     source = "records.parquet", budget_epsilon, budget_delta; or dataset = "name" (registered)   (client)
    [policy]   programs, max_epsilon, allow_not_private, min_clients, default, rules               (client)
    [metrics]  listen = "127.0.0.1:9101"                                           (optional)

Paths are relative to the file. An unknown key is an error, so a misspelt limit never goes unnoticed. There is no key
that seeds, scales or silences noise; a client's policy can only refuse.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import check_party_name
from tallystick.core.outside_text import TOML_BYTES, NotReadable, read_toml
from tallystick.core.readable_text import what_is_unreadable
from tallystick.data.files import read_text
from tallystick.privacy.ranges import BUDGET_DELTA, BUDGET_EPSILON
from tallystick.protocol.governance.policy import Rule, parse_rules
from tallystick.roles.identity.consortium import check_address, consortium_roles, listening_roles

__all__ = ["Policy", "RoleConfig", "load_role_config", "parse_role_config"]

MAX_WORKERS = 256
DEFAULT_DATASET = "default"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a client takes part in at all, per study, before anybody is asked. The defaults are the strictest use."""

    programs: tuple[str, ...] | None = None
    """The only programs allowed: built-in ones by name, files by hash; empty, none. None: every built-in program, and
    of files those that a rule names by hash or a person approves."""
    max_epsilon: float = 1.0
    allow_not_private: bool = False
    min_clients: int = 3
    default: str = "ask"
    """What happens to a study within the limits that no rule decides: a person is asked, or it is approved."""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoleConfig:
    """A role's settings, paths made absolute."""

    path: Path
    name: str
    role: str
    consortium: Path
    certificate: Path
    key: Path
    identity: Path
    state: Path
    listen: str | None = None
    workers: int = 1
    data: Path | None = None
    dataset: str = DEFAULT_DATASET
    budget_epsilon: float = 1.0
    budget_delta: float = 1e-6
    policy: Policy | None = None
    metrics: str | None = None


def load_role_config(path: str | Path, *, role: str | None = None) -> RoleConfig:
    """Read and check a role config; ``role`` is the one about to start, if it must be that."""
    file = Path(path).absolute()
    text = read_text(file, limit=TOML_BYTES, what="the role file", remedy="Name it: --config path/to/role.toml.")
    config = parse_role_config(text, file)
    if role is not None and config.role != role:
        _refuse(
            f"{file.name} is the config of a {config.role}, not of a {role}",
            f"Give the role file of a {role}: --config path/to/role.toml.",
        )
    return config


def parse_role_config(text: str, path: Path) -> RoleConfig:
    """The settings in ``text``, which is or will be the content of ``path``."""
    try:
        raw = read_toml(text)
    except NotReadable as error:
        _refuse(f"{path.name} cannot be read: {error}", "Correct that line.")
    sections = _Section(raw, "the config")
    head = sections.table("role")
    role = head.text("role")
    if role not in consortium_roles():
        _refuse(f"[role] role = {ascii(role)[:40]} is unknown", f"Roles: {', '.join(consortium_roles())}.")
    listening, client = role in listening_roles(), role == "client"
    folder = path.parent
    data = _data(sections.table("data"), folder) if client else {}
    config = RoleConfig(
        path=path,
        name=check_party_name(head.text("name")),
        role=role,
        consortium=folder / head.text("consortium", "consortium.toml"),
        certificate=folder / head.text("certificate"),
        key=folder / head.text("key"),
        identity=folder / head.text("identity"),
        state=folder / head.text("state"),
        listen=check_address(head.text("listen")) if listening else None,
        workers=head.integer("workers", 1, 1, MAX_WORKERS) if role == "server" else 1,
        **data,
        policy=_policy(sections.table("policy", {})) if client else None,
        metrics=check_address(sections.table("metrics").text("listen")) if "metrics" in raw else None,
    )
    sections.finish(f"of a {role}")
    return config


def _data(section: _Section, folder: Path) -> dict[str, Any]:
    """A file with its budget, registered when the client starts; or the name of a data set registered before."""
    if section.has("dataset"):
        return {"dataset": check_party_name(section.text("dataset"))}
    delta = section.positive("budget_delta", RoleConfig.budget_delta)
    if delta >= 1:
        _refuse("[data] budget_delta is not below 1", "Give a small number such as 1e-6.")
    epsilon = section.positive("budget_epsilon", RoleConfig.budget_epsilon)
    BUDGET_EPSILON.check("[data] budget_epsilon", epsilon)
    BUDGET_DELTA.check("[data] budget_delta", delta)
    return {"data": folder / section.text("source"), "budget_epsilon": epsilon, "budget_delta": delta}


def _policy(section: _Section) -> Policy:
    default = section.text("default", Policy.default)
    if default not in ("ask", "approve"):
        _refuse(f"[policy] default = {ascii(default)[:40]} is unknown", 'Write "ask" or "approve".')
    programs = section.texts("programs")
    return Policy(
        default=default,
        rules=parse_rules(section.tables("rules")),
        programs=programs if section.has("programs") else None,  # an empty list allows nothing
        max_epsilon=section.positive("max_epsilon", Policy.max_epsilon),
        allow_not_private=section.flag("allow_not_private", False),
        min_clients=section.integer("min_clients", Policy.min_clients, 2, 1 << 31),
    )


class _Section:
    """A TOML table that knows which of its keys were asked for; the others are errors."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self._raw = raw
        self._where = where
        self._asked: dict[str, _Section | None] = {}

    def finish(self, kind: str) -> None:
        """Refuse every key nobody asked for."""
        for key, value in self._raw.items():
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, 1)
                hint = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(self._asked))}."
                what = f"[{key}]" if isinstance(value, dict) else ascii(key)[:60]
                _refuse(f"{self._where} {kind} has no {what}", hint)
            inner = self._asked[key]
            if inner is not None:
                inner.finish(kind)

    def table(self, key: str, default: Mapping[str, Any] | None = None) -> _Section:
        raw = self._take(key, dict, default)
        inner = _Section(raw, f"[{key}]")
        self._asked[key] = inner
        return inner

    def text(self, key: str, default: str | None = None) -> str:
        value: str = self._take(key, str, default)
        if not value or what_is_unreadable(value):
            _refuse(f"{self._where} {key} is empty or holds control characters", "Write it again.")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value: list[Any] = self._take(key, list, [])
        if not all(isinstance(v, str) and v and what_is_unreadable(v) is None for v in value):
            _refuse(f"{self._where} {key} is not a list of texts", f'Write {key} = ["…"].')
        return tuple(value)

    def tables(self, key: str) -> list[dict[str, Any]]:
        value: list[Any] = self._take(key, list, [])
        if not all(isinstance(v, dict) for v in value):
            _refuse(f"{self._where} {key} is not a list of tables", f"Write [[policy.{key}]] before each.")
        return value

    def has(self, key: str) -> bool:
        return key in self._raw

    def flag(self, key: str, default: bool) -> bool:
        value: bool = self._take(key, bool, default)
        return value

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        value: int = self._take(key, int, default)
        if not least <= value <= most:
            _refuse(f"{self._where} {key} = {value} is not possible", f"Give a number from {least} to {most}.")
        return value

    def positive(self, key: str, default: float) -> float:
        raw = self._raw.get(key)
        value = float(raw) if type(raw) is int else self._take(key, float, default)  # read_toml: it has a float64
        self._asked[key] = None
        if not (math.isfinite(value) and value > 0):
            _refuse(f"{self._where} {key} is not a positive number", "Give a finite number above 0.")
        return float(value)

    def _take(self, key: str, kind: type, default: Any) -> Any:
        self._asked[key] = None
        if key not in self._raw:
            if default is None:
                _refuse(f"{self._where} lacks {key}", f"Add {key} to {self._where}.")
            return default
        value = self._raw[key]
        if type(value) is not kind:
            names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
            _refuse(f"{self._where} {key} is not {names.get(kind, 'a table')}", "Correct its value.")
        return value


def _refuse(cause: str, remedy: str) -> NoReturn:
    raise StudyError(cause, rule="config", remedy=remedy) from None
