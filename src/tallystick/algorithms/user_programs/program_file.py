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
import hashlib
import io
import math
import textwrap
import tokenize
import warnings
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tallystick.algorithms.program import Program, Public
from tallystick.algorithms.user_programs.allow_list import (
    Finding,
    check_function,
    check_new_name,
    check_signature,
    finding_at,
    map_scope,
    public_scope,
)
from tallystick.algorithms.user_programs.compiled import CompiledMap, compile_map
from tallystick.core.errors import BoundsError, StudyError
from tallystick.core.identifiers import format_hash
from tallystick.core.readable_text import what_is_unreadable
from tallystick.privacy.grid import Group

__all__ = [
    "ProgramFile",
    "canonical_text",
    "compile_live_program",
    "compile_program",
    "inspect_program",
    "load_program",
    "read_program",
]

_MAX_CHARACTERS = 100_000
_MAX_DEPTH = 60
_MAX_CONSTANTS = 1000
_MAX_LEAVES = 10_000
_REQUIRED = {"init": 1, "map_in_client": 2, "reduce_in_aggregator": 2}
_OPTIONAL = {"finished": 1}
_RESERVED = set(dir(Program)) - {"rounds", "bound", "groups"} | {"compiled_map"}
_FACADE = SimpleNamespace(Program=Program, Group=Group, Public=Public)
_IMPORTS = frozenset(
    {"import numpy as np", "import math", "import tallystick as ts", "from typing import NamedTuple"}
    | {"from __future__ import annotations"}
)
_NOT_FIELDS = frozenset(
    (
        "T",
        "base",
        "ctypes",
        "data",
        "dtype",
        "flags",
        "flat",
        "imag",
        "itemsize",
        "nbytes",
        "ndim",
        "real",
        "shape",
        "size",
        "strides",
    )
)
_MATH_FOLD = {name: getattr(math, name) for name in ("sqrt", "log", "exp", "log2", "log10", "pi", "e", "tau")}


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


