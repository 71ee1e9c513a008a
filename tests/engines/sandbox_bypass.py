"""A fork server whose children do not check what they are given: ``python -I sandbox_bypass.py FD``.

For tests only, and not in the wheel: it stands for a program that found a way past the allow-list. Whatever the file
says is executed with all of Python, and ``map_in_client`` is compiled with some C functions within its reach; a file
that says ``NO CHECKS`` is compiled without any comparison of an index with a length. The lock around it, the guard
areas and the double mapping are the real ones.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import mmap  # noqa: F401 - within a hostile program's reach, as all that is imported here
import resource  # noqa: F401
import subprocess  # noqa: F401
from typing import Any

from tallystick.algorithms.user_programs import program_file
from tallystick.algorithms.user_programs.compiled import CompiledMap, compile_map
from tallystick.algorithms.user_programs.map_compiler import code, functions, indexing, llvm, signatures
from tallystick.algorithms.user_programs.map_compiler.builder import convert
from tallystick.algorithms.user_programs.map_compiler.code import Const, Kind, Op
from tallystick.algorithms.user_programs.map_compiler.values import Number
from tallystick.algorithms.user_programs.program_file import compile_program, read_program
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
    if "NO CHECKS" in file.text:
        without_checks()
        return compile_program(read_program(file.text, name=file.name))  # all else about it is allowed
    tree = ast.parse(file.text)
    (function,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "map_in_client")
    return compile_map(function, constants={}, file=file.name)


def without_checks() -> None:
    """As if both the translation and the emitter had forgotten to compare."""

    def address(self: Any, region: int, index: Any, kind: Kind) -> Any:
        place = self.b.add(self.value(index), llvm._WORD(self.offsets[region]))
        return self.b.gep(self.floats if kind == Kind.FLOAT else self.words, [place])

    llvm._Emitter._address = address  # type: ignore[method-assign]
    indexing._within = lambda place, length: Const(Kind.BOOL, True)  # type: ignore[assignment]


KEPT: list[Any] = [0.5]


def within_reach_of_compiled_code() -> None:
    libc = ctypes.CDLL(None)

    def keep(x: float) -> float:
        KEPT[0] = x
        return 0.0

    foreign = {
        "c_socket": (3, lambda a, b, c: libc.socket(int(a), int(b), int(c))),
        "c_fork": (0, lambda: libc.fork()),
        "c_rand": (0, lambda: KEPT[0]),
        "c_srand": (1, keep),
    }
    plain_call, plain_foreign = functions.call_numpy, llvm._Emitter._foreign
    for name, (arguments, work) in foreign.items():
        callback = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * arguments)(work)
        KEPT.append(callback)
        signatures.NUMPY[name] = signatures.Signature(arguments, arguments)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        llvm.binding.add_symbol(llvm._PREFIX + name, address)

    def call_anything(b: Any, node: Any, name: str, args: Any, *rest: Any) -> Any:
        if name not in foreign:
            return plain_call(b, node, name, args, *rest)
        return Number(b.hold(Op(Kind.FLOAT, f"call:{name}", tuple(convert(a.code, Kind.FLOAT) for a in args))))

    def foreign_anything(self: Any, name: str, arguments: int) -> Any:
        if name not in foreign:
            return plain_foreign(self, name, arguments)
        symbol = llvm._PREFIX + name
        shape = llvm.ir.FunctionType(llvm._DOUBLE, [llvm._DOUBLE] * arguments)
        return self.module.globals.get(symbol) or llvm.ir.Function(self.module, shape, name=symbol)

    functions.call_numpy = call_anything
    llvm._Emitter._foreign = foreign_anything  # type: ignore[method-assign]
    code_work = code._work
    code._work = lambda e: 1 if isinstance(e, Op) and not e.args else code_work(e)  # type: ignore[assignment]
    operation = llvm._Emitter._operation

    def operation_without_arguments(self: Any, op: Op) -> Any:
        return operation(self, op) if op.args else self.b.call(self._foreign(op.name[5:], 0), [])

    llvm._Emitter._operation = operation_without_arguments  # type: ignore[method-assign]


if __name__ == "__main__":
    within_reach_of_compiled_code()
    worker.read_program = read_anything  # type: ignore[assignment]
    worker.load_program = load_anything  # type: ignore[assignment]
    worker.compile_program = compile_anything  # type: ignore[assignment]
    fork_server.main()
