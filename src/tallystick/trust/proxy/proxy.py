"""The proxy's part: keeps uploads until both have signed the set, adds them up with its noise, says the result once."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count
from typing import Any

from tallystick.core.identifiers import digest, format_hash
from tallystick.engines.setup import Setup
from tallystick.protocol import encrypted_sum as sums
from tallystick.protocol.encrypted_sum.messages import Message, Summed
from tallystick.protocol.encrypted_sum.proxy import SumJob
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.helper import HelperProcess
from tallystick.roles.processes.session import Parts
from tallystick.trust.proxy.ciphertext_files import CiphertextFiles
from tallystick.trust.proxy.parts import EncryptedPart

_log = logging.getLogger("tallystick.roles")
AHEAD = 2  # chunks per worker that wait for the disk


class ProxyPart(EncryptedPart):
    """A study's rounds at the proxy."""

    machine: sums.ProxyMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process, study, p = session.process, session.study_hash, self.parameters
        self.files = CiphertextFiles(
            process.directory(study), chunk_bytes=p.chunk_blocks * p.scheme.block_bytes, party=process.name
        )
        self._stopped = threading.Event()
        self._summing: threading.Thread | None = None
        self.machine, self.first = sums.ProxyMachine.restore(
            p, process.store.records(study), now=process.now(), uploads=self.files, **self.maker_parts()
        )

    def step(self, step: sums.Instruction) -> None:
        if isinstance(step, sums.SumUp):
            job = self.machine.sum_job()
            self._summing = threading.Thread(target=self._sum, args=(job,), name=f"sum {job.round}", daemon=True)
            self._summing.start()
        elif isinstance(step, sums.Drop):
            self.files.drop(step.round, sums=step.sums)
            self.session.process.health.rounds = step.round
        else:
            super().step(step)

    def _sum(self, job: SumJob) -> None:
        """Every chunk, side by side, on disk in order; then the machine says so. Nothing leaves before."""
        process, study = self.session.process, self.session.study_hash
        workers = max(1, process.parts.config.workers, cpu_count() or 1)

        def made(index: int) -> bytes:
            labels = (b"flood", job.round.to_bytes(8, "little"), index.to_bytes(8, "little"))
            return job.chunk(index, process.parts.streams(study, *labels))

        digests: list[bytes] = []
        waiting: deque[Future[bytes]] = deque()
        try:
            with ThreadPoolExecutor(workers) as pool:
                for index in range(job.parameters.chunks):
                    while len(waiting) >= AHEAD * workers:
                        self._keep(job, digests, waiting.popleft().result())
                    if self._stopped.is_set():
                        return
                    waiting.append(pool.submit(made, index))
                while waiting:
                    self._keep(job, digests, waiting.popleft().result())
            self.files.complete_sum(job.round)
        except Exception:
            if not self._stopped.is_set():
                _log.exception("the sum of round %d was not made; the round is given up in time", job.round)
            return
        self.post(lambda: self.drive(self.machine.summed(job.round, tuple(digests))))

    def _keep(self, job: SumJob, digests: list[bytes], payload: bytes) -> None:
        index = len(digests)
        self.files.put_sum(job.round, index, payload)
        digests.append(job.digest(index, payload))
        if index % 50 == 49:
            _log.info("round %d: %d of %d chunks are added up", job.round, index + 1, job.parameters.chunks)

    def last_round_of(self, client: str) -> int:
        if self.machine.holds_upload_of(client):
            return self.machine.round
        summed = [round for round, note in self.session.notes().items() if client in note["participants"]]
        return max(summed, default=0)

    def send(self, to: str, message: Message) -> None:
        if isinstance(message, Summed):
            self._note(message)
        super().send(to, message)

    def _note(self, summed: Summed) -> None:
        """Before a sum leaves: its digest and whose uploads are in it. A second, different one is refused."""
        store, study = self.session.process.store, self.session.study_hash
        if summed.round in {round for round, _ in store.releases(study)}:
            return
        kept = store.records(study).get("participants")
        said: Any = sums.decode(kept) if kept is not None else None
        names = [self.parameters.clients[i] for i in said.clients] if said is not None else []
        note = {"participants": names, "partial": format_hash(digest(summed.signed_part(), summed.signature))}
        store.put_release(study, summed.round, json.dumps(note).encode())

    def close(self) -> None:
        self._stopped.set()
        if self._summing is not None and self._summing is not threading.current_thread():
            self._summing.join()
        self.files.close()

    def erase(self) -> None:
        self.files.drop(self.machine.round, sums=True)
        self.close()


class ProxyProcess(HelperProcess):
    """``tallystick proxy start``."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
