"""Names and signatures that the author of a program introduces."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tallystick.algorithms.user_programs.allow_list import PUBLIC_BUILTINS
from tallystick.algorithms.user_programs.findings import Finding, finding_at

__all__ = ["check_new_name", "check_signature"]


def check_new_name(node: ast.AST, name: str, *, taken: Iterable[str] = ()) -> list[Finding]:
    """A name that the author introduces: no underscore in front, nothing that already means something."""
    if name.startswith("_"):
        return [finding_at(node, "dunder", f"the name `{name}` begins with an underscore", "Choose another name.")]
    if name in PUBLIC_BUILTINS or name in ("np", "math", "ts") or name in set(taken):
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
