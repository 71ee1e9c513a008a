"""``tallystick demo``: a deployment on this machine, with nothing left out but the distance.

Three servers, an aggregator and five institutions, each a process with its own keys, talk over mutual TLS. An analyst
proposes a study of who earns above 50K on an invented census. Three data stewards approve it, one refuses, and the
fifth institution's own rules approve it without a person. It runs; one institution is killed with SIGKILL on the way,
started again, and rejoins. The privacy receipt is verified; a second study is refused, because the budgets are spent.
Randomness is the operating system's: no seed exists here, as in any deployment.

Comparisons on records (accuracy, the model without privacy) are possible only because the demonstration made the
records up: a real study has nobody who could compute them, and its result has no ``demonstration`` block.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.application import studies
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.local_deployment import LocalDeployment, interrupts_to
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_result
from tallystick.application.simulation import evaluate_split
from tallystick.application.study_results import estimator_of, verify
from tallystick.core.errors import RoundAborted, StudyError, TallystickError
from tallystick.crypto.prg import system_stream
from tallystick.data.examples import CENSUS_RECORDS, census, census_schema
from tallystick.data.partitions import even, holdout_split, permutation
from tallystick.data.sources import read_table
from tallystick.engines.federation import Federation as Simulation
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.from_study import estimator_for
from tallystick.roles.identity.identity_files import unix_time
from tallystick.study import Study

SERVERS, INSTITUTIONS = 3, 5
STEWARDS = {"institution-1": "Dr. Abel", "institution-2": "Dr. Brandt", "institution-3": "Ms. Costa"}
REFUSING, WHY = "institution-5", "our ethics board meets in December"
DECISION_SECONDS = 60.0
VICTIM = "institution-3"
HELD_BACK = 0.1
START_SECONDS = 120.0
ROUND_SECONDS = 15.0
"""How long a round waits for an institution that is silent; also what the killed one costs the others, per round."""

_STUDY = f"""
[study]
name = "income, an invented census"
program = "logistic_regression"
target = "income"
purpose = "the demonstration: who earns above 50K"
[privacy]
epsilon = 1.0
delta = 1e-6
[trust]
servers = {SERVERS}
colluding = 1
min_clients = 3
round_timeout_s = {ROUND_SECONDS}
[data]
missing = {{ marker = "?", policy = "category" }}
"""


Tell = Callable[[str], None]


def _nobody(*_told: object) -> None:
    pass


def demo(
    *,
    keep: Path | None = None,
    tell: Tell = _nobody,
    step: Callable[[int, int], None] = _nobody,
    records: int = CENSUS_RECORDS,
    rounds: int | None = None,
) -> dict[str, Any]:
    """Run it, telling events and rounds. ``keep`` is where the folder stays; fewer ``records`` and ``rounds`` are for
    tests."""
    began = time.perf_counter()
    with _stoppable(), _folder(keep) as folder:
        table = read_table(census(records))
        train, test = holdout_split(table.num_rows, HELD_BACK, system_stream())
        study = _study(len(train), rounds)
        tell("compiling what every process will run (once a machine)")
        _warm(study, table.slice(0, 600))
        tell(f"{table.num_rows:,} invented records, cut over {INSTITUTIONS} institutions; keys and certificates")
        parts = even(len(train), INSTITUTIONS, permutation(len(train), system_stream()))
        files = _write(folder, [table.take(train[part]) for part in parts])
        asking = (*STEWARDS, REFUSING)
        with LocalDeployment(
            folder, name="demonstration", servers=SERVERS, institutions=files, asking=asking
        ) as deployment:
            deployment.start_all(timeout=START_SECONDS, told=lambda party: _up(party, tell))
            processes = deployment.running()
            victim = _Victim(deployment, tell, step)
            try:
                before = _budgets(deployment)
                decisions = _agree(deployment, study, tell)
                started = time.perf_counter()
                made = studies.run(study.printed_hash, deployment.analyst, progress=victim.round)
                seconds = time.perf_counter() - started
                write_result(made, folder / "out")
                verified = verify(folder / "out" / "result.json", deployment.consortium)
                tell(f"the receipt was verified offline: {verified['signatures']} signatures")
                second = _second_study(deployment, study, tell)
            except TallystickError:
                deployment.check()  # a process that died is the cause, and its log says why
                raise
            after = _budgets(deployment)
            sent = {party: deployment.bytes_sent(party) for party in deployment.parties}
        tell("all processes have stopped; measuring on the records kept back")
        estimator = estimator_of(made)
        evaluation = evaluate_split(estimator, study, table.take(train), table.take(test))
        document = {**made, "cost": {**made["cost"], "seconds": seconds}}
        document["demonstration"] = {
            "note": "comparisons exist only because the demonstration invented the records; a real study has none",
            "records": table.num_rows,
            "processes": processes,
            "seconds_in_all": time.perf_counter() - began,
            "evaluation": {"method": "holdout", "fraction": HELD_BACK, **evaluation},
            "killed": victim.account(estimator),
            "decisions": decisions,
            "budgets": {name: {"before": before[name], "after": after[name]} for name in before},
            "verified": verified,
            "second_study": second,
            "bytes_sent": sent,
        }
        return document


def _budgets(deployment: LocalDeployment) -> dict[str, str]:
    """What each institution's own ledger says."""
    said = {}
    for name in deployment.institutions:
        with PartyFiles.of(deployment.config(name)) as files, files.ledger() as ledger:
            said[name] = ledger.view(files.config.dataset).words
    return said


