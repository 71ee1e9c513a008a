"""What a user's program may say: everything not listed here is refused, and nothing is executed to find out.

A program file travels to institutions that do not know its author. Before any of it runs, its syntax tree is read
against these lists. ``map_in_client`` touches records, so its list is short: arithmetic, ``for … in range``, ``if``,
named functions of ``np`` and ``math`` with a fixed number of arguments, ``self.CONSTANT`` and ``state.FIELD``. That
leaves no place in which one record could leave a trace for the next: no globals, closures, defaults or attributes to
write to, no uninitialised memory (``np.empty``, a variable that some path leaves without a value), no output array, no
randomness, no input or output. What depends on the lengths of record and state is checked once they are known
(:mod:`~.user_programs.map_compiler`). ``init`` and ``reduce_in_aggregator`` see public and released values only, and
have a wider list.

The lists are here; :mod:`~.user_programs.allow_list_check` reads a function against them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from tallystick.algorithms.user_programs.map_compiler.code import names
from tallystick.algorithms.user_programs.map_compiler.signatures import BUILTINS, MATH, NUMPY

MAP_NUMPY = frozenset(NUMPY)
"""NumPy functions of ``map_in_client``; :mod:`~.user_programs.map_compiler` gives each its meaning."""

_PUBLIC_NUMPY = MAP_NUMPY | names(
    "arange argsort sort asarray atleast_1d atleast_2d average column_stack hstack vstack stack reshape ravel "
    "transpose diag diagonal trace tril triu linspace median quantile nonzero cumprod diff flip repeat tile unique "
    "vdot inner matmul isclose allclose nan_to_num identity bincount count_nonzero split squeeze"
)
_LINALG = names("solve lstsq inv pinv norm eigh eigvalsh svd qr cholesky det slogdet")
MATH_ROUNDING = frozenset({"floor", "ceil", "trunc"})
_MODULE_VALUES = {"np": frozenset({"pi", "e"}), "math": frozenset({"pi", "e", "tau"})}
PUBLIC_BUILTINS = BUILTINS.keys() | names("sum tuple list zip enumerate sorted round reversed")
_ARRAY_METHODS = names("copy reshape sum mean min max dot ravel transpose")

STATEMENTS = frozenset({ast.Assign, ast.AugAssign, ast.If, ast.For, ast.Return, ast.Pass, ast.Break, ast.Continue})
EXPRESSIONS = frozenset(
    {
        *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Attribute),
        *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Constant),
    }
)
OPERATORS = frozenset(
    {
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult),
        *(ast.BitAnd, ast.BitOr, ast.BitXor, ast.UAdd, ast.USub, ast.Not, ast.Invert, ast.And, ast.Or),
        *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    }
)

# Node type -> (rule, what it is called, what to do instead). A node in no list at all gets the rule "construct".
REFUSED: dict[str, tuple[str, str, str]] = {
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


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What one function may use; what it may read or call by a dotted name is listed by what stands before the dot."""

    function: str
    values: Mapping[str, Set[str]]
    """What each parameter and module has to read: ``self.NAME``, ``state.FIELD``, ``np.pi``."""
    functions: Mapping[str, Set[str]]
    """What they have to call: ``np.sum``, ``np.linalg.solve``, ``state._replace``."""
    builtins: Set[str]
    bare: frozenset[str]
    """Parameters that may also stand alone: ``record``, ``total``, ``state``; not ``self`` and ``public``."""
    methods: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset({"shape", "size"})
    classes: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()
    wide: bool = False

    @property
    def parameters(self) -> Set[str]:
        """Their names."""
        return self.values.keys() - _MODULE_VALUES.keys()


def map_scope(function: ast.FunctionDef, *, constants: Iterable[str], fields: Iterable[str]) -> Scope:
    """The short list, for code that sees a record."""
    me, record, state = [a.arg for a in function.args.args][:3]
    return Scope(
        function=function.name,
        values=_MODULE_VALUES | {me: frozenset(constants), record: frozenset(), state: frozenset(fields)},
        functions={"np": MAP_NUMPY, "math": MATH.keys()},
        builtins=BUILTINS.keys(),
        bare=frozenset({record, state}),
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
    values = _MODULE_VALUES | {me: frozenset(constants)} | {name: frozenset(fields) for name in others}
    bare, own = frozenset(others), {others[-1]: frozenset({"_replace"})}
    if function.name == "init":
        values[others[0]] = frozenset({"records", "features", "target", "classes", "max_l2_squared", "max_l1"})
        bare, own = frozenset(), {others[0]: frozenset({"index"})}
    return Scope(
        function=function.name,
        values=values,
        functions={"np": _PUBLIC_NUMPY, "np.linalg": _LINALG, "math": MATH.keys() | MATH_ROUNDING, **own},
        builtins=PUBLIC_BUILTINS,
        bare=bare,
        methods=_ARRAY_METHODS,
        attributes=frozenset({"shape", "size", "T", "ndim"}),
        classes=frozenset(classes),
        constants=frozenset(module_constants),
        wide=True,
    )
