"""A consortium's institutions as a federation: the analyst's end of a deployed study."""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.design import Design
from tallystick.algorithms.program import State, unpack_state
from tallystick.core.errors import NotApproved, RemoteProtocolError, StudyError, TallystickError
from tallystick.core.identifiers import check_party_name
from tallystick.core.outside_text import read_json
from tallystick.engines.engine import Computed, Progress, Result
from tallystick.engines.federation import Federation
from tallystick.engines.holders_cast import check_holders_cast
from tallystick.engines.planning import DEFAULT_MIN_CLIENTS, layout_of, plan_study, public_facts
from tallystick.engines.thresholding import state_bytes
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.privacy.payment import Payment
from tallystick.privacy.plan import Plan
from tallystick.privacy.ranges import MAX_ROUNDS
from tallystick.privacy.spent import Spent
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.analyst.stated_holders import StatedHolders, check_dealer, check_named, example
from tallystick.roles.analyst.told_progress import ToldProgress
from tallystick.roles.governance.results import MAX_BYTES
from tallystick.roles.identity.consortium import consortium_roles
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.places import members_of
from tallystick.roles.identity.role_config import load_role_config
from tallystick.study import Study
from tallystick.study.columns import Missing
from tallystick.study.schema import Schema
from tallystick.study.trust import trust_model


def _analyst_config(consortium: Path) -> Path:
    folder = consortium.parent
    matches = []
    for candidate in sorted([*folder.glob("*.toml"), *folder.glob("*/role.toml")]):
        try:
            if load_role_config(candidate).role == "analyst":
                matches.append(candidate)
        except TallystickError:
            continue
    if not consortium.is_file():
        raise StudyError(
            f"there is no file {str(consortium)!r}",
            remedy="Give the path of the consortium.toml that the authority sent to its parties.",
        )
    if len(matches) != 1:
        raise StudyError(
            f"{len(matches)} analyst role files were found beside {consortium.name}",
            remedy='Pass config="…/role.toml", or enrol an analyst: tallystick consortium enrol NAME --role analyst.',
        )
    return matches[0]


class ConnectedFederation(Federation):
    """A consortium's institutions, reached over mutual TLS. Records stay where they are, and so do exact counts."""

    def __init__(
        self,
        path: Path,
        *,
        config: Path | None,
        schema: Schema | None,
        records: int | None,
        missing: Missing | None,
        trust: dict[str, Any],
        connect_timeout: float,
        approval_timeout: float,
        progress: bool = True,
        holders: Mapping[str, Mapping[str, Any]] | None = None,
        identifier: str | Mapping[str, str] | None = None,
        dealer: str | None = None,
    ) -> None:
        """See :meth:`tallystick.Federation.connect`."""
        self.schema, self.missing, self.ledger = schema, missing, Ledger()
        self._config = load_role_config(config if config is not None else _analyst_config(path), role="analyst")
        self._consortium = read_consortium(path)
        self._members = members_of(self._consortium)
        self._records, self._trust = records, trust
        self._holders = self._stated(holders, identifier, dealer)
        self._timeout, self._approval_timeout = connect_timeout, approval_timeout
        load_identity(self._config, self._consortium, wall_clock())  # what is wrong with its files is said at once
        self._lock = threading.Lock()
        self._told = ToldProgress(sys.stderr if progress else None)

    @property
    def spent(self) -> Spent:
        return self.ledger.spent()

    def _stated(self, holders: Any, identifier: Any, dealer: str | None) -> StatedHolders | None:
        """Which columns are at whom, if institutions hold different ones; what follows for [trust] is set."""
        model = trust_model(self._trust["model"])
        clients = self._members.of(model.holders)
        if holders is None:
            if identifier is not None or dealer is not None:
                raise StudyError(
                    "identifier and dealer are for institutions with different columns, and which are at whom is not "
                    "said",
                    rule="holders-are-named",
                    remedy=f"Add {example(clients)} to connect(…), or leave identifier and dealer out.",
                )
            return None
        stated = StatedHolders.of(holders, identifier, clients, self.schema)
        self._trust = {**self._trust, "min_clients": self._trust.get("min_clients") or len(clients)}
        if dealer is not None:
            check_dealer(dealer, self._members.of(model.dealer), model.name)
            self._trust["dealer"] = dealer
        return stated

    def apart(self, schema: Schema, *, target: str | None, features: Sequence[str] | None) -> dict[str, Any]:
        if self._holders is None:
            return {}
        return self._holders.data(schema, target=target, features=features, missing=self.missing)

    def trust_settings(self) -> dict[str, Any]:
        cast = {role: len(self._consortium.by_role(role)) for role in consortium_roles()}
        return {**self._trust, **trust_model(self._trust["model"]).settings(cast)}

    def count_records(self, study: Study) -> int:
        if self._records is None:
            raise StudyError(
                "replace-one makes the number of records public, and nobody here may count them",
                rule="replace-one-needs-records",
                remedy='Pass records=… to Federation.connect, or use neighbours="add-remove".'
                if self._holders is None
                else "Pass records=… to Federation.connect: as many people as they may have in common.",
            )
        return self._records

    def run(self, study: Study, design: Design, *, progress: Progress | None = None) -> Result:
        plan = plan_study(study, design, allow_not_private=study.privacy.mechanism == "none")
        text = getattr(design.program, "source_text", "")
        if study.study.program not in BUILT_IN and not text:
            raise StudyError(
                "a program written in a session cannot travel: stewards approve files",
                rule="program-is-a-file",
                remedy="Put it into a file and use ts.ProgramEstimator.from_text(text, name=…).",
            )
        if study.vertical:
            cast = self._members.cast(study.trust_model, study.trust.model_dump())
            check_named(study, design, cast)
            check_holders_cast(study, design, cast)
        entry = self.ledger.reserve(charge_of(study.hash, plan))
        try:
            packed = self._run(study, plan, text, progress)
        except TallystickError as error:
            unstarted = isinstance(error, NotApproved) or error.rule in ("not-started", "declined", "too-few-clients")
            if unstarted and not error.round:  # a round had shares, and may be asked for again
                self.ledger.withdraw(entry)
            raise
        self.ledger.commit(entry)
        return unpack_result(study, design, plan, *packed)

    def _run(self, study: Study, plan: Plan, program: str, progress: Progress | None) -> tuple[bytes, Payment]:
        """Propose, wait for the stewards, run; the packed result. What was run before is fetched, not run again."""
        told = self._told
        with self._lock, AnalystConnection(self._config, self._consortium, timeout=self._timeout) as connection:
            if connection.exchange.standing(study.hash).state == "unknown":
                connection.propose(study, plan, program)
                told.say(f"proposed {study.study.name!r} ({study.printed_hash[:19]})")
            standing = connection.wait_for_approval(study.hash, self._approval_timeout, told.standing)
            if standing.state not in ("approved", "running", "paused", "finished", "failed"):
                raise NotApproved(
                    f"the study {study.study.name!r} is {standing.state}. {standing.words}",
                    rule=f"study-{standing.state}",
                    remedy="Its stewards decide with tallystick study approve; run it again when they have.",
                )
            packed = connection.run(study.canonical(), program, progress or told.step)
            told.say(f"{study.study.name!r} has run; its result is here")
            return packed, connection.payment(study, plan, took_part(packed))


