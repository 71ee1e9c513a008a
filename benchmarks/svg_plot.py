"""Line charts as SVG text, for the benchmarks' figures: panels side by side, one legend, no dependency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Panel", "chart"]

_COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#555555")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 3")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 210, 62, 34, 84


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


def chart(panels: Sequence[Panel], *, caption: str) -> str:
    """The panels beside each other as an SVG document; lines of one name have one colour."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    style = {name: (_COLOURS[i % 6], _DASHES[i % 6]) for i, name in enumerate(names)}
    width = len(panels) * (_WIDTH + _GAP) + 20
    height = _TOP + _HEIGHT + 62 + 16 * math.ceil(len(names) / 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(caption)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _LEFT + number * (_WIDTH + _GAP), style)
    for number, name in enumerate(names):
        x, y = _LEFT + 230 * (number % 3), _TOP + _HEIGHT + 58 + 16 * (number // 3)
        colour, dash = style[name]
        parts.append(_line([(x, y), (x + 24, y)], colour, dash))
        parts.append(_text(x + 30, y + 4, name))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, left: float, style: Mapping[str, tuple[str, str]]) -> list[str]:
    points = [p for line in panel.lines.values() for p in line]
    x_of = _Axis([p[0] for p in points], panel.log_x, panel.least, (left, left + _WIDTH))
    y_of = _Axis([p[1] for p in points], panel.log_y, panel.least, (_TOP + _HEIGHT, _TOP))
    parts = [
        _text(left + _WIDTH / 2, _TOP - 12, panel.title, "middle"),
        _text(left + _WIDTH / 2, _TOP + _HEIGHT + 36, panel.x, "middle"),
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>',
        f'<g transform="rotate(-90 {left - 46} {_TOP + _HEIGHT / 2})">'
        f"{_text(left - 46, _TOP + _HEIGHT / 2, panel.y, 'middle')}</g>",
    ]
    for tick in x_of.ticks():
        parts += [
            _line([(x_of(tick), _TOP + _HEIGHT), (x_of(tick), _TOP + _HEIGHT + 4)], "#999"),
            _text(x_of(tick), _TOP + _HEIGHT + 17, f"{tick:g}", "middle"),
        ]
    for tick in y_of.ticks():
        parts += [
            _line([(left, y_of(tick)), (left + _WIDTH, y_of(tick))], "#e4e4e4"),
            _text(left - 6, y_of(tick) + 4, f"{tick:.3g}", "end"),
        ]
    for name, line in panel.lines.items():
        colour, dash = style[name]
        drawn = [(x_of(x), y_of(y)) for x, y in sorted(line)]
        parts.append(_line(drawn, colour, dash))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in drawn]
    return parts


class _Axis:
    """Values to places, linear or by decades."""

    def __init__(self, values: Sequence[float], log: bool, least: float, span: tuple[float, float]) -> None:
        self._log, self._least, self._span = log, least, span
        seen = [self._unit(v) for v in values] or [0.0, 1.0]
        low, high = min(seen), max(seen)
        margin = 0.04 * (high - low) or 0.5
        self._low, self._high = low - margin, high + margin

    def __call__(self, value: float) -> float:
        start, stop = self._span
        return start + (stop - start) * (self._unit(value) - self._low) / (self._high - self._low)

    def ticks(self) -> list[float]:
        """Round numbers within the axis: powers of ten, or steps of 1, 2 or 5."""
        if self._log:
            found = [10.0**k for k in range(math.ceil(self._low), math.floor(self._high) + 1)]
            return found if len(found) > 1 else [10.0 ** (self._low + 0.04), 10.0 ** (self._high - 0.04)]
        step = 10.0 ** math.floor(math.log10((self._high - self._low) / 4))
        step *= next(m for m in (1, 2, 5, 10) if (self._high - self._low) / (m * step) <= 6)
        first, last = math.ceil(self._low / step), math.floor(self._high / step)
        return [round(k * step, 12) for k in range(first, last + 1)]

    def _unit(self, value: float) -> float:
        return math.log10(max(value, self._least)) if self._log else value


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dashed}/>'


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
