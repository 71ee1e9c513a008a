"""The scalar form of a map, run by Python one statement at a time: the oracle of the machine code, to the bit."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import struct
from typing import Any

import numpy as np

from tallystick.algorithms.user_programs.map_compiler.code import (
    Const,
    If,
    Jump,
    Kind,
    Load,
    Loop,
    ScalarMap,
    Set,
    Slot,
    Store,
)


class Failed(Exception):  # noqa: N818 - control flow
    """The record adds zeros."""


class _Break(Exception):  # noqa: N818 - control flow
    pass


class _Continue(Exception):  # noqa: N818 - control flow
    pass


class _Return(Exception):  # noqa: N818 - control flow
    pass


def interpret(program: ScalarMap, record: np.ndarray, state: list[np.ndarray]) -> np.ndarray | None:
    """The vector; None if the record fails."""
    regions: list[list[Any]] = [[None] * r.words for r in program.regions]
    regions[0][:] = [float(x) for x in record]
    for number, part in zip(program.state, state, strict=True):
        regions[number][:] = [float(x) for x in np.asarray(part).reshape(-1)]
    for region in program.regions:
        if region.role == "constant":
            regions[region.number][:] = [_made(region.kind, v) for v in region.values]
    slots: list[Any] = [_made(kind, 0) for kind in program.slots]
    try:
        _block(program.body, regions, slots)
    except _Return:
        result = next(r.number for r in program.regions if r.role == "result")
        return np.array(regions[result], dtype=float)
    except Failed:
        return None
    return None


def _made(kind: Kind, value: Any) -> Any:
    return {Kind.FLOAT: float, Kind.INT: int, Kind.BOOL: bool}[kind](value)


def _block(body: Any, regions: Any, slots: Any) -> None:
    for s in body:
        match s:
            case Set():
                slots[s.slot.number] = _value(s.value, regions, slots)
            case Store():
                value = _value(s.value, regions, slots)
                at = _value(s.index, regions, slots)
                if not 0 <= at < len(regions[s.region]):
                    raise Failed
                regions[s.region][at] = value
            case If():
                _block(s.then if _value(s.test, regions, slots) else s.other, regions, slots)
            case Loop():
                count = _value(s.count, regions, slots)
                if count > s.most:
                    raise Failed
                for turn in range(count):
                    slots[s.slot.number] = turn
                    try:
                        _block(s.body, regions, slots)
                    except _Break:
                        break
                    except _Continue:
                        continue
            case Jump.FAIL:
                raise Failed
            case Jump.BREAK:
                raise _Break
            case Jump.CONTINUE:
                raise _Continue
            case Jump.RETURN:
                raise _Return


def _value(e: Any, regions: Any, slots: Any) -> Any:
    if isinstance(e, Const):
        return _made(e.kind, e.value)
    if isinstance(e, Slot):
        return slots[e.number]
    if isinstance(e, Load):
        at = _value(e.index, regions, slots)
        if not 0 <= at < len(regions[e.region]):
            raise Failed
        found = regions[e.region][at]
        assert found is not None, "a word that nobody has written"
        return found
    args = [_value(a, regions, slots) for a in e.args]
    return _operation(e.name, e.kind, args)


def _operation(name: str, kind: Kind, x: list[Any]) -> Any:
    if name.startswith("call:"):
        return _call(name[5:], x)
    if name in ("floordiv", "mod") and kind == Kind.INT:
        if x[1] == 0:
            raise Failed
        return _int64(x[0] // x[1] if name == "floordiv" else x[0] % x[1])
    if name in ("floordiv", "mod"):
        return _float_floor(x[0], x[1], name == "mod")
    simple = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "neg": lambda a: -a,
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "not": lambda a: (not a) if isinstance(a, bool) else ~a,
        "select": lambda t, a, b: a if t else b,
        "to_int": int,
        "to_float": float,
        "div": lambda a, b: float(np.float64(a) / np.float64(b)),
        "fabs": abs,
        "copysign": math.copysign,
        "sqrt": lambda a: float(np.sqrt(np.float64(a))),
        "floor": lambda a: float(np.floor(a)),
        "ceil": lambda a: float(np.ceil(a)),
        "trunc": lambda a: float(np.trunc(a)),
        "rint": lambda a: float(np.rint(a)),
    }
    with np.errstate(all="ignore"):
        found = simple[name](*x)
    return _int64(found) if kind == Kind.INT else found


def _int64(n: int) -> int:
    if not -(2**63) <= n < 2**63:
        raise Failed
    return n


_LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))


def _call(name: str, x: list[float]) -> float:
    """The C library's own: Python's gamma functions are others."""
    function = getattr(_LIBRARY, name)
    function.argtypes, function.restype = [ctypes.c_double] * len(x), ctypes.c_double
    return float(function(*x))


def _float_floor(a: float, c: float, mod: bool) -> float:
    if not abs(a) <= abs(c) * 2.0**53:
        raise Failed  # also NaN
    if c == 0 or not (math.isfinite(a) and not math.isnan(c)):
        return math.nan
    return a % c if mod else a // c


def bits(vector: np.ndarray) -> bytes:
    """Zero has two signs, which the grid does not tell apart; all else is compared to the bit."""
    return b"".join(struct.pack("<d", x + 0.0) for x in vector)
