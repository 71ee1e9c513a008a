"""The study's canonical form: what is hashed, approved and sent, and what every party derives from it."""

import json
import tomllib

from tallystick.study import Study

TEXT = """
[study]
name = "s"
program = "logistic_regression"
target = "y"
[program]
rounds = 3
clip = 1.0
[data]
records = 10
[data.columns]
zeta = { type = "number", lower = 0, upper = 1 }
alpha = { type = "number", lower = 0, upper = 1, bins = [0.5] }
y = { type = "category", values = ["a", "b"] }
"""


def test_a_party_derives_the_same_features_in_the_same_order():
    study = Study.parse(TEXT)
    received = Study.from_dict(json.loads(study.canonical()))
    assert received.canonical() == study.canonical()
    assert received.hash == study.hash
    names = [s.schema_of_data().layout(target="y").names for s in (study, received)]
    assert names[0] == names[1] == ("zeta", "alpha<0.5", "alpha>=0.5")


def test_order_matters_for_columns_and_for_nothing_else():
    raw = tomllib.loads(TEXT)
    shuffled = {key: raw[key] for key in reversed(raw)}
    shuffled["program"] = dict(reversed(raw["program"].items()))
    assert Study.from_dict(shuffled).hash == Study.from_dict(raw).hash
    columns = dict(reversed(raw["data"]["columns"].items()))
    other = {**raw, "data": {**raw["data"], "columns": columns}}
    assert Study.from_dict(other).hash != Study.from_dict(raw).hash


def test_every_setting_is_part_of_the_hash():
    base = Study.parse(TEXT)
    for setting in ("privacy.epsilon=0.5", "program.rounds=4", "trust.servers=3", "data.records=11", "study.version=2"):
        assert Study.parse(TEXT, settings=(setting,)).hash != base.hash
