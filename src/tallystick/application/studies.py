"""What ``tallystick study …`` does: propose, look, decide, run, fetch.

A steward's command works on the files of the client's own machine and needs no line: the running client finds the
decision there and passes it on. An analyst's command dials the aggregator for as long as it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallystick.application.ledger_check import check_own_ledger
from tallystick.application.own_records import own_records
from tallystick.application.simulation import load_study, read_program_from
from tallystick.application.study_results import document, read_receipt, write_canonical
from tallystick.core.errors import BudgetExceeded, NotApproved, StudyError, TallystickError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.engines.federation import plan_study
from tallystick.engines.setup import set_up
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.governance.taking_part import check_taking_part
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.governance.refusals import Refusals
from tallystick.roles.governance.results import is_interim
from tallystick.roles.governance.review import BY_POLICY, DEFAULT_DAYS, Review, decision_body, lapsed, review
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.identity.identity_files import load_identity, read_consortium, unix_time, wall_clock
from tallystick.roles.identity.places import members_of
from tallystick.roles.identity.role_config import RoleConfig, load_role_config
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.study import Study
from tallystick.study.proposed import proposed_study

__all__ = ["Place", "decide", "listing", "propose", "propose_study", "receipt", "result", "run", "show", "withdraw"]


class Place:
    """A party's own files: who it is, what it has heard, and (a client) its ledger."""

    def __init__(self, config: Path) -> None:
        self.config: RoleConfig = load_role_config(config)
        self.consortium = read_consortium(self.config.consortium)
        self.identity = load_identity(self.config, self.consortium, wall_clock())
        self.members = members_of(self.consortium)
        self.config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store = GovernanceStore(
            self.config.state / "governance.sqlite", party=self.config.name, identities=self.members.identities
        )

    @contextmanager
    def ledger(self) -> Iterator[LedgerStore]:
        """This client's ledger."""
        if self.config.role != "client":
            raise StudyError(f"a {self.config.role} has no ledger", remedy="Use the role file of a client.")
        path = self.config.state / LEDGER
        with LedgerStore(path, party=self.config.name, signing=self.identity.signing) as ledger:
            yield ledger

    def refusal(self, study: bytes) -> dict[str, Any] | None:
        """When and why this party's process last refused to take part in a study, if it did."""
        kept = Refusals(self.config.state / "governance.sqlite", party=self.config.name)
        try:
            found = kept.get(study)
        finally:
            kept.close()
        return None if found is None else {"at": _time(found.at), "rule": found.rule, "cause": found.cause}

    def docket(self, study: bytes) -> Docket:
        """Everything known here about a study."""
        return Docket.of(study, self.members, self.store.statements(study))

    def find(self, name: str) -> bytes:
        """The study meant by a hash, the beginning of one, or a study's name."""
        known = {h: self.docket(h).standing(unix_time()) for h in self.store.hashes()}
        proposed = {h: s for h, s in known.items() if s.proposal is not None}
        text = name.removeprefix("sha256:").lower()
        found = [h for h in proposed if len(text) >= 4 and h.hex().startswith(text)]
        found = found or [h for h, s in proposed.items() if _study_name(s) == name]
        if len(found) > 1 and not any(h.hex() == text for h in found):
            live = [h for h in found if proposed[h].state in ("open", "approved")]
            found = live if len(live) == 1 else found
        if len(found) != 1:
            what = "no study" if not found else f"{len(found)} studies"
            raise StudyError(
                f"{what} known here {'is' if not found else 'are'} called {name!a}",
                rule="unknown-study",
                remedy="tallystick study list shows what was proposed; give more of its hash.",
            )
        return found[0]

    def close(self) -> None:
        """Give the files free."""
        self.store.close()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _study_name(standing: Standing) -> str:
    return "" if standing.proposal is None else proposed_study(standing.proposal.body["study"]).name


def _analyst(config: Path) -> RoleConfig:
    return load_role_config(config, role="analyst")


def _connection(config: Path) -> AnalystConnection:
    role = _analyst(config)
    return AnalystConnection(role, read_consortium(role.consortium))


# -- the analyst -------------------------------------------------------------------------------------------------------


def propose(
    path: Path,
    config: Path,
    *,
    records: int | None = None,
    settings: tuple[str, ...] = (),
    days: float = DEFAULT_DAYS,
    supersedes: str | None = None,
) -> dict[str, Any]:
    """Sign a study and put it before the consortium's stewards."""
    study, folder = load_study(path, settings)
    if records is not None:
        study = study.replace("data", records=records)
    return propose_study(study, config, folder=folder, days=days, supersedes=supersedes)


