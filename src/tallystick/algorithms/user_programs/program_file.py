"""A program as a file: what a steward reads, what its hash covers, and how it becomes a Program.

A program file is text with one shape: a docstring, the usual imports, constants, NamedTuple classes for states, and
one subclass of ``ts.Program``. :func:`read_program` reads that shape without running anything; the hash is SHA-256 of
the canonical text (UTF-8, ``\\n``, one newline at the end), so ``sha256sum`` on such a file prints the same digits.
Characters that a reader cannot see, or that look like others, are refused: what is approved is what is read.

Only :func:`load_program` executes, and only a file that passed: in a namespace of its own with a handful of builtins,
where ``numpy``, ``math``, ``typing`` and a three-name ``tallystick`` are all there is to import. Nothing is unpickled.
"""

from __future__ import annotations

import ast
import builtins as python
import hashlib
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tallystick.algorithms.program import Program, Public
from tallystick.algorithms.user_programs.allow_list import PUBLIC_BUILTINS, map_scope
from tallystick.algorithms.user_programs.allow_list_check import check_function, check_signature
from tallystick.algorithms.user_programs.compiled import CompiledMap, compile_map
from tallystick.algorithms.user_programs.constants import numbers_of
from tallystick.algorithms.user_programs.findings import Finding
from tallystick.algorithms.user_programs.program_module import NOT_FIELDS, ProgramModule
from tallystick.algorithms.user_programs.program_text import canonical_text, check_text, parse
from tallystick.core.errors import StudyError
from tallystick.core.identifiers import format_hash
from tallystick.privacy.grid import Group

_FACADE = SimpleNamespace(Program=Program, Group=Group, Public=Public)


@dataclass(frozen=True, kw_only=True)
class ProgramFile:
    """A program that passed every check. ``constants`` are the class's own, folded; all of it is public."""

    name: str
    hash: str
    text: str
    class_name: str
    docstring: str
    constants: Mapping[str, Any]
    fields: tuple[str, ...]

    @property
    def rounds(self) -> int:
        """How many secure sums the program asks for."""
        return int(self.constants.get("rounds", Program.rounds))

    @property
    def groups(self) -> tuple[Group, ...] | None:
        """The declared groups; None where one ``bound`` covers the whole vector."""
        groups = self.constants.get("groups")
        return None if groups is None else tuple(groups)

    @property
    def bound(self) -> float | None:
        """The bound of the whole vector, where there are no groups."""
        bound = self.constants.get("bound")
        return None if bound is None else float(bound)


def read_program(text: str, *, name: str = "program.py") -> ProgramFile:
    """The checked file, or the first finding as a StudyError ``name:line:column: …``."""
    program, findings = inspect_program(text, name=name)
    if program is None:
        raise findings[0].error(name)
    return program


def inspect_program(text: str, *, name: str = "program.py") -> tuple[ProgramFile | None, list[Finding]]:
    """The checked file (None if anything was found) and all findings, in order. Runs nothing, reads nothing."""
    text = canonical_text(text)
    module, findings = _read(text)
    if module is None or module.program is None:
        return None, findings
    file = ProgramFile(
        name=name,
        hash=format_hash(hashlib.sha256(text.encode()).digest()),
        text=text,
        class_name=module.program.name,
        docstring=module.docstring,
        constants=module.class_constants,
        fields=tuple(sorted(module.fields)),
    )
    return file, []


def _read(text: str) -> tuple[ProgramModule | None, list[Finding]]:
    """What the text declares, or everything that is wrong with it."""
    findings = check_text(text)
    tree, findings = (None, findings) if findings else parse(text)
    if tree is None:
        return None, findings
    module = ProgramModule(tree)
    return None if module.findings else module, sorted(set(module.findings))


def load_program(file: ProgramFile) -> Program:
    """Execute a checked file and return an instance of its program. The text is checked again first."""
    checked = read_program(file.text, name=file.name)
    if checked.hash != file.hash:
        raise StudyError(f"{file.name} is not the text of {file.hash}", remedy="Read the program file again.")
    builtins: dict[str, Any] = {name: vars(python)[name] for name in (*PUBLIC_BUILTINS, "str")}
    builtins |= {"__import__": _import, "__build_class__": __build_class__}
    space: dict[str, Any] = {"__builtins__": builtins, "__name__": "tallystick_program"}
    exec(compile(checked.text, f"<program {file.name}>", "exec", dont_inherit=True), space)
    program: Program = space[checked.class_name]()
    return program


def compile_program(file: ProgramFile) -> CompiledMap:
    """The map of a checked file; compiles when first used, once per kind of state."""
    module, findings = _read(file.text)
    if module is None:
        raise findings[0].error(file.name)
    function = module.methods["map_in_client"]
    return compile_map(function, constants=numbers_of(module.class_constants), file=file.name)


def compile_live_program(
    program: Program, state: Any, *, source: str, name: str = "program", first_line: int = 1
) -> CompiledMap:
    """The map of a Program subclass written in a session. ``source`` is the text of the class that defines it
    (``inspect.getsourcelines``); constants are what ``program`` holds, fields are those of ``state``."""
    text = canonical_text(textwrap.dedent(source))
    tree, findings = parse(text)
    if tree is None:
        raise findings[0].error(name)
    ast.increment_lineno(tree, first_line - 1)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "map_in_client"]
    if len(functions) != 1:
        raise StudyError(f"{name} does not define map_in_client once", remedy="Pass the source of the class itself.")
    findings = check_signature(functions[0], parameters=2, annotations=_session_annotations(functions[0]))
    names = {n for n in dir(type(program)) if not n.startswith("_")} | vars(program).keys()
    constants = numbers_of({n: getattr(program, n) for n in names})
    fields = set(getattr(state, "_fields", ())) - NOT_FIELDS
    if not findings:
        findings = check_function(functions[0], map_scope(functions[0], constants=constants, fields=fields))
    if findings:
        raise findings[0].error(name)
    return compile_map(functions[0], constants=constants, file=name)


def _session_annotations(function: ast.FunctionDef) -> set[str]:
    """In a session Python has evaluated the annotations already; they are dropped, whatever they say."""
    hints = [a.annotation for a in function.args.args] + [function.returns]
    return {ast.unparse(h) for h in hints if isinstance(h, (ast.Name, ast.Attribute))}


def _import(name: str, _globals: Any = None, _locals: Any = None, _fromlist: Any = (), level: int = 0) -> Any:
    modules = {"numpy": np, "math": math, "tallystick": _FACADE, "typing": SimpleNamespace(NamedTuple=NamedTuple)}
    if name == "__future__":
        import __future__

        return __future__
    if level or name not in modules:
        raise StudyError(f"a program may not import {name}", remedy="Import numpy, math and tallystick only.")
    return modules[name]
