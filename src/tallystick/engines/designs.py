"""From a study to its design: what every party derives by itself, without the estimators' scikit-learn.

A role starts in a second because nothing here needs more than the programs. The estimators design through the same
functions, so that a study means the same at the analyst and at every role.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tallystick.algorithms.budget_split import split_note
from tallystick.algorithms.built_in import BUILT_IN, check_keywords, stepwise_programs
from tallystick.algorithms.design import Design, PublicBudget, SumDesign
from tallystick.algorithms.program import Program, Public
from tallystick.algorithms.selection.utility import design_utility
from tallystick.algorithms.user_programs.program_file import compile_program, load_program, read_program
from tallystick.core.errors import StudyError
from tallystick.engines.client_map import compile_map_of
from tallystick.engines.planning import public_budget, public_facts
from tallystick.engines.sandbox.program import sandboxed_from_text
from tallystick.engines.user_code import start_of
from tallystick.privacy.rules import check_claim
from tallystick.privacy.sum_plan import check_shares
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout

_STREAM_NOTE = (
    "a stream of {ticks} ticks: each record is in the batch of one of them, so every tick has the whole budget and the "
    "cost is the largest of theirs, not their sum"
)


def program_of(
    study: Study, read: Callable[[str], str] | None, *, sandboxed: bool = False
) -> tuple[Program | None, Study]:
    """Check the study's program: a user's, with the study that states its hash, or None for a built-in one.

    ``sandboxed``: a user's code will run in locked children only, as in every role; otherwise here, as in a simulation.
    """
    name = study.study.program
    if name.endswith(".py"):
        return _from_file(study, name, read, sandboxed_from_text if sandboxed else program_from_text)
    check_keywords(name, study.program)
    return None, study


def _from_file(
    study: Study, name: str, read: Callable[[str], str] | None, load: Callable[..., tuple[Program, str]]
) -> tuple[Program, Study]:
    if read is None:
        raise StudyError(f"the program file {name!r} is not available here")
    if study.program:
        raise StudyError(
            f"unknown key 'program.{next(iter(study.program))}'",
            rule="unknown-key",
            remedy="A program file carries its own settings as class constants.",
        )
    program, found = load(read(name), name=name)
    stated = study.study.program_hash
    if stated is not None and stated != found:
        raise StudyError(
            f"the program file {name!r} is not the one the study names",
            rule="program-hash",
            remedy=f"The file has {found}, the study says {stated}.",
        )
    return program, study.replace("study", program_hash=found)


def program_from_text(text: str, *, name: str) -> tuple[Program, str]:
    """A program file's text, checked against the allow-list, and its hash; nothing runs that was not checked."""
    file = read_program(text, name=name)
    program = load_program(file)
    program.compiled_map = compile_program(file)  # type: ignore[attr-defined]
    program.source_text = file.text  # type: ignore[attr-defined]  # what a connected federation sends along
    return program, file.hash


def design_of(study: Study, layout: FeatureLayout, program: Program | None) -> Design:
    """The design of a study whose program was checked by :func:`program_of`."""
    if program is not None:
        own, selects = program, "sums" not in study.trust_model.computes
        return designed(study, layout, lambda public, _: design_program(own, public, selects), rounds=own.rounds)
    if study.stream is not None:
        return _stream_design(study, layout, study.stream.ticks)
    return _built_in_design(study, layout, study.program)


def _built_in_design(study: Study, layout: FeatureLayout, keywords: Mapping[str, Any]) -> Design:
    built_in = BUILT_IN[study.study.program]

    def make(public: Public, budget: PublicBudget) -> Design:
        return built_in.design(keywords, public, budget)

    return designed(study, layout, make, rounds=keywords.get("rounds"))


def _stream_design(study: Study, layout: FeatureLayout, ticks: int) -> Design:
    """A built-in program with one round per tick; one that begins with rounds of another kind has steps the fewer."""
    asked = study.program.get("rounds", "auto")
    if asked not in ("auto", None, ticks):
        raise StudyError(
            f"rounds = {asked} in a stream of {ticks} ticks",
            rule="stream-rounds-are-ticks",
            remedy="Leave rounds out: a stream has one round per tick.",
        )
    if BUILT_IN[study.study.program].stepwise:
        design = _built_in_design(study, layout, {**study.program, "rounds": ticks})
        if ticks < design.rounds < 2 * ticks:
            design = _built_in_design(study, layout, {**study.program, "rounds": 2 * ticks - design.rounds})
    else:
        design = _built_in_design(study, layout, study.program)
    return _of_ticks(design, study.study.program, ticks)


