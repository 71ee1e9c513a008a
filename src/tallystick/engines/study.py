"""The study: what is computed, on which columns with which public bounds, with which privacy, among whom.

One TOML file, validated here; unknown keys are errors; the SHA-256 of its canonical JSON form is what every client
approves and what every share, signature and noise key is bound to. Ranges that are privacy rules (ε, δ, rounds,
servers, ``min_clients``) are left to :mod:`tallystick.privacy.rules`, so that they are refused with the rule's name.
"""

from __future__ import annotations

import difflib
import json
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest, format_hash
from tallystick.core.outside_text import DEPTH, BeyondLimits, NotReadable, read_json, read_toml
from tallystick.engines.study_limits import check_limits
from tallystick.privacy.ranges import MAX_ROUNDS, MIN_SAMPLING
from tallystick.privacy.rules import Claim, default_delta
from tallystick.privacy.schema import Missing, Schema

__all__ = ["CANONICAL_BYTES", "Study", "apply_settings", "json_schema"]

CANONICAL_BYTES = 64 << 20
"""Of the JSON form. What is proposed has 4 MiB at most; a simulation's own may be longer than its TOML."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True, strict=False)


def _is_a_number(value: Any) -> Any:
    """``epsilon = true`` is no 1, and ``"1"`` is a text: what was meant is asked, not guessed."""
    if isinstance(value, (bool, str, bytes)):
        kind = "true or false" if isinstance(value, bool) else "a text"
        raise PydanticCustomError("number", "{kind} stands where a number belongs", {"kind": kind})
    return value


Whole = Annotated[int, BeforeValidator(_is_a_number)]
Real = Annotated[float, BeforeValidator(_is_a_number)]


class GroupSection(_Section):
    """One group of coordinates and its share of the budget."""

    name: str
    share: Real


class StudySection(_Section):
    """[study]: what it is called and what it computes."""

    name: str = Field(min_length=1, max_length=100)
    version: Whole = 1
    program: str = Field(description="a built-in program's name, or the path of a program file")
    target: str | None = None
    features: tuple[str, ...] | None = Field(default=None, description="columns to learn from; all but the target")
    purpose: str = ""
    accept_noise: bool = Field(default=False, description="run even if the planner calls the study hopeless")
    program_hash: str | None = Field(default=None, description="filled in for a program file: its SHA-256")


Threshold = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), AfterValidator(abs)]
"""A finite number of standard deviations; −0.0 is 0.0, so that equal studies have equal bytes."""


class PrivacySection(_Section):
    """[privacy]: what is promised."""

    epsilon: Real = 1.0
    delta: Real | None = None
    neighbours: str = Field(default="replace-one", json_schema_extra={"enum": ["replace-one", "add-remove"]})
    mechanism: str = Field(default="gaussian", json_schema_extra={"enum": ["gaussian", "laplace", "none"]})
    unit: str = Field(default="record", json_schema_extra={"enum": ["record", "person"]})
    person: str | None = Field(default=None, description="the column that names a person, for unit = person")
    max_records: Whole = 1
    max_institutions: Whole = 1
    groups: tuple[GroupSection, ...] = ()
    sampling: Real | dict[str, Real] | None = Field(
        default=None,
        description="each round takes a record with this probability (add-remove only); or a rate per target category",
    )
    threshold: Threshold | None = Field(
        default=None,
        description="coordinates of a noisy total below so many standard deviations of their noise are set to zero: "
        "free post-processing, after which the state travels sparse",
    )

    @property
    def sampling_rate(self) -> float | None:
        """The rate that the accounting goes by: the largest, or one that is no probability, so that it is refused.

        A negative or NaN rate hidden behind a good one would be drawn as "always" (it is no unsigned number) and paid
        for at the good one.
        """
        if not isinstance(self.sampling, dict):
            return self.sampling
        wrong = [rate for rate in self.sampling.values() if not MIN_SAMPLING <= rate <= 1]
        return wrong[0] if wrong else max(self.sampling.values(), default=0.0)


class TrustSection(_Section):
    """[trust]: who adds up, and who may collude."""

    model: Literal["servers", "masks", "proxy", "parties", "gossip"] = "servers"
    servers: Whole = 2
    colluding: Whole | None = Field(default=None, description="servers that may collude; servers - 1 if left out")
    parties: Whole = 3
    min_clients: Whole | None = Field(default=None, description="fewer clients abort the round; 3 if left out")
    round_timeout_s: Real = 60


class MissingSection(_Section):
    """[data] missing: what stands for a missing value, and what becomes of it."""

    marker: str = "?"
    policy: Literal["category", "drop", "error"] = "error"


class NumberColumn(_Section):
    """A real number within public bounds; one-hot on public cut points if ``bins`` are given."""

    type: Literal["number"]
    lower: Real
    upper: Real
    bins: tuple[Real, ...] | None = None
    log: bool = False


class IntegerColumn(_Section):
    """A whole number within public bounds."""

    type: Literal["integer"]
    lower: Whole
    upper: Whole
    step: Whole = 1


class CategoryColumn(_Section):
    """One of a public list of values; ``merge`` names the category of everything else."""

    type: Literal["category"]
    values: tuple[str | int | float | bool, ...]
    merge: str | None = None


class ItemsColumn(_Section):
    """A set of items of a public vocabulary, at most ``max_per_record`` of them."""

    type: Literal["items"]
    vocabulary: tuple[str, ...]
    max_per_record: Whole


Column = Annotated[NumberColumn | IntegerColumn | CategoryColumn | ItemsColumn, Field(discriminator="type")]


class DataSection(_Section):
    """[data]: public facts about the records."""

    records: Whole | None = Field(default=None, ge=1, description="public number of records, all clients together")
    missing: MissingSection | None = None
    columns: dict[str, Column] = Field(default_factory=dict)


class StreamSection(_Section):
    """[stream]: records come in while the study runs; each is used in the one batch that its tick of a clock closes."""

    ticks: Whole = Field(ge=1, le=MAX_ROUNDS, description="batches, and so rounds of the program")
    tick_seconds: Real = Field(gt=0, le=31_622_400, description="between two ticks of the public clock")
    records_per_tick: Whole = Field(
        ge=1, description="what a batch of all clients together is expected to hold: a public number, the divisor"
    )
    time: str | None = Field(default=None, description="the column with a record's time; its arrival if left out")
    start: float | None = Field(
        default=None,
        description="when tick 1 begins: unix seconds or ISO time (UTC); the study's own start if left out",
        json_schema_extra={"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
    )

    @field_validator("start", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        return _is_a_number(value)

    @model_validator(mode="after")
    def _start_is_public(self) -> Self:
        if self.start is not None and not abs(self.start) < 1e11:
            raise ValueError("start is no time")
        if self.time is not None and self.start is None:
            raise ValueError("the column `time` needs a public `start`")
        return self


class ResultsSection(_Section):
    """[results]: who sees the released result."""

    visible_to: tuple[str, ...] = ()


class Study(_Section):
    """A whole study file."""

    study: StudySection
    program: dict[str, Any] = Field(default_factory=dict)
    privacy: PrivacySection = PrivacySection()
    trust: TrustSection = TrustSection()
    data: DataSection = DataSection()
    results: ResultsSection = ResultsSection()
    stream: StreamSection | None = None

    @classmethod
    def parse(cls, text: str, *, settings: tuple[str, ...] = ()) -> Study:
        """From TOML text, after ``section.key=value`` settings have been applied."""
        try:
            raw = read_toml(text)
        except BeyondLimits as error:
            raise StudyError(
                f"the study cannot be read: {error}", rule="study-unreadable", remedy="Write what is meant, no more."
            ) from None
        except NotReadable as error:
            raise StudyError(
                f"the study is not valid TOML: {str(error).removeprefix('it is not TOML: ')}",
                rule="study-unreadable",
                remedy="Correct the line named.",
            ) from None
        return cls.from_dict(apply_settings(raw, settings))

    @classmethod
    def from_canonical(cls, text: str | bytes) -> Study:
        """From the JSON that travels, which anybody may have written; whether it is canonical is not asked here."""
        try:
            raw = read_json(text, limit=CANONICAL_BYTES, constants=True)  # rules refuse NaN and infinity by name
        except NotReadable as error:
            raise StudyError(
                f"the study is not readable: {error}",
                rule="study-unreadable",
                remedy="Propose it with this version of tallystick.",
            ) from None
        return cls.from_dict(raw)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Study:
        """From plain tables; an unknown key is an error that names the closest known one."""
        try:
            study = cls.model_validate(raw)
        except ValidationError as error:
            raise _explain(error) from None
        except RecursionError:
            raise StudyError("the study is nested too deeply", rule="study-unreadable") from None
        check_limits(study.model_dump())
        _ = study.schema_of_data()  # bounds reversed, duplicate categories, … are found here, not in a client
        return study

    def canonical(self) -> bytes:
        """Compact JSON, every default written out, keys in the order of this module: equal studies have equal bytes.

        Columns keep the order in which the study declares them: it is the order of the encoded features.
        """
        raw = self.model_dump(mode="json")
        for key in ("sampling", "threshold"):  # studies from before these were there keep their hash
            if raw["privacy"][key] is None:
                del raw["privacy"][key]
        if raw["stream"] is None:
            del raw["stream"]
        raw["program"] = dict(sorted(raw["program"].items()))
        return json.dumps(raw, separators=(",", ":")).encode()

    @property
    def hash(self) -> bytes:
        """What clients approve."""
        return digest(b"tallystick/study/1", self.canonical())

    @property
    def printed_hash(self) -> str:
        """``sha256:<64 hex>``."""
        return format_hash(self.hash)

    @property
    def counts_are_public(self) -> bool:
        """Whether the number of records may be told at all: only where no neighbour has another number.

        Under add-remove a neighbour has one record more or less; replacing a *person* may change it too.
        """
        return self.privacy.neighbours == "replace-one" and self.privacy.unit == "record"

    def schema_of_data(self) -> Schema:
        """The declared columns."""
        columns = {name: c.model_dump(exclude_none=True) for name, c in self.data.columns.items()}
        return Schema.from_dict(columns)

    def missing_policy(self) -> Missing | None:
        """The declared policy for missing values."""
        m = self.data.missing
        return None if m is None else Missing(marker=m.marker, policy=m.policy)

    def claim(self, *, rounds: int, shares: tuple[float, ...] = (1.0,), simulation: bool = False) -> Claim:
        """The privacy claim of this study when run for ``rounds`` rounds."""
        p, t = self.privacy, self.trust
        records = self.data.records
        if records is None and self.stream is not None:
            records = self.stream.ticks * self.stream.records_per_tick
        delta = p.delta if p.delta is not None else default_delta(records, p.mechanism)
        return Claim(
            epsilon=p.epsilon,
            delta=delta,
            neighbours=p.neighbours,
            mechanism=p.mechanism,
            rounds=rounds,
            trust=t.model,
            servers=t.servers,
            colluding=t.servers - 1 if t.colluding is None else t.colluding,
            min_clients=t.min_clients,
            records=records,
            unit=p.unit,
            person=p.person if p.unit == "person" else None,
            max_records=p.max_records if p.unit == "person" else 1,
            max_institutions=p.max_institutions if p.unit == "person" else 1,
            shares=shares,
            simulation=simulation,
            sampling=p.sampling_rate,
            parallel=self.stream is not None,
        )

    def replace(self, section: str, **values: Any) -> Study:
        """A new study with some keys of one section changed."""
        raw = self.model_dump()
        raw[section] = {**(raw[section] or {}), **values}
        return Study.from_dict(raw)


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a study file."""
    schema = Study.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Tallystick study"
    return schema


