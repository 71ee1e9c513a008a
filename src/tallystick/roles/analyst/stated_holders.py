"""Who holds which columns, as an analyst states it to a consortium: nobody here can look at the institutions' tables.

It is checked when the analyst connects, against the consortium's own parties, so that what is missing is asked for
before an estimator is fitted, and with the lines to paste.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.design import Design
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import did_you_mean
from tallystick.engines.held_apart import blocks_of
from tallystick.engines.holders_cast import MOMENTS
from tallystick.protocol.members import Cast
from tallystick.study import Study
from tallystick.study.columns import Missing
from tallystick.study.schema import Schema

KEYS = ("columns", "people", "norm")
"""Of one institution, as under [data.holders.NAME]."""


@dataclass(frozen=True)
class StatedHolders:
    """Which columns are at whom, how many people each names at most, and the column that names them."""

    holders: Mapping[str, Mapping[str, Any]]
    identifier: str | Mapping[str, str]

    @classmethod
    def of(cls, holders: Any, identifier: Any, clients: Sequence[str], schema: Schema | None) -> StatedHolders:
        """What was passed to ``connect``; whatever is missing is named, with the lines to paste."""
        if not isinstance(holders, Mapping) or set(holders) != set(clients):
            named = ", ".join(map(str, holders)) if isinstance(holders, Mapping) else f"a {type(holders).__name__}"
            raise StudyError(
                f"the columns are said to be at {named or 'nobody'}, and the consortium's institutions are "
                f"{', '.join(clients)}",
                rule="holders-are-the-institutions",
                remedy=f"Name each of them, and nobody else: {example(clients)}.",
            )
        for name, held in holders.items():
            _check_held(name, held)
            if schema is not None:
                for column in held["columns"]:
                    schema.column(column, f"column of {name!r},")
        if not isinstance(identifier, (str, Mapping)) or not identifier:
            raise StudyError(
                "no column says which records of two institutions are the same person's",
                rule="identifier-is-named",
                remedy='Add identifier="id" to connect(…), or whatever column each of them has; a table says how it is '
                'compared: identifier={"column": "id", "case": "fold", "blanks": "skip", "duplicates": "skip"}.',
            )
        return cls(holders, identifier)

    def data(
        self, schema: Schema, *, target: str | None, features: Sequence[str] | None, missing: Missing | None
    ) -> dict[str, Any]:
        """The keys of [data] that say it. A norm that is not stated follows from the schema, as in a simulation."""
        norms = {name: held["norm"] for name, held in self.holders.items() if held.get("norm") is not None}
        blocks = blocks_of(
            {name: held["columns"] for name, held in self.holders.items()},
            schema,
            target=target,
            features=features,
            norms=norms,
            missing=missing,
        )
        for name, block in blocks.items():
            block["people"] = self.holders[name]["people"]
        named = dict(self.identifier) if isinstance(self.identifier, Mapping) else self.identifier
        return {"identifier": named, "holders": blocks}


def example(clients: Sequence[str]) -> str:
    """What to paste, for these institutions."""
    blocks = ", ".join(f'"{name}": {{"columns": ["…"], "people": …}}' for name in clients)
    return f"holders={{{blocks}}}"


def check_named(study: Study, design: Design, cast: Cast) -> None:
    """That holders and dealer are passed to ``connect`` where the program needs them, before anybody is asked."""
    if design.kind == MOMENTS and study.vertical and cast.dealer is None:
        there = cast.members.of(cast.model.dealer)
        raise StudyError(
            "no dealer is named, and products of columns at two institutions need its masks",
            rule="dealer-is-named",
            remedy=f'Add dealer="{there[0]}" to connect(…): a party with no other part in the study.'
            if there
            else "The consortium has none yet: tallystick consortium enrol NAME --role dealer.",
        )


def check_dealer(dealer: str, dealers: Sequence[str], model: str) -> None:
    """That a dealer that is named is one of the consortium's, for this trust model."""
    if dealer not in dealers:
        raise StudyError(
            f"{dealer!r} is no dealer of the consortium for trust = {model!r}",
            rule="dealer-is-named",
            remedy=f"Dealers are: {', '.join(dealers)}."
            if dealers
            else 'Leave dealer out, or use trust="servers" and enrol one: tallystick consortium enrol NAME --role '
            "dealer.",
        )


def _check_held(name: str, held: Any) -> None:
    """The table of one institution."""
    if not isinstance(held, Mapping):
        raise StudyError(
            f"what {name!r} holds is a {type(held).__name__}, not a table",
            rule="every-column-has-a-holder",
            remedy=f'Write "{name}": {{"columns": ["…"], "people": …}}.',
        )
    for key in held:
        if key not in KEYS:
            raise StudyError(
                f"unknown key {key!r} of {name!r}",
                rule="unknown-key",
                remedy=f"Keys are: {', '.join(KEYS)}.{did_you_mean(str(key), KEYS)}",
            )
    columns = held.get("columns")
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise StudyError(
            f"which columns are at {name!r} is not stated",
            rule="every-column-has-a-holder",
            remedy=f'Write "{name}": {{"columns": ["…"], …}}: names of the schema.',
        )
    if held.get("people") is None:
        raise StudyError(
            f"how many people {name!r} names at most is not stated",
            rule="lists-have-lengths",
            remedy=f'Add "people": … to "{name}". The list that it shows the others, blinded, is exactly so long: a '
            "shorter one is filled up, a longer one is refused.",
        )
