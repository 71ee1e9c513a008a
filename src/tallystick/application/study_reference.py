"""The reference of a study file, as Markdown: every key from the models that read it, every option from its estimator.

``tallystick schema --markdown`` prints it; ``docs/study.md`` keeps it, and a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.estimators.from_study import estimator_class
from tallystick.study import json_schema

_INTRODUCTION = """# The study file

Made by `tallystick schema --markdown` from the code that reads study files. A study is one TOML file; its hash is
what every institution approves. Keys that are not listed are refused.

Only `[study] name` and `program`, and the columns, must be given.
"""
_SECTIONS = {"study": "StudySection", "privacy": "PrivacySection", "data": "DataSection", "results": "ResultsSection"}
_FURTHER = {
    "privacy": {"privacy.groups": "GroupSection"},
    "data": {
        "data.missing": "MissingSection",
        "data.identifier": "IdentifierSection",
        "data.holders.NAME": "HolderSection",
        'data.columns: type = "number"': "NumberColumn",
        'data.columns: type = "integer"': "IntegerColumn",
        'data.columns: type = "category"': "CategoryColumn",
        'data.columns: type = "items"': "ItemsColumn",
    },
}


def study_reference() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_page()]).rstrip() + "\n"


def _page() -> Iterator[str]:
    schema = json_schema()
    known = schema["$defs"]
    for name, model in _SECTIONS.items():
        yield from _table(f"[{name}]", known[model])
        for title, further in _FURTHER.get(name, {}).items():
            yield from _table(title, known[further], level=3)
        if name == "privacy":
            for section in known["TrustSection"]["oneOf"]:
                yield from _table(f'[trust] model = "{section["properties"]["model"]["const"]}"', section)
    yield from _table("[stream]", known["StreamSection"])
    yield "## [program]\n\nThe program's own options; the estimator of the same name in Python takes the same.\n"
    for name, program in BUILT_IN.items():
        yield from _options(name, sorted(program.keys))


def _table(title: str, model: dict[str, Any], level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {title}\n"
    words = model.get("description", "").replace("``", "`").split(": ", 1)
    yield f"{words[-1][:1].upper()}{words[-1][1:]}\n"
    yield "| key | value | if left out | meaning |\n|---|---|---|---|"
    for key, value in model["properties"].items():
        if key in ("type", "model") or "description" not in value:
            continue
        left_out = "required" if key in model.get("required", ()) else _written(value.get("default"))
        yield f"| `{key}` | {_kind(value)} | {left_out} | {value['description']} |"
    yield ""


def _kind(value: dict[str, Any]) -> str:
    if "enum" in value:
        return " or ".join(f"`{one}`" for one in value["enum"])
    kinds = [_one_kind(part) for part in value.get("anyOf", [value])]
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind))


def _one_kind(value: dict[str, Any]) -> str:
    if value.get("type") == "array":
        return "list"
    if "$ref" in value or value.get("type") == "object":
        return "table"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false", "null": ""}
    return names.get(value.get("type", ""), "number")


def _written(default: Any) -> str:
    if default is None or default in ((), [], {}, ""):
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _options(name: str, keys: list[str]) -> Iterator[str]:
    """A program's options: defaults from the estimator's signature, meanings from its documentation."""
    face = estimator_class(name)
    alike = [other for other, program in BUILT_IN.items() if sorted(program.keys) == keys]  # the first tells it for all
    meanings = _documented(inspect.getdoc(estimator_class(alike[0])) or "") | _documented(inspect.getdoc(face) or "")
    defaults = inspect.signature(face).parameters
    told = [key for key in keys if key in meanings]
    if not told:
        return
    yield f"### {name}\n"
    yield "| option | value | if left out | meaning |\n|---|---|---|---|"
    for key in told:
        kind, meaning = meanings[key]
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        left_out = "required" if default is inspect.Parameter.empty else _written(default)
        yield f"| `{key}` | {kind.replace('|', 'or')} | {left_out} | {meaning} |"
    yield ""


def _documented(text: str) -> dict[str, tuple[str, str]]:
    """Parameters of a documentation text in NumPy's style: their kinds and meanings."""
    part = text.split("Parameters\n----------\n", 1)[-1].split("Attributes\n----------", 1)[0]
    found = re.findall(r"^(\w[\w, ]*?)(?: : (.*))?\n((?:    .*\n?)+)", part, flags=re.M)
    return {
        name.strip(): (kind or "", " ".join(meaning.split()).replace("``", "`"))
        for names, kind, meaning in found
        for name in names.split(",")
    }
