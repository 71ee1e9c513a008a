"""``privacy`` knows how many make noise and how many are surely honest, and nothing of who they are."""

import ast
import dataclasses
from pathlib import Path

import pytest

import tallystick
from tallystick.engines.totals import NoisyTotal
from tallystick.privacy.plan import Plan
from tallystick.privacy.round_plan import GroupNoise, RoundPlan
from tallystick.privacy.rules import Claim
from tallystick.privacy.trust import NoiseMakers, Trust
from tallystick.study.trust import registered

ROOT = Path(tallystick.__file__).parent
ROLES = {role.name for model in registered() for role in model.roles} | {"client", "party", "peer", "proxy"}
PLANS = (Claim, GroupNoise, NoiseMakers, NoisyTotal, Plan, RoundPlan, Trust)


@pytest.mark.parametrize("kind", PLANS, ids=lambda k: k.__name__)
def test_no_field_is_named_after_a_role(kind: type) -> None:
    names = {f.name for f in dataclasses.fields(kind)} | {n for n in vars(kind) if not n.startswith("_")}
    words = {word for name in names - {"min_clients"} for word in name.split("_")}
    assert not {w.removesuffix("s") for w in words} & ROLES, kind


def named_after_roles(text: str) -> set[str]:
    """Counts of noise that a piece of code asks a plan, claim or round for by a role's name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in {"servers", "per_server_std", "colluding"}:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner in {"plan", "claim", "round_plan", "made", "r"}:
                found.add(ast.unparse(node))
    return found


def test_no_room_asks_a_plan_for_servers() -> None:
    for path in ROOT.rglob("*.py"):
        assert not named_after_roles(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "planted", ["x = plan.claim.servers", "y = self.plan.servers", "z = round_plan.per_server_std"]
)
def test_a_planted_one_is_found(planted: str) -> None:
    assert named_after_roles(planted)


@pytest.mark.parametrize(
    ("count", "honest", "splits", "factor"), [(2, 1, True, 2.0), (4, 2, True, 2.0), (3, 1, False, 3.0)]
)
def test_the_price_of_a_trust_model(count: int, honest: int, splits: bool, factor: float) -> None:
    """m parties add s²/h each where noise splits, and s² each where it does not."""
    assert NoiseMakers(count=count, honest=honest).variance_factor(splits=splits) == factor
