"""A client's batches of a stream: what came in since the last tick, told by a watermark that is durable before shares.

A record is in one batch at most. Without a time column, tick t has what lies in the append-only source between the
watermark of the last tick this client took part in and its own; so records that come while the client is down are in
the next batch, and those of a tick whose round failed are in none. With a time column tick t has the records of that
time among those before its watermark; what comes later is late, and is counted in this client's own log.

What is wrong with a record stays with that record: a line that is no record, a time that is none and a cell that is not
what the study declares leave it out, and it is counted in this client's own log. Otherwise one record could silence a
client, and others would see it.

The watermark is on disk before a share of the tick can leave, and it is all the batch depends on: after kill -9 the
same tick has the same records, whatever was appended meanwhile, and so the same shares.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.data.appended import appended
from tallystick.data.encoding import Records, study_records
from tallystick.data.opened import broken_records, with_broken_records
from tallystick.data.sources import read_table
from tallystick.engines.client_map import ClientMaps
from tallystick.engines.setup import Setup
from tallystick.engines.stream import OUTSIDE, ticks_of_times, times_of
from tallystick.privacy.round_plan import RoundPlan
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.stores import RoleStore

_log = logging.getLogger("tallystick.roles")
_KEY = "stream"


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """The last tick this client computed, and which part of its source was there for it."""

    tick: int = 0
    first: int = 0
    last: int = 0

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return json.dumps([self.tick, self.first, self.last]).encode()

    @classmethod
    def from_bytes(cls, raw: bytes | None) -> Watermark:
        """Inverse of :meth:`to_bytes`; before the first tick there is none."""
        if raw is None:
            return cls()
        tick, first, last = json.loads(raw)
        return cls(tick=tick, first=first, last=last)


class StreamMap:
    """A client's half of a stream study; ``contribute`` closes the batch of a tick."""

    def __init__(self, setup: Setup, source: Any, store: RoleStore, study_hash: bytes, *, party: str) -> None:
        if setup.study.stream is None:
            raise StudyError("this study is no stream")
        self._setup, self._stream, self._party = setup, setup.study.stream, party
        self._store, self._hash = store, study_hash
        self._source = appended(source, party=party)
        self._maps = ClientMaps(setup.study, setup.design.program, setup.template)
        self._mark = Watermark.from_bytes(store.records(study_hash).get(_KEY))
        self._read_to = 0
        self.mapped = self.left_out = 0
        self._pieces: list[tuple[Any, NDArray[np.int64]]] = []
        """With a time column: tables as they were read, and each record's tick. A tick's own are encoded, then."""

    @property
    def tick(self) -> int:
        """The last tick whose batch is fixed."""
        return self._mark.tick

    def contribute(self, model: bytes, plan: RoundPlan, round: int) -> NDArray[np.int64]:
        """The client's own sum over the batch of this tick: exact, so its pieces add up."""
        total = np.zeros(plan.grid.size, dtype=np.int64)
        self.mapped = self.left_out = 0
        for records in self.batch(round):
            part = self._maps.whole(records)
            total += part.contribute(model, plan)
            self.mapped, self.left_out = self.mapped + part.mapped, self.left_out + part.left_out
        return total

    def _close(self, tick: int) -> None:
        """Fix what the tick has, durably, before anything is computed from it."""
        if tick < self._mark.tick:
            raise LocalProtocolError("a tick that is over", party=self._party, round=tick)
        if tick > self._mark.tick:
            last = max(self._source.end(), self._mark.last)
            mark = Watermark(tick=tick, first=self._mark.last, last=last)
            self._store.persist(self._hash, _KEY, mark.to_bytes())
            self._mark = mark
            crashpoint("watermark-kept")

    def batch(self, tick: int) -> list[Records]:
        """The records of a tick, in pieces; the same ones if it is asked for again, and never those of another."""
        self._close(tick)
        mark, time = self._mark, self._stream.time
        if time is None:
            return [self._encoded(self._source.piece(mark.first, mark.last))]
        if self._read_to < mark.last:
            table = read_table(self._source.piece(self._read_to, mark.last), self._columns(time), party=self._party)
            seconds = times_of(table, time, party=self._party, lenient=True)
            ticks = ticks_of_times(self._stream, seconds)
            late = int(np.count_nonzero((ticks != OUTSIDE) & (ticks < tick)))
            if late and self._read_to:
                _log.warning("%d record(s) came after the tick of their time and are not used", late)
            none = int(np.count_nonzero(~np.isfinite(seconds)))
            if none:
                _log.warning("%d record(s) have no readable time and are not used", none)
            broken = broken_records(table)
            if broken:
                _log.warning("%d line(s) are no records and are not used", broken)
            self._pieces.append((with_broken_records(table, 0), ticks))
            self._read_to = mark.last
        self._pieces = [(p.filter(t >= tick), t[t >= tick]) for p, t in self._pieces if (t >= tick).any()]
        return [self._encoded(table.filter(ticks == tick)) for table, ticks in self._pieces]

    def _columns(self, time: str) -> list[str]:
        """What is read of a source whose records say their time."""
        study = self._setup.study
        target = [] if study.study.target is None else [study.study.target]
        return list(dict.fromkeys([*self._setup.layout.columns, *target, time]))

    def _encoded(self, piece: Any) -> Records:
        records = study_records(self._setup.study, piece, party=self._party, lenient=True)
        said = records.tallies.left_out()
        if said is not None:
            _log.warning("tick %d: %s. This stays on this machine.", self._mark.tick, said)
        return records
