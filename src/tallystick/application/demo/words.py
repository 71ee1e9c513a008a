"""The demonstration's result in words."""

from __future__ import annotations

from typing import Any

from tallystick.application.demo.demonstration import INSTITUTIONS, SERVERS


def describe(result: dict[str, Any]) -> str:
    """The story in words."""
    shown, cost, privacy = result["demonstration"], result["cost"], result["privacy"]
    scores, killed = shown["evaluation"], shown["killed"]
    institutions = [n for party, n in shown["bytes_sent"].items() if party.startswith("institution") and n]
    lines = [
        f"{INSTITUTIONS} institutions, {SERVERS} servers and an aggregator: {shown['processes']} processes over mutual "
        f"TLS on this machine.",
        f"{shown['records']:,} invented records; none left its owner.",
        "",
        f"  accuracy            {scores['accuracy']:.4f}",
        f"  without privacy     {scores['baseline_accuracy']:.4f}",
        f"  majority class      {scores['majority_accuracy']:.4f}",
        "  On records kept back. Nobody could compute these in a real study: they are here because the demonstration",
        "  made the records up.",
        "",
        f"  privacy spent       epsilon = {privacy['epsilon']:g}, delta = {privacy['delta']:g}, "
        f"{privacy['neighbours']}",
        f"  rounds              {cost['rounds']} in {cost['seconds']:.1f} s "
        f"({shown['seconds_in_all']:.1f} s with making keys, starting and stopping)",
    ]
    if institutions:
        lines.append(
            f"  an institution sent {max(institutions):,} bytes, {cost['bytes_up_per_client']:,} of them in vectors"
        )
    lines += [_missed(result, killed), "", privacy["statement"], "", *_governed(shown)]
    model = result["model"]
    ranked = sorted(zip(model["coef"][0], model["features"]), key=lambda pair: -abs(pair[0]))[:6]
    lines += ["", "What the model found (strongest coefficients, log-odds of >50K):"]
    lines += [f"  {value:+.2f}  {name}" for value, name in ranked]
    return "\n".join(lines)


def _governed(shown: dict[str, Any]) -> list[str]:
    lines = ["Who decided"]
    lines += [f"  {d['client']}  approved by {d['by']}" for d in shown["decisions"]["approved"]]
    lines += [f"  {d['client']}  refused by {d['by']}: {d['reason']}" for d in shown["decisions"]["rejected"]]
    lines += ["", "What it cost each institution's records (its own ledger)"]
    for name, told in shown["budgets"].items():
        lines += [f"  {name}  before: {told['before']}", f"  {' ' * len(name)}  after:  {told['after']}"]
    second, checked = shown["second_study"], shown["verified"]
    lines += ["", f"A second study was {second['state']}:"]
    lines += [f"  {d['client']}: {d['reason']}" for d in second["rejected"]]
    lines += ["", f"The receipt was verified offline: {checked['signatures']} signatures, noise derived anew."]
    return lines


def _missed(result: dict[str, Any], killed: dict[str, Any]) -> str:
    missed: dict[str, list[int]] = {}
    for entry in result["participants"]["dropped"]:
        for name in entry["names"]:
            missed.setdefault(name, []).append(entry["round"])
    words = "; ".join(f"{name}: {_ranges(numbers)}" for name, numbers in sorted(missed.items())) or "nobody"
    text = f"  missed rounds       {words}"
    if killed["after_round"] is not None:
        back = f", back from round {killed['rejoined']} on" if killed["rejoined"] else ""
        text += f"\n  {killed['name']} was killed after round {killed['after_round']}{back}; no other noticed more than"
        text += " a pause."
    return text


def _ranges(numbers: list[int]) -> str:
    """``3, 5-7``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1][1:] = [n]
        else:
            runs.append([n])
    return ", ".join("-".join(map(str, run)) for run in runs)
