"""Rules that decide without a person: each condition, the first match, hard limits, and what tries to slip through."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from governance_world import mutated
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import StudyError
from tallystick.protocol.governance.policy import (
    CONDITIONS,
    UNREAD,
    Facts,
    Limits,
    Policy,
    Rule,
    Verdict,
    facts_of,
    parse_rules,
)

FILE = "sha256:" + "ab" * 32
FACTS = Facts(
    program="logistic_regression",
    program_hash=None,
    analyst="ana",
    purpose="How many had the flu?",
    columns=("age", "sex", "ill"),
    epsilon=0.5,
    delta=1e-6,
    min_clients=3,
    unit="record",
    neighbours="replace-one",
    mechanism="gaussian",
    budget_share=0.25,
)
CUSTOM = replace(FACTS, program="logistic_regression.py", program_hash=FILE)
EXACT = replace(FACTS, mechanism="none")
WIDE = Limits(max_epsilon=100.0, allow_not_private=True, min_clients=2)

HOLDS: list[tuple[str, Any, Facts]] = [
    ("epsilon_above", 0.49, FACTS),
    ("epsilon_above", 0, FACTS),
    ("epsilon_above", 0.5, replace(FACTS, epsilon=math.nextafter(0.5, 1))),
    ("epsilon_above", 0.5, replace(FACTS, epsilon=math.nan)),
    ("epsilon_above", 0.5, replace(FACTS, epsilon=math.inf)),
    ("epsilon_above", 0.5, EXACT),  # no noise is above every epsilon
    ("epsilon_at_most", 0.5, FACTS),
    ("delta_above", 1e-7, FACTS),
    ("delta_above", 0.5, EXACT),
    ("delta_above", 0.5, replace(FACTS, delta=math.nan)),
    ("min_clients_below", 4, FACTS),
    ("program", ["mean", "logistic_regression"], FACTS),
    ("program", [FILE], CUSTOM),
    ("analyst", ["ana"], FACTS),
    ("columns_any", ["income", "sex"], FACTS),
    ("columns_only", ["age", "sex", "ill", "income"], FACTS),
    ("columns_only", ["age", "sex", "ill"], FACTS),
    ("unit", "record", FACTS),
    ("neighbours", "replace-one", FACTS),
    ("mechanism", "gaussian", FACTS),
    ("budget_share_above", 0.2, FACTS),
    ("budget_share_above", 1.0, replace(FACTS, budget_share=None)),  # not known: above everything
    ("purpose_empty", True, replace(FACTS, purpose="  ")),
    ("purpose_empty", False, FACTS),
    ("custom_program", True, CUSTOM),
    ("custom_program", False, FACTS),
]
FAILS: list[tuple[str, Any, Facts]] = [
    ("epsilon_above", 0.5, FACTS),
    ("epsilon_at_most", 0.49, FACTS),
    ("epsilon_at_most", 1e300, EXACT),
    ("epsilon_at_most", 1e300, replace(FACTS, epsilon=math.nan)),
    ("delta_above", 1e-6, FACTS),
    ("min_clients_below", 3, FACTS),
    ("program", ["mean"], FACTS),
    ("program", [], FACTS),
    ("program", ["logistic_regression", "logistic_regression.py"], CUSTOM),  # a file is known by its hash alone
    ("analyst", ["bob", "ana "], FACTS),
    ("columns_any", ["income"], FACTS),
    ("columns_any", [], FACTS),
    ("columns_only", ["age", "sex"], FACTS),
    ("unit", "person", FACTS),
    ("neighbours", "add-remove", FACTS),
    ("mechanism", "laplace", FACTS),
    ("budget_share_above", 0.25, FACTS),
    ("purpose_empty", True, FACTS),
    ("purpose_empty", False, replace(FACTS, purpose="")),
    ("custom_program", True, FACTS),
    ("custom_program", False, CUSTOM),
]


@pytest.mark.parametrize("condition, value, facts", HOLDS)
def test_a_condition_holds(condition: str, value: Any, facts: Facts) -> None:
    assert Rule(when={condition: value}, then="reject").matches(facts)


@pytest.mark.parametrize("condition, value, facts", FAILS)
def test_a_condition_does_not_hold(condition: str, value: Any, facts: Facts) -> None:
    assert not Rule(when={condition: value}, then="reject").matches(facts)


def test_every_condition_is_shown_both_ways() -> None:
    assert {name for name, _, _ in HOLDS} == {name for name, _, _ in FAILS} == set(CONDITIONS)


def test_all_conditions_of_a_rule_must_hold() -> None:
    both = Rule(when={"epsilon_at_most": 0.5, "analyst": ["ana"]}, then="approve")
    assert both.matches(FACTS)
    assert not both.matches(replace(FACTS, analyst="bob"))
    assert not both.matches(replace(FACTS, epsilon=0.6))
    assert Rule(when={}, then="ask").matches(FACTS)


def test_the_first_match_wins() -> None:
    rules = (
        Rule(when={"epsilon_above": 0.4}, then="reject", because="Too much."),
        Rule(when={"analyst": ["ana"]}, then="approve", because="Known.", name="friends"),
        Rule(when={}, then="ask"),
    )
    policy = Policy(limits=WIDE, rules=rules, default="approve")
    assert policy.decide(FACTS) == Verdict(decision="reject", rule="rule 1", because="Too much.")
    low = replace(FACTS, epsilon=0.1)
    assert policy.decide(low) == Verdict(decision="approve", rule="friends", because="Known.")
    assert policy.decide(replace(low, analyst="bob")) == Verdict(decision="ask", rule="rule 3", because="")
    turned = Policy(limits=WIDE, rules=rules[::-1])
    assert turned.decide(FACTS).decision == "ask"


def test_the_default() -> None:
    assert Policy(limits=WIDE).decide(FACTS) == Verdict(decision="ask", rule="default", because="")
    assert Policy(limits=WIDE, default="approve").decide(FACTS).decision == "approve"
    with pytest.raises(StudyError):
        Policy(default="yes")


@pytest.mark.parametrize(
    "limits, facts, rule",
    [
        (Limits(programs=("mean",)), FACTS, "policy-programs"),
        (Limits(programs=()), FACTS, "policy-programs"),
        (Limits(programs=("logistic_regression.py",)), CUSTOM, "policy-programs"),
        (Limits(max_epsilon=0.4), FACTS, "policy-max-epsilon"),
        (Limits(max_epsilon=0.4), replace(FACTS, epsilon=math.nan), "policy-max-epsilon"),
        (Limits(), EXACT, "policy-allow-not-private"),
        (Limits(min_clients=4), FACTS, "policy-min-clients"),
    ],
)
def test_limits_refuse_whatever_the_rules_say(limits: Limits, facts: Facts, rule: str) -> None:
    policy = Policy(limits=limits, rules=(Rule(when={}, then="approve"),), default="approve")
    verdict = policy.decide(facts)
    assert (verdict.decision, verdict.rule) == ("reject", rule)
    assert verdict.because
    assert verdict.because.isprintable()
    assert policy.decide(replace(FACTS, program="mean", epsilon=0.1, min_clients=9)).decision in ("approve", "reject")


def test_limits_that_are_kept_refuse_nothing() -> None:
    assert Limits(programs=("logistic_regression",), max_epsilon=0.5, min_clients=3).broken(FACTS) is None
    assert Limits(programs=(FILE,), max_epsilon=0.5).broken(CUSTOM) is None
    assert Limits(allow_not_private=True).broken(EXACT) is None


# -- code that nobody has read -----------------------------------------------------------------------------------------

OTHER_FILE = "sha256:" + "cd" * 32
YES: dict[str, Any] = {"then": "approve", "because": "Always welcome."}
UNNAMED = {
    "default": Policy(limits=WIDE, default="approve"),
    "epsilon": Policy(limits=WIDE, rules=(Rule(when={"epsilon_at_most": 0.5}, **YES),)),
    "epsilon and analyst": Policy(limits=WIDE, rules=(Rule(when={"epsilon_at_most": 1, "analyst": ["ana"]}, **YES),)),
    "files in general": Policy(limits=WIDE, rules=(Rule(when={"custom_program": True}, **YES),)),
    "no condition": Policy(limits=WIDE, rules=(Rule(when={}, **YES),), default="approve"),
    "another rule names it": Policy(
        limits=WIDE,
        rules=(Rule(when={"program": [FILE], "epsilon_at_most": 0.1}, **YES), Rule(when={}, **YES)),
    ),
    "a refusal names it": Policy(
        limits=WIDE, rules=(Rule(when={"program": [FILE], "epsilon_above": 0.6}, then="reject"), Rule(when={}, **YES))
    ),
}


@pytest.mark.parametrize("why", UNNAMED)
def test_a_program_file_is_approved_by_no_rule_that_does_not_name_it(why: str) -> None:
    verdict = UNNAMED[why].decide(CUSTOM)
    assert (verdict.decision, verdict.rule) == ("ask", UNREAD)
    assert FILE in verdict.because  # what would have to be named, after it was read
    assert verdict.because.isprintable()
    assert UNNAMED[why].decide(FACTS).decision in ("approve", "ask")
    assert UNNAMED[why].decide(FACTS).rule != UNREAD  # a built-in program is not unread code


def test_a_program_file_is_approved_by_its_hash() -> None:
    by_rule = Policy(limits=WIDE, rules=(Rule(when={"program": [OTHER_FILE, FILE], "epsilon_at_most": 0.5}, **YES),))
    assert by_rule.decide(CUSTOM) == Verdict(decision="approve", rule="rule 1", because="Always welcome.")
    assert by_rule.decide(replace(CUSTOM, epsilon=0.6)).decision == "ask"
    assert by_rule.decide(replace(CUSTOM, program_hash="sha256:" + "AB" * 32)).decision == "ask"
    listed = Limits(programs=(FILE, "summary"), max_epsilon=1.0, min_clients=2)
    for policy in (
        Policy(limits=listed, default="approve"),
        Policy(limits=listed, rules=(Rule(when={"epsilon_at_most": 0.5}, **YES),)),
    ):
        assert policy.decide(CUSTOM).decision == "approve"
        assert policy.decide(replace(CUSTOM, program_hash=OTHER_FILE)).rule == "policy-programs"
    assert Policy(limits=listed).decide(CUSTOM).decision == "ask"  # allowed is not yet approved


def test_an_empty_list_of_programs_allows_nothing() -> None:
    for rules in ((), (Rule(when={}, **YES),), (Rule(when={"program": [FILE, "logistic_regression"]}, **YES),)):
        policy = Policy(limits=replace(WIDE, programs=()), rules=rules, default="approve")
        for facts in (FACTS, CUSTOM, EXACT):
            verdict = policy.decide(facts)
            assert (verdict.decision, verdict.rule) == ("reject", "policy-programs")
            assert "empty" in verdict.because


_WHENS = st.fixed_dictionaries(
    {},
    optional={
        "epsilon_at_most": st.sampled_from((0.1, 0.5, 1)),
        "epsilon_above": st.sampled_from((0, 0.4)),
        "program": st.lists(st.sampled_from((FILE, OTHER_FILE, "logistic_regression", "logistic_regression.py"))),
        "analyst": st.lists(st.sampled_from(("ana", "bob"))),
        "custom_program": st.booleans(),
    },
)
_LISTS = st.none() | st.lists(st.sampled_from((FILE, OTHER_FILE, "logistic_regression"))).map(tuple)


@settings(deadline=None, max_examples=300)
@given(
    rules=st.lists(st.builds(Rule, when=_WHENS, then=st.sampled_from(("approve", "reject", "ask"))), max_size=4),
    programs=_LISTS,
    default=st.sampled_from(("ask", "approve", "reject")),
    epsilon=st.sampled_from((0.05, 0.45, 0.9)),
)
def test_unread_code_is_never_approved_whatever_the_policy(
    rules: list[Rule], programs: tuple[str, ...] | None, default: str, epsilon: float
) -> None:
    policy = Policy(limits=replace(WIDE, programs=programs), rules=tuple(rules), default=default)
    facts = replace(CUSTOM, epsilon=epsilon)
    named = FILE in (programs or ()) or any(FILE in r.when.get("program", ()) and r.matches(facts) for r in rules)
    verdict = policy.decide(facts)
    assert named or verdict.decision != "approve"
    if verdict.rule == UNREAD:  # it waits, and would be approved but for that
        assert verdict.decision == "ask"
        known = replace(WIDE, programs=None if programs is None else (*programs, FILE))
        wide = replace(known, programs=(FILE,)) if programs is None else known
        assert replace(policy, limits=wide).decide(facts).decision == "approve"


ALWAYS = """
[[policy.rules]]
when = { epsilon_above = 0.5 }
then = "reject"
because = "This institution takes part up to epsilon 0.5 only."

