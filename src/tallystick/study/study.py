"""The study: what is computed, on which columns with which public bounds, with which privacy, among whom.

One TOML file, validated here; unknown keys are errors; the SHA-256 of its canonical JSON form is what every client
approves and what every share, signature and noise key is bound to. Ranges that are privacy rules (ε, δ, rounds,
servers, ``min_clients``) are left to :mod:`tallystick.privacy.rules`, so that they are refused with the rule's name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError

from tallystick.core.errors import StudyError
from tallystick.core.findings import first_finding
from tallystick.core.identifiers import digest, format_hash
from tallystick.core.outside_text import DEPTH, BeyondLimits, NotReadable, read_json, read_toml
from tallystick.privacy.rules import Claim, default_delta
from tallystick.privacy.trust import Trust
from tallystick.study.columns import Missing
from tallystick.study.holders import check_holders
from tallystick.study.limits import check_limits
from tallystick.study.schema import Schema
from tallystick.study.sections import (
    DataSection,
    PrivacySection,
    ResultsSection,
    Section,
    StreamSection,
    StudySection,
    TrustSection,
)
from tallystick.study.trust import DEFAULT_TRUST, TrustModel, registered, trust_model

CANONICAL_BYTES = 64 << 20
"""Of the JSON form. What is proposed has 4 MiB at most; a simulation's own may be longer than its TOML."""


def study_digest(canonical: bytes) -> bytes:
    """The hash of a study, from its canonical form: what clients approve."""
    return digest(b"tallystick/study/1", canonical)


class Study(Section):
    """A whole study file."""

    study: StudySection
    program: dict[str, Any] = Field(default_factory=dict)
    privacy: PrivacySection = PrivacySection()
    trust: SerializeAsAny[TrustSection]
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
        return cls.from_dict(_with_settings(raw, settings))

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
            study = cls.model_validate({**raw, "trust": _trust_section(raw)})
        except ValidationError as error:
            raise _explain(error) from None
        except RecursionError:
            raise StudyError("the study is nested too deeply", rule="study-unreadable") from None
        check_limits(study.model_dump())
        schema = study.schema_of_data()  # bounds reversed, duplicate categories, … are found here, not in a client
        check_holders(study, schema)
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
        for key in ("identifier", "holders"):
            if raw["data"][key] is None:
                del raw["data"][key]
        for held in (raw["data"].get("holders") or {}).values():
            if held["people"] is None:
                del held["people"]
        if raw["trust"].get("dealer", "") is None:
            del raw["trust"]["dealer"]
        for column in raw["data"]["columns"].values():
            if column["missing"] is None:
                del column["missing"]
        raw["program"] = dict(sorted(raw["program"].items()))
        return json.dumps(raw, separators=(",", ":")).encode()

    @property
    def hash(self) -> bytes:
        """What clients approve."""
        return study_digest(self.canonical())

    @property
    def printed_hash(self) -> str:
        """``sha256:<64 hex>``."""
        return format_hash(self.hash)

    @property
    def trust_model(self) -> TrustModel:
        """The registered trust model of this study."""
        return trust_model(self.trust.model)

    @property
    def counts_are_public(self) -> bool:
        """Whether the number of records may be told at all: only where no neighbour has another number.

        Under add-remove a neighbour has one record more or less; replacing a *person* may change it too.
        """
        return self.privacy.neighbours == "replace-one" and self.privacy.unit == "record"

    def schema_of_data(self) -> Schema:
        """The declared columns."""
        return self.declared_schema

    @cached_property
    def declared_schema(self) -> Schema:
        """The same, made once: a simulation of thousands of peers asks for each of them."""
        columns = {name: c.model_dump(exclude_none=True) for name, c in self.data.columns.items()}
        return Schema.from_dict(columns)

    def person_column(self) -> str | None:
        """The column that names a person; None where the unit is the record."""
        if self.privacy.unit != "person":
            return None
        if not self.privacy.person:
            raise StudyError(
                'unit = "person" without the column that names a person', remedy='Add person = "…" under [privacy].'
            )
        return self.privacy.person

    def missing_policy(self) -> Missing | None:
        """The declared policy for missing values."""
        m = self.data.missing
        return None if m is None else Missing(marker=m.marker, policy=m.policy)

    @property
    def drops_incomplete(self) -> bool:
        """Whether records with missing values add zeros by declaration, so that how many are complete is not public."""
        policy = self.data.missing
        dropping = any(column.missing == "drop" for column in self.data.columns.values())
        return dropping or (policy is not None and policy.policy == "drop")

    @property
    def vertical(self) -> bool:
        """Whether institutions hold different columns of the same people."""
        return self.data.holders is not None

    def _trust(self) -> Trust:
        """What the trust model says; among holders of different columns with what more has to be trusted there."""
        trust = self.trust_model.trust(self.trust)
        return replace(trust, words=trust.among_holders or trust.words) if self.vertical else trust

    def claim(self, *, rounds: int, shares: tuple[float, ...] = (1.0,), allow_not_private: bool = False) -> Claim:
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
            trust=self._trust(),
            min_clients=t.min_clients,
            records=records,
            unit=p.unit,
            person=p.person if p.unit == "person" else None,
            max_records=p.max_records if p.unit == "person" else 1,
            max_institutions=p.max_institutions if p.unit == "person" else 1,
            shares=shares,
            allow_not_private=allow_not_private,
            sampling=p.sampling_rate,
            parallel=self.stream is not None,
        )

    def replace(self, section: str, **values: Any) -> Study:
        """A new study with some keys of one section changed."""
        raw = self.model_dump()
        raw[section] = {**(raw[section] or {}), **values}
        return Study.from_dict(raw)


