"""``tallystick plan``: what a study costs, how noisy it is and what to expect, before anything is spent or read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.application.study_files import check_records_stated, load_study, read_program_from
from tallystick.engines.planning import layout_of, plan_study
from tallystick.estimators.from_study import estimator_for
from tallystick.privacy.release import state_privacy
from tallystick.privacy.rules import epsilon_warning as epsilon_warning
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.trust import trust_model


def plan(path: Path, *, records: int | None = None, settings: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plan as data."""
    study, folder = load_study(path, settings)
    estimator, study = estimator_for(study, read_program_from(folder))
    if records is not None:
        study = study.replace("data", records=records)
    check_records_stated(study)
    layout = layout_of(study)
    design = estimator.design_for(study, layout)
    made = plan_study(study, design, allow_not_private=True)
    n = study.data.records if study.stream is None else study.stream.records_per_tick
    rounds: list[dict[str, Any]] = []
    sums = rounds_of(made)
    for number, r in enumerate(sums, start=1):
        for noise in r.noise:
            std = r.std_of(noise.group.name)
            row = {
                "group": noise.group.name,
                "coordinates": noise.group.size,
                "bound": noise.group.bound,
                "sensitivity": noise.sensitivity / r.grid.scale,
                "noise_std_per_server": (noise.variance**0.5) / r.grid.scale,
                "noise_std_total": std,
                "noise_on_mean_over_bound": None if n is None else std / (n * noise.group.bound),
                "rho": float(noise.rho),
                "epsilon": None if noise.epsilon is None else float(noise.epsilon),
            }
            if rounds and {k: v for k, v in rounds[-1].items() if k != "rounds"} == row:
                rounds[-1]["rounds"] = [rounds[-1]["rounds"][0], number]
            else:
                rounds.append({"rounds": [number, number], **row})
    upload = study.trust_model.upload_bytes(study.trust, made, records=study.data.records)
    return {
        "schema": "tallystick/plan/1",
        "study": {"name": study.study.name, "hash": study.printed_hash, "program": study.study.program},
        "privacy": state_privacy(made).as_dict(),
        "records": study.data.records,
        "columns": len(layout),
        "rounds": rounds,
        "bytes_up_per_client": len(sums) * upload,
        "hopeless": made.hopeless,
        "notes": list(made.notes),
        "if_a_party_is_lost": design.if_a_party_is_lost if study.stream is None else None,
        "price_of_trust": made.claim.trust.makers.variance_factor(splits=True)
        if made.claim.mechanism == "gaussian"
        else None,
    }


def describe(made: dict[str, Any]) -> str:
    """The plan for people."""
    privacy = made["privacy"]
    trust = privacy["trust"]
    lines = [
        f"{made['study']['name']}: {made['study']['program']}, "
        f"{'an undisclosed number of' if made['records'] is None else format(made['records'], ',')} records, "
        f"{made['columns']} columns",
        f"  study hash   {made['study']['hash']}",
    ]
    if privacy["differentially_private"]:
        delta = f", delta = {privacy['delta']:g}" if privacy["delta"] else " (pure)"
        lines.append(f"  it costs     epsilon = {privacy['epsilon']:g}{delta}; rho = {privacy['rho']:.4g} in all")
        lines.append(f"  trust        {trust_model(trust['model']).describe(trust)}")
    if made["price_of_trust"]:
        lines.append(f"  its price    noise variance is {made['price_of_trust']:.3g} times a single trusted curator's")
    lines.append("")
    maker = next((key for key in privacy["noise_std"] if key.startswith("per_")), "per_server").removeprefix("per_")
    wide = max([12, *(len(r["group"]) for r in made["rounds"])])
    heads = f"{'group':<{wide}} coordinates   {'noise/' + maker:>12}"
    if made["rounds"]:
        lines.append(f"  rounds        {heads}   noise total   noise on mean, over bound")
    for r in made["rounds"]:
        (first, last), on_mean = r["rounds"], r["noise_on_mean_over_bound"]
        which = f"{first}" if first == last else f"{first}-{last}"
        lines.append(
            f"  {which:<12}  {r['group']:<{wide}} {r['coordinates']:>11,}   {r['noise_std_per_server']:>12.4g}   "
            f"{r['noise_std_total']:>11.4g}   {'' if on_mean is None else format(on_mean, '>12.3g')}"
        )
    lines += ["", *(f"  note: {note}" for note in made["notes"])]
    if made["if_a_party_is_lost"]:
        lines.append(f"  note: {made['if_a_party_is_lost']}")
    if made["hopeless"]:
        lines.append(f"  NOT WORTH RUNNING: {made['hopeless']}.")
    else:
        lines.append("  Expectation: the signal stands above the noise; nothing was spent to say so.")
    lines += ["", privacy["statement"]]
    return "\n".join(lines)
