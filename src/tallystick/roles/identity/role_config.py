"""The file a role is started with: ``tallystick server start --config role.toml``.

    [role]     name, role, consortium, certificate, key, identity (files beside this one), state (folder),
               listen = "host:port" (server, aggregator; peer, if it can be reached), workers = 1,
               engine = "local" or "spark" (client, server)
    [data]     source = "records.parquet" (or a folder of them, or a database's address with query = "SELECT …"),
               budget_epsilon, budget_delta; or dataset = "name" (registered); memory_mb         (client, peer)
    [spark]    master = "spark://host:7077", conf = { "spark.executor.memory" = "4g" }   (with engine = "spark")
    [policy]   programs, max_epsilon, allow_not_private, min_clients, default, rules               (client, peer)
    [notify]   command, email_to, …: how a steward hears of a waiting study (notify_settings) (client, peer)
    [metrics]  listen = "127.0.0.1:9101"                                           (optional)

Paths are relative to the file. An unknown key is an error, so a misspelt limit never goes unnoticed. There is no key
that seeds, scales or silences noise; a client's policy can only refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, Field, PlainValidator, StrictBool, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticCustomError

from tallystick.core.errors import StudyError
from tallystick.core.findings import Finding, Table, first_finding
from tallystick.core.identifiers import check_party_name
from tallystick.core.outside_text import TOML_BYTES, NotReadable, read_toml
from tallystick.core.readable_text import what_is_unreadable
from tallystick.data.addresses import is_address, settled_source
from tallystick.data.files import read_text
from tallystick.engines.spark.sources import settled_spark_source
from tallystick.privacy.ranges import BUDGET_DELTA, BUDGET_EPSILON
from tallystick.protocol.governance.policy import Rule, parse_rules
from tallystick.roles.identity.consortium import check_address, consortium_roles, listening_roles, reachable_roles
from tallystick.roles.identity.notify_settings import Notify, NotifyTable
from tallystick.study.trust import holding_roles

MAX_WORKERS = 256
QUERY_CHARACTERS = 20_000
DEFAULT_DATASET = "default"


def _readable(text: str) -> str:
    if not text or what_is_unreadable(text):
        raise PydanticCustomError("text", "is empty or holds control characters")
    return text


def _role(text: str) -> str:
    if text not in consortium_roles():
        _refuse(f"[role] role = {ascii(text)[:40]} is unknown", f"Roles: {', '.join(consortium_roles())}.")
    return text


_Text = Annotated[str, Field(strict=True), AfterValidator(_readable)]
_Name = Annotated[_Text, AfterValidator(check_party_name)]
_Address = Annotated[_Text, AfterValidator(check_address)]
_Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


@checked_dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})
class Policy:
    """What a client takes part in at all, per study, before anybody is asked. The defaults are the strictest use."""

    programs: tuple[_Text, ...] | None = None
    """The only programs allowed: built-in ones by name, files by hash; empty, none. None: every built-in program, and
    of files those that a rule names by hash or a person approves."""
    max_epsilon: _Positive = 1.0
    allow_not_private: StrictBool = False
    min_clients: Annotated[int, Field(strict=True, ge=2, le=1 << 31)] = 3
    default: Literal["ask", "approve"] = "ask"
    """What happens to a study within the limits that no rule decides: a person is asked, or it is approved."""
    rules: Annotated[tuple[Rule, ...], PlainValidator(lambda v: v if isinstance(v, tuple) else parse_rules(v))] = ()


class _Head(Table):
    """[role]; the further keys of those that listen and of servers below."""

    role: Annotated[_Text, AfterValidator(_role)]
    name: _Name
    consortium: _Text = "consortium.toml"
    certificate: _Text
    key: _Text
    identity: _Text
    state: _Text


class _ClientHead(_Head):
    engine: Literal["local", "spark"] = "local"


class _ListeningHead(_Head):
    listen: _Address


class _ServerHead(_ListeningHead):
    engine: Literal["local", "spark"] = "local"
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 1


class _Spark(Table):
    """[spark]: the cluster in which a client's records are mapped, or a server's shares summed."""

    master: _Text
    conf: dict[str, str] = Field(default_factory=dict)


class _Metrics(Table):
    listen: _Address


class _Data(Table):
    """[data]: records with their budget, registered when the client starts; or a data set registered before."""

    source: _Text | None = None
    query: Annotated[str, Field(strict=True, max_length=QUERY_CHARACTERS)] | None = None
    dataset: _Name | None = None
    budget_epsilon: _Positive = 1.0
    budget_delta: Annotated[_Positive, Field(lt=1)] = 1e-6
    memory_mb: Annotated[int, Field(strict=True, ge=1, le=1 << 30)] | None = None
    """Encoded records beyond this are read anew in every round; a quarter of the machine's memory, if left out."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        beside = self.model_fields_set - {"dataset", "memory_mb"}
        if self.dataset is not None and beside:
            _refuse(f"[data] of a client has no {min(beside)!r} beside dataset", "Keep the one that is meant.")
        if self.dataset is None and self.source is None:
            _refuse("[data] lacks source", "Add source to [data].")
        BUDGET_EPSILON.check("[data] budget_epsilon", self.budget_epsilon)
        BUDGET_DELTA.check("[data] budget_delta", self.budget_delta)
        return self


def _check_cluster(engine: str, spark: _Spark | None) -> None:
    if (engine == "spark") != (spark is not None):
        _refuse(
            '[role] engine = "spark" and [spark] go together, and one of them is missing',
            'Write both ([spark] master = "spark://host:7077"), or neither.',
        )


