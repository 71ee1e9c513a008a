"""A consortium of a reducer, institutions and an analyst, each a process of its own."""

from __future__ import annotations

from typing import ClassVar

from tests.trust.proxy_deployment import RECORDS, Deployment

CLIENTS = ("east", "north", "south", "west")


def text(name: str = "behind masks", *, rounds: int = 4, timeout: float = 40) -> str:
    return f"""
[study]
name = "{name}"
program = "logistic_regression"
target = "y"
accept_noise = true
[program]
rounds = {rounds}
standardise = false
[privacy]
epsilon = 1.0
delta = 1e-6
[trust]
model = "masks"
clients = {len(CLIENTS)}
min_clients = 3
round_timeout_s = {timeout}
[data]
records = {RECORDS}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = ["a", "b"] }}
"""


class MaskedDeployment(Deployment):
    """The reducer listens; clients only dial out."""

    LISTENING: ClassVar[tuple[str, ...]] = ("reducer",)
    CLIENTS: ClassVar[tuple[str, ...]] = CLIENTS
