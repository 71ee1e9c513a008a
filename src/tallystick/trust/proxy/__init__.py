"""Trust model ``proxy``: owners encrypt their sums to a data user, a proxy adds them up under encryption [PCA].

The data user has the key, the proxy has the ciphertexts, and neither is trusted: the proxy adds a full noise inside the
ciphertext, against the data user; the data user adds a full noise of its own before anything is made of a total,
against the proxy and everybody else. m = 2 noise makers, of which h = 1 is surely honest: it holds as long as the two
do not collude. (The paper's protocol lets the proxy strip the only noise there is, and its masks tell the column sums
modulo N: docs/protocols/encrypted-sum.md.)
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from tallystick.core.errors import StudyError
from tallystick.crypto.homomorphic.flooding import SHARE
from tallystick.privacy.trust import NoiseMakers, Problem, Trust
from tallystick.study.trust import Role, TrustModel, register

if TYPE_CHECKING:
    from tallystick.privacy.plan import Plan
    from tallystick.trust.proxy.section import ProxySection

__all__ = ["PROXY"]

MOST_CLIENTS = 100_000


class ProxyTrust(TrustModel):
    """The registration."""

    name = "proxy"
    section = "tallystick.trust.proxy.section:ProxySection"
    roles = (
        Role(
            name="proxy",
            words="Adds up what institutions have encrypted, and noise, without seeing any of it.",
            process="tallystick.trust.proxy.proxy:ProxyProcess",
        ),
        Role(
            name="data-user",
            words="Holds the key of noised sums, adds noise of its own and runs the program.",
            process="tallystick.roles.processes.coordinator:CoordinatorProcess",
        ),
    )
    helpers = ("proxy",)
    coordinator = board = "data-user"
    witnesses = "proxy"
    makers = ("proxy", "data-user")
    simulation = "tallystick.trust.proxy.simulation:SimulatedProxy"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tallystick.trust.proxy.parts:OwnerPart",
        "proxy": "tallystick.trust.proxy.proxy:ProxyPart",
        "data-user": "tallystick.trust.proxy.parts:DataUserPart",
    }
    unsigned = "tallystick.trust.proxy.vouchers:unsigned"

    def trust(self, section: ProxySection) -> Trust:
        flooded = section.scheme == "bfv"
        aside = " (a thousandth of delta is for what the errors of ciphertexts could tell the data user)"
        words = (
            "holds against every client, a proxy that follows the protocol, the data user and everybody else, as long "
            "as proxy and data user do not collude; the full noise of each of the two alone carries it"
            f"{aside if flooded else ''}."
        )
        return Trust(
            makers=NoiseMakers(count=2, honest=1),
            facts=(
                ("model", self.name),
                ("scheme", section.scheme),
                ("max_clients", section.max_clients),
                ("honest", 1),
            ),
            words=words,
            maker="party",
            problems=tuple(_problems(section.max_clients)),
            delta_share=SHARE if flooded else Fraction(0),
        )

    def fitted(self, section: ProxySection, plan: Plan, *, records: int | None) -> Plan:
        from tallystick.trust.proxy.extent import fit

        return fit(section, plan, records)

    def upload_bytes(self, section: ProxySection, plan: Plan, *, records: int | None) -> int:
        from tallystick.trust.proxy.extent import upload_bytes

        return upload_bytes(section, plan, records)

    def check_plan(self, facts: Mapping[str, Any], cast: Mapping[str, int]) -> tuple[str, str] | None:
        proxies, most = cast.get("proxy", 0), facts.get("max_clients", 0)
        if proxies != 1:
            return "one-proxy", f"it needs one proxy, and the consortium has {proxies}."
        if cast.get("client", 0) > most:
            return "max-clients", f"it is planned for {most} clients, and the consortium has {cast['client']}."
        return None

    def check_cast(self, section: ProxySection, cast: Mapping[str, int]) -> None:
        wrong = self.check_plan({"max_clients": section.max_clients}, cast)
        if wrong is not None:
            raise StudyError(
                f"the study cannot be run here: {wrong[1].rstrip('.')}",
                rule=wrong[0],
                remedy="Enrol exactly one proxy; set max_clients under [trust] to the number of clients or more.",
            )

    def settings(self, cast: Mapping[str, int]) -> dict[str, Any]:
        return {"max_clients": cast["client"]} if cast.get("client", 0) > 1000 else {}

    def describe(self, facts: Mapping[str, Any]) -> str:
        return f"a proxy and a data user who do not collude, {facts['scheme']}, up to {facts['max_clients']} clients"


def _problems(max_clients: int) -> list[Problem]:
    if 2 <= max_clients <= MOST_CLIENTS:
        return []
    return [
        Problem(
            rule="max-clients",
            cause=f"max_clients = {max_clients} is no number of clients that sums can be planned for",
            remedy=f"Use the number of clients of the consortium, or more: 2 to {MOST_CLIENTS}.",
        )
    ]


PROXY = register(ProxyTrust())
