"""The answer as a picture: one panel for each thing in a table, a bar for each row, its noise interval as a line.

The only place that imports matplotlib, an extra (``tallystick[plot]``), and only when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.estimators.answer import Answer

_PANELS = ("class", "figure", "column", "statistic", "part")
_PANELS_OF_PARTS = ("class", "part")
"""Of a table of several parts: what a part tells of its columns stands in one panel."""
_VALUES = {
    "coefficient": ("lower", "upper"),
    "estimate": ("lower", "upper"),
    "count": ("count_lower", "count_upper"),
    "support": (),
    "value": ("lower", "upper"),
}
_MOST_PANELS, _MOST_BARS = 12, 40
_WIDEST = 3.0
"""Times the room of the bars that intervals may take: one that noise leaves open would make all bars invisible."""


def draw(answer: Answer) -> Any:
    """A matplotlib figure of the table; further panels and bars than a page holds are left out."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise StudyError(
            "pictures need matplotlib, which is not installed", remedy="Install it: pip install 'tallystick[plot]'."
        ) from None
    named = next((name for name in _VALUES if any(_is_number(row.get(name)) for row in answer.rows)), None)
    if named is None:
        raise StudyError("there are no numbers in this answer to draw", remedy="Print it, or use to_frame() or --csv.")
    keys = _PANELS_OF_PARTS if "part" in answer.columns else _PANELS
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for row in answer.rows:
        if row[named] is not None and row.get("kind") != "intercept":
            panels.setdefault(", ".join(str(row[p]) for p in keys if row.get(p) is not None), []).append(row)
    shown = list(panels.items())[:_MOST_PANELS]
    heights = [min(len(rows), _MOST_BARS) for _, rows in shown] or [1]
    figure = Figure(figsize=(8, 1 + 0.3 * sum(heights) + 0.6 * len(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for at, (title, rows) in zip(axes, shown):
        _panel(at, title, rows[:_MOST_BARS], named, keys)
        if len(rows) > _MOST_BARS:
            at.set_title(f"{title or named}: the first {_MOST_BARS} of {len(rows)}", fontsize="medium")
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _panel(axes: Any, title: str, rows: list[Mapping[str, Any]], named: str, keys: tuple[str, ...]) -> None:
    left_out = {*keys, "kind", "length"}

    def label_of(row: Mapping[str, Any]) -> str:
        if "column" not in keys and row.get("column") is not None:  # the loadings of a component: the panel names it
            return str(row["column"])
        told = (str(v) for k, v in row.items() if k not in left_out and (isinstance(v, str) or k == "cluster"))
        return ", ".join(told)

    labels = [label_of(row) for row in rows]
    values, ends = [row[named] for row in rows], _VALUES[named]
    errors = None
    if ends and all(row.get(end) is not None for row in rows for end in ends):
        low, high = ([row[end] for row in rows] for end in ends)
        errors = [[max(0.0, v - e) for v, e in zip(values, low)], [max(0.0, e - v) for v, e in zip(values, high)]]
    axes.barh(range(len(rows)), values, xerr=errors, color="#7a9cc6", ecolor="#333333", capsize=2)
    axes.set_yticks(range(len(rows)), [label or title for label in labels])
    axes.invert_yaxis()
    axes.set_title(title or named, fontsize="medium")
    if errors is not None:
        _keep_bars_in_sight(axes, values, low, high)


def _keep_bars_in_sight(axes: Any, values: list[float], low: list[float], high: list[float]) -> None:
    """Cut the axis where intervals are so wide that bars could not be seen beside them, and say so."""
    first, last = min(0.0, *values), max(0.0, *values)
    room = (last - first) or 1.0
    left, right = max(min(first, *low), first - _WIDEST * room), min(max(last, *high), last + _WIDEST * room)
    if left > min(low) or right < max(high):
        axes.set_xlim(left, right)
        axes.set_xlabel("lines that reach the frame go on beyond it", fontsize="small")


def save(answer: Answer, path: Path) -> None:
    """The picture in a file whose ending says how: .png, .svg or .pdf."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise StudyError(f"{str(path)!r} is no picture's name", remedy="End it in .png, .svg or .pdf.")
    try:
        draw(answer).savefig(path)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}", remedy="Choose another --plot.") from None
