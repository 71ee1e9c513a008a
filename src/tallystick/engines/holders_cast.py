"""Whether a study among institutions with different columns can be run by the parties of a consortium.

What a simulation does without, because one person holds all frames, is asked for here: everybody whose columns are
needed is a client, and must be there; an identifier tells people apart; each list has a length; where products of
columns are needed a dealer is named.
"""

from __future__ import annotations

from tallystick.algorithms.design import Design
from tallystick.core.errors import StudyError
from tallystick.protocol.members import Cast
from tallystick.study import Study

MOST_PEOPLE = 10_000_000
"""In a list, and in rows that are multiplied: a list of so many is 330 MB, in the memory of every institution."""
MOMENTS = "joint moments"
"""The kind of designs for which masks are dealt."""


def check_holders_cast(study: Study, design: Design, cast: Cast) -> None:
    """Refuse what cannot be, by name, before anything is read or charged."""
    holders, named = study.data.holders, getattr(study.trust, "dealer", None)
    if named is not None and design.kind != MOMENTS:
        raise StudyError(
            f"the study names the dealer {named!r}, and nothing in it is dealt",
            rule="dealer-is-named",
            remedy="Leave dealer out under [trust].",
        )
    if holders is None:
        return
    if set(holders) != set(cast.clients):
        raise StudyError(
            f"the study's columns are at {', '.join(holders)}, and the consortium's institutions are "
            f"{', '.join(cast.clients)}",
            rule="holders-are-the-institutions",
            remedy="Name each client of the consortium, and nobody else, under [data.holders].",
        )
    if study.trust.min_clients != len(holders):
        raise StudyError(
            f"{len(holders)} institutions hold columns, and a round asks for "
            f"{'three' if study.trust.min_clients is None else study.trust.min_clients}",
            rule="holders-take-part",
            remedy=f"Without one of them there is no record. Set min_clients = {len(holders)} under [trust].",
        )
    if cast.coordinator != cast.members.board:
        raise StudyError(
            f"institutions that look for the people they share are passed on by {cast.members.board}, who keeps the "
            f"notice board, and {cast.coordinator} coordinates the study",
            rule="coordinator-passes-on",
            remedy="Use a trust model whose coordinator keeps the consortium's notice board.",
        )
    if design.kind == MOMENTS and cast.dealer is None:
        there = ", ".join(cast.members.of(cast.model.dealer)) or "nobody yet: tallystick consortium enrol"
        raise StudyError(
            "no dealer of the consortium is named, and products of columns at two institutions need its masks",
            rule="dealer-is-named",
            remedy=f'Set dealer = "…" under [trust]: a party with no other part in the study. Dealers are: {there}.',
        )
    _check_alignment(study)


def _check_alignment(study: Study) -> None:
    stated = [study.data.records or 0, *(held.people or 0 for held in (study.data.holders or {}).values())]
    if max(stated) > MOST_PEOPLE:
        raise StudyError(
            f"{max(stated):,} people are more than institutions align and multiply in memory",
            rule="people-fit-in-memory",
            remedy=f"State {MOST_PEOPLE:,} or fewer, as records under [data] and as people under [data.holders].",
        )
    if study.data.identifier is None:
        raise StudyError(
            "no column says which records of two institutions are the same person's",
            rule="identifier-is-named",
            remedy='Add identifier = "…" under [data]: a column that each of them has.',
        )
    for name, held in (study.data.holders or {}).items():
        if held.people is None:
            raise StudyError(
                f"how many people {name!r} names at most is not stated",
                rule="lists-have-lengths",
                remedy=f"Add people = … under [data.holders.{name}]. The list that it shows the others, blinded, is "
                "exactly so long: a shorter one is filled up, a longer one is refused.",
            )
