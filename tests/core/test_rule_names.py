"""Rules have names that a reader can look up: every one raised in the source stands in docs/faults.md or docs/rules.md.

And nothing names a text that is not in the repository: no codes of a fault table, no sections of a specification.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.algorithms.user_programs.allow_list import REFUSED
from tallystick.engines.spark.failures import KNOWN
from tallystick.protocol.alignment.messages import Code as AlignmentCode
from tallystick.protocol.encrypted_sum.messages import Code as EncryptedCode
from tallystick.protocol.governance.policy import UNREAD
from tallystick.protocol.governance.standing import STATES
from tallystick.protocol.joint_products.messages import Code as ProductsCode
from tallystick.protocol.labels.messages import Code as LabelsCode
from tallystick.protocol.masked_sum.messages import Code as MaskedCode
from tallystick.protocol.secure_sum.messages import Code
from tallystick.protocol.study.messages import StudyCode
from tallystick.roles.governance.review import NAMES_COMPARED, UNACCEPTED

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tallystick"
FAULTS = (ROOT / "docs" / "faults.md").read_text()
PRIVACY_RULES = (ROOT / "docs" / "rules.md").read_text()
NAME = re.compile(r"[a-z]+(-[a-z]+)*")
IN_TABLES = re.compile(r'"((?:policy|storage)-[a-z-]+)"')


def texts_of(value: ast.expr | None) -> Iterator[str]:
    """The texts an expression may be: a constant, either side of a choice."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from texts_of(value.body)
        yield from texts_of(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from texts_of(part)


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def raised(trees: dict[str, ast.Module]) -> dict[str, str]:
    """Rule -> a file that raises it: arguments called ``rule``, by keyword, by position or by default."""
    places: dict[tuple[str, str], int] = {}  # (file, function) -> which argument is the rule
    found: dict[str, str] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in node.args.args]
                if "rule" in names:
                    places[file, node.name] = names.index("rule") - (names[0] == "self")
                defaults = [None] * (len(names) - len(node.args.defaults)) + node.args.defaults
                given = [*zip(names, defaults), *zip([a.arg for a in node.args.kwonlyargs], node.args.kw_defaults)]
                found |= {text: file for name, value in given if name == "rule" for text in texts_of(value)}
    shared = {function: place for (_, function), place in places.items() if function != "_refuse"}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            found |= {text: file for k in node.keywords if k.arg == "rule" for text in texts_of(k.value)}
            at = places.get((file, called(node)), shared.get(called(node)))
            if at is not None and at < len(node.args):
                found |= dict.fromkeys(texts_of(node.args[at]), file)
    return found


def source_rules() -> dict[str, str]:
    trees = {str(p.relative_to(ROOT)): ast.parse(p.read_text()) for p in sorted(SOURCE.rglob("*.py"))}
    tables = {
        "Code": [code.name.lower().replace("_", "-") for code in Code],
        "encrypted_sum.Code": [code.name.lower().replace("_", "-") for code in EncryptedCode],
        "masked_sum.Code": [code.name.lower().replace("_", "-") for code in MaskedCode],
        "alignment.Code": [code.name.lower().replace("_", "-") for code in AlignmentCode],
        "joint_products.Code": [code.name.lower().replace("_", "-") for code in ProductsCode],
        "labels.Code": [code.name.lower().replace("_", "-") for code in LabelsCode],
        "StudyCode": [code.name.lower().replace("_", "-") for code in StudyCode],
        "standing.STATES": [f"study-{state}" for state in STATES],
        "allow_list": [rule for rule, *_ in REFUSED.values()] + ["construct"],
        "review": [UNACCEPTED, NAMES_COMPARED],
        "Spark's own words": [rule for rule, *_ in KNOWN.values()],
        "policy and storage": [UNREAD, *(r for p in SOURCE.rglob("*.py") for r in IN_TABLES.findall(p.read_text()))],
    }
    named = {rule: where for where, rules in tables.items() for rule in rules}
    return {rule: file for rule, file in raised(trees).items() if rule} | named


def listed(text: str) -> set[str]:
    """The names in the first column of a page's tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_rule_has_a_readable_name_that_a_page_explains() -> None:
    rules = source_rules()
    assert len(rules) > 200
    assert [rule for rule in rules if not NAME.fullmatch(rule)] == []
    unexplained = {rule: where for rule, where in rules.items() if rule not in listed(FAULTS) | listed(PRIVACY_RULES)}
    assert unexplained == {}


def test_the_page_explains_no_rule_that_nobody_raises() -> None:
    assert listed(FAULTS) - source_rules().keys() == set()


def test_a_rule_that_is_raised_anywhere_is_found() -> None:
    text = """
def _refuse(cause, rule="one"): ...
_refuse("x", "two")
raise Fault("x", rule="three" if late else "four")
"""
    assert set(raised({"a.py": ast.parse(text)})) == {"one", "two", "three", "four"}


def test_the_tests_that_the_page_names_exist() -> None:
    rows = [line.split("|")[4] for line in FAULTS.splitlines() if line.startswith("| ") and line.count("|") == 5]
    names = {name.removeprefix("tests/") for row in rows[1:] for name in re.findall(r"`([^`]+)`", row)}
    assert len(names) > 30
    assert [name for name in names if not list((ROOT / "tests").glob(name))] == []


@pytest.mark.parametrize("place", ["src", "docs", "examples", "benchmarks", "tests", "README.md", "CONTRIBUTING.md"])
def test_nothing_refers_to_a_text_that_is_not_here(place: str) -> None:
    outside = re.compile(
        r"\bX(0[1-9]|[12][0-9]|3[0-2])\b|\btest_x\d\d_|\b[Ss]pec(/\w+)? §?B?\d|\bdesign §|reliability\.md"
    )
    where = ROOT / place
    files = (
        [where] if where.is_file() else [p for p in where.rglob("*") if p.suffix in {".py", ".md", ".toml", ".json"}]
    )
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if outside.search(line)
    ]
    assert found == []
