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


def _is_a_number_or_truth(value: Any) -> Any:
    if not isinstance(value, (bool, int, float)):
        raise PydanticCustomError("number", "true, false or a number belongs here", {})
    return value if isinstance(value, bool) else float(value)


Whole = Annotated[int, BeforeValidator(_is_a_number)]
Real = Annotated[float, BeforeValidator(_is_a_number)]


class GroupSection(Section):
    """One group of coordinates and its share of the budget."""

    name: str = Field(description="a group of the program's coordinates")
    share: Real = Field(description="of rho, or of epsilon for laplace; the shares of all groups sum to 1")


class StudySection(Section):
    """[study]: what it is called and what it computes."""

    name: str = Field(min_length=1, max_length=100, description="what people call it")
    version: Whole = Field(default=1, description="a new run of a study is a new version, with a new charge")
    program: str = Field(description="a built-in program's name, or the path of a program file")
    target: str | None = Field(default=None, description="the column to predict, for programs that have one")
    features: tuple[str, ...] | None = Field(default=None, description="columns to learn from; all but the target")
    purpose: str = Field(default="", description="what for, in the words a data steward reads")
    accept_noise: bool = Field(default=False, description="run even if the planner calls the study hopeless")
    program_hash: str | None = Field(default=None, description="filled in for a program file: its SHA-256")


Threshold = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), AfterValidator(abs)]
"""A finite number of standard deviations; −0.0 is 0.0, so that equal studies have equal bytes."""


class PrivacySection(Section):
    """[privacy]: what is promised."""

    epsilon: Real = Field(
        default=1.0, description="how much one record may change the odds of any outcome, as a logarithm"
    )
    delta: Real | None = Field(
        default=None, description="the probability beyond that; min(1e-6, 1/(10·records)) if left out, 0 for laplace"
    )
    neighbours: str = Field(
        default="replace-one",
        description="what two data sets that must look alike differ in",
        json_schema_extra={"enum": ["replace-one", "add-remove"]},
    )
    mechanism: str = Field(
        default="gaussian",
        description="the noise; exponential where parties select; subset where peers publish records (left out there: "
        "the randomiser's); none is for simulations, or for studies that every client's own file allows",
        json_schema_extra={"enum": ["gaussian", "laplace", "exponential", "subset", "none"]},
    )
    unit: str = Field(
        default="record", description="whose influence is bounded", json_schema_extra={"enum": ["record", "person"]}
    )
    person: str | None = Field(default=None, description="the column that names a person, for unit = person")
    max_records: Whole = Field(default=1, description="of one person at one institution; their sum is clipped")
    max_institutions: Whole = Field(default=1, description="at which one person may have records")
    groups: tuple[GroupSection, ...] = Field(default=(), description="shares of the budget, for programs with groups")
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

    marker: str = Field(default="?", description="the text of a missing value, beside empty cells")
    policy: Literal["category", "drop", "error"] = Field(
        default="error",
        description="a category of its own, or the record adds zeros; error is reported by checks and simulations, and "
        "adds zeros in a deployed study",
    )


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


_MISSING = Field(
    default=None,
    description='what a missing value means: "drop", "flag" (a column of its own), "none" (there is none), for numbers '
    '"centre" (the middle of the bounds), or a value of the column; left out: as [data] missing says',
)


class NumberColumn(Section):
    """A real number within public bounds; one-hot on public cut points if ``bins`` are given."""

    type: Literal["number"]
    lower: Real = Field(description="public; smaller values are clamped to it")
    upper: Real = Field(description="public; larger values are clamped to it")
    bins: tuple[Real, ...] | None = Field(default=None, description="public cut points: one 0/1 column for each bin")
    log: Annotated[bool | float, BeforeValidator(_is_a_number_or_truth)] = Field(
        default=False,
        description="on a logarithmic scale between the bounds; a number s: that of log(1 + s·(x - lower))",
    )
    missing: Annotated[str | bool | float | None, AfterValidator(_float)] = _MISSING


class IntegerColumn(Section):
    """A whole number within public bounds."""

    type: Literal["integer"]
    lower: Whole = Field(description="public; smaller values are clamped to it")
    upper: Whole = Field(description="public; larger values are clamped to it")
    step: Whole = Field(default=1, description="between two values that occur")
    missing: str | bool | int | None = _MISSING


class CategoryColumn(Section):
    """One of a public list of values; ``merge`` names the category of everything else."""

    type: Literal["category"]
    values: tuple[str | int | float | bool, ...] = Field(description="the public list")
    merge: str | None = Field(default=None, description="the category of everything that is not listed")
    missing: str | bool | int | float | None = _MISSING


class ItemsColumn(Section):
    """A set of items of a public vocabulary, at most ``max_per_record`` of them."""

    type: Literal["items"]
    vocabulary: tuple[str, ...] = Field(description="the public list of items")
    max_per_record: Whole = Field(description="longer baskets are cut, in the order of the vocabulary")
    missing: str | None = _MISSING


Column = Annotated[NumberColumn | IntegerColumn | CategoryColumn | ItemsColumn, Field(discriminator="type")]


class IdentifierSection(Section):
    """[data] identifier: the column by which institutions with different columns find the people they share."""

    column: str = Field(min_length=1, description="it has this name at every institution")
    case: Literal["exact", "fold"] = Field(default="exact", description="fold: A-1 and a-1 are the same person")
    blanks: Literal["error", "skip"] = Field(
        default="error", description="a row without an identifier is an error, or is left out"
    )
    duplicates: Literal["error", "skip"] = Field(
        default="error",
        description="an identifier that is there twice at one institution is an error, or all its rows are left out",
    )


def _identifier(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


class HolderSection(Section):
    """[data.holders.NAME]: the columns that one institution holds, where institutions hold different ones."""

    columns: tuple[str, ...] = Field(description="declared under [data.columns]; no two holders have the same")
    norm: Real | None = Field(
        default=None, description="the largest length of the encoded columns of one record there; longer are shortened"
    )
    people: Whole | None = Field(
        default=None,
        ge=1,
        description="between real institutions: the people its data set names at most; so long is the list it shows",
    )


class DataSection(Section):
    """[data]: public facts about the records."""

    records: Whole | None = Field(default=None, ge=1, description="public number of records, all clients together")
    missing: MissingSection | None = Field(default=None, description="for columns that do not say it themselves")
    columns: dict[str, Column] = Field(default_factory=dict, description="one entry a column; others are not read")
    identifier: Annotated[IdentifierSection | None, BeforeValidator(_identifier)] = Field(
        default=None,
        description="for holders: the column that names a person, or a table that says how it is compared",
    )
    holders: dict[str, HolderSection] | None = Field(
        default=None, description="where institutions hold different columns of the same people: who holds which"
    )


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

    visible_to: tuple[str, ...] = Field(default=(), description="analysts; everybody gets the privacy receipt")
