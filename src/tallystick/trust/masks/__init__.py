"""Trust model ``masks``: clients mask their sums in pairs, one reducer adds up what they send; nobody else is needed.

Masks cancel in the sum [ADMM; BIK17], so no second server has to be trusted, and the clients make the noise: each adds
a discrete Gaussian share of variance s²/h. Who looks at a total is the reducer with c = ``colluding`` clients, whose
noise it knows; a client that is merely curious knows its own, a coalition of one. Every total has the noise of
``min_clients`` or more; of these h = min_clients − max(1, c) are honest and not the observer, min_clients − (c + 1)
where the reducer is run by one of the clients, which counts as a colluder besides c. h ≥ 2: a sum that hides
one client's behind nobody else's hides nothing. Noise on top (of more survivors, of colluders) is post-processing.

``reducer = "every-peer"``: nobody adds up for the others. Every client is handed what the reducer has collected, adds
it up, runs the program and compares; so every client is an observer that sees totals and knows its own noise and that
of c others: h = min_clients − (c + 1), as where one client is the reducer, now whichever client it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from tallystick.core.errors import PrivacyRefused, StudyError, TrustModelError
from tallystick.privacy.trust import NoiseMakers, Problem, Trust
from tallystick.study.trust import Role, TrustModel, register

if TYPE_CHECKING:
    from tallystick.privacy.plan import Plan
    from tallystick.trust.masks.section import MasksSection

__all__ = ["MASKS", "honest_clients"]

REDUCER, EVERY_PEER = "reducer", "every-peer"
MOST_CLIENTS = 100_000


def honest_clients(min_clients: int, colluding: int, *, reducer_is_client: bool) -> int:
    """h: clients of every total that are honest and not the observer."""
    return min_clients - (colluding + 1 if reducer_is_client else max(1, colluding))


class Masks(TrustModel):
    """The registration."""

    name = "masks"
    section = "tallystick.trust.masks.section:MasksSection"
    roles = (
        Role(
            name=REDUCER,
            words="Relays between clients, adds up their masked sums and runs the program.",
            process="tallystick.roles.processes.coordinator:CoordinatorProcess",
        ),
    )
    coordinator = board = witnesses = REDUCER
    makers = "client"
    whole_noise = False
    simulation = "tallystick.trust.masks.simulation:SimulatedMasks"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tallystick.trust.masks.parts:MaskingPart",
        REDUCER: "tallystick.trust.masks.parts:ReducerPart",
    }
    unsigned = "tallystick.trust.masks.vouchers:unsigned"

    def trust(self, section: MasksSection) -> Trust:
        n, c, least, honest = section.clients, section.colluders, section.least, section.honest
        reducer = f"{section.reducer}, who runs the reducer," if section.reducer_is_client else "the reducer"
        alone = ", against every client alone"
        if section.every_peer:
            reducer, alone = "every client, who adds up itself,", ","
        other = "other " if section.reducer_is_client else ""
        with_whom = "" if c == 0 else f" together with any {c} {other}client{'s' if c > 1 else ''}"
        words = (
            f"holds against {reducer}{with_whom}{alone} and everybody else; every total has the "
            f"noise of {least} clients or more, of whom the {honest} honest ones' alone carries it."
        )
        facts = (
            ("model", self.name),
            ("clients", n),
            ("colluding", c),
            ("reducer", section.reducer),
            ("min_clients", least),
            ("honest", honest),
        )
        return Trust(
            makers=NoiseMakers(count=n, honest=honest),
            facts=facts,
            words=words,
            maker="client",
            problems=tuple(_problems(section)),
        )

    def fitted(self, section: MasksSection, plan: Plan, *, records: int | None) -> Plan:
        from tallystick.trust.masks.graphs import graph_words, peer_words

        if plan.claim.parallel:
            raise TrustModelError(
                "a stream does not run under trust = 'masks' yet: its clients keep no watch over each other's ticks",
                remedy="It runs under: servers.",
            )
        if plan.claim.mechanism == "laplace":
            raise PrivacyRefused(
                "discrete Laplace noise cannot be split among clients: each would have to add all of it",
                rule="laplace-cannot-be-split",
                remedy='Use mechanism = "gaussian", or trust.model = "servers" or "proxy" for pure epsilon.',
            )
        return replace(plan, notes=(*plan.notes, graph_words(section), *peer_words(section, plan)))

    def check_plan(self, facts: Mapping[str, Any], cast: Mapping[str, int]) -> tuple[str, str] | None:
        planned, there = facts.get("clients", 0), cast.get("client", 0)
        if there > planned:
            return "number-of-clients", f"it is planned for {planned} clients, and the consortium has {there}."
        if there < facts.get("min_clients", 3):
            needed = facts.get("min_clients", 3)
            return "number-of-clients", f"every total needs {needed} clients, and the consortium has {there}."
        return None

    def check_cast(self, section: MasksSection, cast: Mapping[str, int]) -> None:
        wrong = self.check_plan(dict(self.trust(section).facts), cast)
        if wrong is not None:
            raise StudyError(
                f"the study cannot be run here: {wrong[1].rstrip('.')}",
                rule=wrong[0],
                remedy="Set clients under [trust] to the number of clients of the consortium.",
            )

    def settings(self, cast: Mapping[str, int]) -> dict[str, Any]:
        return {"clients": cast["client"]}

    def describe(self, facts: Mapping[str, Any]) -> str:
        if facts["reducer"] == EVERY_PEER:
            return (
                f"up to {facts['clients']} clients, each of which adds up itself and may collude with "
                f"{facts['colluding']} of the others; {facts['honest']} honest client(s) of {facts['min_clients']} "
                "carry the noise"
            )
        return (
            f"up to {facts['clients']} clients and a reducer ({facts['reducer']}), with which {facts['colluding']} may "
            f"collude; {facts['honest']} honest client(s) of {facts['min_clients']} carry the noise"
        )


def _besides(section: MasksSection) -> str:
    if section.every_peer:
        return " and every client a reducer of its own"
    return " and a client as the reducer" if section.reducer_is_client else ""


def _problems(section: MasksSection) -> list[Problem]:
    n, c, least = section.clients, section.colluders, section.least
    if not 3 <= n <= MOST_CLIENTS or least < 3:
        return [
            Problem(
                rule="three-clients-at-least",
                cause=f"{min(n, least)} client(s) in a sum: masks hide a sum only behind those of two others"
                if min(n, least) < 3
                else f"clients = {n} is more than masks can be planned for",
                remedy=f"Use 3 to {MOST_CLIENTS} clients, and min_clients = 3 or more; two institutions need servers.",
            )
        ]
    if c < 0 or section.honest < 2:
        return [
            Problem(
                rule="two-honest-clients",
                cause=f"min_clients = {least} with colluding = {c}"
                f"{_besides(section)} leaves {section.honest} honest "
                "client(s): the sum of one is that institution's",
                remedy=f"Use min_clients = {c + 3 if section.reducer_is_client else max(1, c) + 2} or more, or let "
                "fewer collude.",
            )
        ]
    from tallystick.trust.masks.graphs import plan_for

    try:
        plan_for(section, n)
    except StudyError as error:
        return [Problem(rule=error.rule or "mask-colluders", cause=error.cause, remedy=error.remedy or "")]
    return []


MASKS = register(Masks())
