"""What a coordinator keeps and hands on, as bytes: noisy totals, and the released states of a study."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

import numpy as np

from tallystick.algorithms.program import State, pack_state
from tallystick.engines.engine import Outcome
from tallystick.engines.totals import NoisyTotal


def pack_total(total: NoisyTotal) -> bytes:
    """One round's release as it is kept: noisy values and who took part."""
    noise = [] if total.makers is None else [total.makers]  # written where it is not what the plan says anyway
    facts = json.dumps([list(total.participants), list(total.dropped), *noise]).encode()
    return len(facts).to_bytes(4, "little") + facts + total.values.astype("<i8").tobytes()


def unpack_total(body: bytes) -> NoisyTotal:
    """Inverse of :func:`pack_total`."""
    length = int.from_bytes(body[:4], "little")
    participants, dropped, *noise = json.loads(body[4 : 4 + length])
    values = np.frombuffer(body[4 + length :], dtype="<i8").astype(np.int64)
    makers = noise[0] if noise else None
    return NoisyTotal(values=values, participants=tuple(participants), dropped=tuple(dropped), makers=makers)


def pack_outcome(outcome: Outcome) -> bytes:
    """What the analyst receives: released states and who took part; nothing else exists."""
    return _pack(outcome.history, outcome.contributors, outcome.dropped)


def pack_interim(released: Sequence[tuple[State, NoisyTotal | None]]) -> bytes:
    """The same of a stream that is still running: what it has released so far, and marked so."""
    totals = [total for _, total in released]
    return _pack(
        [state for state, _ in released],
        [total.participants if total is not None else () for total in totals],
        [total.dropped if total is not None else () for total in totals],
        interim=True,
    )


def _pack(
    history: Iterable[State], contributors: Iterable[Sequence[str]], dropped: Iterable[Sequence[str]], **marks: bool
) -> bytes:
    body = {
        "history": [base64.b64encode(pack_state(state)).decode() for state in history],
        "contributors": [list(names) for names in contributors],
        "dropped": [list(names) for names in dropped],
    }
    return json.dumps(body | marks).encode()
