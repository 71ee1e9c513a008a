"""The design of a gossip study: which vector of a record is perturbed, how, and what is learned from what it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.gossip.denoised import KeptRecords
from tallystick.algorithms.gossip.golf.examples import problems_of
from tallystick.algorithms.gossip.moments import EXACT, GossipModel, RecordMoments
from tallystick.algorithms.gossip.record_space import RecordSpace
from tallystick.algorithms.gossip.settings import GossipSettings
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.program import BuiltInProgram, Public
from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.gradient_plan import make_gradient_plan
from tallystick.privacy.local.plan import LocalPlan, make_local_plan
from tallystick.privacy.local.randomiser import Decoded
from tallystick.privacy.rules import Claim

_CANDIDATES = b"tallystick/local-candidates/1"
_DROWNED = 4.0
"""Noise in the Gram matrix over a record's length, beyond which nothing stands out."""
MOST_CLASSES = 1000


def public_words(identity: bytes, skip: int) -> WordSource:
    """The keystream of a record's public id."""
    return AesStream(identity, _CANDIDATES, skip=skip)


class GossipProgram(BuiltInProgram):
    """What peers do with their records, and with what others have published. The state is a :class:`GossipModel`."""

    def __init__(self, public: Public, settings: GossipSettings) -> None:
        self.settings = settings
        self.classes = len(public.classes)
        self.space = RecordSpace.of(public, settings)

    @property
    def dimension(self) -> int:
        """Coordinates of a record."""
        return self.space.dimension

    def init(self, public: Public) -> GossipModel:
        rows = 1 if self.classes == 2 else self.classes
        return GossipModel(np.zeros((rows, self.dimension)), np.zeros(rows))

    def vectors(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Encoded records on the grid: what a randomiser takes. Private until then."""
        return self.space.integers(features)

    def moments(self) -> RecordMoments:
        """Empty: for whoever collects published records."""
        if self.settings.loss == "square":
            return RecordMoments(self.classes, self.dimension)
        loss, penalty = self.settings.loss, self.settings.lambda_
        return KeptRecords(self.classes, self.dimension, loss=loss, penalty=penalty)

    def learn(self, moments: RecordMoments, plan: LocalPlan) -> GossipModel:
        """The model of the records that have come in so far."""
        if isinstance(moments, KeptRecords):
            return moments.learn(plan.randomiser)
        return moments.fit(EXACT if plan.randomiser is None else plan.randomiser.moments)

    def exact(self, vectors: NDArray[np.int64], labels: NDArray[np.int64]) -> Decoded:
        """Records as learners take them without any perturbation: for comparison in a simulation."""
        length = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
        z = vectors / np.where(length > 0, length, 1.0)
        hit = (labels[:, None] == np.arange(self.classes)[None, :]).astype(np.float64)
        return Decoded(z=z[:, None, :], targets=hit, labels=labels)

    def scores(self, model: GossipModel, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of encoded rows: one for two classes, else one a class; a row of length 0 has the offsets."""
        phi = self.space.coordinates(features)
        length = np.sqrt((phi**2).sum(axis=1, keepdims=True))
        return np.asarray((phi / np.where(length > 0, length, 1.0)) @ model.weights.T + model.offsets)


@dataclass(frozen=True, kw_only=True)
class GossipDesign(Design):
    """One publication of every record, then learning from what was published."""

    kind: ClassVar[str] = "gossip"
    program: GossipProgram
    settings: GossipSettings

    @property
    def _label(self) -> str:
        """How classes are published: so that they can be read, where a loss needs them."""
        needed = self.settings.loss != "square" and self.program.classes > 2 and self.settings.label == "auto"
        return "randomised" if needed else self.settings.label

    @property
    def rounds(self) -> int:
        return 1

    @property
    def only_simulated(self) -> StudyError | None:
        if self.settings.perturb == "data":
            return None
        return StudyError(
            f'perturb = "{self.settings.perturb}" is simulated: real peers publish perturbed records',
            rule="records-are-published",
            remedy='Nothing was read or charged. Use perturb = "data", or simulate it: tallystick simulate.',
        )

    @property
    def if_a_party_is_lost(self) -> str:
        return "If a peer is lost, the others learn from the records that have reached them."

    def plan(self, claim: Claim, *, threshold: float | None = None) -> LocalPlan:
        if threshold is not None:
            raise StudyError("a threshold is for totals, and gossip has none", remedy="Leave threshold out.")
        if self.settings.perturb == "gradient":
            return make_gradient_plan(
                claim,
                strategy=self.settings.strategy,
                uses=self.settings.uses,
                problems=problems_of(self.program.classes),
                weak_epsilon=self.settings.weak_epsilon,
                notes=self.notes,
                hopeless=self.hopeless,
                details=self.details,
            )
        if self.settings.perturb == "none":  # said to be so, and refused where that is
            claim = replace(claim, mechanism="none")
        return make_local_plan(
            claim,
            randomiser=self.settings.randomiser,
            dimension=self.program.dimension,
            classes=self.program.classes,
            public_words=public_words,
            label=self._label,
            weak_epsilon=self.settings.weak_epsilon,
            notes=self.notes,
            hopeless=self.hopeless,
            details=self.details,
        )


def design_gossip(public: Public, budget: PublicBudget, settings: GossipSettings) -> GossipDesign:
    """From public facts alone."""
    if len(public.classes) < 2:
        if public.classes:
            raise StudyError(
                f"{public.target!r} has one class: there is nothing to tell apart",
                rule="two-classes-at-least",
                remedy="Declare every class of the target, also those that few records have.",
            )
        raise wrong_target(
            "the gossip classifier", public.target, "a category", rule="target-is-a-category", instead="Ridge"
        )
    if len(public.classes) > MOST_CLASSES:
        raise StudyError(f"{len(public.classes)} classes are too many", remedy=f"Use at most {MOST_CLASSES}.")
    if settings.learner == "moments" and settings.perturb == "gradient":
        raise StudyError(
            'learner = "moments" has no gradients that could be perturbed',
            rule="gradients-of-a-walk",
            remedy='Use learner = "pegasos" or "logistic", or perturb = "data".',
        )
    if settings.loss != "square":
        _check_loss(settings, len(public.classes))
    if settings.perturb != "gradient" and (settings.strategy, settings.uses, settings.batch) != ("once", 1, 1):
        raise StudyError(
            "strategy, uses and batch are for perturbed gradients",
            rule="gradients-of-a-walk",
            remedy='Leave them out, or use perturb = "gradient".',
        )
    if settings.uses != 1 and settings.strategy != "uses":
        raise StudyError(
            f'uses = {settings.uses} does not go with strategy = "{settings.strategy}"', remedy='Use strategy = "uses".'
        )
    program = GossipProgram(public, settings)
    return GossipDesign(
        program=program,
        settings=settings,
        hopeless=_hopeless(public, budget, program),
        details={"learner": settings.learner, "perturb": settings.perturb, "dimension": program.dimension},
    )


def _check_loss(settings: GossipSettings, classes: int) -> None:
    """A loss is for the learner that knows the noise, and needs to know a record's class, or y·x."""
    if settings.learner != "moments":
        raise StudyError(
            f'loss = "{settings.loss}" is for learner = "moments"; "{settings.learner}" has its own',
            rule="loss-of-moments",
            remedy='Use learner = "moments", or leave loss out.',
        )
    if settings.label == "per-class" or (settings.label == "sign" and classes > 2):
        raise StudyError(
            f'label = "{settings.label}" does not show whose class a record of {classes} is: loss = "{settings.loss}" '
            "needs that",
            rule="loss-of-moments",
            remedy='Use label = "auto" or "randomised", or loss = "square".',
        )


def _hopeless(public: Public, budget: PublicBudget, program: GossipProgram) -> str | None:
    """By the rough law of subset selection, b ≈ π/2·((e^ε + 1)/(e^ε − 1))² for small ε, for the record's own share."""
    share = budget.epsilon / budget.person_factor
    if not public.records or not 0 < share < 2 or program.settings.perturb == "none":
        return None
    b = math.pi / 2 * ((math.exp(share) + 1) / math.expm1(share)) ** 2
    noise = b * math.sqrt(program.dimension / public.records)
    if noise < _DROWNED:
        return None
    needed = math.ceil(program.dimension * (b / _DROWNED) ** 2)
    return (
        f"the noise of {public.records:,} records of {program.dimension} coordinates at epsilon = {share:g} is "
        f"{noise:.2g} times a record; {needed:,} records are a start"
    )
