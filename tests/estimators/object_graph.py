"""Everything reachable from an object: what a pickle of it, or a debugger, would show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Number
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_LEAVES = (str, bytes, Number, type, type(None), ModuleType, FunctionType, MethodType, BuiltinFunctionType)


def reachable(root: Any, path: str = "model") -> Iterator[tuple[str, Any]]:
    """(path, object) for the root and all it holds; a view's base array included."""
    seen: set[int] = set()
    keep: list[Any] = []  # ids stay distinct while the objects live
    todo = [(path, root)]
    while todo:
        where, item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        keep.append(item)
        yield where, item
        if isinstance(item, np.ndarray):
            if item.base is not None:
                todo.append((f"{where}.base", item.base))
            if item.dtype == object:
                todo += [(f"{where}[{i}]", v) for i, v in enumerate(item.ravel().tolist())]
        elif isinstance(item, Mapping):
            todo += [(f"{where}[{k!r}]", v) for k, v in item.items()] + [(f"{where} key", k) for k in item]
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo += [(f"{where}[{i}]", v) for i, v in enumerate(item)]
        if not isinstance(item, _LEAVES):
            todo += [(f"{where}.{k}", v) for k, v in getattr(item, "__dict__", {}).items()]
            slots = [s for kind in type(item).__mro__ for s in getattr(kind, "__slots__", ())]
            todo += [(f"{where}.{s}", getattr(item, s)) for s in slots if isinstance(s, str) and hasattr(item, s)]


def per_record(root: Any, records: int) -> list[str]:
    """Paths of what has one entry per record: arrays, tables, sequences, bytes of that length."""
    found = []
    for path, item in reachable(root):
        if isinstance(item, np.ndarray):
            sized = records in item.shape or item.size == records
        elif isinstance(item, bytes):
            sized = len(item) in (records, 4 * records, 8 * records)
        elif isinstance(item, (str, type)):
            sized = False
        else:
            try:
                sized = len(item) == records
            except TypeError:
                sized = getattr(item, "num_rows", None) == records
        if sized:
            found.append(path)
    return found


def numbers_equal_to(root: Any, wanted: set[float]) -> list[str]:
    """Paths of numbers (alone or in arrays) that equal one of ``wanted`` exactly."""
    found = []
    for path, item in reachable(root):
        if isinstance(item, np.ndarray) and item.dtype.kind in "iuf":
            hit = np.isin(item, sorted(wanted)).any()
        else:
            hit = isinstance(item, (int, float, np.number)) and not isinstance(item, bool) and float(item) in wanted
        if hit:
            found.append(path)
    return found
