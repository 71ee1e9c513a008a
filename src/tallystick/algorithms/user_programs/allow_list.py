"""What a user's program may say: everything not listed here is refused, and nothing is executed to find out.

A program file travels to institutions that do not know its author. Before any of it runs, its syntax tree is read
against these lists. ``map_in_client`` touches records, so its list is short: arithmetic, ``for … in range``, ``if``,
named functions of ``np`` and ``math`` with a fixed number of arguments, ``self.CONSTANT`` and ``state.FIELD``. That
leaves no place in which one record could leave a trace for the next: no globals, closures, defaults or attributes to
write to, no uninitialised memory (``np.empty``, a variable that some path leaves without a value), no output array, no
randomness, no input or output. What depends on the lengths of record and state is checked once they are known
(:mod:`~.user_programs.map_compiler`). ``init`` and ``reduce_in_aggregator`` see public and released values only, and
have a wider list.

A finding says where (line, column), which rule, why, and what to write instead.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.algorithms.user_programs.map_compiler.signatures import BUILTINS, MATH, NUMPY, Signature
from tallystick.core.errors import StudyError

__all__ = [
    "MAP_NUMPY",
    "Finding",
    "Scope",
    "check_function",
    "check_new_name",
    "check_signature",
    "finding_at",
    "map_scope",
    "public_scope",
]


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


MAP_NUMPY = frozenset(NUMPY)
"""NumPy functions of ``map_in_client``; :mod:`~.user_programs.map_compiler` gives each its meaning."""

_PUBLIC_NUMPY = MAP_NUMPY | _names(
    "arange argsort sort asarray atleast_1d atleast_2d average column_stack hstack vstack stack reshape ravel "
    "transpose diag diagonal trace tril triu linspace median quantile nonzero cumprod diff flip repeat tile unique "
    "vdot inner matmul isclose allclose nan_to_num identity bincount count_nonzero split squeeze"
)
_LINALG = _names("solve lstsq inv pinv norm eigh eigvalsh svd qr cholesky det slogdet")
_MATH = frozenset(MATH)
_MATH_ROUNDING = frozenset({"floor", "ceil", "trunc"})
_MODULE_VALUES = {"np": frozenset({"pi", "e"}), "math": frozenset({"pi", "e", "tau"})}
_MAP_BUILTINS = frozenset(BUILTINS)
_PUBLIC_BUILTINS = _MAP_BUILTINS | _names("sum tuple list zip enumerate sorted round reversed")
_VALUE_ATTRIBUTES = frozenset({"shape", "size"})
_ARRAY_METHODS = _names("copy reshape sum mean min max dot ravel transpose")
_LIMIT = 2**63

_STATEMENTS = frozenset({ast.Assign, ast.AugAssign, ast.If, ast.For, ast.Return, ast.Pass, ast.Break, ast.Continue})
_EXPRESSIONS = frozenset(
    {
        *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Attribute),
        *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Constant),
    }
)
_OPERATORS = frozenset(
    {
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult),
        *(ast.BitAnd, ast.BitOr, ast.BitXor, ast.UAdd, ast.USub, ast.Not, ast.Invert, ast.And, ast.Or),
        *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    }
)

# Node type -> (rule, what it is called, what to do instead). A node in no list at all gets the rule "construct".
_REFUSED: dict[str, tuple[str, str, str]] = {
    "Import": ("import", "an import", "Import numpy, math and tallystick once, at the top of the file."),
    "ImportFrom": ("import", "an import", "Import numpy, math and tallystick once, at the top of the file."),
    "While": ("while", "a while loop", "Use `for … in range(…)`, which ends."),
    "Try": ("try", "try/except", "Test the value with `if` before using it."),
    "TryStar": ("try", "try/except", "Test the value with `if` before using it."),
    "With": ("with", "a with block", "Remove it: a program opens nothing."),
    "Raise": ("raise", "raise", "Remove it: a record cannot stop the study."),
    "Assert": ("raise", "assert", "Remove it: a record cannot stop the study."),
    "Global": ("global", "global", "Keep values in the state, or make them class constants."),
    "Nonlocal": ("global", "nonlocal", "Keep values in the state, or make them class constants."),
    "FunctionDef": ("nested-function", "a function inside a function", "Write its body in place."),
    "AsyncFunctionDef": ("async", "an async function", "Write a plain function."),
    "AsyncFor": ("async", "async for", "Use a plain `for … in range(…)`."),
    "AsyncWith": ("async", "async with", "Remove it: a program opens nothing."),
    "Await": ("async", "await", "Remove it: a program waits for nothing."),
    "ClassDef": ("nested-class", "a class inside a function", "Declare states as NamedTuple classes in the file."),
    "Lambda": ("lambda", "a lambda", "Write its body in place."),
    "Yield": ("generator", "yield", "Return one vector."),
    "YieldFrom": ("generator", "yield from", "Return one vector."),
    "ListComp": ("comprehension", "a comprehension", "Use np.zeros and a `for … in range(…)` loop."),
    "SetComp": ("comprehension", "a comprehension", "Use np.zeros and a `for … in range(…)` loop."),
    "DictComp": ("comprehension", "a comprehension", "Use np.zeros and a `for … in range(…)` loop."),
    "GeneratorExp": ("comprehension", "a generator", "Use np.zeros and a `for … in range(…)` loop."),
    "NamedExpr": ("walrus", "`:=`", "Assign on a line of its own."),
    "Starred": ("starred", "a starred expression", "Write the values out."),
    "JoinedStr": ("f-string", "an f-string", "Remove it: a program computes numbers."),
    "FormattedValue": ("f-string", "an f-string", "Remove it: a program computes numbers."),
    "Delete": ("delete", "del", "Remove it."),
    "AnnAssign": ("annotation", "an annotated assignment", "Assign without the annotation."),
    "Match": ("match", "match", "Use `if`."),
    "Dict": ("container", "a dictionary", "Use arrays and numbers."),
    "Set": ("container", "a set", "Use arrays and numbers."),
    "Expr": ("statement", "a value that is not used", "Assign it or remove it."),
    "LShift": ("operator", "<<", "Multiply by a power of two."),
    "RShift": ("operator", ">>", "Divide by a power of two."),
    "Is": ("operator", "is", "Compare with ==."),
    "IsNot": ("operator", "is not", "Compare with !=."),
    "In": ("operator", "in", "Compare with == in a loop."),
    "NotIn": ("operator", "not in", "Compare with != in a loop."),
}


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One thing a program may not say."""

    line: int
    column: int
    rule: str
    cause: str
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """As ``tallystick check-program --format json`` prints it."""
        return {f: getattr(self, f) for f in ("line", "column", "rule", "cause", "remedy")}

    def error(self, file: str) -> StudyError:
        """The same as an exception."""
        return StudyError(f"{file}:{self.line}:{self.column}: {self.cause}", remedy=self.remedy, rule=self.rule)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What one function may use. ``parameters`` maps each parameter to the attributes it has; ``bare`` are those that
    may also stand alone (``record``, ``total``, ``state``; not ``self`` and ``public``)."""

    function: str
    parameters: Mapping[str, frozenset[str]]
    bare: frozenset[str]
    numpy: frozenset[str]
    math: frozenset[str]
    builtins: frozenset[str]
    linalg: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    own_methods: Mapping[str, frozenset[str]] = field(default_factory=dict)
    attributes: frozenset[str] = _VALUE_ATTRIBUTES
    classes: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()
    wide: bool = False


def map_scope(function: ast.FunctionDef, *, constants: Iterable[str], fields: Iterable[str]) -> Scope:
    """The short list, for code that sees a record."""
    me, record, state = [a.arg for a in function.args.args][:3]
    return Scope(
        function=function.name,
        parameters={me: frozenset(constants), record: frozenset(), state: frozenset(fields)},
        bare=frozenset({record, state}),
        numpy=MAP_NUMPY,
        math=_MATH,
        builtins=_MAP_BUILTINS,
    )


def public_scope(
    function: ast.FunctionDef,
    *,
    constants: Iterable[str],
    fields: Iterable[str],
    classes: Iterable[str] = (),
    module_constants: Iterable[str] = (),
) -> Scope:
    """The wider list, for code that sees public and released values only: init, reduce_in_aggregator, finished."""
    me, *others = [a.arg for a in function.args.args]
    parameters = {me: frozenset(constants)} | {name: frozenset(fields) for name in others}
    bare, own = frozenset(others), {others[-1]: frozenset({"_replace"})}
    if function.name == "init":
        parameters[others[0]] = frozenset({"records", "features", "target", "classes", "max_l2_squared", "max_l1"})
        bare, own = frozenset(), {others[0]: frozenset({"index"})}
    return Scope(
        function=function.name,
        parameters=parameters,
        bare=bare,
        numpy=_PUBLIC_NUMPY,
        linalg=_LINALG,
        math=_MATH | _MATH_ROUNDING,
        builtins=_PUBLIC_BUILTINS,
        methods=_ARRAY_METHODS,
        own_methods=own,
        attributes=_VALUE_ATTRIBUTES | {"T", "ndim"},
        classes=frozenset(classes),
        constants=frozenset(module_constants),
        wide=True,
    )


def check_function(function: ast.FunctionDef, scope: Scope) -> list[Finding]:
    """Everything in the body that the scope does not allow, in the order of the text."""
    checker = _Checker(scope, function)
    checker.body(function)
    return sorted(set(checker.findings))


def finding_at(node: ast.AST, rule: str, cause: str, remedy: str) -> Finding:
    """A finding at the place of a node (columns are counted from 1, as editors do)."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    return Finding(line=line, column=column, rule=rule, cause=cause, remedy=remedy)


