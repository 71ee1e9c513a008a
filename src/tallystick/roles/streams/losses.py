"""A tick of a stream that was lost, as the coordinator keeps it: in the place of its total, so that it is final.

The round was given up; its records are spent, for every client's watermark is past them. A restarted coordinator finds
the loss where it would find the total, comes to the same state, and goes on with the next tick.
"""

from __future__ import annotations

import json

from tallystick.core.errors import RoundAborted, TallystickError, TooFewParties

_MARK = b"lost"  # no total begins so: these would be the length of a list of names of 1.9 GB


def pack_lost(error: TallystickError) -> bytes:
    """The loss, with its reason."""
    facts = {"cause": error.cause, "remedy": error.remedy, "rule": error.rule, "party": error.party}
    return _MARK + json.dumps([type(error) is TooFewParties, {**facts, "round": error.round}]).encode()


def lost_of(kept: bytes) -> RoundAborted | None:
    """Inverse of :func:`pack_lost`; None if what is kept is a total."""
    if not kept.startswith(_MARK):
        return None
    too_few, facts = json.loads(kept[len(_MARK) :])
    return (TooFewParties if too_few else RoundAborted)(**facts)