def _with_settings(raw: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """``--set privacy.epsilon=0.5``: TOML values, bare words taken as strings."""
    out: dict[str, Any] = json.loads(json.dumps(raw, default=str)) if settings else raw
    for setting in settings:
        key, sign, text = setting.partition("=")
        path = key.strip().split(".")
        if not sign or not 2 <= len(path) <= DEPTH or not all(path):
            raise StudyError(
                f"--set {setting[:200]!r} is not of the form section.key=value",
                remedy="Write for instance --set privacy.epsilon=0.5.",
            )
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


def _trust_section(raw: dict[str, Any]) -> TrustSection:
    """[trust], read as the section of the trust model that it names."""
    given = raw.get("trust", {}) if isinstance(raw, dict) else {}
    if isinstance(given, TrustSection):
        return given
    model = trust_model(given.get("model", DEFAULT_TRUST) if isinstance(given, dict) else DEFAULT_TRUST)
    section: type[TrustSection] = model.load(model.section)
    try:
        return section.model_validate(given)
    except ValidationError as error:
        raise _explain(error, section, "trust") from None


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a study file."""
    schema = Study.model_json_schema()
    models = {m.name: m.load(m.section).model_json_schema() for m in registered()}
    schema["$defs"]["TrustSection"] = {"oneOf": list(models.values()), "discriminator": {"propertyName": "model"}}
    schema["$defs"]["DataSection"]["properties"]["identifier"]["anyOf"].insert(0, {"type": "string"})  # its column
    schema["required"].remove("trust")  # the default trust model, if left out
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Tallystick study"
    return schema


_WANTED = {
    "tuple_type": 'a list belongs here, such as ["no", "yes"]',
    "list_type": "a list belongs here",
    "dict_type": "a table belongs here",
    "string_type": "a text belongs here, in quotes",
    "bool_type": "true or false belongs here",
}


def _explain(error: ValidationError, model: type[Section] = Study, *section: str) -> StudyError:
    """The first finding, as a sentence with its key."""
    found = first_finding(error, model)
    path = [*section, *(p for p in found.path if p not in ("number", "integer", "category", "items"))]
    where = ".".join(path) or "the study"
    if found.kind == "unknown":
        hint = (
            f"Did you mean {found.closest!r}?" if found.closest else "Remove it; the JSON Schema lists what is known."
        )
        return StudyError(f"unknown key {where!r}", rule="unknown-key", remedy=hint)
    if found.kind == "missing":
        return StudyError(f"the key {where!r} is missing", rule="missing-key", remedy="Add it to the study file.")
    return StudyError(
        f"{where}: {_WANTED.get(found.kind, found.message)}",
        rule="wrong-value",
        remedy="Correct it: the JSON Schema (tallystick schema) says what it may be.",
    )