def propose_study(
    study: Study,
    config: Path,
    *,
    folder: Path = Path(),
    days: float = DEFAULT_DAYS,
    supersedes: str | None = None,
) -> dict[str, Any]:
    """The same for a study that is no file; ``folder`` is where its program file would be."""
    estimator, study = estimator_for(study, read_program_from(folder))
    if study.data.records is None and study.counts_are_public:
        raise StudyError(
            "replace-one makes the number of records public, and the study does not state it",
            rule="replace-one-needs-records",
            remedy="Add `records = …` under [data], or pass --records N.",
        )
    if not (math.isfinite(days) and 0 < days <= 366):
        raise StudyError(f"--days {days:g} is not possible", remedy="A proposal is open for up to 366 days.")
    design = estimator.design_for(study, estimator.layout_for(study))
    plan = plan_study(study, design, allow_not_private=study.privacy.mechanism == "none")
    program = getattr(design.program, "source_text", "")
    set_up(study.canonical(), program, allow_not_private=True)  # what every party will derive from it
    with Place(config) as place:
        earlier = None if supersedes is None else place.find(supersedes)
    with _connection(config) as connection:
        standing = connection.exchange.standing(study.hash)
        if standing.state != "unknown":
            raise StudyError(
                f"this very study is {standing.state} already",
                rule="proposed-once",
                remedy="Its result is fetched with study result; for a new run raise [study] version.",
            )
        made = connection.propose(study, plan, program, days=days, supersedes=earlier)
        connection.wait(lambda: False, 0.5)  # time for the message to leave
        standing = connection.exchange.standing(study.hash)
    return {"action": "propose", **_about(made), **_stands(standing)}


def withdraw(name: str, config: Path, *, reason: str = "") -> dict[str, Any]:
    """Take a proposal back."""
    with Place(config) as place:
        study = place.find(name)
    with _connection(config) as connection:
        body = {"hash": format_hash(study), "reason": reason, "at": int(connection.exchange.wall())}
        connection.exchange.say("withdrawal", body)
        connection.wait(lambda: False, 0.5)
        standing = connection.exchange.standing(study)
    return {"action": "withdraw", **_about(standing.proposal), **_stands(standing)}


def run(name: str, config: Path, *, progress: Any = None) -> dict[str, Any]:
    """Run an approved study; a study that has run already gives its stored result."""
    with _connection(config) as connection, Place(config) as place:
        study = place.find(name)
        standing = connection.exchange.standing(study)
        if standing.state not in ("approved", "running", "finished"):
            raise NotApproved(
                f"the study is {standing.state}. {standing.words}",
                rule=f"study-{standing.state}",
                remedy="Ask those who have not decided or said no; tallystick study status shows who.",
            )
        if standing.proposal is None:
            raise NotApproved("nobody has proposed this study", rule="study-unknown")
        body = standing.proposal.body
        packed = connection.run(str(body["study"]).encode(), str(body["program"]), progress)
        receipt = connection.receipt(study)
    return _document(place, body, packed, receipt)


def result(name: str, config: Path) -> dict[str, Any]:
    """The stored result of a study that has run, or a running stream's so far, if it is shown to this party."""
    if load_role_config(config).role != "analyst":
        return _kept_result(name, config)
    with _connection(config) as connection, Place(config) as place:
        study = place.find(name)
        packed = connection.result(study)
        proposal = connection.exchange.standing(study).proposal
        receipt = None if is_interim(packed) else connection.receipt(study)
    if proposal is None:
        raise NotApproved("nobody has proposed this study", rule="study-unknown")
    return _document(place, proposal.body, packed, receipt)


def _document(place: Place, body: Mapping[str, Any], packed: bytes, receipt: bytes | None) -> dict[str, Any]:
    study = Study.from_canonical(body["study"])
    signer, key = place.config.name, place.identity.signing
    return document(study, str(body["program"]), packed, receipt, signer=signer, key=key)


def _kept_result(name: str, config: Path) -> dict[str, Any]:
    """At a client: its process has fetched what the study shows it."""
    with Place(config) as place:
        study = place.find(name)
        standing = place.docket(study).standing(unix_time())
        path = place.config.state / "results" / f"{study.hex()}.packed"
        if standing.proposal is None or not path.exists():
            raise NotApproved(
                f"there is no result of this study here; it is {standing.state}",
                rule="results-visible-to",
                remedy="The study may not show its result to this client, or its process is not connected yet.",
            )
        body, raw = standing.proposal.body, ReceiptBook(place.config.state).get(study)
    return _document(place, body, path.read_bytes(), raw)


