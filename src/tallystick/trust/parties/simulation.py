"""Trust model ``parties`` in one process: the rounds of the servers' simulation, and draws by the parties' machines."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.protocol.secure_sum import Draw
from tallystick.protocol.selection import select_in_memory
from tallystick.trust.parties.questions import question_of, share_of, word_of
from tallystick.trust.servers.simulation import SimulatedServers


class SimulatedParties(SimulatedServers):
    """All parties of one study; answers for every round."""

    maker = "party"

    def draw_together(self, round: int, drawing: Mapping[str, Draw]) -> int:
        facts, names = self.simulated, sorted(drawing, key=lambda name: int(name.rpartition("-")[2]))
        question = question_of(facts.study, self.plan, round)
        self.answered = True  # what the parties begin to draw stays charged, whatever becomes of it
        number = round.to_bytes(8, "little")
        drawn = select_in_memory(
            question,
            [share_of(question, drawing[name].share) for name in names],
            [word_of(question, drawing[name].noise) for name in names],
            [facts.keyed(b"computing", number, name.encode()) for name in names],
            max(1, facts.study.trust.coalition),  # type: ignore[attr-defined]
        )
        return drawn.place
