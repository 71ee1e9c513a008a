"""A function read against the allow-list, in the order in which it would run: what is not listed is a finding."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable

from tallystick.algorithms.user_programs.allow_list import (
    EXPRESSIONS,
    MAP_NUMPY,
    MATH_ROUNDING,
    OPERATORS,
    PUBLIC_BUILTINS,
    REFUSED,
    STATEMENTS,
    Scope,
)
from tallystick.algorithms.user_programs.findings import Finding, finding_at
from tallystick.algorithms.user_programs.map_compiler.signatures import Signature, signature_of

_LIMIT = 2**63
_MODULES = ("np", "math", "ts")


def check_new_name(node: ast.AST, name: str, *, taken: Iterable[str] = ()) -> list[Finding]:
    """A name that the author introduces: no underscore in front, nothing that already means something."""
    if name.startswith("_"):
        return [finding_at(node, "dunder", f"the name `{name}` begins with an underscore", "Choose another name.")]
    if name in PUBLIC_BUILTINS or name in _MODULES or name in set(taken):
        return [finding_at(node, "shadow", f"`{name}` already means something", "Choose another name.")]
    return []


def check_signature(function: ast.FunctionDef, *, parameters: int, annotations: Iterable[str] = ()) -> list[Finding]:
    """A plain ``def`` with ``self`` and so many parameters: no defaults, no ``*``, no decorator."""
    found = []
    a = function.args
    for decorator in function.decorator_list:
        found.append(finding_at(decorator, "decorator", "a decorator is not allowed", "Remove it."))
    extra = [x for x in (a.vararg, a.kwarg) if x] + a.kwonlyargs + a.posonlyargs
    defaults = [d for d in a.defaults + a.kw_defaults if d is not None]
    names = [x.arg for x in a.args]
    if extra or defaults or names[:1] != ["self"] or len(names) != parameters + 1:
        at = (defaults + extra + [function])[0]
        remedy = f"Write def {function.name}(self, {', '.join('abc'[:parameters])}) with names of your own after self."
        found.append(finding_at(at, "parameters", f"{function.name} takes self and {parameters} plain names", remedy))
    for x in a.args[1:]:
        found += check_new_name(x, x.arg)
    known = {"float", "int", "bool", "tuple", "np.ndarray", "ts.Public", "Public", *annotations}
    hints = [x.annotation for x in (*a.args, *extra) if isinstance(x, ast.arg)] + [function.returns]
    for hint in hints:
        if hint is not None and not (isinstance(hint, (ast.Name, ast.Attribute)) and ast.unparse(hint) in known):
            remedy = f"Use one of: {', '.join(sorted(known))}; or none."
            found.append(finding_at(hint, "annotation", "this type annotation is not allowed", remedy))
    if getattr(function, "type_params", None):
        found.append(finding_at(function, "annotation", "type parameters are not allowed", "Remove them."))
    return found


def check_function(function: ast.FunctionDef, scope: Scope) -> list[Finding]:
    """Everything in the body that the scope does not allow, in the order of the text."""
    checker = _Checker(scope, function)
    checker.body(function)
    return sorted(set(checker.findings))


class _Checker:
    """Walks a function in execution order: refuses by default, and follows which names surely have a value."""

    def __init__(self, scope: Scope, function: ast.FunctionDef) -> None:
        self.scope = scope
        self.findings: list[Finding] = []
        self.locals = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.assigned: set[str] = set(scope.bare)
        self.ended = False

    def refuse(self, node: ast.AST, rule: str, cause: str, remedy: str) -> None:
        self.findings.append(finding_at(node, rule, f"in {self.scope.function}: {cause}", remedy))

    def unlisted(self, node: ast.AST, at: ast.AST | None = None) -> None:
        kind = type(node).__name__
        rule, name, remedy = REFUSED.get(kind, ("construct", kind, "Write it with plain arithmetic, if and for."))
        self.refuse(at or node, rule, f"{name} is not allowed", remedy)

    # Statements

    def body(self, function: ast.FunctionDef) -> None:
        statements = function.body
        if ast.get_docstring(function, clean=False) is not None:
            statements = statements[1:]
        self.block(statements)
        if not self.ended:
            what = "a vector" if function.name == "map_in_client" else "a value"
            self.refuse(function, "return", f"not every path returns {what}", "End every path with `return …`.")

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if type(statement) not in STATEMENTS:
                self.unlisted(statement)
                continue
            getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _break(self, node: ast.Break) -> None:
        self.ended = True

    _continue = _break

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self.refuse(node, "return", "return without a value", "Return a value.")
        else:
            self.expression(node.value)
        self.ended = True

    def _assign(self, node: ast.Assign) -> None:
        self.expression(node.value)
        for target in node.targets:
            self.target(target)

    def _augassign(self, node: ast.AugAssign) -> None:
        self.operator(node.op, node)
        if isinstance(node.op, ast.MatMult):
            self.refuse(node, "operator", "`@=` is not allowed", "Write x = x @ y.")
        self.expression(node.value)
        if isinstance(node.target, ast.Name):
            self.read(node.target)
        self.target(node.target)

    def _if(self, node: ast.If) -> None:
        self.expression(node.test)
        before, ended = set(self.assigned), self.ended
        self.block(node.body)
        then, then_ended = self.assigned, self.ended
        self.assigned, self.ended = before, ended
        self.block(node.orelse)
        if self.ended:
            self.assigned = then
        elif not then_ended:
            self.assigned &= then
        self.ended = self.ended and then_ended

    def _for(self, node: ast.For) -> None:
        counted = (
            isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
        )
        if not (counted or self.scope.wide):
            self.refuse(node.iter, "for", "a loop over something other than range(…)", "Use `for i in range(len(x))`.")
        if node.orelse:
            self.refuse(node.orelse[0], "for", "`else` after a loop", "Put it after the loop.")
        self.expression(node.iter)
        before, ended = set(self.assigned), self.ended
        self.target(node.target, loop=True)
        self.block(node.body)
        self.block(node.orelse)
        self.assigned, self.ended = before, ended

    def target(self, node: ast.expr, *, loop: bool = False) -> None:
        if isinstance(node, ast.Name):
            self.check_new_name(node, node.id)
            self.assigned.add(node.id)
        elif isinstance(node, ast.Tuple) and (self.scope.wide or not loop):
            for part in node.elts:
                self.target(part)
        elif isinstance(node, ast.Subscript):
            base: ast.expr = node
            while isinstance(base, (ast.Subscript, ast.Attribute)):
                base = base.value
            if isinstance(base, ast.Name) and base.id in self.scope.parameters:
                remedy = "Write into a new array, e.g. one made by np.zeros."
                self.refuse(node, "write", f"writing into `{base.id}`, which is read-only", remedy)
            elif not (isinstance(base, ast.Name) and base.id in self.locals):
                self.refuse(node, "write", "writing into something that is not a local array", "Assign to a variable.")
            self.expression(node.value)
            self.expression(node.slice, index=True)
        elif isinstance(node, ast.Attribute):
            self.refuse(node, "write", "writing to an attribute", "Keep values in variables; return what is to last.")
        else:
            self.unlisted(node)

    def check_new_name(self, node: ast.AST, name: str) -> None:
        taken = self.scope.classes | self.scope.constants | self.scope.parameters
        self.findings.extend(check_new_name(node, name, taken=taken))

    # Expressions

    def expression(self, node: ast.expr, *, index: bool = False) -> None:
        if isinstance(node, ast.ListComp) and self.scope.wide:
            self.comprehension(node)
        elif type(node) not in EXPRESSIONS or (isinstance(node, ast.Slice) and not index):
            self.unlisted(node)
        elif isinstance(node, ast.Tuple) and index:
            for part in node.elts:
                self.expression(part, index=True)
        else:
            handler = getattr(self, f"_{type(node).__name__.lower()}", None)
            if handler is not None:
                handler(node)
            else:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.expression(child)
                    elif not isinstance(child, ast.expr_context):
                        self.operator(child, node)

    def operator(self, node: ast.AST, at: ast.AST) -> None:
        if type(node) not in OPERATORS and not (self.scope.wide and isinstance(node, (ast.Is, ast.IsNot))):
            self.unlisted(node, at)

    def comprehension(self, node: ast.ListComp) -> None:
        before = set(self.assigned)
        for generator in node.generators:
            if generator.is_async:
                self.refuse(node, "async", "an async comprehension", "Use a plain one.")
            self.expression(generator.iter)
            self.target(generator.target, loop=True)
            for condition in generator.ifs:
                self.expression(condition)
        self.expression(node.elt)
        self.assigned = before

    def _subscript(self, node: ast.Subscript) -> None:
        self.expression(node.value)
        self.expression(node.slice, index=True)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, (int, float)):
            if not -_LIMIT < value < _LIMIT if isinstance(value, int) else not math.isfinite(value):
                self.refuse(node, "constant", "a number that does not fit 64 bits", "Use a smaller one.")
        elif not (self.scope.wide and (value is None or isinstance(value, str))):
            kind = type(value).__name__
            self.refuse(node, "constant", f"a constant of type {kind}", "Use numbers and True or False.")

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if name in _MODULES:
            self.refuse(node, "module", f"`{name}` alone", f"Call one of its functions, e.g. {name}.sqrt(x).")
        elif name in self.locals or name in self.scope.bare or name in self.scope.constants:
            self.read(node)
        elif name in self.scope.parameters:
            self.refuse(node, "name", f"`{name}` alone", f"Use `{name}.NAME`, one of its constants or facts.")
        elif name in self.scope.builtins or name in self.scope.classes:
            self.refuse(node, "name", f"`{name}` used without calling it", f"Call it: {name}(…).")
        else:
            self.unknown(node, name)

    def unknown(self, node: ast.AST, name: str) -> None:
        if re.match(r"__.*__$", name):
            self.refuse(node, "dunder", f"the name `{name}`", "Remove it.")
        else:
            remedy = "Make it a class constant and write self.NAME, or compute it in the function."
            self.refuse(node, "name", f"`{name}` is neither a parameter, a variable nor an allowed function", remedy)

    def read(self, node: ast.Name) -> None:
        if node.id in self.locals and node.id not in self.assigned:
            remedy = "Give it a value before the `if` or the loop."
            self.refuse(node, "unassigned", f"`{node.id}` may have no value here", remedy)

    def _attribute(self, node: ast.Attribute, *, called: bool = False) -> None:
        """``x.name``, or ``x.name(…)`` if it is called."""
        base, name, where = node.value, node.attr, _dotted(node.value)
        listed = name in (self.scope.functions if called else self.scope.values).get(where, ())
        alone = where not in self.scope.parameters or where in self.scope.bare
        if name.startswith("_") and not (listed and called):
            self.refuse(node, "dunder", f"the attribute `{name}`", "Remove it: names with underscores are not allowed.")
        elif listed:
            return
        elif where.split(".")[0] in ("np", "math"):
            self.module_attribute(node, where, name, called=called)
        elif alone and name in (self.scope.methods if called else self.scope.attributes):
            self.expression(base)
        else:
            if not isinstance(base, ast.Name):
                self.expression(base)
            self.refuse_attribute(node, base.id if isinstance(base, ast.Name) else "…", name, called=called)

    def refuse_attribute(self, node: ast.AST, where: str, name: str, *, called: bool) -> None:
        has = ", ".join(sorted(self.scope.values.get(where, ())))
        if called:
            remedy = _method_remedy(name) if where != "self" else "Write its body in place."
        else:
            remedy = f"`{where}` has: {has}." if has else "Use functions: np.sum(x), len(x), x.shape."
        self.refuse(node, "attribute", f"{'calling ' if called else ''}`{where}.{name}` is not allowed", remedy)

    def module_attribute(self, node: ast.AST, where: str, name: str, *, called: bool) -> None:
        dotted, functions = f"{where}.{name}", self.scope.functions
        if f"{dotted}.".startswith("np.random."):
            remedy = "Remove it: noise is added by the platform, and a program is deterministic."
            self.refuse(node, "random", "np.random is not allowed", remedy)
        elif dotted.startswith("np.empty"):
            self.refuse(node, "uninitialised", f"{dotted} returns uninitialised memory", "Use np.zeros.")
        elif name in functions.get(where, ()):
            self.refuse(node, "attribute", f"`{dotted}` used without calling it", f"Call {dotted}(…).")
        elif name in MATH_ROUNDING and where == "math":
            self.refuse(node, "attribute", f"math.{name} is not allowed", f"Use int(np.{name}(x)).")
        else:
            module = where if where in functions else where.split(".")[0]
            allowed = ", ".join(sorted(functions[module]))
            self.refuse(node, "attribute", f"`{dotted}` is not allowed", f"Allowed in {module}: {allowed}.")

    def _call(self, node: ast.Call) -> None:
        any_keyword = self.callee(node.func)
        if not self.scope.wide:
            self.arity(node)
        for argument in node.args:
            self.expression(argument)
        for keyword in node.keywords:
            dtype = isinstance(keyword.value, ast.Attribute) and ast.unparse(keyword.value) == "np.float64"
            if keyword.arg is None:
                self.refuse(keyword, "starred", "`**` in a call is not allowed", "Write the arguments out.")
            elif keyword.arg == "dtype" and dtype:
                continue
            elif any_keyword or keyword.arg == "axis" or (self.scope.wide and keyword.arg == "keepdims"):
                self.expression(keyword.value)
            elif not self.scope.wide and keyword.arg == "dtype":
                self.refuse(keyword, "keyword", "a dtype other than np.float64", "Leave it out.")
            else:
                remedy = "Pass arguments by position; only axis= and dtype=np.float64 are named."
                self.refuse(keyword, "keyword", f"the keyword `{keyword.arg}` is not allowed", remedy)

    def arity(self, node: ast.Call) -> None:
        """In a map each function takes as many arguments as it needs: behind them NumPy takes an output array."""
        signature = signature_of(node.func)
        named = {k.arg for k in node.keywords if k.arg in ("axis", "dtype")}
        if signature is not None and not signature.takes(len(node.args), named):  # None: refused as a callee
            cause = f"{ast.unparse(node.func)} takes {signature.words()}"
            self.refuse(node, "arity", cause, _arity_remedy(node, signature))

    def callee(self, function: ast.expr) -> bool:
        """Check what is called; True where any keyword is fine (a state's own fields)."""
        if isinstance(function, ast.Attribute):
            self._attribute(function, called=True)
            return function.attr == "_replace"
        if not isinstance(function, ast.Name):
            self.refuse(function, "call", "calling a computed value", "Call functions of np and math by name.")
            self.expression(function)
            return False
        name = function.id
        if name in self.scope.classes:
            return True
        if name not in self.scope.builtins or name in self.locals:
            remedy = f"Allowed: {', '.join(sorted(self.scope.builtins))}, and functions of np and math."
            rule = "dunder" if name.startswith("__") else "call"
            self.refuse(function, rule, f"calling `{name}` is not allowed", remedy)
        return False


def _dotted(node: ast.expr) -> str:
    """``np.linalg`` as it is written; nothing for what is computed."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _arity_remedy(node: ast.Call, signature: Signature) -> str:
    """What to write instead; only a call with too many arguments can have meant an output array."""
    called = ast.unparse(node.func)
    if len(node.args) > signature.most:
        by_name = f"Give axis by name: {called}(x, axis=0). " if "axis" in signature.keywords else ""
        return f"{by_name}An output array cannot be given: write x = f(…)."
    if called in ("min", "max"):
        return f"Of an array it is np.{called}(x)."
    return "Give all of them, by position."


_OTHER_WAYS = {
    "copy": "Write 1.0 * x.",
    "astype": "Write 1.0 * x, or int(x) of one number.",
    **dict.fromkeys(
        ("reshape", "ravel", "flatten"), "Join rows: np.concatenate((m[0], m[1])), or fill np.zeros(n) in a loop."
    ),
    **dict.fromkeys(("transpose", "swapaxes"), "Swap the indices in a loop, or write y @ m for m.T @ y."),
}


def _method_remedy(name: str) -> str:
    """What to write instead of ``x.name()``."""
    if name in MAP_NUMPY:
        return f"Call functions instead: np.{name}(x)."
    return _OTHER_WAYS.get(name, "Call functions instead, e.g. np.sum(x).")