def receipt(name: str, config: Path, out: Path) -> dict[str, Any]:
    """The privacy receipt this party has, written into a folder."""
    with Place(config) as place:
        study = place.find(name)
        raw = ReceiptBook(place.config.state).get(study)
    if raw is None and place.config.role == "analyst":
        with _connection(config) as connection:
            raw = connection.receipt(study)
    if raw is None:
        raise NotApproved(
            "there is no receipt of this study here yet",
            rule="no-receipt",
            remedy="It is made when the study has finished and every server has attested it; ask again later.",
        )
    return {
        "action": "receipt",
        "file": str(write_canonical(read_receipt(raw), out, "receipt.json")),
        "consortium": str(place.config.consortium),
    }


# -- everybody ---------------------------------------------------------------------------------------------------------


def listing(config: Path) -> dict[str, Any]:
    """Every study that was proposed to this consortium, newest first."""
    _refresh(config)
    with Place(config) as place:
        rows = []
        for study in place.store.hashes():
            standing = place.docket(study).standing(unix_time())
            if standing.proposal is not None:
                rows.append({**_about(standing.proposal), **_stands(standing)})
        return {"action": "list", "role": place.config.role, "studies": rows[::-1]}


def show(name: str, config: Path) -> dict[str, Any]:
    """One study as this party sees it; a client also sees what it would cost its own records."""
    _refresh(config)
    with Place(config) as place:
        study = place.find(name)
        docket = place.docket(study)
        standing = docket.standing(unix_time())
        found = {"action": "show", "role": place.config.role, **_about(standing.proposal), **_stands(standing)}
        if standing.proposal is not None:
            found |= _contents(standing.proposal)
        if place.config.role == "client" and standing.proposal is not None:
            with place.ledger() as ledger:
                found["own"] = _own(
                    review(standing.proposal, place.config, ledger, members=place.members),
                    docket,
                    place.config.name,
                )
                found["own"]["records"] = _own_records(standing.proposal, place.config, ledger)
                found["own"] |= {"charge": ledger.standing(study), "refused": place.refusal(study)}
                try:
                    check_own_ledger(ledger, place.config, place.consortium)
                except VerificationError as error:
                    found["own"]["problem"] = str(error)
        return found


def _refresh(config: Path) -> None:
    """An analyst has no process of its own that listens: ask the aggregator. The others' processes keep up."""
    if load_role_config(config).role == "analyst":
        with _connection(config):
            pass


# -- the steward -------------------------------------------------------------------------------------------------------


def decide(
    name: str,
    config: Path,
    decision: str,
    *,
    reason: str = "",
    by: str = "",
    epsilon: float | None = None,
) -> dict[str, Any]:
    """Sign a decision of this client; its process passes it on."""
    with Place(config) as place:
        if place.config.role != "client":
            raise StudyError(f"a {place.config.role} approves nothing", remedy="Use the role file of a client.")
        study = place.find(name)
        if by.startswith(BY_POLICY.strip()):
            raise StudyError(
                f"nobody is called {by!a}", rule="decided-by", remedy="Give the name of who decides: --by."
            )
        docket = place.docket(study)
        with place.ledger() as ledger:
            proposal = _open_to(decision, docket, ledger.standing(study))
            seen = review(proposal, place.config, ledger, members=place.members)
            if decision == "approve":
                check_own_ledger(ledger, place.config, place.consortium)  # a ledger set back would say it has more
                _may_approve(seen)
            dataset = ledger.dataset(place.config.dataset).ident
        terms = _terms(decision, epsilon, proposal)
        body = decision_body(
            docket,
            proposal,
            place.config.name,
            decision,
            reason=reason,
            by=by or "steward",
            now=unix_time(),
            dataset=dataset,
            terms=terms,
        )
        place.store.add(make("decision", place.config.name, body, place.identity.signing).encode())
        after = place.docket(study).standing(unix_time())
        return {"action": decision, **_about(proposal), **_stands(after), "reason": reason, "terms": terms}


def _open_to(decision: str, docket: Docket, charge: str | None) -> Statement:
    """The proposal that a client decides about, if it still can.

    Until this client has itself started, with its charge released, it may take its approval back: whatever the
    aggregator says has been started, or has ended. It may approve what is neither started nor over.
    """
    now = unix_time()
    standing = told = docket.standing(now)
    if decision != "approve" and charge not in ("released", "committed"):
        standing = docket.unstarted(now)
    if standing.proposal is None or standing.state not in ("open", "approved", "refused"):
        raise NotApproved(
            f"the study is {told.state}: nothing is left to decide. {told.words}", rule=f"study-{told.state}"
        )
    return standing.proposal


