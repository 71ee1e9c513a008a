"""The crash points of the fault suite: every step that a role of the servers' trust model tells of.

What is kept is named for its record (``Persist`` and ``Forget`` of the machines), what the ledger does for the kind of
its link. ``tests/roles/test_crash_points.py`` compares this list with the calls in the sources.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class CrashPoint(Enum):
    """``role:what-has-just-happened``."""

    SERVER_BOOTED = "server:boot-counted"
    SERVER_KEY_KEPT = "server:study-key-kept"
    SERVER_READY_KEPT = "server:study/ready-kept"
    SERVER_READY_SENT = "server:ready-sent"
    SERVER_START_KEPT = "server:study/start-kept"
    SERVER_PRICES_KEPT = "server:prices-kept"
    SERVER_DRAW_KEPT = "server:noise-kept"
    SERVER_NOISE_KEPT = "server:round-kept"
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
    SERVER_ABORT_KEPT = "server:aborted-kept"
    SERVER_PAUSE_KEPT = "server:study/paused-kept"
    SERVER_END_KEPT = "server:study/end-kept"
    SERVER_KEYS_ERASED = "server:keys-erased"

    CLIENT_BOOTED = "client:boot-counted"
    CLIENT_KEY_KEPT = "client:study-key-kept"
    CLIENT_READY_KEPT = "client:study/ready-kept"
    CLIENT_READY_SENT = "client:ready-sent"
    CLIENT_START_KEPT = "client:study/start-kept"
    CLIENT_WATERMARK_KEPT = "client:watermark-kept"
    CLIENT_MEMORY_KEPT = "client:memory-kept"
    CLIENT_SEED_KEPT = "client:seed-kept"
    CLIENT_CONTRIBUTION_KEPT = "client:contribution-kept"
    CLIENT_SHARE_SENT = "client:share-sent-to-one-server"
    CLIENT_SHARES_SENT = "client:shares-sent-to-all-servers"
    CLIENT_SEED_ERASED = "client:seed-erased"
    CLIENT_PAUSE_KEPT = "client:study/paused-kept"
    CLIENT_END_KEPT = "client:study/end-kept"
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
    AGGREGATOR_PROPOSAL_KEPT = "aggregator:study/proposal-kept"
    AGGREGATOR_OPENING_KEPT = "aggregator:study/open-kept"
    AGGREGATOR_OPENING_SENT = "aggregator:study-opening-sent"
    AGGREGATOR_START_KEPT = "aggregator:study/start-kept"
    AGGREGATOR_START_SENT = "aggregator:start-sent"
    AGGREGATOR_CLOCK_KEPT = "aggregator:clock-kept"
    AGGREGATOR_LOSS_KEPT = "aggregator:loss-of-a-tick-kept"
    AGGREGATOR_ROUND_KEPT = "aggregator:open-kept"
    AGGREGATOR_ROUND_SENT = "aggregator:round-sent"
    AGGREGATOR_SUM_KEPT = "aggregator:result-kept"
    AGGREGATOR_MODEL_KEPT = "aggregator:model-kept"
    AGGREGATOR_ABORT_KEPT = "aggregator:aborted-kept"
    AGGREGATOR_REASON_KEPT = "aggregator:study/why-kept"
    AGGREGATOR_PAUSE_KEPT = "aggregator:study/paused-kept"
    AGGREGATOR_END_KEPT = "aggregator:study/end-kept"
    AGGREGATOR_END_SENT = "aggregator:end-sent"

    @property
    def role(self) -> str:
        return self.value.partition(":")[0]
