"""Plots of the paper on gossip learning that are not lines: heat maps over ε and batch size, and clouds of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.line_charts import chart_settings, save

__all__ = ["Cloud", "HeatMap", "write_clouds", "write_heat_maps"]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Accuracy for each (row, column); a cell that was not measured stays blank."""

    title: str
    cells: Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Points (x, y, class) and the line w·x = 0 that separates them."""

    title: str
    points: Sequence[tuple[float, float, int]]
    normal: tuple[float, float]


def write_heat_maps(
    path: Path, maps: Sequence[Sequence[HeatMap]], *, rows: Sequence[str], columns: Sequence[str], caption: str
) -> None:
    """A grid of maps on one scale of colours, the figures written in."""
    from matplotlib.figure import Figure

    with chart_settings():
        figure = Figure(figsize=(2.9 * max(len(line) for line in maps), 2.5 * len(maps)), layout="constrained")
        grid = figure.subplots(len(maps), max(len(line) for line in maps), squeeze=False)
        for at, line in enumerate(maps):
            for axes, heat in zip(grid[at], line):
                values = np.array([[heat.cells.get((r, c), np.nan) for c in columns] for r in rows])
                axes.pcolormesh(np.ma.masked_invalid(values), cmap="viridis", vmin=0.0, vmax=1.0, linewidth=0)
                axes.set(title=heat.title, xticks=np.arange(len(columns)) + 0.5, yticks=np.arange(len(rows)) + 0.5)
                axes.set_xticklabels(columns, fontsize=6)
                axes.set_yticklabels(rows, fontsize=6)
                axes.tick_params(length=0)
                axes.invert_yaxis()
                for i, row in enumerate(values):
                    for j, value in enumerate(row):
                        if np.isfinite(value):
                            dark = value < 0.6
                            text = f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.0"
                            axes.text(
                                j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=6,
                                color="white" if dark else "black",
                            )  # fmt: skip
                if at == len(maps) - 1:
                    axes.set_xlabel("records at each peer")
        for line_axes in grid:
            line_axes[0].set_ylabel("ε")
        save(figure, path, caption=caption)


def write_clouds(path: Path, clouds: Sequence[Cloud], *, caption: str) -> None:
    """Clouds beside each other, each with its line."""
    from matplotlib.figure import Figure

    with chart_settings():
        figure = Figure(figsize=(2.4 * len(clouds), 2.6), layout="constrained")
        for axes, cloud in zip(figure.subplots(1, len(clouds), squeeze=False)[0], clouds):
            reach = max(max(abs(x), abs(y)) for x, y, _ in cloud.points)
            for kind, colour, marker in ((0, "#1b6ca8", "o"), (1, "#c0392b", "x")):
                chosen = [(x, y) for x, y, k in cloud.points if k == kind]
                axes.scatter(*zip(*chosen), s=6, c=colour, marker=marker, linewidths=0.6)
            a, b = cloud.normal
            ends = np.array([-1.5, 1.5]) * reach
            xs, ys = (ends, -a * ends / b) if abs(b) >= abs(a) else (-b * ends / a, ends)
            axes.plot(xs, ys, color="black", linewidth=1.0)
            axes.set(title=cloud.title, xlim=(-1.05 * reach, 1.05 * reach), ylim=(-1.05 * reach, 1.05 * reach))
            axes.set_aspect("equal")
            axes.tick_params(labelsize=6)
        save(figure, path, caption=caption)
