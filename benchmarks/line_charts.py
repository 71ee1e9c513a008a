"""Line charts for the papers' figures: panels side by side, one legend, as SVG with the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Panel", "chart_settings", "draw", "save", "write_chart"]

_STYLES = (
    ("#1b6ca8", "-"),
    ("#c0392b", (0, (5, 2))),
    ("#2e8b57", (0, (1.5, 2))),
    ("#8e44ad", "-."),
    ("#d68910", (0, (3, 1.5))),
    ("#555555", (0, (1, 3))),
    ("#148f9e", "-"),
)
_SETTINGS = {
    "svg.hashsalt": "tallystick",  # names of clip paths and markers; drawn from a random salt without it
    "svg.fonttype": "none",  # text stays text
    "font.size": 8.0,
    "axes.titlesize": 8.0,
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart: for each named line its points; ``log_x`` and ``log_y`` where the axis has decades.

    On a logarithmic axis values below ``least`` are drawn at it.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    log_y: bool = False
    least: float = 1e-3


def write_chart(path: Path, panels: Sequence[Panel], *, caption: str) -> None:
    """The panels as an SVG file; neither the day nor the machine is in it."""
    save(draw(panels), path, caption=caption)


def save(figure: Any, path: Path, *, caption: str) -> None:
    """A figure as an SVG file, with the same bytes every time."""
    with chart_settings():
        figure.savefig(path, format="svg", metadata={"Title": caption, "Date": None, "Creator": None})


def draw(panels: Sequence[Panel]) -> Any:
    """The panels beside each other as a matplotlib figure; lines of one name look alike."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    style = {name: _STYLES[i % len(_STYLES)] for i, name in enumerate(names)}
    known: dict[str, Any] = {}
    with chart_settings():
        figure = Figure(figsize=(3.9 * len(panels), 3.2), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            axes.grid(axis="y", color="#e4e4e4")
            for name, points in panel.lines.items():
                known[name] = _line(axes, panel, sorted(points), *style[name])
            for log, scale, axis in (
                (panel.log_x, axes.set_xscale, axes.xaxis),
                (panel.log_y, axes.set_yscale, axes.yaxis),
            ):
                if log:
                    scale("log")
                    axis.set_major_formatter("{x:g}")
                    axis.set_minor_formatter("")
        figure.legend([known[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _line(axes: Any, panel: Panel, points: Sequence[tuple[float, float]], colour: str, dashes: Any) -> Any:
    xs = [max(x, panel.least) if panel.log_x else x for x, _ in points]
    ys = [max(y, panel.least) if panel.log_y else y for _, y in points]
    (line,) = axes.plot(xs, ys, color=colour, linestyle=dashes, marker="o", markersize=3, linewidth=1.2)
    return line


@contextmanager
def chart_settings() -> Iterator[None]:
    """Ours, and not those of whoever draws."""
    import matplotlib  # a development dependency, and slow to import

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield
