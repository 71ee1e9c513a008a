"""Rules with which a client decides about a study without a person: limits first, then the first rule that matches.

    [[policy.rules]]
    when = { epsilon_above = 0.5 }
    then = "reject"
    because = "This institution takes part up to epsilon 0.5 only."

All conditions of a rule must hold; a rule without conditions always matches. ``then`` is "approve", "reject" or "ask"
(a person decides). If no rule matches, the default holds. Limits refuse whatever the rules say.

What is not known, not a number or not private counts as above every limit: no study escapes "always reject epsilon
above 0.5" by stating no epsilon. A program file is known by its hash alone; its name is whatever its author chose.

Code that nobody here has read is approved by no rule and by no default. A rule approves a program file only if its own
``program`` names the file's hash, or if ``programs`` among the limits does; any other approval of it becomes "ask": the
proposal waits for a person, and the verdict says why. The same holds for columns that no person has accepted for the
data set in use (:mod:`tallystick.roles.governance.review`): no rule looks at the data, and none has to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tallystick.core.errors import StudyError
from tallystick.core.readable_text import what_is_unreadable
from tallystick.protocol.governance.standing import DEFAULT_QUORUM

OUTCOMES = ("approve", "reject", "ask")
UNREAD = "program-file"  # the verdict on code that no rule names by its hash
MAX_TEXT = 2000
MAX_NAME = 100  # a decision says by which rule it was made


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What rules look at: public facts of a study, who proposes it, and its effect on this client's own budget."""

    program: str
    program_hash: str | None
    analyst: str
    purpose: str
    columns: tuple[str, ...]
    epsilon: float
    delta: float
    min_clients: int
    unit: str
    neighbours: str
    mechanism: str
    budget_share: float | None = field(default=None, repr=False)
    """Share of what is left of the budget that the study would take; above 1 if it does not fit. Stays here."""

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.mechanism != "none"

    def among(self, programs: Sequence[str]) -> bool:
        """Whether its program is listed: a built-in one by name, a file by its hash."""
        return (self.program if self.program_hash is None else self.program_hash) in programs


def facts_of(
    study: Mapping[str, Any], *, analyst: str, delta: float, budget_share: float | None, purpose: str | None = None
) -> Facts:
    """The facts of a checked study in its canonical (JSON) form; ``delta`` is the plan's, which may be a default."""
    head, privacy = study["study"], study["privacy"]
    features = head["features"]
    people = study["data"].get("identifier")  # by which institutions tell each other whom they have in common
    apart = None if people is None else people["column"]
    named = [*(study["data"]["columns"] if features is None else features), head["target"], privacy["person"], apart]
    stated = study["trust"]["min_clients"]
    return Facts(
        program=head["program"],
        program_hash=head["program_hash"],
        analyst=analyst,
        purpose=head["purpose"] if purpose is None else purpose,
        columns=tuple(dict.fromkeys(name for name in named if name is not None)),
        epsilon=float(privacy["epsilon"]),
        delta=delta,
        min_clients=DEFAULT_QUORUM if stated is None else stated,
        unit=privacy["unit"],
        neighbours=privacy["neighbours"],
        mechanism=privacy["mechanism"],
        budget_share=budget_share,
    )


# -- conditions --------------------------------------------------------------------------------------------------------


def _above(value: float, limit: float) -> bool:
    return not value <= limit  # NaN is above everything


def _epsilon(facts: Facts) -> float:
    return facts.epsilon if facts.private else math.inf


def _delta(facts: Facts) -> float:
    return facts.delta if facts.private else math.inf


def _share(facts: Facts) -> float:
    return math.inf if facts.budget_share is None else facts.budget_share


