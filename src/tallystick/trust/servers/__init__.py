"""Trust model ``servers``: n clients split their sums among m servers, whose noisy sums an aggregator adds up [PEM].

Nobody sees an unnoised sum as long as at most t = ``colluding`` servers collude. A coalition of t servers and the
aggregator sees the true sum plus the noise of the servers outside it; and a server that is merely curious is itself a
coalition of one, so h = m − max(1, t) servers are honest and not the observer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tallystick.core.errors import StudyError
from tallystick.privacy.trust import ALIGNED, SEMI_HONEST, NoiseMakers, Problem, Trust
from tallystick.study.trust import Role, TrustModel, register

if TYPE_CHECKING:
    from tallystick.trust.servers.section import ServersSection

__all__ = ["SERVERS", "honest_servers"]


def honest_servers(servers: int, colluding: int) -> int:
    """h = m − max(1, t): a curious server is itself a coalition of one."""
    return servers - max(1, colluding)


class Servers(TrustModel):
    """The registration."""

    name = "servers"
    section = "tallystick.trust.servers.section:ServersSection"
    roles = (
        Role(
            name="server",
            words="Sums shares and adds its share of the noise.",
            process="tallystick.trust.servers.server:ServerProcess",
        ),
        Role(
            name="aggregator",
            words="Adds the servers' noisy sums and runs the program.",
            process="tallystick.roles.processes.coordinator:CoordinatorProcess",
        ),
        Role(
            name="dealer",
            words="Deals masks to institutions that hold different columns; has no other part in a study.",
            process="tallystick.roles.processes.helper:HelperProcess",
        ),
    )
    dealer = "dealer"
    computes = ("sums", "joint moments")
    helpers = ("server",)
    coordinator = board = "aggregator"
    witnesses = makers = "server"
    simulation = "tallystick.trust.servers.simulation:SimulatedServers"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tallystick.trust.servers.parts:ServersClientPart",
        "server": "tallystick.trust.servers.server:ServerPart",
        "aggregator": "tallystick.trust.servers.parts:AggregatorPart",
        "dealer": "tallystick.trust.servers.dealer:DealerPart",
    }
    unsigned = "tallystick.trust.servers.vouchers:unsigned"

    def trust(self, section: ServersSection) -> Trust:
        m, t = section.servers, section.coalition
        honest = honest_servers(m, t)
        dealer = () if section.dealer is None else (("dealer", section.dealer),)
        group = "any one of the" if t <= 1 else f"any {t} of the"
        words = (
            f"holds against the aggregator, every client and {group} {m} servers together, whatever they do; "
            f"the noise of {honest} honest server(s) alone carries it."
        )
        return Trust(
            makers=NoiseMakers(count=m, honest=honest),
            facts=(("model", self.name), ("servers", m), ("colluding", t), ("honest", honest), *dealer),
            words=words,
            among_holders=(
                f"holds against the aggregator and {group} {m} servers together, whatever they do, and against every "
                f"institution that follows the protocol; the noise of {honest} honest server(s) alone carries it. "
                f"{SEMI_HONEST} {ALIGNED}"
            ),
            maker="server",
            problems=tuple(_problems(m, t)),
        )

    def check_cast(self, section: ServersSection, cast: Mapping[str, int]) -> None:
        """A server's noise is sized for how many of them are honest: with fewer servers than planned, fewer are."""
        if section.servers != cast["server"]:
            raise StudyError(
                f"the study is for {section.servers} servers, the consortium has {cast['server']}",
                rule="number-of-servers",
                remedy="Set servers under [trust] to the number of servers of the consortium.",
            )

    def check_plan(self, facts: Mapping[str, Any], cast: Mapping[str, int]) -> tuple[str, str] | None:
        stated, there = facts.get("servers"), cast["server"]
        if stated is None or stated == there:
            return None
        return "number-of-servers", f"its noise is planned for {stated} servers, and the consortium has {there}."

    def settings(self, cast: Mapping[str, int]) -> dict[str, Any]:
        return {"servers": cast["server"]}

    def describe(self, facts: Mapping[str, Any]) -> str:
        dealer = f"; {facts['dealer']} deals the masks" if "dealer" in facts else ""
        return (
            f"{facts['servers']} servers, {facts['colluding']} may collude, "
            f"{facts['honest']} honest server(s) carry the noise{dealer}"
        )


def _problems(servers: int, colluding: int) -> list[Problem]:
    found = []
    if not 2 <= servers <= 255:
        found.append(
            Problem(
                rule="two-servers-at-least",
                cause=f"{servers} server(s): whoever runs it would see every institution's sum",
                remedy="Use servers = 2 or more (at most 255), run by different organisations.",
            )
        )
    if not 0 <= colluding <= servers - 1:
        found.append(
            Problem(
                rule="one-honest-server",
                cause=f"colluding = {colluding} of {servers} servers leaves no honest one",
                remedy="Use at most colluding = servers - 1.",
            )
        )
    return found


SERVERS = register(Servers())