class _File(Table):
    role: _Head
    metrics: _Metrics | None = None


class _ClientFile(_File):
    role: _ClientHead
    data: _Data
    spark: _Spark | None = None
    policy: Policy = Policy()
    notify: NotifyTable | None = None

    @model_validator(mode="after")
    def _a_cluster_for_spark(self) -> Self:
        _check_cluster(self.role.engine, self.spark)
        return self


class _ReachableHead(_ClientHead):
    listen: _Address | None = None


class _PeerFile(_ClientFile):
    role: _ReachableHead


class _ListeningFile(_File):
    role: _ListeningHead


class _ServerFile(_File):
    role: _ServerHead
    spark: _Spark | None = None

    @model_validator(mode="after")
    def _a_cluster_for_spark(self) -> Self:
        _check_cluster(self.role.engine, self.spark)
        return self


def _file_of(role: Any) -> type[_File]:
    """Which keys the file of such a role has; what is no role is refused by every one of them."""
    if role in holding_roles():
        return _PeerFile if role in reachable_roles() else _ClientFile
    if role == "server":
        return _ServerFile
    return _ListeningFile if role in listening_roles() else _File


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
    data: Path | str | None = None
    """The records: a path, or the address of a database with its query."""
    dataset: str = DEFAULT_DATASET
    budget_epsilon: float = 1.0
    budget_delta: float = 1e-6
    memory_mb: int | None = None
    spark: tuple[str, dict[str, str]] | None = field(default=None, repr=False)
    """Master and conf of the cluster where records are mapped, or shares summed; None: in this process."""
    policy: Policy | None = None
    notify: Notify | None = None
    metrics: str | None = None

    @property
    def holds_records(self) -> bool:
        """Whether it is a client, or what is one in its trust model: with records, a ledger and a steward."""
        return self.role in holding_roles()


def load_role_config(path: str | Path, *, role: str | None = None) -> RoleConfig:
    """Read and check a role config; ``role`` is the one about to start, if it must be that."""
    file = Path(path).absolute()
    text = read_text(file, limit=TOML_BYTES, what="the role file", remedy="Name it: --config path/to/role.toml.")
    config = parse_role_config(text, file)
    if role is not None and config.role != role:
        _refuse(
            f"{file.name} is the config of the role {config.role!r}, not of {role!r}",
            f"Give the role file of one with the role {role!r}: --config path/to/role.toml.",
        )
    return config


def parse_role_config(text: str, path: Path) -> RoleConfig:
    """The settings in ``text``, which is or will be the content of ``path``."""
    try:
        raw = read_toml(text)
    except NotReadable as error:
        _refuse(f"{path.name} cannot be read: {error}", "Correct that line.")
    head = raw.get("role")
    role = head.get("role") if isinstance(head, dict) else None
    model = _file_of(role)
    try:
        file = model.model_validate(raw)
    except ValidationError as error:
        _explain(first_finding(error, model), role)
    folder, paths = path.parent, ("consortium", "certificate", "key", "identity", "state")
    settings = {key: folder / value if key in paths else value for key, value in file.role}
    if isinstance(file, _ClientFile):
        budget = {"budget_epsilon": file.data.budget_epsilon, "budget_delta": file.data.budget_delta}
        source = {"data": _place(file, folder)} if file.data.source else {"dataset": file.data.dataset}
        notify = None if file.notify is None else file.notify.settled(folder)
        settings |= budget | source | {"memory_mb": file.data.memory_mb, "policy": file.policy, "notify": notify}
    if isinstance(file, _ClientFile | _ServerFile):
        settings.pop("engine")
        settings["spark"] = None if file.spark is None else (file.spark.master, dict(file.spark.conf))
    return RoleConfig(path=path, metrics=None if file.metrics is None else file.metrics.listen, **settings)


def _place(file: _ClientFile, folder: Path) -> Path | str:
    """Where the records are, made absolute: a path, or an address as text."""
    data = file.data
    if file.spark is not None:
        return settled_spark_source(data.source or "", query=data.query, folder=folder)
    settled = settled_source(data.source or "", query=data.query, folder=folder)
    return settled if is_address(settled) else Path(settled)


_WORDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a table",
    "dataclass_type": "a table",
    "greater_than": "a positive number",
    "finite_number": "a positive number",
}


def _explain(found: Finding, role: Any) -> NoReturn:
    inner, key = len(found.path) > 1, found.path[-1]
    where = f"[{found.path[0]}]" if inner else "the config"
    if found.kind == "unknown":
        near = f"Did you mean {found.closest}?" if found.closest else f"Known here: {', '.join(found.known)}."
        what = f"[{key}]" if isinstance(found.value, dict) else ascii(key)[:60]
        _refuse(f"{where} of the role {role!r} has no {what}", near)
    if found.kind == "missing":
        _refuse(f"{where} lacks {key}", f"Add {key} to {where}.")
    if key.isdigit():  # a place in a list
        _refuse(f"{where} {found.path[-2]} is not a list of texts", f'Write {found.path[-2]} = ["…"].')
    if found.kind == "text":
        _refuse(f"{where} {key} {found.message}", "Write it again.")
    if found.kind in _WORDS:
        _refuse(f"{where} {key} is not {_WORDS[found.kind]}", "Correct its value.")
    allowed = found.message.removeprefix("Input should be ")
    _refuse(f"{where} {key} = {ascii(found.value)[:40]} is not possible", f"It should be {allowed}.")


def _refuse(cause: str, remedy: str) -> NoReturn:
    raise StudyError(cause, rule="config", remedy=remedy) from None
