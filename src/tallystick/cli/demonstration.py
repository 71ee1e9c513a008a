"""``tallystick demo``: the whole story on this machine, in under a minute and without a download.

Ten institutions hold parts of an invented census. Together they train a model of who earns above 50K; one of them
misses some rounds. What comes out is shown beside the model nobody could have trained, and beside what it cost.
"""

from __future__ import annotations

import time
import tomllib
from typing import Any

from tallystick.cli.progress import round_progress
from tallystick.cli.simulation import DEMO_CLIENTS, describe_result, evaluate_split, result_document, split_source
from tallystick.data.examples import census, census_schema
from tallystick.data.partitions import even, holdout_split, permutation
from tallystick.data.sources import read_table
from tallystick.engines.federation import Federation
from tallystick.engines.study import Study
from tallystick.estimators.from_study import estimator_for

__all__ = ["demo", "describe"]

_STUDY = """
[study]
name = "income, an invented census"
program = "logistic_regression"
target = "income"
purpose = "the demonstration: who earns above 50K"
[privacy]
epsilon = 1.0
delta = 1e-6
[trust]
servers = 3
colluding = 1
[data]
missing = { marker = "?", policy = "category" }
"""


def demo(*, seed: int | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run it; the operating system's randomness unless a seed is given."""
    raw = tomllib.loads(_STUDY)
    raw["data"]["columns"] = census_schema().to_dict()
    study = Study.from_dict(raw)
    estimator, study = estimator_for(study)
    table = read_table(census())
    train, test = holdout_split(table.num_rows, 0.1, split_source(seed, b"split"))
    order = permutation(len(train), split_source(seed, b"partition"))
    parts = even(len(train), DEMO_CLIENTS, order)
    federation = Federation.simulate(
        [table.take(train[p]) for p in parts],
        schema=study.schema_of_data(),
        names=[f"institution-{i + 1:02d}" for i in range(DEMO_CLIENTS)],
        servers=study.trust.servers,
        colluding=study.trust.colluding,
        seed=seed,
        drop=0.02,
    )
    started = time.perf_counter()
    with round_progress(f"{DEMO_CLIENTS} institutions, 3 servers, 1 aggregator") as progress:
        estimator.fit_study(federation, study, progress=None if quiet else progress)
    seconds = time.perf_counter() - started
    evaluation = {"method": "holdout", "fraction": 0.1}
    evaluation |= evaluate_split(estimator, study, table.take(train), table.take(test))
    simulation = {"seed": seed, "records": table.num_rows, "not_for_release": True, "evaluation": evaluation}
    return result_document(estimator, seconds, kind="simulation", simulation=simulation)


def describe(result: dict[str, Any]) -> str:
    """The story in words."""
    missed = sum(len(d["names"]) for d in result["participants"]["dropped"])
    rounds = result["cost"]["rounds"]
    head = [
        f"{DEMO_CLIENTS} institutions, {result['simulation']['records']:,} invented records; none left its owner.",
        f"They summed in secret {rounds} times; {missed} times one of them was missing, at no cost to the others.",
        "",
    ]
    model = result["model"]
    ranked = sorted(zip(model["coef"][0], model["features"]), key=lambda pair: -abs(pair[0]))[:6]
    tail = ["", "What the model found (strongest coefficients, log-odds of >50K):"]
    tail += [f"  {value:+.2f}  {name}" for value, name in ranked]
    return "\n".join([*head, describe_result(result), *tail])
