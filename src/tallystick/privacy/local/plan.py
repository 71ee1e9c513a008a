"""The plan of a study of locally perturbed records: one draw a record, charged to the peer that holds it.

Every record is perturbed once, by itself, by the one who holds it; records of different peers compose in parallel, so
the whole study costs each record ε, under replace-one: that a peer takes part, and how many records it publishes, is
seen by everybody. With ``unit = "person"`` a person has up to k = max_records·max_institutions records, each of which
is published at ε/k: sequential composition within the person.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import pure_rho, rho_from_epsilon
from tallystick.privacy.local.added_noise import AddedNoise
from tallystick.privacy.local.labels import LabelKind, choose_label, label_code
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.subset import PublicWords, SubsetSelection
from tallystick.privacy.local.subset_moments import choose_subset
from tallystick.privacy.plan import Plan
from tallystick.privacy.rules import WEAK_EPSILON, Claim, check_claim

FRACTION_BITS = 12
"""Of the grid that records are on: 2^12 units are the norm that added noise shortens a record to."""
RANDOMISERS = ("subset", "laplace", "gaussian")


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalPlan(Plan):
    """What each peer spends on each record it holds."""

    randomiser: Randomiser | None
    """None: nothing is perturbed, for comparison in a simulation."""
    record_share: int = 1
    """Records that may be one person's: the promise is for all of them together."""

    @property
    def pure_epsilon(self) -> Fraction | None:
        if not self.differentially_private or self.claim.delta > 0:
            return None
        return Fraction(self.claim.epsilon)

    @property
    def rho(self) -> Fraction:
        if self.randomiser is None:
            return Fraction(0)
        if isinstance(self.randomiser.vector, AddedNoise) and self.randomiser.vector.epsilon is None:
            return self.randomiser.vector.rho * self.randomiser.label.copies * self.record_share
        return pure_rho(Fraction(self.claim.epsilon))

    @property
    def noise_std(self) -> dict[str, float]:
        """Of one coordinate of one record as a learner sees it, in units of a record of length 1."""
        if self.randomiser is None:
            return {}
        return {f"per_{self.claim.trust.maker}": math.sqrt(self.randomiser.moments.b)}

    def noise_parameters(self, rounds: int | None = None) -> list[list[Fraction]]:
        return [[]] if self.randomiser is None else [self.randomiser.parameters]


def make_local_plan(
    claim: Claim,
    *,
    randomiser: str,
    dimension: int,
    classes: int,
    public_words: PublicWords,
    label: str = "auto",
    weak_epsilon: bool = False,
    notes: Sequence[str] = (),
    hopeless: str | None = None,
    details: dict[str, Any] | None = None,
) -> LocalPlan:
    """Derive the plan from public facts; refused by the first privacy rule that does not hold."""
    claim = local_claim(claim, randomiser, weak_epsilon=weak_epsilon)
    made, persons = None, claim.max_records * claim.max_institutions
    if claim.mechanism != "none":
        made = make_randomiser(
            claim, randomiser=randomiser, dimension=dimension, classes=classes, public_words=public_words, label=label
        )
    return LocalPlan(
        claim=claim,
        randomiser=made,
        record_share=persons,
        notes=(*notes, *([] if made is None else _notes(made))),
        hopeless=hopeless,
        details=dict(details or {}),
    )


def local_claim(claim: Claim, randomiser: str, *, weak_epsilon: bool) -> Claim:
    """The claim of local privacy: its mechanism is the randomiser, and its words say what e^ε means to a peer."""
    if claim.mechanism not in ("none", "gaussian", randomiser):  # "gaussian" is what a study says that says nothing
        raise PrivacyRefused(
            f'mechanism = "{claim.mechanism}" is not what randomiser = "{randomiser}" promises',
            rule="randomiser-is-the-mechanism",
            remedy="Leave mechanism out of [privacy]: under gossip it is the randomiser's.",
        )
    if claim.mechanism != "none":
        pure = randomiser != "gaussian"
        claim = replace(claim, mechanism=randomiser, delta=0.0 if pure else claim.delta)
    if claim.neighbours != "replace-one":
        raise PrivacyRefused(
            f'neighbours = "{claim.neighbours}": everybody sees who publishes a record, and who does not',
            rule="a-peer-is-seen",
            remedy='Use neighbours = "replace-one": what is hidden is what the record holds.',
        )
    if claim.sampling is not None or claim.parallel:
        raise PrivacyRefused(
            "sampling and streams are for sums: a peer publishes its record once",
            rule="a-record-is-published-once",
            remedy="Leave sampling out of [privacy], and [stream] out of the study.",
        )
    check_claim(claim)
    if claim.mechanism == "none":
        return claim
    weak = claim.epsilon > WEAK_EPSILON
    if weak and not weak_epsilon:
        raise PrivacyRefused(
            f"epsilon = {claim.epsilon:g} for a record that its peer publishes allows odds of {odds(claim.epsilon)}: "
            "no protection",
            rule="local-epsilon-means-something",
            remedy=f"Use {WEAK_EPSILON:g} or less; or write weak_epsilon = true under [program]: the result says so.",
        )
    told = (
        f"{claim.trust.words} Nobody is trusted: whatever anybody knows or computes, what a peer has published changes "
        f"the odds between any two records that it might hold by a factor of at most e^{claim.epsilon:g} = "
        f"{odds(claim.epsilon)}."
    )
    facts = claim.trust.facts
    if weak:
        told += " OVERRIDDEN: an epsilon above 10 protects hardly anybody, and was asked for with weak_epsilon = true."
        facts = (*facts, ("weak_epsilon", True))
    return replace(claim, trust=replace(claim.trust, words=told, facts=facts))


