"""``tallystick bench quantiles``: what a median costs computing parties, their clients, and a search by counts.

``draw-*``: the online phase of one median to full accuracy, from the parties' shares of the ranks to the opened place.
Each party is a process of its own, with mutual TLS on 127.0.0.1, its seals and its machine as deployed; the fastest of
a few draws counts, because machines are shared. The question is the one the product plans for these records, at ε = 1:
1,000 cells of the window that noisy counts have left, or 131,072 cells of the whole domain (half as many with six
parties, a quarter with ten; ``--quick``: 4,096). ``-wan`` goes through a relay
that holds every byte back: 100 ms round trip, 100 Mbit/s. ``input-*``: shares of clients with one value each, through
the parties' machines and spool files (``share_intake``). ``counts-*``: a search by counts (``quantile_counts``). Draws
have no reference: what MPyC took on another machine is told in docs/results/quantiles.md.
"""

from __future__ import annotations

from typing import Any

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.design import SelectionDesign
from tallystick.bench.draws import Drawers, Drawn, fastest
from tallystick.bench.measuring import row
from tallystick.bench.quantile_counts import counts
from tallystick.bench.share_intake import take_in
from tallystick.bench.slow_links import WAN
from tallystick.core.errors import LocalProtocolError
from tallystick.engines.planning import layout_of, public_budget, public_facts
from tallystick.privacy.draws import DrawRound
from tallystick.protocol.selection import Question
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of

__all__ = ["planned_questions", "rows", "some_totals"]

_DOMAIN, _QUICK_DOMAIN = 10**6, 4096
_WHOLE = 500
"""Records so few that the draw is over the whole domain."""


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """Draws by 3, 6 and 10 parties, over a slow network, by the number of records; the input phase; counts."""
    repeat, records = (1, 10**4) if quick else (5, 10**6)
    window, domain = planned_question(records), _QUICK_DOMAIN if quick else _DOMAIN
    table = []
    for parties in (3,) if quick else (3, 6, 10):
        whole = planned_question(_WHOLE, domain, parties=parties)
        with Drawers(parties) as drawers:
            for question, n in ((window, records), (whole, _WHOLE)):
                drawn = fastest(drawers, question, some_totals(question, n), repeat)
                table.append(_drawn(f"draw-{parties}-{question.cells}", drawn))
            if parties == 3:
                table += _by_records(drawers, (3, 4) if quick else (3, 4, 5, 6), repeat)
    whole = planned_question(_WHOLE, domain)
    with Drawers(3, network=WAN) as drawers:
        for question, n in ((window, records),) if quick else ((window, records), (whole, _WHOLE)):
            totals = some_totals(question, n)
            drawn = drawers.select(question, totals) if quick else fastest(drawers, question, totals, 2)
            table.append(_drawn(f"draw-3-{question.cells}-wan", drawn))
    table += _input(200 if quick else 20_000)
    return [*table, *counts(quick)]


def planned_questions(
    records: int, domain: int = _DOMAIN, epsilon: float = 1.0, *, parties: int = 3, **program: Any
) -> list[Question]:
    """What the parties are asked for the median of an integer column, draw by draw, as the product plans it."""
    study = Study.from_dict(
        {
            "study": {"name": "bench", "program": "quantiles"},
            "program": {"q": [0.5], "column": ["x"], "method": "exponential", **program},
            "privacy": {"epsilon": epsilon, "mechanism": "exponential"},
            "trust": {"model": "parties", "parties": parties},
            "data": {"records": records, "columns": {"x": {"type": "integer", "lower": 0, "upper": domain - 1}}},
        }
    )
    public = public_facts(study, layout_of(study))
    design = BUILT_IN["quantiles"].design(study.program, public, public_budget(study))
    if not isinstance(design, SelectionDesign):
        raise LocalProtocolError("the median is not drawn")
    plan = design.plan(study.claim(rounds=design.rounds))
    drawn = [number for number, r in enumerate(plan.rounds, start=1) if isinstance(r, DrawRound)]
    asked = [question_of(study, plan, number) for number in drawn]
    return [question for question in asked if isinstance(question, Question)]


def planned_question(records: int, domain: int = _DOMAIN, *, parties: int = 3) -> Question:
    """The one draw of a median."""
    (question,) = planned_questions(records, domain, parties=parties)
    return question


def some_totals(question: Question, records: int) -> list[int]:
    """So many records, spread evenly: what a draw costs does not depend on where they are."""
    each, more = divmod(records, question.values)
    return [each + (cell < more) for cell in range(question.values)]


def _drawn(case: str, drawn: Drawn) -> dict[str, Any]:
    found = row(case, round(drawn.seconds, 3), f"s, {drawn.layers} layers", None, None)
    return found | {
        "layers": drawn.layers,
        "bytes_per_party": drawn.bytes,
        "cpu_seconds": round(drawn.cpu, 3),
        "note": f"{case}: {drawn.layers} layers of messages, {drawn.bytes / 1e6:.2f} MB sent by a party",
    }


def _by_records(drawers: Drawers, decades: tuple[int, ...], repeat: int) -> list[dict[str, Any]]:
    """The same 1,000 cells, with totals of ever more records."""
    question = planned_question(10 ** decades[-1])
    return [
        _drawn(f"draw-3-records-1e{d}", fastest(drawers, question, some_totals(question, 10**d), repeat))
        for d in decades
    ]


def _input(clients: int) -> list[dict[str, Any]]:
    taken = take_in(clients, 1000)
    note = (
        f"input: {clients} clients, {taken.megabytes:.0f} MB to a party; making the shares took the clients "
        f"{1e6 * taken.clients / clients:.0f} µs each"
    )
    return [
        row("input-accepted", round(clients / taken.accepting), "clients/s, one party", None, None) | {"note": note},
        row("input-summed", round(clients / taken.summing), "clients/s, one party", None, None),
    ]
