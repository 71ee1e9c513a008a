"""The slides' figure of running time: 3, 6 and 10 parties, |U| = 10^5 … 10^7, three weight schemes, 10^6 records.

Timed is what the parties do together: every draw of a median, one after the other, each party a process of its own over
mutual TLS (:mod:`tallystick.bench.draws`), on this machine alone and through a relay with 100 ms round trip and 100
Mbit/s. Recursive subranges draw once for each digit; our default draws once. What comes before a draw, the clients'
shares, is the input phase, and is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pem_tables import read_table, write_table
from tallystick.bench.draws import Drawers, Drawn
from tallystick.bench.quantiles import planned_questions, some_totals
from tallystick.bench.slow_links import WAN
from tallystick.protocol.selection import Question

__all__ = ["NETWORKS", "SCHEMES", "records_table", "time_table"]

RECORDS = 10**6
_TIMES = 7
NETWORKS = {"loopback": None, "100 ms, 100 Mbit/s": WAN}
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "one draw (default), ε = 1": {},
    "subranges, ln 2 a step": {"epsilon": 12.0, "method": "subranges", "weights": "ln2"},  # under replace-one 1.39 each
    "subranges, ln 2 / 2^d, ε = 1": {"method": "subranges", "weights": "ln2/2^d"},
    "subranges, general, ε = 1": {"method": "subranges", "weights": "epsilon"},
}


def time_table(path: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    """Every cell that is not in the file already is measured and added to it."""
    table = read_table(path) if path is not None and path.is_file() else []
    done = {(r["network"], r["parties"], r["scheme"], r["domain"]) for r in table}
    for network, between in list(NETWORKS.items())[: 1 if quick else None]:
        for parties in (3,) if quick else (3, 6, 10):
            left = [
                (scheme, program, domain)
                for domain in ((10**5,) if quick else (10**5, 10**6, 10**7))
                for scheme, program in SCHEMES.items()
                if (network, parties, scheme, domain) not in done
            ]
            if not left:
                continue
            with Drawers(parties, network=between) as drawers:
                for scheme, program, domain in left:
                    questions = planned_questions(RECORDS, domain, parties=parties, **program)
                    drawn = _median(drawers, questions, repeat=1 if quick else 5 if between is None else 1)
                    table.append(_row(network, parties, scheme, domain, drawn))
                    if path is not None:
                        write_table(path, table)
    return table


def records_table(path: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    """One draw over the same 1,000 cells, with totals of 10^3 to 10^6 records: its time does not depend on them."""
    table = read_table(path) if path is not None and path.is_file() else []
    done = {(r["parties"], r["records"]) for r in table}
    for parties in (3,) if quick else (3, 6, 10):
        left = [10**d for d in ((3, 4) if quick else (3, 4, 5, 6)) if (parties, 10**d) not in done]
        if not left:
            continue
        (question,) = planned_questions(RECORDS, parties=parties)
        with Drawers(parties) as drawers:
            drawers.select(question, some_totals(question, RECORDS))
            drawn: dict[int, list[Drawn]] = {records: [] for records in left}
            for _ in range(1 if quick else _TIMES):  # in turns, so that a busy moment meets all of them
                for records in left:
                    drawn[records].append(drawers.select(question, some_totals(question, records)))
        for records, times in drawn.items():
            best = min(times)
            row = {"parties": parties, "records": records, "seconds": best.seconds, "cpu_seconds": best.cpu}
            table.append(row | {"layers": best.layers, "megabytes_per_party": best.bytes / 1e6})
        if path is not None:
            write_table(path, table)
    return table


def _median(drawers: Drawers, questions: Sequence[Question], repeat: int) -> list[Drawn]:
    """The draws of one median; the fastest of a few times, after a draw that warms up."""
    totals = [some_totals(question, RECORDS) for question in questions]
    drawers.select(questions[0], totals[0])
    times = [[drawers.select(question, total) for question, total in zip(questions, totals)] for _ in range(repeat)]
    return min(times, key=lambda drawn: sum(d.seconds for d in drawn))


def _row(network: str, parties: int, scheme: str, domain: int, drawn: Sequence[Drawn]) -> dict[str, Any]:
    return {
        "network": network,
        "parties": parties,
        "scheme": scheme,
        "domain": domain,
        "draws": len(drawn),
        "seconds": sum(d.seconds for d in drawn),
        "cpu_seconds": sum(d.cpu for d in drawn),
        "layers": sum(d.layers for d in drawn),
        "megabytes_per_party": sum(d.bytes for d in drawn) / 1e6,
    }