def check_new_name(node: ast.AST, name: str, *, taken: Iterable[str] = ()) -> list[Finding]:
    """A name that the author introduces: no underscore in front, nothing that already means something."""
    if name.startswith("_"):
        return [finding_at(node, "dunder", f"the name `{name}` begins with an underscore", "Choose another name.")]
    if name in _PUBLIC_BUILTINS or name in ("np", "math", "ts") or name in set(taken):
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


class _Checker:
    """Walks a function in execution order: refuses by default, and follows which names surely have a value."""

    def __init__(self, scope: Scope, function: ast.FunctionDef) -> None:
        self.scope = scope
        self.findings: list[Finding] = []
        self.modules = {"np": scope.numpy, "math": scope.math}
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.locals = stored
        self.assigned: set[str] = set(scope.bare)
        self.ended = False
        self.loops = 0

    def refuse(self, node: ast.AST, rule: str, cause: str, remedy: str) -> None:
        self.findings.append(finding_at(node, rule, f"in {self.scope.function}: {cause}", remedy))

    def unlisted(self, node: ast.AST, at: ast.AST | None = None) -> None:
        kind = type(node).__name__
        rule, name, remedy = _REFUSED.get(kind, ("construct", kind, "Write it with plain arithmetic, if and for."))
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
            if type(statement) not in _STATEMENTS:
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
        taken = self.scope.classes | self.scope.constants | self.scope.parameters.keys()
        self.findings.extend(check_new_name(node, name, taken=taken))

    # Expressions

    def expression(self, node: ast.expr, *, index: bool = False) -> None:
        if isinstance(node, ast.ListComp) and self.scope.wide:
            self.comprehension(node)
        elif type(node) not in _EXPRESSIONS or (isinstance(node, ast.Slice) and not index):
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
        if type(node) not in _OPERATORS and not (self.scope.wide and isinstance(node, (ast.Is, ast.IsNot))):
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
        if name in self.modules or name == "ts":
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

    def _attribute(self, node: ast.Attribute) -> None:
        base, name = node.value, node.attr
        where = base.id if isinstance(base, ast.Name) else None
        if name.startswith("_"):
            self.refuse(node, "dunder", f"the attribute `{name}`", "Remove it: names with underscores are not allowed.")
        elif where in _MODULE_VALUES:
            if name not in _MODULE_VALUES[where]:
                self.module_attribute(node, where, name, called=False)
        elif where is not None and where in self.scope.parameters and name in self.scope.parameters[where]:
            pass
        elif name in self.scope.attributes and not (where in self.scope.parameters and where not in self.scope.bare):
            self.expression(base)
        else:
            self.refuse_attribute(node, where, name)

    def refuse_attribute(self, node: ast.Attribute, where: str | None, name: str) -> None:
        if not isinstance(node.value, ast.Name):
            self.expression(node.value)
        has = sorted(self.scope.parameters.get(where or "", frozenset()))
        remedy = f"`{where}` has: {', '.join(has)}." if has else "Use functions: np.sum(x), len(x), x.shape."
        self.refuse(node, "attribute", f"`{where or '…'}.{name}` is not allowed", remedy)

    def module_attribute(self, node: ast.AST, module: str, name: str, *, called: bool) -> None:
        if module == "np" and name == "random":
            remedy = "Remove it: noise is added by the platform, and a program is deterministic."
            self.refuse(node, "random", "np.random is not allowed", remedy)
        elif module == "np" and name.startswith("empty"):
            self.refuse(node, "uninitialised", f"np.{name} returns uninitialised memory", "Use np.zeros.")
        elif name in self.modules[module] and not called:
            self.refuse(node, "attribute", f"`{module}.{name}` used without calling it", f"Call {module}.{name}(…).")
        elif name in _MATH_ROUNDING and module == "math":
            self.refuse(node, "attribute", f"math.{name} is not allowed", f"Use int(np.{name}(x)).")
        else:
            allowed = ", ".join(sorted(self.modules[module]))
            self.refuse(node, "attribute", f"`{module}.{name}` is not allowed", f"Allowed in {module}: {allowed}.")

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
        signature = _signature(node.func)
        if signature is None:
            return  # refused as a callee
        named = {k.arg for k in node.keywords if k.arg in ("axis", "dtype")}
        if not signature.least <= len(node.args) <= signature.most or not named <= signature.keywords:
            cause = f"{ast.unparse(node.func)} takes {signature.words()}"
            self.refuse(node, "arity", cause, _arity_remedy(node, signature))

    def callee(self, function: ast.expr) -> bool:
        """Check what is called; True where any keyword is fine (a state's own fields)."""
        if isinstance(function, ast.Name):
            name = function.id
            if name in self.scope.classes:
                return True
            if name not in self.scope.builtins or name in self.locals:
                remedy = f"Allowed: {', '.join(sorted(self.scope.builtins))}, and functions of np and math."
                rule = "dunder" if name.startswith("__") else "call"
                self.refuse(function, rule, f"calling `{name}` is not allowed", remedy)
            return False
        if not isinstance(function, ast.Attribute):
            self.refuse(function, "call", "calling a computed value", "Call functions of np and math by name.")
            self.expression(function)
            return False
        base, name = function.value, function.attr
        where = base.id if isinstance(base, ast.Name) else None
        if where is not None and name in self.scope.own_methods.get(where, ()):
            return name == "_replace"
        if name.startswith("_"):
            self.refuse(function, "dunder", f"the attribute `{name}`", "Remove it.")
        elif where in self.modules:
            if name not in self.modules[where]:
                self.module_attribute(function, where, name, called=True)
        elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.value.id in self.modules:
            dotted = f"{base.value.id}.{base.attr}"
            if dotted == "np.random":
                self.module_attribute(function, "np", "random", called=True)
            elif dotted != "np.linalg" or name not in self.scope.linalg:
                allowed = ", ".join(sorted(self.scope.linalg))
                remedy = f"Allowed in np.linalg: {allowed}." if allowed else "Call functions of np and math by name."
                self.refuse(function, "attribute", f"`{dotted}.{name}` is not allowed", remedy)
        elif name in self.scope.methods and not (where in self.scope.parameters and where not in self.scope.bare):
            self.expression(base)
        else:
            if not isinstance(base, ast.Name):
                self.expression(base)
            remedy = _method_remedy(name) if where != "self" else "Write its body in place."
            self.refuse(function, "attribute", f"calling `{where or '…'}.{name}` is not allowed", remedy)
        return False


def _signature(function: ast.expr) -> Signature | None:
    if isinstance(function, ast.Name):
        return BUILTINS.get(function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return {"np": NUMPY, "math": MATH}.get(function.value.id, {}).get(function.attr)
    return None


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