def apply_settings(raw: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """``--set privacy.epsilon=0.5``: TOML values, bare words taken as strings."""
    out: dict[str, Any] = json.loads(json.dumps(raw, default=str)) if settings else raw
    for setting in settings:
        key, sign, text = setting.partition("=")
        path = key.strip().split(".")
        if not sign or not 2 <= len(path) <= DEPTH or not all(path):
            raise StudyError(f"--set {setting[:200]!r} is not of the form section.key=value")
        try:
            value = read_toml(f"x = {text.strip()}")["x"]
        except BeyondLimits as error:
            raise StudyError(f"--set {key[:200]!r}: {error}", rule="study-unreadable") from None
        except NotReadable:
            value = text.strip()
        table = out
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise StudyError(f"--set {setting[:200]!r}: {part!r} is a value, not a table")
        table[path[-1]] = value
    return out


_NAMES = {
    name
    for section in (
        Study,
        StudySection,
        PrivacySection,
        TrustSection,
        DataSection,
        ResultsSection,
        MissingSection,
        StreamSection,
    )
    for name in section.model_fields
} | {
    "type",
    "lower",
    "upper",
    "bins",
    "log",
    "step",
    "values",
    "merge",
    "vocabulary",
    "max_per_record",
    "share",
    "name",
}


def _explain(error: ValidationError) -> StudyError:
    """The first finding, as a sentence with its key."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    where = ".".join(part for part in path if part not in ("number", "integer", "category", "items")) or "the study"
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], sorted(_NAMES), n=1)
        return StudyError(
            f"unknown key {where!r}",
            rule="unknown-key",
            remedy=f"Did you mean {close[0]!r}?" if close else "Remove it; the JSON Schema lists what is known.",
        )
    if first["type"] == "missing":
        return StudyError(f"the key {where!r} is missing", rule="missing-key", remedy="Add it to the study file.")
    return StudyError(f"{where}: {first['msg']}", rule="wrong-value", remedy="See the study's JSON Schema.")
