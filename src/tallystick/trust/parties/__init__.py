"""Trust model ``parties``: n clients share their sums among 3 to 10 parties, who select from the total [BK20].

The clients upload and leave, as among servers. What the parties then have, each a share of the exact total, they add
noise to and release (counts), or they compute on it together and open the one place that was drawn, and nothing else.
Computing on shares takes an honest majority: t < m/2 parties may pool what they see (Shamir's sharing of degree t; a
product needs 2t < m). The parties are semi-honest: they follow the protocol and may look. One that computes something
else can spoil the answer, and in the draw also what it reveals; the statement says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tallystick.core.errors import StudyError
from tallystick.privacy.trust import NoiseMakers, Problem, Trust
from tallystick.study.trust import Role, TrustModel, register

if TYPE_CHECKING:
    from tallystick.privacy.plan import Plan
    from tallystick.trust.parties.section import PartiesSection

__all__ = ["LEAST", "MOST", "PARTIES"]

LEAST, MOST = 3, 10


class Parties(TrustModel):
    """The registration."""

    name = "parties"
    section = "tallystick.trust.parties.section:PartiesSection"
    roles = (
        Role(
            name="party",
            words="Holds shares of sums, and selects from them together with the other parties.",
            process="tallystick.trust.parties.party:PartyProcess",
        ),
        Role(
            name="aggregator",
            words="Runs the rounds, and learns what the servers or parties release.",
            process="tallystick.roles.processes.coordinator:CoordinatorProcess",
        ),
    )
    helpers = ("party",)
    coordinator = board = "aggregator"
    witnesses = makers = "party"
    computes = ("selections",)
    simulation = "tallystick.trust.parties.simulation:SimulatedParties"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tallystick.trust.servers.parts:ServersClientPart",
        "party": "tallystick.trust.parties.party:PartyPart",
        "aggregator": "tallystick.trust.servers.parts:AggregatorPart",
    }
    unsigned = "tallystick.trust.servers.vouchers:unsigned"

    def trust(self, section: PartiesSection) -> Trust:
        m, t = section.parties, section.coalition
        honest = max(0, m - max(1, t))  # a curious party is itself a coalition of one
        group = "any one" if t <= 1 else f"any {t}"
        words = (
            f"holds against the aggregator, every client and {group} of the {m} computing parties together, as long as "
            "all parties and all clients' software follow the protocol and most parties keep what they see to "
            "themselves: they are semi-honest. Opened are the selected places and the noisy counts that the plan "
            "lists, and nothing else."
        )
        return Trust(
            makers=NoiseMakers(count=m, honest=honest),
            facts=(("model", self.name), ("parties", m), ("colluding", t), ("honest", honest)),
            words=words,
            maker="party",
            problems=tuple(_problems(m, t)),
        )

    def fitted(self, section: PartiesSection, plan: Plan, *, records: int | None) -> Plan:
        from tallystick.privacy.selection_plan import SelectionPlan  # listing the roles must not load it
        from tallystick.trust.parties.questions import check_draws

        if isinstance(plan, SelectionPlan):
            check_draws(plan, records)
        return plan

    def check_cast(self, section: PartiesSection, cast: Mapping[str, int]) -> None:
        """Shares are of a degree that fits the parties there are."""
        if section.parties != cast.get("party", 0):
            raise StudyError(
                f"the study is for {section.parties} parties, the consortium has {cast.get('party', 0)}",
                rule="number-of-parties",
                remedy="Set parties under [trust] to the number of parties of the consortium.",
            )
        from tallystick.trust.parties.questions import MOST_CLIENTS  # listing the roles must not load it

        if cast.get("client", 0) > MOST_CLIENTS:
            raise StudyError(
                f"the consortium has {cast['client']:,} clients, and the parties' circuits have room for the records "
                f"of {MOST_CLIENTS:,}",
                rule="room-for-clients",
                remedy='Use model = "servers" under [trust] with a program that sums, or a smaller consortium.',
            )

    def check_plan(self, facts: Mapping[str, Any], cast: Mapping[str, int]) -> tuple[str, str] | None:
        stated, there = facts.get("parties"), cast.get("party", 0)
        if stated is None or stated == there:
            return None
        return "number-of-parties", f"it is planned for {stated} parties, and the consortium has {there}."

    def settings(self, cast: Mapping[str, int]) -> dict[str, Any]:
        return {"parties": cast["party"]}

    def describe(self, facts: Mapping[str, Any]) -> str:
        return f"{facts['parties']} computing parties, semi-honest, of which {facts['colluding']} may collude"


def _problems(parties: int, colluding: int) -> list[Problem]:
    found = []
    if not LEAST <= parties <= MOST:
        found.append(
            Problem(
                rule="three-parties-at-least",
                cause=f"parties = {parties}: computing on shares takes from {LEAST} to {MOST} parties",
                remedy=f"Use parties = {LEAST} to {MOST}, run by different organisations.",
            )
        )
    if not 0 <= 2 * colluding < parties:
        found.append(
            Problem(
                rule="honest-majority",
                cause=f"colluding = {colluding} of {parties} parties leaves no honest majority",
                remedy=f"Use at most colluding = {max(0, parties - 1) // 2}, or more parties.",
            )
        )
    return found


PARTIES = register(Parties())