def took_part(packed: bytes) -> list[list[str]]:
    """Who took part in each round, as a packed result has it."""
    return [list(names) for names in _told(packed, MAX_ROUNDS)["contributors"]]


def _told(packed: bytes, rounds: int) -> dict[str, Any]:
    """The parts of a packed result; the aggregator made it, or whoever says so."""
    try:
        told = read_json(packed, limit=MAX_BYTES)
        history = [base64.b64decode(h, validate=True) for h in told["history"]]
        took = [[check_party_name(n) for n in names] for names in told["contributors"]]
        missed = [[check_party_name(n) for n in names] for names in told["dropped"]]
        if not 1 <= len(took) <= rounds or len(missed) != len(took) or not any(took):
            raise ValueError("another number of rounds, or nobody in them")
        if len(history) not in (1, len(took)):  # all states, or the last one alone
            raise ValueError("another number of states")
        return {"history": history, "contributors": took, "dropped": missed}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RemoteProtocolError(
            "a result is not one of this study", rule="malformed", remedy="Fetch it again: tallystick study result."
        ) from None


def unpack_result(study: Study, design: Design, plan: Plan, packed: bytes, payment: Payment) -> Result:
    """What a packed result says; the states in it were released, round by round."""
    told, layout = _told(packed, plan.claim.rounds), layout_of(study)
    public = public_facts(study, layout)
    template = design.program.init(public)
    if design.tells_of_people:  # the states before the last were shown to nobody
        template = design.program.released_like(public)
    if len(told["history"]) != (1 if design.tells_of_people else len(told["contributors"])):
        raise RemoteProtocolError(
            "a result has not the states that its study releases",
            rule="malformed",
            remedy="Fetch it again: tallystick study result.",
        )
    history: tuple[State, ...] = tuple(unpack_state(h, template) for h in told["history"])
    outcome = Computed(
        history=history,
        contributors=tuple(tuple(names) for names in told["contributors"]),
        dropped=tuple(tuple(names) for names in told["dropped"]),
    ).paid(plan, study.hash, payment)
    size = study.trust_model.upload_bytes(study.trust, plan, records=study.data.records)
    down = sum(map(len, told["history"]))
    if study.privacy.threshold is not None:
        down = state_bytes(design.program, public, history).sent
    return Result(
        study=study,
        plan=plan,
        outcome=outcome,
        layout=layout,
        clients=len({n for names in (*outcome.contributors, *outcome.dropped) for n in names}),
        min_clients=study.trust.min_clients or DEFAULT_MIN_CLIENTS,
        bytes_up_per_client=size * len(outcome.contributors),
        bytes_down_per_client=down,
    )
