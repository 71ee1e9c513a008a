"""A server's sum on the executors of a Spark cluster: the spool lies on storage that they share with the server.

Only the adding up is done there: a piece of the coordinates a task, seeds expanded where they are added. Agreement,
noise, signature and erasure stay with the server, so its signed partial sum is the one that it would send alone. A
piece that no executor could sum, or a cluster that is down, costs nothing but time: it is summed here. To find out
that a cluster is down may take minutes, so it is left alone for a while then.

Seeds and shares cross the cluster's network, which is this server's own: turn Spark's encryption on
(``spark.authenticate``, ``spark.network.crypto.enabled``).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError
from tallystick.roles.shares.sharded_sum import SpoolSum, SumJob, sum_piece

_log = logging.getLogger("tallystick.roles")
_U32 = Struct("<I")
PIECES = 8
"""A round's sum is cut into so many tasks, unless it is short."""
REST_SECONDS = 600.0
"""For so long a cluster that failed is not asked again."""


class ClusterSum(SpoolSum):
    """Sums rounds out of a spool on executors; the bits of every other way."""

    def __init__(self, master: str, conf: dict[str, str], *, tasks: int = PIECES) -> None:
        super().__init__(max(1, tasks // 4) if tasks > 1 else 1)
        self._count = max(2, self._count)  # pieces for several, always
        self._cluster = master, conf
        self._asked_again = 0.0

    def start(self) -> None:
        """Start Spark's own process here: before there are lines to others, whose threads a fork would break."""
        from tallystick.engines.spark.session import start_session

        try:
            start_session(*self._cluster)
        except DataError as error:
            self._rest(error)

    def _share_out(
        self, job: SumJob, pieces: deque[tuple[int, int]], total: NDArray[np.uint64], shifted: set[int]
    ) -> None:
        from tallystick.engines.spark.pieces import on_executors

        if time.monotonic() < self._asked_again:
            return
        asked = list(pieces)
        try:
            summed, patience = partial(_summed, job), self.patience
            for (low, high), made in on_executors(*self._cluster, summed, asked, "a round's sum", patience=patience):
                if made:
                    count = _U32.unpack_from(made)[0]
                    shifted.update(Struct(f"<{count}I").unpack_from(made, 4))
                    total[low:high] = np.frombuffer(made, dtype="<u8", offset=4 + 4 * count)
                    pieces.remove((low, high))
        except DataError as error:
            self._rest(error)
            return
        if pieces:
            _log.warning(
                "executors could not sum %d of %d pieces, so this server does: do they see its folder of shares?",
                len(pieces), len(asked),
            )  # fmt: skip
        else:
            _log.info("executors summed %d shares in %d pieces", len(job.vectors) + len(job.seeds), len(asked))

    def _rest(self, error: DataError) -> None:
        self._asked_again = time.monotonic() + REST_SECONDS
        _log.warning("the cluster did not sum, so this server does, for %d minutes: %s", REST_SECONDS // 60, error)


def _summed(job: SumJob, low: int, high: int) -> bytes:
    """A piece's sum as it travels: the seeds with a shifted word, then the elements."""
    total, shifted = sum_piece(job, low, high)
    head = _U32.pack(len(shifted)) + Struct(f"<{len(shifted)}I").pack(*shifted)
    return head + total.astype("<u8").tobytes()