_Holds = Callable[[Facts, Any], bool]
# name -> (type of its value, whether it holds)
CONDITIONS: dict[str, tuple[str, _Holds]] = {
    "epsilon_above": ("number", lambda f, v: _above(_epsilon(f), v)),
    "epsilon_at_most": ("number", lambda f, v: _epsilon(f) <= v),
    "delta_above": ("number", lambda f, v: _above(_delta(f), v)),
    "budget_share_above": ("number", lambda f, v: _above(_share(f), v)),
    "min_clients_below": ("count", lambda f, v: f.min_clients < v),
    "program": ("texts", lambda f, v: f.among(v)),
    "analyst": ("texts", lambda f, v: f.analyst in v),
    "columns_any": ("texts", lambda f, v: not set(v).isdisjoint(f.columns)),
    "columns_only": ("texts", lambda f, v: set(f.columns) <= set(v)),
    "unit": ("text", lambda f, v: f.unit == v),
    "neighbours": ("text", lambda f, v: f.neighbours == v),
    "mechanism": ("text", lambda f, v: f.mechanism == v),
    "purpose_empty": ("flag", lambda f, v: (not f.purpose.strip()) == v),
    "custom_program": ("flag", lambda f, v: (f.program_hash is not None) == v),
}
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "number": ("a finite number, 0 or above", lambda v: type(v) in (int, float) and 0 <= v <= sys.float_info.max),
    "count": ("a whole number, 0 or above", lambda v: type(v) is int and v >= 0),
    "text": ("a text", lambda v: type(v) is str and bool(v)),
    "texts": ("a list of texts", lambda v: type(v) in (list, tuple) and all(type(t) is str and t for t in v)),
    "flag": ("true or false", lambda v: type(v) is bool),
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """If all of ``when`` hold, then ``then``, because."""

    when: Mapping[str, Any]
    then: str
    because: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        where = f"policy {self.name or 'rule'}"
        for condition, value in self.when.items():
            if condition not in CONDITIONS:
                _refuse(
                    f"{where} has the unknown condition {ascii(condition)[:60]}", f"Known: {', '.join(CONDITIONS)}."
                )
            words, fits = _TYPES[CONDITIONS[condition][0]]
            if not fits(value):
                _refuse(f"{where}: {condition} is not {words}", "Correct its value.")
        if self.then not in OUTCOMES:
            _refuse(f"{where}: then = {ascii(self.then)[:40]} is not possible", f"Use {', '.join(OUTCOMES)}.")
        for text, most in ((self.because, MAX_TEXT), (self.name, MAX_NAME)):
            if type(text) is not str or what_is_unreadable(text) or len(text) > most:
                _refuse(f"{where[:80]}: because and name are printable texts", f"Use at most {most} characters.")

    def matches(self, facts: Facts) -> bool:
        """Whether every condition holds."""
        return all(CONDITIONS[name][1](facts, value) for name, value in self.when.items())


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client refuses whatever its rules say.

    ``programs``: built-in ones by name, files by hash, and nothing else; empty, nothing at all. None: every built-in
    program, and of files those that a rule names by hash or a person approves.
    """

    programs: tuple[str, ...] | None = None
    max_epsilon: float = 1.0
    allow_not_private: bool = False
    min_clients: int = 3

    def broken(self, facts: Facts) -> tuple[str, str] | None:
        """The first limit that the study breaks, with its sentence; None if it keeps them all."""
        if self.programs is not None and not facts.among(self.programs):
            named = facts.program_hash or facts.program
            if not self.programs:
                return "policy-programs", f"This client's list of programs is empty: {named} is not allowed."
            return "policy-programs", f"The program {named} is not on this client's list."
        if not facts.private and not self.allow_not_private:
            return "policy-allow-not-private", "Exact results are not allowed here."
        if facts.private and _above(facts.epsilon, self.max_epsilon):
            limit = f"{self.max_epsilon:g}"
            return "policy-max-epsilon", f"epsilon = {facts.epsilon:g} is above this client's limit of {limit} a study."
        if facts.min_clients < self.min_clients:
            return "policy-min-clients", f"min_clients = {facts.min_clients} is below this client's {self.min_clients}."
        return None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the policy says, by which of its rules, and why (in words that may be shown to the analyst)."""

    decision: str
    rule: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits, then rules in order, then the default."""

    limits: Limits = Limits()
    rules: tuple[Rule, ...] = ()
    default: str = "ask"

    def __post_init__(self) -> None:
        if self.default not in ("ask", "approve", "reject"):
            _refuse(f"policy default = {ascii(self.default)[:40]} is not possible", "Use ask, approve or reject.")

    def decide(self, facts: Facts) -> Verdict:
        """Approve, reject or ask."""
        broken = self.limits.broken(facts)
        if broken is not None:
            return Verdict(decision="reject", rule=broken[0], because=broken[1])
        for number, rule in enumerate(self.rules, 1):
            if rule.matches(facts):
                verdict = Verdict(decision=rule.then, rule=rule.name or f"rule {number}", because=rule.because)
                return self._read_first(verdict, facts, rule.when.get("program", ()))
        return self._read_first(Verdict(decision=self.default, rule="default", because=""), facts, ())

    def _read_first(self, verdict: Verdict, facts: Facts, named: Sequence[str]) -> Verdict:
        """The verdict; but a program file whose hash stands neither in ``named`` nor among the limits is for a person.

        Nobody here has read it: an approval for other reasons says nothing about what the file does.
        """
        file = facts.program_hash
        if verdict.decision != "approve" or file is None or file in named or file in (self.limits.programs or ()):
            return verdict
        why = f"{verdict.rule} would approve, but does not name the file {file}"
        return Verdict(decision="ask", rule=UNREAD, because=f"A person reads the program first: {why}.")


def parse_rules(tables: Any) -> tuple[Rule, ...]:
    """The rules of a role file's ``[[policy.rules]]``; unknown keys and wrong types are errors."""
    if type(tables) is not list or not all(type(table) is dict for table in tables):
        _refuse("policy rules are written as [[policy.rules]]", 'Each has when = { … }, then = "…", because = "…".')
    rules = []
    for number, table in enumerate(tables, 1):
        unknown = set(table) - {"when", "then", "because", "name"}
        if unknown or "then" not in table or type(table.get("when", {})) is not dict:
            what = f"the unknown key {ascii(min(unknown))[:60]}" if unknown else "no then, or a when that is no table"
            _refuse(f"policy rule {number} has {what}", "A rule has when, then, because and name.")
        rules.append(Rule(**{"when": {}, "name": f"rule {number}"} | table))
    return tuple(rules)


def _refuse(cause: str, remedy: str) -> NoReturn:
    raise StudyError(cause, rule="config", remedy=remedy)
