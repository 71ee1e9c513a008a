"""Studies in words, for analysts and for stewards who are no cryptographers."""

from __future__ import annotations

import json
from typing import Any

from tallystick.application.text_layout import at_most_sure, paragraph, sentence
from tallystick.core.readable_text import one_line

_LONGEST_SETTING = 120

_MEANING = {
    "open": "waiting for decisions",
    "approved": "approved, may be run",
    "refused": "refused",
    "withdrawn": "withdrawn by its analyst",
    "expired": "expired",
    "superseded": "replaced by a newer proposal",
    "running": "running",
    "paused": "paused: a party is missing",
    "finished": "finished",
    "failed": "ended without a result",
}
_CHARGED = {
    None: "Nothing was computed or charged.",
    "voided": "Nothing was computed or charged.",
    "reserved": "Nothing was computed; what was set aside for it is about to be given back.",
    "released": "What it had sent before stays charged.",
    "committed": "What it had sent before stays charged.",
}


def _head(found: dict[str, Any]) -> list[str]:
    study = found["study"]
    return [
        f"{study['name']}, version {study['version']}: {_MEANING.get(found['state'], found['state'])}",
        f"  {study['hash']}",
        f"  proposed by {found['analyst']}, open until {found['expires']}",
    ]


def _decisions(found: dict[str, Any]) -> list[str]:
    lines = []
    for word, key in (("approved", "approved"), ("rejected", "rejected"), ("counter-proposal", "countered")):
        for entry in found[key]:
            terms = f", would agree to epsilon {entry['terms']['epsilon']:g}" if "epsilon" in entry["terms"] else ""
            why = f": {entry['reason']}" if entry["reason"] else ""
            lines.append(f"  {entry['client']:<20} {word} by {entry['by']}{terms}{why}")
    lines += [f"  {name:<20} has not decided" for name in found["waiting"]]
    lines += [f"  {name:<20} SIGNED TWO CONTRADICTING STATEMENTS" for name in found["equivocators"]]
    return lines


def standing(found: dict[str, Any]) -> str:
    """How a study stands."""
    if found["study"] is None:
        return "Nobody has proposed this study."
    lines = [*_head(found), "", *_decisions(found), "", paragraph(found["words"], 0)]
    epsilons = [e["terms"]["epsilon"] for e in found["countered"] if "epsilon" in e["terms"]]
    if epsilons and found["state"] in ("open", "refused"):
        lines.append(
            paragraph(
                f"A new version with epsilon = {min(epsilons):g} would meet the counter-proposals: raise [study] "
                "version, lower epsilon, and propose it with --supersedes.",
                0,
            )
        )
    return "\n".join(lines)


def listing(found: dict[str, Any]) -> str:
    """All studies, one line each."""
    if not found["studies"]:
        return "No study has been proposed."
    lines = [f"{'study':<34} {'version':>7}  {'epsilon':>7}  {'state':<28} hash"]
    for row in found["studies"]:
        study = row["study"]
        state = _MEANING.get(row["state"], row["state"])
        if row["state"] == "open":
            state = f"waiting, {len(row['approved'])} of {row['quorum']} approvals"
        shown = study["hash"].removeprefix("sha256:")[:12]
        lines.append(
            f"{study['name'][:34] or '(no name)':<34} {_figure(study['version']):>7}  {_figure(row['epsilon']):>7}  "
            f"{state:<28} {shown}"
        )
    return "\n".join(lines)


