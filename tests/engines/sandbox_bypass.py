"""A fork server whose children do not check what they are given: ``python -I sandbox_bypass.py FD``.

For tests only, and not in the wheel: it stands for a program that found a way past the allow-list. Whatever the file
says is executed with all of Python, and ``map_in_client`` is compiled with some C functions within its reach. The
lock around it is the real one.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import mmap  # noqa: F401 - within a hostile program's reach, as all that is imported here
import resource  # noqa: F401
import subprocess  # noqa: F401
from typing import Any

import numpy as np

from tallystick.algorithms import program_file
from tallystick.algorithms.compiled import CompiledMap, compile_map
from tallystick.engines.sandbox import fork_server, worker


def read_anything(text: str, *, name: str) -> Any:
    return type("Unchecked", (), {"text": text, "name": name})()


def load_anything(file: Any) -> Any:
    def any_import(name: str, *rest: Any) -> Any:
        return program_file._FACADE if name == "tallystick" else builtins.__import__(name, *rest)

    space: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": any_import}, "__name__": "hostile"}
    exec(compile(file.text, file.name, "exec"), space)
    return next(v for v in space.values() if isinstance(v, type) and hasattr(v, "map_in_client"))()


def compile_anything(file: Any) -> CompiledMap:
    tree = ast.parse(file.text)
    (function,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "map_in_client")
    return compile_map(function, constants={}, file=file.name)


def within_reach_of_compiled_code() -> None:
    libc = ctypes.CDLL(None)
    for name, arguments in (("socket", 3), ("fork", 0), ("rand", 0), ("srand", 1)):
        function = getattr(libc, name)
        function.argtypes, function.restype = [ctypes.c_int] * arguments, ctypes.c_int
        setattr(np, f"c_{name}", function)


if __name__ == "__main__":
    within_reach_of_compiled_code()
    worker.read_program = read_anything  # type: ignore[assignment]
    worker.load_program = load_anything  # type: ignore[assignment]
    worker.compile_program = compile_anything  # type: ignore[assignment]
    fork_server.main()