def _agree(deployment: LocalDeployment, study: Study, tell: Tell) -> dict[str, Any]:
    """Propose the study and have everybody decide, each on its own machine's files."""
    for name in deployment.institutions:
        if name not in (*STEWARDS, REFUSING):
            accept_columns(study, deployment.config(name), by=f"the steward of {name}")
            tell(f"{name} has accepted how the study reads its columns: its rules may approve")
    tell("the analyst proposes the study to the data stewards")
    studies.propose_study(study, deployment.analyst)
    for name in (*STEWARDS, REFUSING):
        _until(lambda n=name: _knows(deployment, n, study.hash), f"{name} has not heard of the study")  # type: ignore[misc]
    for name, steward in STEWARDS.items():
        studies.decide(study.printed_hash, deployment.config(name), "approve", by=steward)
        tell(f"{steward} of {name} read what it would cost and approved it")
    studies.decide(study.printed_hash, deployment.config(REFUSING), "reject", reason=WHY, by="Mr. Eder")
    tell(f"Mr. Eder of {REFUSING} refused: {WHY}")
    _until(lambda: not _shown(deployment, study)["waiting"], "not everybody has decided", every=1.0)
    found = _shown(deployment, study)
    tell(found["words"])
    return {key: found[key] for key in ("approved", "rejected", "words", "quorum")}


def _shown(deployment: LocalDeployment, study: Study) -> dict[str, Any]:
    return studies.show(study.printed_hash, deployment.analyst)


def _knows(deployment: LocalDeployment, name: str, study: bytes) -> bool:
    with PartyFiles.of(deployment.config(name)) as files:
        return files.docket(study).standing(unix_time()).proposal is not None


def _second_study(deployment: LocalDeployment, study: Study, tell: Tell) -> dict[str, Any]:
    """The same question again, as a new version: the ledgers say no."""
    again = study.replace("study", version=2)
    studies.propose_study(again, deployment.analyst)
    _until(lambda: _shown(deployment, again)["state"] != "open", "nobody has answered the second proposal", every=1.0)
    found = _shown(deployment, again)
    told = found["rejected"][0] if found["rejected"] else {"client": "", "reason": found["words"]}
    tell(f"a second study is {found['state']}: {told['client']}: {told['reason']}")
    return {"state": found["state"], "rejected": found["rejected"], "words": found["words"]}