def waiting(found: dict[str, Any]) -> str:
    """The studies that wait for a steward."""
    count = len(found["studies"])
    lines = ["A study waits for a decision:" if count == 1 else f"{count} studies wait for a decision:"]
    for one in found["studies"]:
        study = one["study"]
        lines.append(f"  {study['name'] or '(no name)'}, version {_figure(study['version'])}, by {one['analyst']}")
        lines.append(f"    epsilon {_figure(one['epsilon'])}, open until {one['expires']}")
        lines.append(f"    tallystick study show {study['hash'].removeprefix('sha256:')[:12]}")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def show(found: dict[str, Any]) -> str:
    """A study as a steward reads it: what for, which columns, what comes out, what it costs."""
    if found["study"] is None:
        return "Nobody has proposed this study."
    inside = found["contents"]
    lines = [*_head(found), ""]
    lines += ["What for", paragraph(found["purpose"] or "No purpose is stated. Ask the analyst.")]
    lines += ["", "What is computed"]
    program = f"{found['program']}" + (f" of {inside['target']}" if inside["target"] else "")
    rounds = "one round" if inside["rounds"] == 1 else f"at most {inside['rounds']} rounds"
    lines.append(paragraph(f"{program}, in {rounds}, from the columns {', '.join(inside['columns'])}."))
    lines += [paragraph(told) for told in _apart(inside)]
    if inside["options"]:
        lines.append(paragraph(f"Its settings: {_settings(inside['options'])}."))
    lines.append(paragraph(f"The result is shown to {', '.join(inside['visible_to'])}; everybody gets the receipt."))
    if inside["if_a_party_is_lost"]:
        lines.append(paragraph(inside["if_a_party_is_lost"]))
    lines += ["", "What is promised"]
    lines += [paragraph(words) for words in inside["plan"]]
    lines += [paragraph(_odds(inside["privacy"]))]
    if inside["program_text"]:
        lines += ["", f"The program ({inside['program_hash']}): read it before you approve", ""]
        lines += [f"  | {line}" for line in inside["program_text"].splitlines()]
    if "own" in found:
        lines += ["", *_own(found)]
    lines += ["", "Who has decided", *_decisions(found)]
    return "\n".join(lines)


def _apart(inside: dict[str, Any]) -> list[str]:
    """Where institutions hold different columns: who has which, how long a record is there, who learns who is shared.
    The proposer may have written anything."""
    holders, identifier = inside["holders"], inside["identifier"]
    if not isinstance(holders, dict) or not holders:
        return []
    column = identifier.get("column") if isinstance(identifier, dict) else identifier
    said = ["The columns are at different institutions, which hold them of the same people."]
    for name, held in holders.items():
        told = held if isinstance(held, dict) else {}
        columns = ", ".join(map(str, told.get("columns") or ())) or "nothing"
        norm, people = told.get("norm"), told.get("people")
        cut = f"; a record's encoded columns there are cut to length {norm}" if norm is not None else ""
        listed = f"; its list of people is {people} long" if people is not None else ""
        said.append(one_line(f"{name} holds {columns}{cut}{listed}."))
    said.append(
        one_line(
            f"Before the round they find whom all of them have, by the column {column}, without showing each other "
            "anybody else: your institution learns which of its own people the others have, and they learn the same of "
            "theirs. No noise hides that. " + _hidden(inside)
        )
    )
    return said


def _hidden(inside: dict[str, Any]) -> str:
    """From whom the others' columns are hidden, and what somebody is told of single persons."""
    labels = inside.get("labels")
    if labels is None:
        return (
            "What is hidden is everybody's values, from institutions that follow the protocol, as long as the dealer "
            "tells none of them its masks."
        )
    return (
        f"{labels['to']}, who reduces, is told by {labels['by']} the label of each of them, and learns "
        "one exact number a person in each round; so does every institution, but for the labels. What is hidden are "
        "the columns themselves, in sums of all institutions' numbers."
    )


def _settings(options: dict[str, Any]) -> str:
    """What the analyst has chosen, as the study file says it; long lists (landmarks, cut points) are cut."""
    told = (one_line(f"{name} = {json.dumps(value, ensure_ascii=False)}") for name, value in options.items())
    return ", ".join(text if len(text) <= _LONGEST_SETTING else f"{text[:_LONGEST_SETTING]}…" for text in told)


def _odds(privacy: dict[str, Any]) -> str:
    """What epsilon means to one person, as odds: a guess that was even becomes at most e^ε to 1."""
    if privacy.get("mechanism") == "none":
        return "EXACT SUMS ARE RELEASED: whoever sees the result may learn about single persons."
    epsilon = privacy.get("epsilon")
    if not isinstance(epsilon, (int, float)) or not {"neighbours", "unit"} <= set(privacy):
        return "The study promises nothing that could be put into words."
    what = "says this or that" if privacy["neighbours"] == "replace-one" else "is among the data or not"
    return (
        f"In other words: somebody who holds it for even odds that one particular {privacy['unit']} {what} "
        f"is {at_most_sure(epsilon)} after seeing everything this study releases."
    )


