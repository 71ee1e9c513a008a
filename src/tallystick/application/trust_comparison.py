"""What having no server costs: the same study under ``servers``, ``masks`` and ``gossip``, side by side.

From public facts alone, by the formula of :mod:`tallystick.privacy.expected_accuracy`. The study's own trust model has
the study's own settings. The others have usual ones: two servers of which one may collude; as many clients as the study
names, of which a tenth (one at least) may collude and a tenth may miss a round.
"""

from __future__ import annotations

import math
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.expected_accuracy import REFERENCE, expected_accuracy, local_variance, sum_variance
from tallystick.privacy.rules import WEAK_EPSILON, default_delta
from tallystick.study import Study
from tallystick.study.trust import trust_model
from tallystick.trust.masks import EVERY_PEER, honest_clients

__all__ = ["compare_trust", "compared", "comparison_words"]

_FORMULA = (
    "a linear rule learned from one mean of all records, on made-up classes that the best rule tells apart with "
    f"{REFERENCE:g} (tallystick.privacy.expected_accuracy). It compares trust models; it does not foretell this study."
)


def compare_trust(
    *,
    epsilon: float,
    records: int,
    features: int,
    delta: float | None = None,
    classes: int | None = 2,
    clients: int | None = None,
    colluding: int | None = None,
    min_clients: int | None = None,
    servers: int = 2,
    colluding_servers: int | None = None,
    neighbours: str = "replace-one",
    max_records: int = 1,
    max_institutions: int = 1,
) -> dict[str, Any]:
    """The comparison as data: noise on a mean and, where there are classes, the accuracy to expect.

    ``clients=None``: every record is a peer's own. ``classes=None``: what is learned is not a class. Where the unit is
    a person, each client clips a person's sum, and the sum's sensitivity grows with ``max_institutions``; local noise
    has a share of ε for each of its ``max_records`` at each.
    """
    if not (math.isfinite(epsilon) and epsilon > 0) or records < 1 or features < 1:
        raise StudyError("a comparison needs epsilon, records and features above 0")
    there = records if clients is None else clients
    some = max(1, there // 10) if colluding is None else colluding
    least = max(there - there // 10, min(there, 3)) if min_clients is None else min_clients
    m, t = servers, servers - 1 if colluding_servers is None else colluding_servers
    stated = delta or default_delta(records, "gaussian")
    rho = float(rho_from_epsilon(epsilon, stated))
    sensitivity = max_institutions * (2.0 if neighbours == "replace-one" else 1.0)

    def row(name: str, words: str, variance: float | None, why: str = "") -> dict[str, Any]:
        accurate = None
        if variance is not None and classes is not None:
            accurate = expected_accuracy(variance, records=records, features=features, classes=classes)
        return {
            "trust": name,
            "parties": words,
            "noise_on_mean": None if variance is None else math.sqrt(variance),
            "expected_accuracy": None if accurate is None else round(accurate, 4),
            "not_offered": why or None,
        }

    def summed(name: str, words: str, makers: int, honest: int) -> dict[str, Any]:
        if honest < (1 if name == "servers" else 2):
            return row(name, words, None, f"{max(0, honest)} honest noise maker(s) are too few")
        factor = makers / honest
        return row(name, words, sum_variance(rho=rho, records=records, factor=factor, sensitivity=sensitivity))

    rows = [
        summed("servers", f"{m} servers, {t} colluding", m, m - max(1, t)),
        summed(
            "masks",
            f"{there:,} clients and a reducer, {some:,} colluding",
            there,
            honest_clients(least, some, reducer_is_client=False),
        ),
        summed(
            f"masks, {EVERY_PEER}",
            f"{there:,} clients and nobody else, {some:,} colluding",
            there,
            honest_clients(least, some, reducer_is_client=True),
        ),
    ]
    share = epsilon / (max_records * max_institutions)
    local = "peers and nobody else, nobody trusted"
    if epsilon > WEAK_EPSILON or neighbours != "replace-one":
        why = f"epsilon above {WEAK_EPSILON:g}" if epsilon > WEAK_EPSILON else f"neighbours = {neighbours}"
        rows.append(row("gossip", local, None, why))
    else:
        rows.append(row("gossip", local, local_variance(epsilon=share, records=records, features=features)))
    return {
        "formula": _FORMULA,
        "epsilon": epsilon,
        "delta": stated,
        "records": records,
        "features": features,
        "classes": classes,
        "without_noise": None
        if classes is None
        else round(expected_accuracy(0.0, records=records, features=features, classes=classes), 4),
        "rows": rows,
    }


def compared(study: Study, *, features: int, classes: int | None) -> dict[str, Any] | None:
    """The comparison for a study; None where there is nothing to compare: no noise, a stream, no number of records."""
    records, privacy = study.data.records, study.privacy
    whole = study.claim(rounds=1, allow_not_private=True)
    if records is None or records < 1 or study.stream is not None or privacy.mechanism == "none" or features < 1:
        return None
    section: Any = study.trust
    own: dict[str, Any] = {}
    if section.model == "masks":
        own = {"clients": section.clients, "colluding": section.colluders, "min_clients": section.least}
    elif section.model == "servers":
        facts = dict(trust_model("servers").trust(section).facts)
        own = {"servers": facts["servers"], "colluding_servers": facts["colluding"]}
    if section.model not in ("masks", "gossip"):
        own["clients"] = min(records, max(10, section.min_clients or 3))
    return compare_trust(
        epsilon=whole.epsilon,
        max_records=whole.max_records,
        max_institutions=whole.max_institutions,
        delta=whole.delta,
        records=records,
        features=features,
        classes=classes,
        neighbours=privacy.neighbours,
        **own,
    )


def comparison_words(found: dict[str, Any]) -> list[str]:
    """For people: one line a trust model."""
    with_classes = found["classes"] is not None
    head = "expected accuracy" if with_classes else ""
    lines = [f"  {'the same study under other trust models':<66} {'noise on a mean':>15}   {head}".rstrip()]
    for row in found["rows"]:
        if row["noise_on_mean"] is None:
            lines.append(f"  {row['trust']:<18} {row['parties']:<47} not offered: {row['not_offered']}")
            continue
        accuracy = f"{row['expected_accuracy']:>10.3f}" if with_classes else ""
        lines.append(f"  {row['trust']:<18} {row['parties']:<47} {row['noise_on_mean']:>15.2g} {accuracy}".rstrip())
    if with_classes:
        lines.append(f"  {'no noise':<18} {'':<47} {0:>15g} {found['without_noise']:>10.3f}")
    lines.append(f"  note: {found['formula']}")
    return lines
