"""Federations: the institutions an estimator learns from.

:meth:`Federation.simulate` makes one on this machine, one frame per institution: the same protocol machines and the
same wire bytes as a deployment, over the in-memory transport. Randomness is the operating system's unless a ``seed`` is
given; seeded noise exists in simulation only, and is keyed by study, round and server, never by client, so that the
same records give the same model split over 1 or 1,000 clients.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from typing import Any

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError, TooFewParties, TrustModelError
from tallystick.core.identifiers import check_party_name
from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.data.encoding import Records
from tallystick.engines.client_maps import ClientMaps
from tallystick.engines.record_choice import sampling_notes
from tallystick.engines.run import Outcome, Progress, run_program
from tallystick.engines.study_records import person_column, study_records
from tallystick.engines.thresholding import threshold_notes
from tallystick.privacy.accountant import ORDERS, rho_from_epsilon
from tallystick.privacy.ledger import Ledger, Spent
from tallystick.privacy.plan import Plan, make_plan
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sampling import sampled_budget
from tallystick.study import Study
from tallystick.study.schema import Column, FeatureLayout, Items, Missing, Schema
from tallystick.study.trust import registered

__all__ = [
    "DEFAULT_MIN_CLIENTS",
    "Federation",
    "Result",
    "SimulatedFederation",
    "plan_study",
    "public_budget",
    "public_facts",
    "trust_settings",
]

DEFAULT_MIN_CLIENTS = 3


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run with what it took; everything here may be shown."""

    study: Study
    plan: Plan
    outcome: Outcome
    layout: FeatureLayout
    clients: int
    min_clients: int
    bytes_up_per_client: int
    bytes_down_per_client: int


class Federation:
    """What estimators fit on. Make one with :meth:`simulate`."""

    schema: Schema | None

    @staticmethod
    def simulate(
        frames: Sequence[Any],
        *,
        schema: Schema | None = None,
        trust: str = "servers",
        servers: int = 2,
        colluding: int | None = None,
        parties: int = 3,
        min_clients: int | None = None,
        seed: int | None = None,
        names: Sequence[str] | None = None,
        drop: float = 0.0,
        missing: Missing | None = None,
        round_timeout_s: float = 60,
    ) -> SimulatedFederation:
        """One frame (pandas, polars, Arrow, dict of arrays, or a path) is one institution.

        ``drop`` is the probability that an institution misses a round. ``min_clients=None`` means 3, or all of them if
        there are fewer: a simulation may be of one institution, a deployment never is.
        """
        # A frame, a dict and a path can be gone through too, and their parts would be taken for institutions.
        if isinstance(frames, (str, bytes, PathLike, Mapping)) or hasattr(frames, "columns"):
            raise StudyError(
                f"a {type(frames).__name__} is not a list of frames",
                remedy="Pass one frame per institution: simulate([frame]).",
            )
        return SimulatedFederation(
            frames=tuple(frames),
            schema=schema,
            trust=trust_settings(
                trust,
                servers=servers,
                colluding=colluding,
                parties=parties,
                min_clients=min_clients,
                round_timeout_s=round_timeout_s,
            ),
            names=tuple(names) if names is not None else None,
            seed=seed,
            drop=drop,
            missing=missing,
        )

    @property
    def spent(self) -> Spent:
        """The composed statement of all fits on this federation."""
        raise StudyError("this federation keeps no ledger")

    def trust_settings(self) -> dict[str, Any]:
        """The [trust] section of a study run here."""
        raise StudyError("this federation has no trust settings")

    def count_records(self, study: Study) -> int:
        """The public number of records, where the federation may state it (simulation)."""
        raise StudyError("state the public number of records in the study: [data] records = …")

    def run(self, study: Study, design: Design, layout: FeatureLayout, *, progress: Progress | None = None) -> Result:
        """Run a designed study."""
        raise StudyError("this federation cannot run studies")