def _of_ticks(design: Design, name: str, ticks: int) -> SumDesign:
    if not isinstance(design, SumDesign) or design.rounds != ticks:
        raise StudyError(
            f"{name} takes {design.rounds} round(s), the stream has {ticks} tick(s)",
            rule="stream-rounds-are-ticks",
            remedy="Run it without [stream], or use a program that learns step by step: "
            f"{stepwise_programs()}, or one of your own.",
        )
    return design


def designed(
    study: Study, layout: FeatureLayout, make: Callable[[Public, PublicBudget], Design], *, rounds: Any
) -> Design:
    """A design made from public facts alone; spends nothing and reads no record."""
    # Before anything is built from the number of rounds: a billion of them would not fit into memory.
    stated: Any = rounds if isinstance(rounds, (int, float)) and not isinstance(rounds, bool) else 1
    check_claim(study.claim(rounds=stated, allow_not_private=True))
    design = make(public_facts(study, layout), public_budget(study, rounds=int(stated) if stated is rounds else None))
    if not isinstance(design, SumDesign):
        return design
    if study.stream is not None and study.study.program not in BUILT_IN:
        ticks = study.stream.ticks  # a user's program that names no rounds has one, and as many as there are ticks
        groups = design.groups * ticks if design.rounds == 1 else design.groups
        design = _of_ticks(dataclasses.replace(design, groups=groups), study.study.program, ticks)
    if study.privacy.groups:
        design = _with_shares(design, {g.name: g.share for g in study.privacy.groups})
    if study.stream is not None:
        design = dataclasses.replace(design, notes=(*design.notes, _STREAM_NOTE.format(ticks=study.stream.ticks)))
    several = next((groups for groups in design.groups if len(groups) > 1), None)
    if several is not None:
        design = dataclasses.replace(design, notes=(*design.notes, split_note(several, why=design.split)))
    return design


def design_program(program: Program, public: Public, selects: bool = False) -> Design:
    """The design of a user's program: its groups, as many rounds as it says.

    Where the trust model does not sum, and so ``selects``, its vectors are scores and its rounds draws.
    """
    state = start_of(program, public)
    width = len(public.features) + (public.target is not None)
    compiled = compile_map_of(program, state)
    if selects and compiled is not None:
        return design_utility(program, compiled.vector_size(width, program.query(state)))
    if compiled is None:
        groups = program.groups_for(1)
    else:
        # Tried on a made-up record: a length that only showed on real ones would leave every record out.
        size = compiled.vector_size(width, program.query(state))
        groups = program.groups_for(size)
        declared = sum(g.size for g in groups)
        if declared != size:
            raise StudyError(
                f"map_in_client returns {size} numbers, the groups declare {declared}",
                rule="vector-length",
                remedy="Let the groups' sizes add up to the vector's length.",
            )
    return SumDesign(program=program, groups=(groups,) * int(program.rounds))


def _with_shares(design: SumDesign, shares: dict[str, float]) -> SumDesign:
    """PEM's epsilon-splitting: the study's shares of the budget instead of the program's own."""
    names = {g.name for groups in design.groups for g in groups}
    if set(shares) != names:
        raise StudyError(
            f"[privacy] groups names {sorted(shares)}, the program's groups are {sorted(names)}",
            rule="groups-are-the-programs",
            remedy="Give every group of the program one share; shares sum to 1.",
        )
    check_shares(list(shares.values()))
    if any({g.name for g in groups} != names for groups in design.groups):
        raise StudyError(
            f"the groups {sorted(names)} are not in one round: the program itself splits the budget over its rounds",
            rule="groups-share-a-round",
            remedy="Leave [privacy] groups out: they split the budget of one round; the plan shows the program's.",
        )
    groups = tuple(
        tuple(dataclasses.replace(g, share=shares[g.name]) for g in round_groups) for round_groups in design.groups
    )
    return dataclasses.replace(design, groups=groups, split="as the study gives it")