[[policy.rules]]
when = { custom_program = true }
then = "ask"

[[policy.rules]]
name = "routine"
when = { epsilon_at_most = 0.1, columns_only = ["age", "sex", "ill"], budget_share_above = 0 }
then = "approve"
"""


def always() -> Policy:
    return Policy(limits=WIDE, rules=parse_rules(tomllib.loads(ALWAYS)["policy"]["rules"]), default="approve")


@settings(deadline=None, max_examples=150)
@given(
    epsilon=st.floats(allow_nan=True, allow_infinity=True),
    mechanism=st.sampled_from(("gaussian", "laplace", "none")),
    custom=st.booleans(),
    share=st.none() | st.floats(0, 2),
)
def test_always_reject_epsilon_above_one_half(
    epsilon: float, mechanism: str, custom: bool, share: float | None
) -> None:
    """The issue's own rule: nothing that could cost more than 0.5 is let through without a person, by any rule."""
    facts = replace(CUSTOM if custom else FACTS, epsilon=epsilon, mechanism=mechanism, budget_share=share)
    verdict = always().decide(facts)
    within = mechanism != "none" and epsilon <= 0.5
    assert (verdict.decision == "reject") == (not within)
    if not within:
        assert verdict.rule in ("rule 1", "policy-max-epsilon")
        assert verdict.because