@dataclass(kw_only=True)
class SimulatedFederation(Federation):
    """Institutions in this process. Build it with :meth:`Federation.simulate`."""

    frames: tuple[Any, ...] = field(repr=False)
    schema: Schema | None
    trust: dict[str, Any]
    names: tuple[str, ...] | None = None
    seed: int | None = None
    drop: float = 0.0
    missing: Missing | None = None
    ledger: Ledger = field(default_factory=Ledger, repr=False)
    _encoded: dict[bytes, list[Records]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.frames:
            raise StudyError("a federation of no institution", remedy="Pass one frame per institution.")
        width = len(str(len(self.frames)))
        if self.names is None:
            self.names = tuple(f"client-{i:0{width}d}" for i in range(1, len(self.frames) + 1))
        if len(self.names) != len(self.frames) or len(set(self.names)) != len(self.names):
            raise StudyError("names must be distinct, one per frame")
        for name in self.names:
            check_party_name(name)
        if not (math.isfinite(self.drop) and 0 <= self.drop < 1):
            raise StudyError(f"drop = {self.drop} is not a probability below 1")
        if self.seed is not None:
            seed_bytes(self.seed)

    @property
    def spent(self) -> Spent:
        return self.ledger.spent()

    def trust_settings(self) -> dict[str, Any]:
        return dict(self.trust)

    def count_records(self, study: Study) -> int:
        # All rows, also those that a missing value or an undeclared class leaves out: replacing a record by an
        # incomplete one must not change the public number.
        return sum(r.tallies.records for r in self.records(study))

    def records(self, study: Study) -> list[Records]:
        """Every institution's records, encoded by the study's schema; read once per study."""
        facts = (study.data.columns, study.study.target, study.study.features, study.data.missing)
        key = repr((*facts, person_column(study))).encode()
        if key not in self._encoded:
            self._encoded.clear()
            # Strictly: whoever simulates has the records in hand, and is told what is wrong with them.
            self._encoded[key] = [
                study_records(study, frame, party=name, lenient=False)
                for name, frame in zip(self.names or (), self.frames)
            ]
        return self._encoded[key]

    def run(self, study: Study, design: Design, layout: FeatureLayout, *, progress: Progress | None = None) -> Result:
        plan = plan_study(study, design, allow_not_private=True)
        names = self.names or ()
        wanted = study.trust.min_clients
        least = min(DEFAULT_MIN_CLIENTS, len(names)) if wanted is None else wanted
        if len(names) < least:
            raise TooFewParties(
                f"{len(names)} client(s) where the study asks for min_clients = {least}; nothing was computed",
                rule="too-few-clients",
                round=1,
                remedy="Invite more institutions, or propose the study anew with a lower min_clients (at least 2).",
            )
        public = public_facts(study, layout)
        template = design.program.init(public)
        records = self.records(study)
        of_study = ClientMaps(study, design.program, template)
        maps = {
            name: of_study.simulated(r, self._stream, name, frame)
            for name, frame, r in zip(names, self.frames, records)
        }
        simulated = study.trust_model.load(study.trust_model.simulation)
        totals = simulated(
            study=study,
            plan=plan,
            clients=maps,
            min_clients=least,
            records=sum(len(r) for r in records),
            stream=self._stream,
            drop=self.drop,
            template=template,
            program=design.program,
        )
        outcome = run_program(
            design.program, public, plan, totals, study=study.hash, ledger=self.ledger, progress=progress
        )
        return Result(
            study=study,
            plan=plan,
            outcome=outcome,
            layout=layout,
            clients=len(names),
            min_clients=least,
            bytes_up_per_client=totals.bytes_up_per_client,
            bytes_down_per_client=totals.bytes_down_per_client,
        )

    def _stream(self, *labels: bytes) -> WordSource:
        """A random stream of its own for every use: the system's, or derived from the simulation's seed."""
        if self.seed is None:
            return system_stream()
        return AesStream(derive(seed_bytes(self.seed), b"tallystick/simulation/1", *labels))


def trust_settings(model: str, **given: Any) -> dict[str, Any]:
    """The keys of these that the trust model has; all of them if nobody knows it, which its study then says."""
    known = next((m.load(m.section).model_fields for m in registered() if m.name == model), given)
    return {"model": model, **{k: v for k, v in given.items() if k in known}}


def seed_bytes(seed: int) -> bytes:
    """A simulation's seed as a key."""
    try:
        return operator.index(seed).to_bytes(32, "little", signed=True)
    except (TypeError, OverflowError):
        raise StudyError(
            "the seed is not a whole number of at most 255 bits", remedy="Use for instance seed = 1."
        ) from None


def public_facts(study: Study, layout: FeatureLayout) -> Public:
    """What programs may know."""
    schema = study.schema_of_data()

    def most_ones(column: Column) -> int:
        return column.max_per_record if isinstance(column, Items) else 1

    return Public(
        features=layout.names,
        records=study.data.records if study.stream is None else study.stream.records_per_tick,
        target=study.study.target,
        classes=tuple(layout.classes or ()),
        target_bounds=layout.target_bounds,
        max_l2_squared=layout.max_l2_squared,
        max_l1=layout.max_l1,
        units=tuple(zip(layout.kinds, layout.centre, layout.scale, layout.offset)),
        blocks=tuple((b.column, b.start, b.stop, b.kind, most_ones(schema[b.column])) for b in layout.blocks),
        drops_incomplete=study.data.missing is not None and study.data.missing.policy == "drop",
    )


def public_budget(study: Study, *, rounds: int | None = None) -> PublicBudget:
    """The budget a designer divides, with the trust model's price; ``rounds`` where the study states them."""
    claim = study.claim(rounds=1, allow_not_private=True)
    laplace, makers = claim.mechanism == "laplace", claim.trust.makers
    private = claim.mechanism != "none"
    rho = float(rho_from_epsilon(claim.epsilon, claim.delta)) if private and not laplace else math.inf
    if claim.sampling is not None and claim.sampling < 1 and private and not laplace:
        rho = _sampled_rho(claim, makers.honest, rounds)
    ticks = 1 if study.stream is None else study.stream.ticks
    return PublicBudget(
        mechanism=claim.mechanism,
        rho=rho * ticks,  # designers divide by the rounds; each tick of a stream has the whole budget
        epsilon=claim.epsilon * ticks if private else math.inf,
        ticks=None if study.stream is None else ticks,
        neighbours=claim.neighbours,
        variance_factor=makers.variance_factor(splits=not laplace),
        person_factor=claim.max_records * claim.max_institutions,
    )


def _sampled_rho(claim: Claim, honest: int, rounds: int | None) -> float:
    """What the designer has: after the total is divided by the rate q, noise variance is that of q²·Σρ."""
    if rounds is None:
        raise StudyError(
            "a sampled study states its number of rounds",
            rule="sampling-needs-rounds",
            remedy="Add `rounds = …` under [program] if the program takes it: what a sample saves depends on how often "
            "it is drawn. A program of one or few rounds gains nothing by it: leave sampling out.",
        )
    rate = claim.sampling or 1.0
    check_claim(claim)
    whole = sampled_budget(
        claim.epsilon,
        claim.delta,
        rate=rate,
        shares=[Fraction(1, rounds)] * rounds,
        orders=ORDERS,
        honest=honest,
    )
    return float(whole) * rate**2


def plan_study(study: Study, design: Design, *, allow_not_private: bool) -> Plan:
    """The plan of a designed study; refused by the first privacy rule that does not hold."""
    if not study.trust_model.sums:
        raise TrustModelError(
            f"{study.study.program} does not run under trust = {study.trust.model!r}",
            remedy=f"It runs under: {', '.join(m.name for m in registered() if m.sums)}.",
        )
    person_column(study)
    claim = study.claim(rounds=design.rounds, allow_not_private=allow_not_private)
    made = make_plan(
        claim,
        design.groups,
        fraction_bits=design.fraction_bits,
        weights=design.weights,
        notes=(*design.notes, *threshold_notes(study)),
        hopeless=design.hopeless,
        threshold=study.privacy.threshold,
        details=design.details,
    )
    return replace(made, notes=(*made.notes, *sampling_notes(made)))
