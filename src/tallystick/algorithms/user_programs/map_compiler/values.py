"""What a map's expressions are, while it is translated: numbers with known bounds, arrays with known shapes.

A whole number carries an interval that it surely lies in, and, where it is one, its form as an affine function of loop
counters; that is how lengths and numbers of turns are known beforehand. An array is a *view*: where its elements lie
in a region. Its shape is a tuple of numbers, never of unknowns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind

LARGEST = 2**63 - 1
Affine = tuple[int, tuple[tuple[int, int], ...]]
"""constant + Σ factor · counter, as (constant, ((counter's slot, factor), …))."""


@dataclass(frozen=True)
class Number:
    """A number (whole or not). ``low``/``high`` bound it if its kind is INT or BOOL; else they mean nothing."""

    code: Expr
    low: int = -LARGEST - 1
    high: int = LARGEST
    affine: Affine | None = None

    @property
    def kind(self) -> Kind:
        return self.code.kind

    @property
    def known(self) -> int | None:
        """Its value, if there is only one it can have."""
        return self.low if self.kind != Kind.FLOAT and self.low == self.high else None


@dataclass(frozen=True)
class View:
    """An array: element (i, j, …) is word ``base + i·strides[0] + j·strides[1] + …`` of ``region``.

    ``roots`` are the variables (and "record", "state", …) whose memory this is; empty if it is nobody else's.
    """

    region: int
    base: Expr
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Kind
    roots: frozenset[str] = frozenset()

    @classmethod
    def of_region(cls, region: int, shape: tuple[int, ...], kind: Kind, roots: frozenset[str] = frozenset()) -> View:
        """All of a region, row by row."""
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return cls(region, Const(Kind.INT, 0), shape, strides, kind, roots)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Several:
    """A tuple or a list: values side by side; ``fields`` are their names, if they have any."""

    items: tuple[Value, ...]
    fields: tuple[str, ...] = ()


Value = Number | View | Several


def known(number: int) -> Number:
    """A whole number that is known now."""
    return Number(Const(Kind.INT, number), number, number, (number, ()))


def prototype(value: Value) -> Value:
    """A value of the same kind and shape, and nothing more: what a variable that holds it is."""
    match value:
        case Number():
            return Number(Const(value.kind, 0))
        case View():
            return View.of_region(-1, value.shape, value.kind)
        case Several():
            return Several(tuple(prototype(item) for item in value.items), value.fields)