def test_always_at_the_edge() -> None:
    assert always().decide(FACTS).decision == "approve"
    assert always().decide(replace(FACTS, epsilon=math.nextafter(0.5, 1))).decision == "reject"
    assert always().decide(CUSTOM).decision == "ask"
    assert always().decide(replace(FACTS, epsilon=0.1)).rule == "routine"


@pytest.mark.parametrize(
    "tables, words",
    [
        ([{"when": {"epsilon_over": 0.5}, "then": "reject"}], "epsilon_over"),
        ([{"when": {"epsilon_above": "0.5"}, "then": "reject"}], "epsilon_above"),
        ([{"when": {"epsilon_above": True}, "then": "reject"}], "epsilon_above"),
        ([{"when": {"epsilon_above": math.nan}, "then": "reject"}], "epsilon_above"),
        ([{"when": {"epsilon_above": -1}, "then": "reject"}], "epsilon_above"),
        ([{"when": {"min_clients_below": 2.5}, "then": "reject"}], "min_clients_below"),
        ([{"when": {"program": "mean"}, "then": "approve"}], "program"),
        ([{"when": {"program": [""]}, "then": "approve"}], "program"),
        ([{"when": {"unit": ["record"]}, "then": "ask"}], "unit"),
        ([{"when": {"purpose_empty": 1}, "then": "ask"}], "purpose_empty"),
        ([{"when": {}, "then": "allow"}], "allow"),
        ([{"when": {}, "then": ["ask"]}], "ask"),
        ([{"when": {}}], "no then"),
        ([{"when": [], "then": "ask"}], "when"),
        ([{"wen": {}, "then": "ask"}], "wen"),
        ([{"then": "ask", "because": "a\nb"}], "printable"),
        ([{"then": "ask", "because": 7}], "printable"),
        ([{"then": "ask", "because": "a" * 2001}], "printable"),
        ([{"then": "ask", "name": "a" * 101}], "printable"),
        ([{"then": "ask", "name": "a\x1b"}], "printable"),
        ({"when": {}}, "rules"),
        (["ask"], "rules"),
    ],
)
def test_a_misspelt_rule_never_goes_unnoticed(tables: Any, words: str) -> None:
    with pytest.raises(StudyError) as refusal:
        parse_rules(tables)
    assert words in refusal.value.cause
    assert refusal.value.remedy
    assert refusal.value.rule == "config"


