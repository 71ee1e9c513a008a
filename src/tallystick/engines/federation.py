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
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError, TooFewParties
from tallystick.core.identifiers import check_party_name
from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.data.held_columns import HeldColumns
from tallystick.engines.client_map import DistantRecords, HeldRecords
from tallystick.engines.data_check import DataCheck, check_sources, check_tallies, refuse_or_warn
from tallystick.engines.engine import Computation, Engine, Progress, Result, SimulatedStudy, run_paid
from tallystick.engines.held_apart import check_vertical, data_apart, simulated_held
from tallystick.engines.planning import DEFAULT_MIN_CLIENTS, layout_of, plan_study, public_facts
from tallystick.engines.record_engine import LocalEngine, RecordEngine, mapped_where_it_lies
from tallystick.privacy.ledger import Ledger
from tallystick.privacy.plan import Plan
from tallystick.privacy.spent import Spent
from tallystick.study import Study
from tallystick.study.columns import Missing
from tallystick.study.schema import Schema
from tallystick.study.trust import trust_model


class Federation(Engine):
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
        scheme: str | None = None,
        reducer: str | None = None,
        dropout: float | None = None,
        vertical: bool = False,
        identifier: str | Mapping[str, str] | None = None,
        norms: Mapping[str, float] | None = None,
    ) -> SimulatedFederation:
        """One frame (pandas, polars, Arrow, dict of arrays, or a path) is one institution.

        ``drop`` is the probability that an institution misses a round. ``min_clients=None`` means 3, or all of them if
        there are fewer: a simulation may be of one institution, a deployment never is. ``scheme`` is that of trust
        model ``proxy``: "bfv" (the default) or "paillier". ``reducer`` and ``dropout`` are those of ``masks``: which
        client runs the reducer, if one does, and how many may miss a round.

        ``vertical``: the frames hold different columns of the same people, whom the column ``identifier`` names (a
        table says how it is compared: see docs/study.md); left out, it is the one undeclared column that all frames
        have, or rows belong together by their place. ``norms``: the declared length of a record at each institution;
        left out, what follows from the schema.
        """
        # A frame, a dict and a path can be gone through too, and their parts would be taken for institutions.
        if isinstance(frames, (str, bytes, PathLike, Mapping)) or hasattr(frames, "columns"):
            raise StudyError(
                f"a {type(frames).__name__} is not a list of frames",
                remedy="Pass a list with one frame per institution: simulate([frame_a, frame_b, frame_c]). To cut one "
                "frame into three institutions: simulate([frame[i::3] for i in range(3)]).",
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
                **_stated(scheme=scheme, reducer=reducer, dropout=dropout),
                **({"clients": len(frames)} if isinstance(frames, Sequence) else {}),
            ),
            names=tuple(names) if names is not None else None,
            seed=seed,
            drop=drop,
            missing=missing,
            vertical=vertical,
            identifier=identifier,
            norms=norms,
        )

    @property
    def spent(self) -> Spent:
        """The composed statement of all fits on this federation."""
        raise StudyError("this federation keeps no ledger")

    def trust_settings(self) -> dict[str, Any]:
        """The [trust] section of a study run here."""
        raise StudyError("this federation has no trust settings")

    def check(
        self, schema: Schema | None = None, *, target: str | None = None, features: Sequence[str] | None = None
    ) -> DataCheck:
        """What a study would find in the records, where the caller holds them (simulation)."""
        raise StudyError(
            "the records are with their institutions, and so is what they hold",
            remedy="Every institution looks for itself: tallystick data check STUDY.",
        )

    def apart(self, schema: Schema, *, target: str | None, features: Sequence[str] | None) -> dict[str, Any]:
        """The keys of [data] that say which columns are at whom, where institutions hold different ones."""
        return {}

    def count_records(self, study: Study) -> int:
        """The public number of records, where the federation may state it (simulation)."""
        raise StudyError("state the public number of records in the study: [data] records = …")


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
    vertical: bool = False
    identifier: str | Mapping[str, str] | None = None
    norms: Mapping[str, float] | None = None
    refuse_useless: bool = True
    """Whether data from which nothing can be learned are an error; scikit-learn's rules for ``fit(X, y)`` say no."""
    engine: RecordEngine = field(default_factory=LocalEngine, repr=False)
    """Where every institution's records are mapped."""
    _encoded: dict[bytes, list[HeldRecords]] = field(default_factory=dict, init=False, repr=False)
    _held: dict[bytes, dict[str, HeldColumns]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.frames:
            raise StudyError("a federation of no institution", remedy="Pass one frame per institution.")
        width = len(str(len(self.frames)))
        if self.names is None:
            self.names = tuple(f"client-{i:0{width}d}" for i in range(1, len(self.frames) + 1))
        if len(self.names) != len(self.frames) or len(set(self.names)) != len(self.names):
            raise StudyError(
                f"{len(self.names)} name(s) for {len(self.frames)} frame(s), or a name twice",
                remedy="Give every frame a name of its own, or leave names out.",
            )
        for name in self.names:
            check_party_name(name)
        if not (math.isfinite(self.drop) and 0 <= self.drop < 1):
            raise StudyError(f"drop = {self.drop} is not a probability below 1")
        if self.seed is not None:
            seed_bytes(self.seed)
        if not self.vertical and (self.identifier is not None or self.norms is not None):
            raise StudyError(
                "identifier and norms are for institutions with different columns",
                remedy="Say vertical=True, or leave them out.",
            )
        if self.vertical:
            check_vertical(self.frames, self.drop)

    @property
    def spent(self) -> Spent:
        return self.ledger.spent()

    def trust_settings(self) -> dict[str, Any]:
        return dict(self.trust)

    def count_records(self, study: Study) -> int:
        # All rows, also those that a missing value or an undeclared class leaves out: replacing a record by an
        # incomplete one must not change the public number.
        if study.vertical:
            return next(iter(self.held(study).values())).aligned
        return sum(r.tallies.records for r in self.records(study))

    def apart(self, schema: Schema, *, target: str | None, features: Sequence[str] | None) -> dict[str, Any]:
        if not self.vertical:
            return {}
        frames = dict(zip(self.names or (), self.frames))
        return data_apart(
            frames,
            schema,
            target=target,
            features=features,
            identifier=self.identifier,
            norms=self.norms,
            missing=self.missing,
        )

    def held(self, study: Study) -> dict[str, HeldColumns]:
        """Every institution's columns of the people whom all have in common; read once per study."""
        key = repr((study.data, study.study.target, study.study.features)).encode()
        if key not in self._held:
            self._held.clear()
            self._held[key] = simulated_held(study, dict(zip(self.names or (), self.frames)))
        return self._held[key]

    def records(self, study: Study) -> list[HeldRecords]:
        """Every institution's records, encoded by the study's schema; read once per study."""
        if study.vertical:
            return [held.records for held in self.held(study).values()]
        facts = (study.data.columns, study.study.target, study.study.features, study.data.missing)
        key = repr((*facts, study.person_column())).encode()
        if key not in self._encoded:
            for records in [r for known in self._encoded.values() for r in known]:
                if isinstance(records, DistantRecords):
                    records.forget()
            self._encoded.clear()
            # Strictly: whoever simulates has the records in hand, and is told what is wrong with them.
            self._encoded[key] = [
                mapped_where_it_lies(frame, self.engine).records(study, frame, party=name, lenient=False)
                for name, frame in zip(self.names or (), self.frames)
            ]
            found = {name: records.tallies for name, records in zip(self.names or (), self._encoded[key])}
            refuse_or_warn(check_tallies(study, found), refuse_useless=self.refuse_useless)
        return self._encoded[key]

    def check(
        self, schema: Schema | None = None, *, target: str | None = None, features: Sequence[str] | None = None
    ) -> DataCheck:
        """What a study with these columns would find in every institution's records: unknown categories, clamped and
        missing values, empty and constant columns. Prints as a table; spends nothing, for the records are yours."""
        columns = schema if schema is not None else self.schema
        if self.vertical:
            raise StudyError(
                "check looks at whole records, and these are split by columns",
                remedy="Check each institution's frame by itself: ts.Federation.simulate([frame], schema=…).check().",
            )
        if columns is None:
            raise StudyError("there is no schema to check the data against", remedy="Write fed.check(schema).")
        study = Study.from_dict(
            {
                "study": {"name": "check", "program": "summary", "target": target, "features": features},
                "trust": self.trust_settings(),
                "data": {
                    "columns": columns.to_dict(),
                    "missing": None if self.missing is None else self.missing.to_dict(),
                },
            }
        )
        return check_sources(study, dict(zip(self.names or (), self.frames)))

    def run(self, study: Study, design: Design, *, progress: Progress | None = None) -> Result:
        plan = plan_study(study, design, allow_not_private=True)
        layout = layout_of(study)
        simulated = self._simulated(study, design, plan, public_facts(study, layout))
        computation = self.computation(simulated)
        outcome = run_paid(computation, plan, study=study.hash, ledger=self.ledger, progress=progress)
        sent, received = computation.bytes_per_client()
        return Result(
            study=study,
            plan=plan,
            outcome=outcome,
            layout=layout,
            clients=len(self.frames),
            min_clients=simulated.min_clients,
            bytes_up_per_client=sent,
            bytes_down_per_client=received,
        )

    def computation(self, simulated: SimulatedStudy) -> Computation:
        """What carries it out: all parties of the study's trust model, in this process."""
        model = simulated.study.trust_model
        made: Computation = model.load(model.simulation)(simulated)
        return made

    def _simulated(self, study: Study, design: Design, plan: Plan, public: Public) -> SimulatedStudy:
        names = self.names or ()
        wanted = study.trust.min_clients
        least = min(DEFAULT_MIN_CLIENTS, len(names)) if wanted is None else wanted
        if study.vertical:
            least = len(names)  # each holds columns of its own
        if len(names) < least:
            raise TooFewParties(
                f"{len(names)} client(s) where the study asks for min_clients = {least}; nothing was computed",
                rule="too-few-clients",
                round=1,
                remedy="Give a frame or file for each institution, or split the records over more of them (--clients "
                f"{least}), or ask for fewer: min_clients = {max(2, len(names))} under [trust]; a deployment takes at "
                "least 2.",
            )
        return SimulatedStudy(
            study=study,
            design=design,
            plan=plan,
            public=public,
            template=design.program.init(public),
            records=dict(zip(names, self.records(study))),
            frames=dict(zip(names, self.frames)),
            min_clients=least,
            stream=self._stream,
            drop=self.drop,
            held=self.held(study) if study.vertical else {},
        )

    def _stream(self, *labels: bytes) -> WordSource:
        """A random stream of its own for every use: the system's, or derived from the simulation's seed."""
        if self.seed is None:
            return system_stream()
        return AesStream(derive(seed_bytes(self.seed), b"tallystick/simulation/1", *labels))


def trust_settings(model: str, **given: Any) -> dict[str, Any]:
    """The keys of these that the trust model has; a model that nobody knows is refused here, not when it is fitted."""
    found = trust_model(model)
    known = found.load(found.section).model_fields
    return {"model": model, **{k: v for k, v in given.items() if k in known}}


def _stated(**given: Any) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def seed_bytes(seed: int) -> bytes:
    """A simulation's seed as a key."""
    try:
        return operator.index(seed).to_bytes(32, "little", signed=True)
    except (TypeError, OverflowError):
        raise StudyError(
            "the seed is not a whole number of at most 255 bits", remedy="Use for instance seed = 1."
        ) from None
