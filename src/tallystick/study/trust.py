"""Trust models: who adds up, who must be trusted, where the noise comes from. One registration each.

Whoever needs to know something of a study's trust model asks for a capability (who coordinates, where the notice board
is, who witnesses ledgers, who makes noise) and never for a role by its name. What needs sockets or records is named
here and imported when it is used: a study can be read, planned and checked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from tallystick.core.errors import StudyError
from tallystick.privacy.trust import Trust

if TYPE_CHECKING:
    from tallystick.privacy.plan import Plan

CLIENT = "client"
"""The role of an institution with records, unless its trust model says otherwise."""
DEFAULT_TRUST = "servers"
_BUILT_IN = {
    "gossip": "tallystick.trust.gossip",
    "masks": "tallystick.trust.masks",
    "parties": "tallystick.trust.parties",
    "proxy": "tallystick.trust.proxy",
    "servers": "tallystick.trust.servers",
}
_REGISTERED: dict[str, TrustModel] = {}


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role of a trust model's cast, beside its clients and the analysts that every one has."""

    name: str
    words: str
    """What it does, for ``--help``."""
    listens: bool = True
    """Whether others connect to it; clients and analysts only dial out."""
    may_listen: bool = False
    """Whether it may be given an address, though it need not have one: a peer that others can reach."""
    process: str = ""
    """Which process runs it, as ``module:class``."""


class TrustModel(ABC):
    """What makes a trust model. Register one instance (:func:`register`); nothing else has to know of it.

    The capabilities are names of roles: ``coordinator`` starts rounds and learns the totals, ``board`` keeps the notice
    board, ``witnesses`` countersign ledgers, ``makers`` (one role or several) add noise and attest to it, ``holders``
    have the records: they are the study's clients. ``helpers`` are the roles all of whose members take part in every
    study, in this order, before the clients.
    """

    name: ClassVar[str]
    section: ClassVar[str]
    """Its section of the study file (:class:`tallystick.study.sections.TrustSection`), as ``module:class``."""
    roles: ClassVar[tuple[Role, ...]]
    helpers: ClassVar[tuple[str, ...]] = ()
    coordinator: ClassVar[str]
    board: ClassVar[str]
    witnesses: ClassVar[str]
    makers: ClassVar[str | tuple[str, ...]]
    holders: ClassVar[str] = CLIENT
    vouch_for_themselves: ClassVar[bool] = False
    """Whether each noise maker's noise is on its own records alone: it attests to its own part, before that leaves."""
    dealer: ClassVar[str] = ""
    """The role that deals masks to institutions with different columns, if there is one. Only who is named by a study's
    section, under ``dealer``, takes part in it; it then is a helper, the last of them."""
    computes: ClassVar[tuple[str, ...]] = ("sums",)
    """The kinds of designs it carries out: ``"sums"`` of the records' vectors in rounds, or what else it can."""
    whole_noise: ClassVar[bool] = True
    """Whether each noise maker may add the whole of a noise that cannot be split (discrete Laplace)."""
    simulation: ClassVar[str]
    """What computes for all parties in one process (:class:`tallystick.engines.engine.Computation`), as
    ``module:class``."""

    parts: ClassVar[Mapping[str, str]]
    """What carries out a study's rounds at each role, as ``module:class``."""
    unsigned: ClassVar[str] = ""
    """What finds rounds of a study that ended early which a noise maker has not signed, as ``module:function``."""

    @property
    def maker_roles(self) -> tuple[str, ...]:
        """The roles that make noise."""
        return (self.makers,) if isinstance(self.makers, str) else self.makers

    @abstractmethod
    def trust(self, section: Any) -> Trust:
        """What a study's section says to plan and statement; settings that cannot be are its ``problems``."""

    def fitted(self, section: Any, plan: Plan, *, records: int | None) -> Plan:
        """The plan as this trust model carries it out, with notes of its own; raises what cannot be."""
        return plan

    def witnesses_of(self, section: Mapping[str, Any], parties: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
        """Of the ``parties`` that could, who witnesses in a study with this (unchecked) section of its file; and how
        many of them have to countersign a ledger, None for all."""
        return parties, None

    def upload_bytes(self, section: Any, plan: Plan, *, records: int | None) -> int:
        """What a client's sum takes on the wire in a round, about: 8 bytes an entry, unless the model has it longer."""
        from tallystick.privacy.sum_plan import rounds_of  # listing the roles must not load it

        return 8 * max((r.grid.size for r in rounds_of(plan)), default=0)

    def check_plan(self, facts: Mapping[str, Any], cast: Mapping[str, int]) -> tuple[str, str] | None:
        """Why a plan with these ``trust`` facts cannot be one of so many parties of each role: rule and sentence."""
        return None

    def check_cast(self, section: Any, cast: Mapping[str, int]) -> None:
        """Raise ``StudyError`` if the study cannot be run by so many parties of each role."""
        wrong = self.check_plan(dict(self.trust(section).facts), cast)
        if wrong is not None:
            raise StudyError(wrong[1].rstrip("."), rule=wrong[0], remedy="Make [trust] fit the consortium.")

    def settings(self, cast: Mapping[str, int]) -> dict[str, Any]:
        """The keys of [trust] that follow from how many parties of each role there are."""
        return {}

    def describe(self, facts: Mapping[str, Any]) -> str:
        """The ``trust`` object of a result or plan in a few words."""
        return ", ".join(f"{key} = {value}" for key, value in facts.items())

    def load(self, reference: str) -> Any:
        """What a ``module:name`` of this registration stands for."""
        module, _, name = reference.partition(":")
        return getattr(import_module(module), name)


def register(model: TrustModel) -> TrustModel:
    """Make a trust model known to this process, under its name."""
    _REGISTERED[model.name] = model
    return model


def registered() -> tuple[TrustModel, ...]:
    """All trust models this process knows, in the order of their names."""
    for name in _BUILT_IN:
        trust_model(name)
    return tuple(_REGISTERED[name] for name in sorted(_REGISTERED))


def holding_roles() -> tuple[str, ...]:
    """The roles that have records, a ledger and a steward."""
    return tuple(dict.fromkeys((CLIENT, *(model.holders for model in registered()))))


def trust_model(name: str) -> TrustModel:
    """The trust model of this name. Those that come with tallystick register themselves when they are first asked for:
    this is the one place where a lower room calls an upper one, by name, as codecs and plug-ins do."""
    if not isinstance(name, str):  # a study file may say anything
        name = str(name)
    if name not in _REGISTERED and name in _BUILT_IN:
        import_module(_BUILT_IN[name])
    if name not in _REGISTERED:
        known = ", ".join(sorted({*_BUILT_IN, *_REGISTERED}))
        raise StudyError(
            f"trust.model: there is no trust model {name[:40]!a}",
            rule="wrong-value",
            remedy=f"There are: {known}. See the study's JSON Schema.",
        )
    return _REGISTERED[name]