def test_facts_of_a_study() -> None:
    study: dict[str, Any] = {
        "study": {
            "program": "mean",
            "program_hash": None,
            "features": None,
            "target": "ill",
            "purpose": "So it says.",
        },
        "privacy": {
            "epsilon": 1,
            "person": "id",
            "unit": "person",
            "neighbours": "add-remove",
            "mechanism": "laplace",
        },
        "trust": {"min_clients": None},
        "data": {"columns": {"age": {}, "ill": {}}},
    }
    facts = facts_of(study, analyst="bob", delta=0.0, budget_share=None)
    assert facts == Facts(
        program="mean",
        program_hash=None,
        analyst="bob",
        purpose="So it says.",
        columns=("age", "ill", "id"),
        epsilon=1.0,
        delta=0.0,
        min_clients=3,
        unit="person",
        neighbours="add-remove",
        mechanism="laplace",
        budget_share=None,
    )
    study = json.loads(json.dumps(study))
    study["study"] |= {"features": ["age"], "target": None}
    study["privacy"]["person"] = None
    study["trust"]["min_clients"] = 5
    narrow = facts_of(study, analyst="bob", delta=0.0, budget_share=0.5, purpose="")
    assert (narrow.columns, narrow.min_clients, narrow.purpose) == (("age",), 5, "")
    assert "0.5" not in repr(narrow)  # what is left of the budget stays here