def _may_approve(seen: Review) -> None:
    if seen.problem:
        raise StudyError(f"this study cannot be run: {seen.problem}", rule=seen.verdict.rule, remedy="Reject it.")
    if seen.effect is not None and not seen.effect.fits:
        raise BudgetExceeded(
            f"this data set cannot pay for it: {seen.effect.after}",
            rule="budget-covers-charge",
            remedy="Counter-propose a lower epsilon, or grant a larger budget: tallystick budget grant.",
        )
    if seen.verdict.decision == "reject":
        raise NotApproved(
            f"this client's own rules forbid it: {seen.verdict.because or seen.verdict.rule}",
            rule=seen.verdict.rule,
            remedy="Change [policy] in the client's role file first, if that is meant.",
        )


def _terms(decision: str, epsilon: float | None, proposal: Statement) -> dict[str, Any]:
    if decision != "counter":
        return {}
    asked = proposed_study(proposal.body["study"]).number("privacy", "epsilon")
    if asked is None:
        raise StudyError("the study asks for no epsilon that could be lowered", rule="lower-cap", remedy="Reject it.")
    if epsilon is None or not 0 < epsilon < asked:
        raise StudyError(
            f"a counter-proposal states an epsilon above 0 and below the {asked:g} that is asked",
            rule="lower-cap",
            remedy="Give --epsilon, or approve or reject the study as it is.",
        )
    return {"epsilon": epsilon}


# -- as data -----------------------------------------------------------------------------------------------------------


def _time(seconds: Any) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _about(proposal: Statement | None) -> dict[str, Any]:
    if proposal is None:
        return {"study": None}
    study = proposed_study(proposal.body["study"])
    version = study.number("study", "version")
    return {
        "study": {"name": study.name, "version": version, "hash": proposal.body["hash"]},
        "analyst": proposal.signer,
        "program": study.text("study", "program"),
        "purpose": proposal.body["purpose"],
        "epsilon": study.number("privacy", "epsilon"),
        "expires": _time(proposal.body["expires"]),
    }


def _stands(standing: Standing) -> dict[str, Any]:
    def told(decisions: Any) -> list[dict[str, Any]]:
        return [
            {"client": name, "by": d.body["by"], "reason": d.body["reason"], "terms": d.body["terms"]}
            for name, d in decisions.items()
        ]

    return {
        "state": standing.state,
        "words": standing.words,
        "quorum": standing.quorum,
        "approved": told(standing.approvals),
        "rejected": told(standing.rejections),
        "countered": told(standing.counters),
        "waiting": list(standing.waiting),
        "equivocators": list(standing.equivocators),
    }


def _contents(proposal: Statement) -> dict[str, Any]:
    study = proposed_study(proposal.body["study"])
    return {
        "contents": {
            "target": study.text("study", "target") or None,
            "columns": study.columns,
            "privacy": dict(study.fit_to_show("privacy")),
            "trust": dict(study.fit_to_show("trust")),
            "visible_to": study.texts("results", "visible_to") or [proposal.signer],
            "plan": proposal.body["plan"]["words"],
            "rounds": proposal.body["plan"]["rounds"],
            "program_text": proposal.body["program"],
            "program_hash": study.text("study", "program_hash") or None,
        }
    }


def _own_records(proposal: Statement, config: RoleConfig, ledger: LedgerStore) -> str | None:
    """How many of this client's records the study could use; for this screen only."""
    try:
        source = config.data if config.data is not None else ledger.dataset(config.dataset).source
    except TallystickError:
        return None  # nothing is registered yet
    found = own_records(proposal, source, party=config.name)
    return None if found is None else found.words


def _own(seen: Review, docket: Docket, client: str) -> dict[str, Any]:
    decided = docket.decisions(client)
    try:
        check_taking_part(docket, client, unix_time())
        out_of_force = lapsed(decided[-1], seen.verdict)
    except NotApproved as error:
        out_of_force = error.cause
    return {
        "decided": decided[-1].body["decision"] if decided else None,
        "decided_by": decided[-1].body["by"] if decided else None,
        "out_of_force": out_of_force,
        "verdict": seen.verdict.decision,
        "verdict_rule": seen.verdict.rule,
        "verdict_because": seen.verdict.because,
        "problem": seen.problem,
        "dataset": None if seen.effect is None else seen.effect.dataset,
        "budget_before": None if seen.effect is None else seen.effect.before,
        "budget_after": None if seen.effect is None else seen.effect.after,
        "fits": None if seen.effect is None else seen.effect.fits,
        "share_of_what_is_left": None
        if seen.effect is None or not math.isfinite(seen.effect.share)
        else seen.effect.share,
    }