def canonical_text(text: str) -> str:
    """The text that is hashed: no byte-order mark, ``\\n`` line ends, exactly one at the end."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") + "\n"


def read_program(text: str, *, name: str = "program.py") -> ProgramFile:
    """The checked file, or the first finding as a StudyError ``name:line:column: …``."""
    program, findings = inspect_program(text, name=name)
    if program is None:
        raise findings[0].error(name)
    return program


def inspect_program(text: str, *, name: str = "program.py") -> tuple[ProgramFile | None, list[Finding]]:
    """The checked file (None if anything was found) and all findings, in order. Runs nothing, reads nothing."""
    text = canonical_text(text)
    findings = _unreadable(text)
    if findings:
        return None, findings
    tree, findings = _parse(text)
    if tree is None:
        return None, findings
    module = _Module(tree)
    findings = sorted(set(module.findings))
    if findings or module.program is None:
        return None, findings
    return (
        ProgramFile(
            name=name,
            hash=format_hash(hashlib.sha256(text.encode()).digest()),
            text=text,
            class_name=module.program.name,
            docstring=ast.get_docstring(tree) or ast.get_docstring(module.program) or "",
            constants=module.class_constants,
            fields=tuple(sorted(module.fields)),
        ),
        [],
    )


def load_program(file: ProgramFile) -> Program:
    """Execute a checked file and return an instance of its program. The text is checked again first."""
    checked = read_program(file.text, name=file.name)
    if checked.hash != file.hash:
        raise StudyError(f"{file.name} is not the text of {file.hash}", remedy="Read the program file again.")
    allowed = (
        abs,
        bool,
        enumerate,
        float,
        int,
        len,
        list,
        max,
        min,
        range,
        reversed,
        round,
        sorted,
        str,
        sum,
        tuple,
        zip,
    )
    builtins = {f.__name__: f for f in allowed} | {"__import__": _import, "__build_class__": __build_class__}
    space: dict[str, Any] = {"__builtins__": builtins, "__name__": "tallystick_program"}
    exec(compile(checked.text, f"<program {file.name}>", "exec", dont_inherit=True), space)
    program: Program = space[checked.class_name]()
    return program


def compile_program(file: ProgramFile) -> CompiledMap:
    """The map of a checked file; compiles when first used, once per kind of state."""
    tree, findings = _parse(file.text)
    if tree is None:
        raise findings[0].error(file.name)
    module = _Module(tree)
    if module.findings or module.program is None:
        raise (sorted(module.findings) or findings)[0].error(file.name)
    function = _methods(module.program)["map_in_client"]
    return compile_map(function, constants=_numbers(module.class_constants), file=file.name)


def compile_live_program(
    program: Program, state: Any, *, source: str, name: str = "program", first_line: int = 1
) -> CompiledMap:
    """The map of a Program subclass written in a session. ``source`` is the text of the class that defines it
    (``inspect.getsourcelines``); constants are what ``program`` holds, fields are those of ``state``."""
    text = canonical_text(textwrap.dedent(source))
    tree, findings = _parse(text)
    if tree is None:
        raise findings[0].error(name)
    ast.increment_lineno(tree, first_line - 1)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "map_in_client"]
    if len(functions) != 1:
        raise StudyError(f"{name} does not define map_in_client once", remedy="Pass the source of the class itself.")
    findings = check_signature(functions[0], parameters=2, annotations=_session_annotations(functions[0]))
    names = {n for n in dir(type(program)) if not n.startswith("_")} | vars(program).keys()
    constants = _numbers({n: getattr(program, n) for n in names})
    fields = set(getattr(state, "_fields", ())) - _NOT_FIELDS
    if not findings:
        findings = check_function(functions[0], map_scope(functions[0], constants=constants, fields=fields))
    if findings:
        raise findings[0].error(name)
    return compile_map(functions[0], constants=constants, file=name)


def _session_annotations(function: ast.FunctionDef) -> set[str]:
    """In a session Python has evaluated the annotations already; they are dropped, whatever they say."""
    hints = [a.annotation for a in function.args.args] + [function.returns]
    return {ast.unparse(h) for h in hints if isinstance(h, (ast.Name, ast.Attribute))}


def _leaves(value: Any) -> int:
    """How many values a constant holds. Each tuple is made of constants that were counted before, so this ends."""
    return sum(_leaves(part) for part in value) if isinstance(value, tuple) else 1


def _numbers(constants: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in constants.items() if _is_number_or_tuple(value)}


def _is_number_or_tuple(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and type(value) is tuple and all(_is_number_or_tuple(part) for part in value)
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (bool, int) and -(2**63) < value < 2**63


def _import(name: str, _globals: Any = None, _locals: Any = None, _fromlist: Any = (), level: int = 0) -> Any:
    modules = {"numpy": np, "math": math, "tallystick": _FACADE, "typing": SimpleNamespace(NamedTuple=NamedTuple)}
    if name == "__future__":
        import __future__

        return __future__
    if level or name not in modules:
        raise StudyError(f"a program may not import {name}", remedy="Import numpy, math and tallystick only.")
    return modules[name]


def _unreadable(text: str) -> list[Finding]:
    """Too long, or with characters that hide what a steward reads (bidirectional overrides, zero-width, controls)."""
    if len(text) > _MAX_CHARACTERS:
        cause = f"the file has {len(text)} characters, more than {_MAX_CHARACTERS}"
        return [Finding(line=1, column=1, rule="size", cause=cause, remedy="Write a shorter program.")]
    for number, line in enumerate(text.split("\n"), start=1):
        wrong = what_is_unreadable(line, lines=True)
        if wrong is not None:
            column = next((at for at, c in enumerate(line, start=1) if what_is_unreadable(c, lines=True)), 1)
            cause = f"an invisible or control character: {wrong}"
            remedy = "Remove it: what is approved must be what is read."
            return [Finding(line=number, column=column, rule="hidden-character", cause=cause, remedy=remedy)]
    return []


def _parse(text: str) -> tuple[ast.Module | None, list[Finding]]:
    def syntax(line: int | None, column: int | None, cause: str) -> tuple[None, list[Finding]]:
        found = Finding(
            line=line or 1, column=max(1, column or 1), rule="syntax", cause=cause, remedy="Correct the Python syntax."
        )
        return None, [found]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, "<program>", "exec", dont_inherit=True)  # finds `break` outside a loop and the like
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except SyntaxError as error:
        return syntax(error.lineno, error.offset, f"not Python: {error.msg}")
    except tokenize.TokenError as error:
        return syntax(error.args[1][0], error.args[1][1], "not Python: the text ends in the middle")
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return syntax(1, 1, "not Python, or nested too deeply")
    for token in tokens:
        if token.type == tokenize.NAME and not token.string.isascii():
            cause = f"the name {token.string!a} has letters outside ASCII, which can look like others"
            place = {"line": token.start[0], "column": token.start[1] + 1}
            return None, [Finding(**place, rule="hidden-character", cause=cause, remedy="Use plain letters in names.")]
    layer: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
    if layer:
        deep = next((n for n in layer if hasattr(n, "lineno")), tree)
        return None, [finding_at(deep, "depth", "an expression nested too deeply", "Split it over several lines.")]
    return tree, []


def _methods(program: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in program.body if isinstance(n, ast.FunctionDef)}


def _is_docstring(node: ast.stmt, body: list[ast.stmt]) -> bool:
    return (
        node is body[0]
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class _Module:
    """Reads a module statement by statement; what has no place in a program file becomes a finding."""

    def __init__(self, tree: ast.Module) -> None:
        self.findings: list[Finding] = []
        self.constants: dict[str, Any] = {}
        self.class_constants: dict[str, Any] = {}
        self.states: dict[str, ast.ClassDef] = {}
        self.fields: set[str] = set()
        self.program: ast.ClassDef | None = None
        self.imported: set[str] = set()
        for node in tree.body:
            self.statement(node, tree.body)
        if self.program is None:
            remedy = "Write one class that subclasses ts.Program."
            self.findings.append(finding_at(tree, "program", "there is no program in this file", remedy))
        for use in ast.walk(tree):
            if isinstance(use, ast.Name) and use.id in ("np", "math", "ts") and use.id not in self.imported:
                line = next(i for i in sorted(_IMPORTS) if i.endswith(use.id))
                self.refuse(use, "import", f"`{use.id}` is used and not imported", f"Write `{line}` at the top.")

    def refuse(self, node: ast.AST, rule: str, cause: str, remedy: str) -> None:
        self.findings.append(finding_at(node, rule, cause, remedy))

    def statement(self, node: ast.stmt, body: list[ast.stmt]) -> None:
        if _is_docstring(node, body):
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.import_(node)
        elif isinstance(node, ast.ClassDef):
            self.class_(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self.assignment(node, self.constants)
        else:
            remedy = "A program file holds a docstring, imports, constants, state classes and one program."
            self.refuse(node, "file", f"{type(node).__name__} has no place in a program file", remedy)

    def import_(self, node: ast.Import | ast.ImportFrom) -> None:
        ours = {f.name for f in node.names} if ast.unparse(node).startswith("from tallystick import ") else set()
        if ours and ours <= {"Program", "Group", "Public"} and not any(f.asname for f in node.names):
            self.imported |= ours
        elif ast.unparse(node) in _IMPORTS:
            self.imported |= {f.asname or f.name for f in node.names}
        else:
            remedy = f"Allowed: {'; '.join(sorted(_IMPORTS))}; from tallystick import Program, Group, Public."
            self.refuse(node, "import", f"`{ast.unparse(node)[:80]}` is not allowed", remedy)

    def class_(self, node: ast.ClassDef) -> None:
        self.findings += check_new_name(node, node.name, taken=self.states.keys() | self.constants.keys())
        base = ast.unparse(node.bases[0]) if len(node.bases) == 1 else ""
        extras = node.keywords or node.decorator_list or getattr(node, "type_params", None)
        if extras or base not in ("NamedTuple", "Program", "ts.Program") or base.split(".")[0] not in self.imported:
            remedy = "Subclass NamedTuple (a state) or ts.Program, imported above, without decorators or keywords."
            self.refuse(node, "class", f"class {node.name} is neither a state nor a program", remedy)
        elif base == "NamedTuple":
            self.state(node)
        elif self.program is not None:
            self.refuse(node, "program", "a second program in the file", "Put it in a file of its own.")
        else:
            self.program = node
            self.program_class(node)

    def state(self, node: ast.ClassDef) -> None:
        self.states[node.name] = node
        for item in node.body:
            if _is_docstring(item, node.body):
                continue
            hint = ast.unparse(item.annotation) if isinstance(item, ast.AnnAssign) else ""
            if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is None):
                self.refuse(item, "state", "a state class holds fields only", "Write `weights: np.ndarray`.")
            elif hint not in ("np.ndarray", "float"):
                self.refuse(item, "annotation", f"a field of type {hint[:40]}", "Use np.ndarray or float.")
            elif item.target.id in _NOT_FIELDS or item.target.id.startswith("_"):
                self.refuse(item, "state", f"`{item.target.id}` cannot name a field", "Choose another name.")
            else:
                self.fields.add(item.target.id)

    def assignment(self, node: ast.Assign | ast.AnnAssign, into: dict[str, Any]) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        if annotation is not None and ast.unparse(annotation) not in ("int", "float", "bool", "str", "tuple"):
            self.refuse(node, "annotation", "this annotation is not allowed", "Leave it out.")
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or node.value is None:
            self.refuse(node, "constant", "a constant is one name and one value", "Write NAME = value.")
            return
        name = targets[0].id
        if len(self.constants) + len(self.class_constants) >= _MAX_CONSTANTS:
            self.refuse(node, "constant", f"more than {_MAX_CONSTANTS} constants", "Use a tuple.")
            return
        taken = name in self.states or name in into or name in self.imported or name in _RESERVED
        self.findings += check_new_name(node, name, taken=(name,) if taken else ())
        try:
            value = _Fold(ChainMap(into, self.constants)).value(node.value)
            if _leaves(value) > _MAX_LEAVES:
                raise _NotConstantError(node.value, f"it holds more than {_MAX_LEAVES:,} values")
            into[name] = value
        except _NotConstantError as problem:
            at, cause = problem.args
            remedy = "Use numbers, text, tuples, arithmetic on them, math.sqrt/log/exp and ts.Group(…)."
            self.refuse(at, "constant", f"`{name}` is not a constant: {cause}", remedy)
            into.setdefault(name, None)

    def program_class(self, node: ast.ClassDef) -> None:
        for item in node.body:
            if isinstance(item, (ast.Assign, ast.AnnAssign)):
                self.assignment(item, self.class_constants)
            elif not isinstance(item, ast.FunctionDef) and not _is_docstring(item, node.body):
                what = type(item).__name__
                self.refuse(item, "class", f"{what} has no place in a program", "Write constants and the functions.")
        seen: set[str] = set()
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                self.method(item, seen)
        for name in _REQUIRED.keys() - seen:
            self.refuse(node, "program", f"{node.name} has no {name}", f"Write def {name}(self, …).")
        self.declared(node)

    def method(self, function: ast.FunctionDef, seen: set[str]) -> None:
        allowed = _REQUIRED | _OPTIONAL
        if function.name not in allowed or function.name in seen:
            remedy = f"A program has {', '.join(_REQUIRED)} and, if it stops early, finished; each once."
            self.refuse(function, "method", f"a method named {function.name[:40]}", remedy)
            return
        seen.add(function.name)
        problems = check_signature(function, parameters=allowed[function.name], annotations=self.states)
        self.findings += problems
        if any(p.rule == "parameters" for p in problems):
            return
        if function.name == "map_in_client":
            scope = map_scope(function, constants=_numbers(self.class_constants), fields=self.fields)
        else:
            scope = public_scope(
                function,
                constants=self.class_constants,
                fields=self.fields,
                classes=self.states,
                module_constants=self.constants,
            )
        self.findings += check_function(function, scope)

    def declared(self, node: ast.ClassDef) -> None:
        c = self.class_constants
        rounds, bound, groups = c.get("rounds", Program.rounds), c.get("bound"), c.get("groups")
        if type(rounds) is not int or not 1 <= rounds <= 1_000_000:
            self.refuse(node, "rounds", "`rounds` is not a positive whole number", "Write rounds = 10.")
        if (bound is None) == (groups is None):
            remedy = "Write bound = …, the largest norm of one record's vector, or groups = (ts.Group(…), …)."
            self.refuse(node, "bound", f"{node.name} needs either `bound` or `groups`", remedy)
        elif bound is not None and not (type(bound) in (int, float) and 0 < bound < math.inf):
            self.refuse(node, "bound", "`bound` is not a positive number", "Write bound = 1.0.")
        elif groups is not None and not (
            isinstance(groups, tuple) and groups and all(isinstance(g, Group) for g in groups)
        ):
            self.refuse(node, "bound", "`groups` is not a tuple of ts.Group", "Write groups = (ts.Group(…), …).")


class _NotConstantError(Exception):
    """(node, cause) of a value that is not a constant."""


class _Fold:
    """Evaluates the arithmetic of constants on the syntax tree; numbers stay within 64 bits, so it cannot blow up."""

    _BINARY: Mapping[type[ast.operator], str] = {
        ast.Add: "__add__",
        ast.Sub: "__sub__",
        ast.Mult: "__mul__",
        ast.Div: "__truediv__",
        ast.FloorDiv: "__floordiv__",
    }

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ts.Group", "Group"):
            return self.group(node)
        return self.number(node)

    def number(self, node: ast.expr) -> Any:
        try:
            result = self.arithmetic(node)
        except (ArithmeticError, ValueError, TypeError):
            raise _NotConstantError(node, "the arithmetic fails") from None
        if not _is_number_or_tuple(result) or isinstance(result, tuple):
            raise _NotConstantError(node, "not a finite number of 64 bits")
        return result

    def arithmetic(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.number(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left), self.number(node.right)
            if isinstance(node.op, ast.Pow):
                # Whole powers of whole numbers below 2^63 fit in 64 squarings of a float first: no huge integer arises.
                return left**right if abs(float(left) ** float(right)) < 2.0**62 else math.inf
            if type(node.op) in self._BINARY:
                left, right = (
                    (left, right) if isinstance(left, int) and isinstance(right, int) else (float(left), float(right))
                )
                return getattr(left, self._BINARY[type(node.op)])(right)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("math.pi", "math.e", "math.tau"):
            return _MATH_FOLD[node.attr]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            function = _MATH_FOLD.get(node.func.attr)
            if callable(function) and ast.unparse(node.func.value) == "math" and not node.keywords:
                return function(self.number(node.args[0]))
        raise _NotConstantError(node, f"{type(node).__name__} is not allowed here")

    def group(self, node: ast.Call) -> Group:
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        types: dict[str, tuple[type, ...]] = {
            "name": (str,),
            "size": (int,),
            "bound": (int, float),
            "share": (int, float),
            "nonnegative": (bool,),
        }
        if node.args or len(keywords) != len(node.keywords) or not keywords.keys() <= types.keys():
            raise _NotConstantError(node, "a group is ts.Group(name=…, size=…, bound=…, share=…, nonnegative=…)")
        if any(type(value) not in types[key] for key, value in keywords.items()):
            raise _NotConstantError(node, "a group has a text name, a whole size, two numbers, and True or False")
        try:
            return Group(**keywords)
        except BoundsError as error:
            raise _NotConstantError(node, str(error)) from None
        except TypeError:
            raise _NotConstantError(node, "a group needs name, size and bound") from None