BUGS = {
    "above or equal": ("return not value <= limit", "return value >= limit"),
    "NaN slips through": ("return not value <= limit", "return value > limit"),
    "no noise has an epsilon": ("return facts.epsilon if facts.private else math.inf", "return facts.epsilon"),
    "unknown share is none": (
        "return math.inf if facts.budget_share is None",
        "return 0.0 if facts.budget_share is None",
    ),
    "any condition is enough": ("return all(CONDITIONS[name]", "return any(CONDITIONS[name]"),
    "a file's name counts": ("(self.program if self.program_hash is None else self.program_hash)", "self.program"),
    "a rule approves unread code": ('if verdict.decision != "approve" or file is None or ', "if True or "),
    "an empty list is no list": ("if self.programs is not None and", "if self.programs and"),
    "last match wins": ("enumerate(self.rules, 1):", "reversed(list(enumerate(self.rules, 1))):"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug: str) -> None:
    broken = mutated("policy", BUGS[bug])

    def wrong() -> bool:
        for expected, cases in ((True, HOLDS), (False, FAILS)):
            for condition, value, facts in cases:
                if broken.Rule(when={condition: value}, then="ask").matches(facts) is not expected:
                    return True
        both = broken.Rule(when={"epsilon_at_most": 0.5, "analyst": ["bob"]}, then="ask")
        ordered = broken.Policy(
            limits=WIDE, rules=(broken.Rule(when={}, then="ask"), broken.Rule(when={}, then="reject"))
        )
        named = broken.Facts(**{**vars(CUSTOM)}).among(["logistic_regression.py"])
        approving = broken.Rule(when={"program": [OTHER_FILE, FILE]}, then="approve")
        other = broken.Rule(when={"epsilon_at_most": 0.5}, then="approve")
        unread = broken.Policy(limits=broken.Limits(), rules=(other,)).decide(CUSTOM).decision == "approve"
        known = broken.Policy(limits=broken.Limits(), rules=(approving,)).decide(CUSTOM).decision == "approve"
        nothing = broken.Policy(limits=broken.Limits(programs=()), default="approve").decide(FACTS).decision
        if unread or not known or nothing != "reject":
            return True
        return bool(both.matches(FACTS)) or ordered.decide(FACTS).decision != "ask" or named

    assert wrong()
