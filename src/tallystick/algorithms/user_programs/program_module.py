"""The shape of a program file: a docstring, imports, constants, state classes and one program. Nothing is run."""

from __future__ import annotations

import ast
import math
from collections import ChainMap
from typing import Any

from tallystick.algorithms.program import Program
from tallystick.algorithms.user_programs.allow_list import map_scope, public_scope
from tallystick.algorithms.user_programs.allow_list_check import check_function, check_new_name, check_signature
from tallystick.algorithms.user_programs.constants import Fold, NotConstantError, leaves_of, numbers_of
from tallystick.algorithms.user_programs.findings import Finding, finding_at
from tallystick.algorithms.user_programs.map_compiler.code import names
from tallystick.privacy.grid import Group

_MAX_CONSTANTS = 1000
_MAX_LEAVES = 10_000
_REQUIRED = {"init": 1, "map_in_client": 2, "reduce_in_aggregator": 2}
_OPTIONAL = {"finished": 1}
_RESERVED = set(dir(Program)) - {"rounds", "bound", "groups"} | {"compiled_map"}
_IMPORTS = frozenset(
    {"import numpy as np", "import math", "import tallystick as ts", "from typing import NamedTuple"}
    | {"from __future__ import annotations"}
)
NOT_FIELDS = names("T base ctypes data dtype flags flat imag itemsize nbytes ndim real shape size strides")
"""Of arrays, so that ``state.shape`` means one thing."""


def _is_docstring(node: ast.stmt, body: list[ast.stmt]) -> bool:
    return (
        node is body[0]
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class ProgramModule:
    """Reads a module statement by statement; what has no place in a program file becomes a finding."""

    def __init__(self, tree: ast.Module) -> None:
        self.findings: list[Finding] = []
        self.constants: dict[str, Any] = {}
        self.class_constants: dict[str, Any] = {}
        self.states: dict[str, ast.ClassDef] = {}
        self.fields: set[str] = set()
        self.program: ast.ClassDef | None = None
        self.methods: dict[str, ast.FunctionDef] = {}
        self.imported: set[str] = set()
        for node in tree.body:
            self.statement(node, tree.body)
        if self.program is None:
            remedy = "Write one class that subclasses ts.Program."
            self.refuse(tree, "program", "there is no program in this file", remedy)
        self.docstring = ast.get_docstring(tree) or (ast.get_docstring(self.program) if self.program else None) or ""
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
            elif item.target.id in NOT_FIELDS or item.target.id.startswith("_"):
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
            value = Fold(ChainMap(into, self.constants)).value(node.value)
            if leaves_of(value) > _MAX_LEAVES:
                raise NotConstantError(node.value, f"it holds more than {_MAX_LEAVES:,} values")
            into[name] = value
        except NotConstantError as problem:
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
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                self.method(item)
        for name in _REQUIRED.keys() - self.methods.keys():
            self.refuse(node, "program", f"{node.name} has no {name}", f"Write def {name}(self, …).")
        self.declared(node)

    def method(self, function: ast.FunctionDef) -> None:
        allowed = _REQUIRED | _OPTIONAL
        if function.name not in allowed or function.name in self.methods:
            remedy = f"A program has {', '.join(_REQUIRED)} and, if it stops early, finished; each once."
            self.refuse(function, "method", f"a method named {function.name[:40]}", remedy)
            return
        self.methods[function.name] = function
        problems = check_signature(function, parameters=allowed[function.name], annotations=self.states)
        self.findings += problems
        if any(p.rule == "parameters" for p in problems):
            return
        if function.name == "map_in_client":
            scope = map_scope(function, constants=numbers_of(self.class_constants), fields=self.fields)
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
