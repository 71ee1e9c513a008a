"""The sections of a study file. Ranges that are privacy rules are left to :mod:`tallystick.privacy.rules`, by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from tallystick.privacy.ranges import MAX_ROUNDS, MIN_SAMPLING


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True, strict=False)


def _is_a_number(value: Any) -> Any:
    """``epsilon = true`` is no 1, and ``"1"`` is a text: what was meant is asked, not guessed."""
    if isinstance(value, (bool, str, bytes)):
        kind = "true or false" if isinstance(value, bool) else "a text"
        raise PydanticCustomError("number", "{kind} stands where a number belongs", {"kind": kind})
    return value


Whole = Annotated[int, BeforeValidator(_is_a_number)]
Real = Annotated[float, BeforeValidator(_is_a_number)]


class GroupSection(Section):
    """One group of coordinates and its share of the budget."""

    name: str
    share: Real


class StudySection(Section):
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


class PrivacySection(Section):
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


class TrustSection(Section):
    """[trust]: who adds up, and who may collude. Each trust model has its own, with at least these keys.

    They are declared by each model for itself, since their order is part of every study's hash.
    """

    model: str

    if TYPE_CHECKING:
        min_clients: int | None
        round_timeout_s: float


class MissingSection(Section):
    """[data] missing: what stands for a missing value, and what becomes of it."""

    marker: str = "?"
    policy: Literal["category", "drop", "error"] = "error"


class NumberColumn(Section):
    """A real number within public bounds; one-hot on public cut points if ``bins`` are given."""

    type: Literal["number"]
    lower: Real
    upper: Real
    bins: tuple[Real, ...] | None = None
    log: bool = False


class IntegerColumn(Section):
    """A whole number within public bounds."""

    type: Literal["integer"]
    lower: Whole
    upper: Whole
    step: Whole = 1


class CategoryColumn(Section):
    """One of a public list of values; ``merge`` names the category of everything else."""

    type: Literal["category"]
    values: tuple[str | int | float | bool, ...]
    merge: str | None = None


class ItemsColumn(Section):
    """A set of items of a public vocabulary, at most ``max_per_record`` of them."""

    type: Literal["items"]
    vocabulary: tuple[str, ...]
    max_per_record: Whole


Column = Annotated[NumberColumn | IntegerColumn | CategoryColumn | ItemsColumn, Field(discriminator="type")]


class DataSection(Section):
    """[data]: public facts about the records."""

    records: Whole | None = Field(default=None, ge=1, description="public number of records, all clients together")
    missing: MissingSection | None = None
    columns: dict[str, Column] = Field(default_factory=dict)


class StreamSection(Section):
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


class ResultsSection(Section):
    """[results]: who sees the released result."""

    visible_to: tuple[str, ...] = ()