def _own(found: dict[str, Any]) -> list[str]:
    own = found["own"]
    if own["problem"]:
        return ["Here", paragraph(f"Nothing can be run here: {own['problem']}")]
    lines = [f"What it costs your data set {own['dataset']!r}", *_cost(found)]
    if own["records"]:
        lines.append(paragraph(f"Your records (told to nobody else): {sentence(own['records'])}"))
        if own["quality"] is not None and not own["quality"]["fine"]:
            lines += ["", own["quality_words"]]
    if own["refused"]:
        told = f"Your client was asked to take part and declined ({own['refused']['at']}): {own['refused']['cause']}"
        lines += ["", "What became of it here", paragraph(f"{sentence(told)} {_CHARGED[own['charge']]}")]
    lines += ["", "What is to be done"]
    may, name = own["open_decisions"], found["study"]["hash"].removeprefix("sha256:")[:12]
    if own["decided"]:
        lines.append(paragraph(f"Decided: {own['decided']}, by {own['decided_by']}. {_anew(found, may, name)}"))
        out = own["decided"] == "approve" and own["out_of_force"] and own["charge"] not in ("released", "committed")
        if out and may:
            lines.append(paragraph(f"Your client takes no part as it stands: {sentence(own['out_of_force'])}"))
    elif "approve" not in may:
        lines.append(paragraph(_anew(found, [], name)))
    elif own["verdict"] == "reject":
        why = own["verdict_because"] or own["verdict_rule"]
        lines.append(paragraph(f"Your own rules refuse it: {why}"))
    elif found["epsilon"] is None:
        lines.append(paragraph("The study states no epsilon. Reject it."))
    else:
        if own["verdict_because"]:
            lines.append(paragraph(sentence(own["verdict_because"])))
        lines.append("  It waits for you. One of:")
        lines += [
            f"    tallystick study approve {name}",
            f'    tallystick study reject {name} --reason "…"',
            f'    tallystick study counter {name} --epsilon {found["epsilon"] / 2:g} --reason "…"',
        ]
    return lines


def _cost(found: dict[str, Any]) -> list[str]:
    """What the study takes of the budget; one that is on the ledger is in what has been spent, as in budget show."""
    own, charged = found["own"], found["own"]["charge"] not in (None, "voided")
    if not own["fits"]:
        before = paragraph(f"So far: {sentence(own['budget_before'])}")
        return [before, paragraph(f"YOUR BUDGET DOES NOT COVER IT. {own['budget_after']}")]
    share, left = own["share_of_what_is_left"], "is left without it" if charged else "is left"
    part = f" It takes {share:.0%} of what {left}." if share is not None else ""
    if found["contents"]["privacy"].get("mechanism") == "none":
        part = " No budget bounds what exact sums tell, so none is taken."
    before, after = sentence(own["budget_before"]), sentence(own["budget_after"])
    if charged:
        return [paragraph(f"So far, this study among it: {after}{part}"), paragraph(f"Without it: {before}")]
    return [paragraph(f"So far: {before}"), paragraph(f"With this study: {after}{part}")]


def _anew(found: dict[str, Any], may: list[str], name: str) -> str:
    """Whether a steward may still decide, or take an approval back."""
    if "approve" in may:
        return "Until it runs you may decide anew."
    if may and found["own"]["decided"] == "approve":
        return f"It has started; you may still take your approval back: tallystick study reject {name}."
    return f"Nothing is left to decide: the study is {_MEANING.get(found['state'], found['state'])}."


def decided(found: dict[str, Any]) -> str:
    """After a decision."""
    word = {"approve": "Approved", "reject": "Rejected", "counter": "Counter-proposed"}[found["action"]]
    study = found["study"]
    return "\n".join(
        [
            f"{word}: {study['name']}, version {study['version']}.",
            paragraph("Signed and kept; this client's process passes it on as soon as it runs and is connected.", 0),
            "",
            *_decisions(found),
            "",
            paragraph(found["words"], 0),
        ]
    )


def receipt(found: dict[str, Any]) -> str:
    """Where the receipt was written."""
    return f"{found['file']}: check it with tallystick verify {found['file']} --consortium {found['consortium']}"
