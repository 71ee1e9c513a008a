"""A world of peers whose models walk over what they have really published, as deployed peers' do (trust/gossip)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gossip_world import SESSION, STUDY, Faults, Member, World

from tallystick.algorithms.gossip.golf.learning import walk_over_published
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import study_records
from tallystick.engines.setup import set_up
from tallystick.protocol.gossip import ModelWalks
from tallystick.protocol.gossip.messages import Walk
from tallystick.protocol.gossip.publications import Publications
from tallystick.study import Study
from tallystick.trust.gossip.publishing import Publishing
from tallystick.trust.gossip.walking import Walking


def text(learner: str, classes: tuple[str, ...], records: int, more: str = "") -> str:
    return f"""
[study]
name = "walks"
program = "gossip_classifier"
target = "y"
[program]
learner = "{learner}"
{more}
[privacy]
epsilon = 6.0
[trust]
model = "gossip"
[data]
records = {records}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
z = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = {list(classes)} }}
"""


def frame(rows: int, seed: int, classes: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1, 1, (2, rows))
    by_two = np.where(x + 0.5 * z > 0, "b", "a")
    return {"x": x, "z": z, "y": by_two if classes == 2 else np.where(z > 0.6 + x, "c", by_two)}


class WalkingWorld(World):
    """Peers of ``each`` records. A poisoning one says the worst that is not refused: a model of the greatest length."""

    def __init__(
        self, faults: Faults, *, learner: str = "pegasos", each: int = 12, classes: int = 2, more: str = "",
        cycles: int = 40, deadline: float = 1e9,
    ) -> None:  # fmt: skip
        self.each, self.classes, self.cycles = each, classes, cycles
        study = Study.parse(text(learner, ("a", "b", "c")[:classes], faults.peers * each, more))
        self.publishing = Publishing.of(set_up(study.canonical(), ""), STUDY)
        walking = Walking.of(self.publishing)
        assert walking is not None
        self.study, self.walking = study, walking
        super().__init__(faults, walks=True, deadline=deadline)

    def study_facts(self) -> dict[str, Any]:
        return {
            "models": self.walking.ball, "cycles": self.cycles, "validate": self.publishing.check,
            "body_limit": self.publishing.body_limit,
        }  # fmt: skip

    def walks_of(self, name: str) -> ModelWalks:
        def books() -> Publications:
            return self.member(name).machine.publications  # type: ignore[no-any-return]

        return self.walking.walks(name, books, AesStream(derive(bytes(32), b"walk", name.encode())))

    def drawn(self, member: Member) -> bytes:
        rows = study_records(self.study, frame(self.each, self.names.index(member.name), self.classes), lenient=True)
        source = AesStream(derive(bytes(32), b"draw", member.name.encode()))
        return self.publishing.perturbed(rows, member.name, source)

    def lies(self) -> Walk:
        away = -np.ones(self.walking.ball.size)
        return Walk(study_hash=SESSION, age=(1 << 32) - 1, weights=100 * self.walking.ball.radius * away)

    def accuracy(self, weights: np.ndarray) -> float:
        fresh = frame(3000, 999, self.classes)
        records = study_records(self.study, fresh, lenient=True)
        scores = self.publishing.program.scores(self.walking.model(weights), records.features)
        found = scores[:, 0] > 0 if self.classes == 2 else scores.argmax(axis=1)
        return float(np.mean(found == records.target))

    def simulated(self) -> float:
        """What the simulation of the same published records gives."""
        books = self.members[0].machine.publications
        parts = [self.publishing.decode(self.names[i], books.get(i).body) for i in sorted(books.held)]
        made = walk_over_published(self.publishing.program, parts, seed=1, over=map)
        return self.accuracy(made.weights.ravel())


__all__ = ["WalkingWorld"]