def _until(done: Callable[[], bool], otherwise: str, *, every: float = 0.2) -> None:
    deadline = time.monotonic() + DECISION_SECONDS
    while not done():
        _go_on()
        if time.monotonic() > deadline:
            raise RoundAborted(otherwise, rule="demonstration", remedy="Try again when the machine is less busy.")
        time.sleep(every)


def _study(records: int, rounds: int | None) -> Study:
    raw = tomllib.loads(_STUDY)
    raw["data"] |= {"columns": census_schema().to_dict(), "records": records}
    if rounds is not None:
        raw["program"] = {"rounds": rounds}
        raw["study"]["accept_noise"] = True
    return Study.from_dict(raw)


def _warm(study: Study, table: Any) -> None:
    """Have numba compile into its cache on disk before ten processes would each do so."""
    short = study.replace("program", rounds=2).replace("study", accept_noise=True)
    short = short.replace("data", records=table.num_rows)
    estimator, short = estimator_for(short)
    parts = np.array_split(np.arange(table.num_rows), INSTITUTIONS)
    federation = Simulation.simulate(
        [table.take(p) for p in parts], schema=short.schema_of_data(), servers=SERVERS, colluding=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of course 600 records are too few: nothing of this is looked at
        estimator.fit_study(federation, short)


def _write(folder: Path, tables: list[Any]) -> dict[str, Path]:
    import pyarrow.parquet

    files = {}
    for number, table in enumerate(tables, start=1):
        name = f"institution-{number}"
        files[name] = folder / f"{name}.parquet"
        pyarrow.parquet.write_table(table, files[name])
    return files


class _Victim:
    """Kills an institution a third of the way, and starts it again once the others have gone on without it."""

    def __init__(self, deployment: LocalDeployment, tell: Tell, step: Callable[[int, int], None]) -> None:
        self._deployment, self._tell, self._step = deployment, tell, step
        self.killed_after: int | None = None
        self.started_after: int | None = None
        self._last, self._done = time.monotonic(), 0

    def round(self, done: int, rounds: int) -> None:
        _go_on()
        if done <= self._done:
            return  # told again, because the line is quiet
        self._step(done, rounds)
        now = time.monotonic()
        waited, self._last, self._done = now - self._last, now, done
        if self.killed_after is None and done >= max(1, rounds // 3):
            self._deployment.kill(VICTIM)
            self.killed_after = done
            self._tell(
                f"round {done}: {VICTIM} killed (SIGKILL); the others wait {ROUND_SECONDS:.0f} s for it, then go on"
            )
        elif self.killed_after is not None and self.started_after is None and waited > 0.8 * ROUND_SECONDS:
            # The round after the kill may still have had its share; the one that took this long went on without.
            self._deployment.start(VICTIM)
            self.started_after = done
            self._tell(f"round {done}: went on without it; {VICTIM} started again")

    def account(self, estimator: PrivateEstimator) -> dict[str, Any]:
        missed = [n for n, names in enumerate(estimator.dropped_, start=1) if VICTIM in names]
        back = VICTIM in estimator.contributors_
        return {
            "name": VICTIM,
            "after_round": self.killed_after,
            "missed": missed,
            "rejoined": missed[-1] + 1 if missed and back else None,
        }


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A folder for the run: a temporary one that is gone afterwards whatever happens, or the one to keep."""
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="tallystick-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    try:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise StudyError(f"{keep} is not empty", rule="keep", remedy="Give a new folder to --keep.")
    except OSError as error:
        raise StudyError(f"cannot use {keep}: {error.strerror}", rule="keep", remedy="Give another folder.") from None
    yield keep


_interrupted = threading.Event()


def _go_on() -> None:
    """An interrupt that struck inside a library, which dropped it, still counts."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _up(party: str, tell: Tell) -> None:
    _go_on()
    tell(f"{party} is up")


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demonstration as Ctrl-C does: processes stopped, folder removed."""
    _interrupted.clear()

    def interrupt(_number: int, _frame: object) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    with interrupts_to(interrupt):
        yield