def odds(epsilon: float) -> str:
    """e^ε in words: ``148 to 1``."""
    if epsilon < 0.7:
        return f"{math.exp(epsilon):.3g} to 1"
    return f"{math.exp(epsilon):,.3g} to 1" if epsilon < 4 else f"{math.ceil(math.exp(min(epsilon, 700))):.6g} to 1"


def make_randomiser(
    claim: Claim, *, randomiser: str, dimension: int, classes: int, public_words: PublicWords, label: str
) -> Randomiser:
    """What every record is perturbed by: exact parameters, from the claim's ε for a person's records together."""
    share = Fraction(claim.epsilon) / (claim.max_records * claim.max_institutions)
    kind = cast(LabelKind, choose_label(share, classes) if label == "auto" else label)
    if randomiser == "gaussian" and kind == "randomised" and label == "auto":
        kind = "sign"
    if (randomiser == "gaussian" and kind == "randomised") or (randomiser == "subset" and kind == "per-class"):
        raise PrivacyRefused(
            f'label = "{kind}" does not go with randomiser = "{randomiser}"',
            rule="label-fits-randomiser",
            remedy='Use label = "auto", which chooses from public facts.',
        )
    code = label_code(kind, share, classes)
    rest = (share - code.epsilon) / code.copies
    if randomiser == "subset":
        vector: SubsetSelection | AddedNoise = SubsetSelection(
            epsilon=rest, dimension=dimension, subset=choose_subset(rest, dimension), public_words=public_words
        )
    elif randomiser == "laplace":
        vector = AddedNoise(dimension=dimension, fraction_bits=FRACTION_BITS, epsilon=rest)
    else:
        # Each of k records of a person, and each of c copies of one, is a vector with noise of its own: ρ adds up.
        copies = code.copies * claim.max_records * claim.max_institutions
        budget = rho_from_epsilon(claim.epsilon, claim.noise_delta) / copies
        vector = AddedNoise(dimension=dimension, fraction_bits=FRACTION_BITS, epsilon=None, budget=budget)
    return Randomiser(label=code, vector=vector)


def _notes(made: Randomiser) -> list[str]:
    """What is published, in words."""
    shape, moments = made.shape, made.moments
    lines = []
    if isinstance(made.vector, SubsetSelection):
        s = made.vector.subset
        several = "" if s.draws == 1 else f"{s.draws} times "
        lines.append(
            f"each record is published {several}as one of {s.candidates:,} public candidates, one of its nearest "
            f"{s.top:,} with probability {float(made.vector.draws[0].probability):.4g}"
        )
    else:
        lines.append(f"{made.name.capitalize()} noise is added to every one of {shape.values:,} numbers of a record")
    if made.label_kind == "sign":
        label = "its class is the sign of the vector, by a public code, and published in no other way"
    elif made.label_kind == "randomised":
        part, kept = float(made.label.epsilon), float(made.label.draws[0].probability)
        label = f"its class is published at epsilon = {part:.4g} of it, and kept with probability {kept:.4g}"
    else:
        label = f"a vector for each of the {made.classes} classes, at 1/{made.classes} of the budget each"
    lines.append(label)
    lines.append(
        f"a record takes {shape.size} byte(s); a coordinate of it has variance {moments.b:.4g} for a learner, a record "
        "having length 1"
    )
    return lines
