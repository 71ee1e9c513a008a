"""Every step at which a role may die and must come back as if nothing had happened.

A role calls ``crashpoint(CrashPoint.…)`` right after the step that the point is named for. Nothing happens there,
unless a test entry point that is not in the wheel (``tests/faults``) has installed a handler, which may then end the
process. There is no environment variable, flag or configuration key for it: in a shipped role the handler is None for
ever, and a test greps the sources for anyone who would install one.

The fault suite kills every role at every point listed here and fails if a point was never reached, so this list
and the calls cannot drift apart. Points come in pairs around durability: after a record is kept (what follows may not
have been sent) and after it was sent (what follows may not have been kept).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique

__all__ = ["CrashPoint", "after_forget", "after_ledger_step", "after_persist", "crashpoint", "install", "points_of"]


@unique
class CrashPoint(Enum):
    """``role:what-has-just-happened``."""

    SERVER_BOOTED = "server:boot-counted"
    SERVER_KEY_KEPT = "server:study-key-kept"
    SERVER_READY_KEPT = "server:ready-kept"
    SERVER_READY_SENT = "server:ready-sent"
    SERVER_START_KEPT = "server:start-kept"
    SERVER_DRAW_KEPT = "server:noise-kept"
    SERVER_NOISE_KEPT = "server:round-and-noise-kept"
    SERVER_SHARE_WRITTEN = "server:share-written"
    SERVER_SHARE_SYNCED = "server:share-synced"
    SERVER_SHARE_ACCEPTED = "server:share-accepted-sent"
    SERVER_EQUIVOCATORS_KEPT = "server:equivocators-kept"
    SERVER_LIST_KEPT = "server:list-kept"
    SERVER_LIST_SENT = "server:list-sent"
    SERVER_AGREEMENT_KEPT = "server:agreement-kept"
    SERVER_AGREEMENT_SENT = "server:agreement-sent"
    SERVER_PARTIAL_KEPT = "server:partial-kept"
    SERVER_NOISE_ERASED = "server:noise-erased"
    SERVER_SHARES_DROPPED = "server:shares-dropped"
    SERVER_PARTIAL_SENT = "server:partial-sent"
    SERVER_ABORT_KEPT = "server:abort-kept"
    SERVER_END_KEPT = "server:end-kept"
    SERVER_KEYS_ERASED = "server:keys-erased"

    CLIENT_BOOTED = "client:boot-counted"
    CLIENT_KEY_KEPT = "client:study-key-kept"
    CLIENT_READY_KEPT = "client:ready-kept"
    CLIENT_READY_SENT = "client:ready-sent"
    CLIENT_START_KEPT = "client:start-kept"
    CLIENT_WATERMARK_KEPT = "client:watermark-kept"
    CLIENT_SEED_KEPT = "client:seed-kept"
    CLIENT_CONTRIBUTION_KEPT = "client:contribution-kept"
    CLIENT_SHARE_SENT = "client:share-sent-to-one-server"
    CLIENT_SHARES_SENT = "client:shares-sent-to-all-servers"
    CLIENT_SEED_ERASED = "client:seed-erased"
    CLIENT_END_KEPT = "client:end-kept"
    CLIENT_KEYS_ERASED = "client:keys-erased"
    CLIENT_LEDGER_RESERVE_WRITTEN = "client:ledger-reserve-written"
    CLIENT_LEDGER_RESERVE_KEPT = "client:ledger-reserve-kept"
    CLIENT_LEDGER_RESERVE_ANCHORED = "client:ledger-reserve-anchored"
    CLIENT_LEDGER_RELEASE_WRITTEN = "client:ledger-release-written"
    CLIENT_LEDGER_RELEASE_KEPT = "client:ledger-release-kept"
    CLIENT_LEDGER_RELEASE_ANCHORED = "client:ledger-release-anchored"
    CLIENT_LEDGER_COMMIT_WRITTEN = "client:ledger-commit-written"
    CLIENT_LEDGER_COMMIT_KEPT = "client:ledger-commit-kept"
    CLIENT_LEDGER_COMMIT_ANCHORED = "client:ledger-commit-anchored"
    CLIENT_LEDGER_VOID_WRITTEN = "client:ledger-void-written"
    CLIENT_LEDGER_VOID_KEPT = "client:ledger-void-kept"
    CLIENT_LEDGER_VOID_ANCHORED = "client:ledger-void-anchored"

    AGGREGATOR_BOOTED = "aggregator:boot-counted"
    AGGREGATOR_PROPOSAL_KEPT = "aggregator:proposal-kept"
    AGGREGATOR_OPENING_KEPT = "aggregator:study-opening-kept"
    AGGREGATOR_OPENING_SENT = "aggregator:study-opening-sent"
    AGGREGATOR_START_KEPT = "aggregator:start-kept"
    AGGREGATOR_START_SENT = "aggregator:start-sent"
    AGGREGATOR_CLOCK_KEPT = "aggregator:clock-kept"
    AGGREGATOR_LOSS_KEPT = "aggregator:loss-of-a-tick-kept"
    AGGREGATOR_ROUND_KEPT = "aggregator:round-kept"
    AGGREGATOR_ROUND_SENT = "aggregator:round-sent"
    AGGREGATOR_SUM_KEPT = "aggregator:sum-kept"
    AGGREGATOR_MODEL_KEPT = "aggregator:model-kept"
    AGGREGATOR_ABORT_KEPT = "aggregator:abort-kept"
    AGGREGATOR_END_KEPT = "aggregator:end-kept"
    AGGREGATOR_END_SENT = "aggregator:end-sent"

    @property
    def role(self) -> str:
        return self.value.partition(":")[0]


# what each role persists, by the key of its record (protocol/secure_sum and protocol/study)
_AFTER_PERSIST = {
    ("server", "study/ready"): CrashPoint.SERVER_READY_KEPT,
    ("server", "study/start"): CrashPoint.SERVER_START_KEPT,
    ("server", "noise"): CrashPoint.SERVER_DRAW_KEPT,
    ("server", "round"): CrashPoint.SERVER_NOISE_KEPT,
    ("server", "equivocators"): CrashPoint.SERVER_EQUIVOCATORS_KEPT,
    ("server", "list"): CrashPoint.SERVER_LIST_KEPT,
    ("server", "agreement"): CrashPoint.SERVER_AGREEMENT_KEPT,
    ("server", "partial"): CrashPoint.SERVER_PARTIAL_KEPT,
    ("server", "aborted"): CrashPoint.SERVER_ABORT_KEPT,
    ("server", "study/end"): CrashPoint.SERVER_END_KEPT,
    ("client", "study/ready"): CrashPoint.CLIENT_READY_KEPT,
    ("client", "study/start"): CrashPoint.CLIENT_START_KEPT,
    ("client", "seed"): CrashPoint.CLIENT_SEED_KEPT,
    ("client", "contribution"): CrashPoint.CLIENT_CONTRIBUTION_KEPT,
    ("client", "study/end"): CrashPoint.CLIENT_END_KEPT,
    ("aggregator", "study/proposal"): CrashPoint.AGGREGATOR_PROPOSAL_KEPT,
    ("aggregator", "study/open"): CrashPoint.AGGREGATOR_OPENING_KEPT,
    ("aggregator", "study/start"): CrashPoint.AGGREGATOR_START_KEPT,
    ("aggregator", "open"): CrashPoint.AGGREGATOR_ROUND_KEPT,
    ("aggregator", "result"): CrashPoint.AGGREGATOR_SUM_KEPT,
    ("aggregator", "aborted"): CrashPoint.AGGREGATOR_ABORT_KEPT,
    ("aggregator", "study/end"): CrashPoint.AGGREGATOR_END_KEPT,
}

_AFTER_FORGET = {
    ("server", "noise"): CrashPoint.SERVER_NOISE_ERASED,
    ("client", "seed"): CrashPoint.CLIENT_SEED_ERASED,
}

_ROLES = {point.role for point in CrashPoint}
_handler: Callable[[CrashPoint], None] | None = None


def crashpoint(point: CrashPoint) -> None:
    """This step has just been done."""
    if _handler is not None:
        _handler(point)


def after_persist(role: str, key: str) -> None:
    """This role's machine had this record persisted, and it is durable."""
    if _handler is not None and role in _ROLES:
        _handler(_AFTER_PERSIST[role, key])


def after_forget(role: str, key: str) -> None:
    """This role's machine had this secret record erased, and it is on no disk any more."""
    if _handler is not None and role in _ROLES:
        _handler(_AFTER_FORGET[role, key])


def after_ledger_step(kind: str, step: str) -> None:
    """A link of this kind is ``written`` (not durable yet), ``kept`` (durable) or ``anchored`` in a client's ledger."""
    if _handler is not None and kind in ("reserve", "release", "commit", "void"):
        _handler(CrashPoint(f"client:ledger-{kind}-{step}"))


def points_of(role: str) -> tuple[CrashPoint, ...]:
    """The points at which a role of this kind can be killed."""
    return tuple(point for point in CrashPoint if point.role == role)


def install(handler: Callable[[CrashPoint], None] | None) -> None:
    """For test entry points outside the wheel, and for nobody else."""
    global _handler  # one process, one role, one handler
    _handler = handler
