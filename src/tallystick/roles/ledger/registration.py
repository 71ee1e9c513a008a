"""The data set that a client's role file names, in its ledger."""

from __future__ import annotations

from tallystick.engines.record_engine import LocalEngine, RecordEngine
from tallystick.privacy.ledger import Budget
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.ledger.account import DataSet
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.store import LedgerStore


def register_own(config: RoleConfig, ledger: LedgerStore) -> DataSet:
    """Enter the records that ``[data] source`` names, or find the data set that ``[data] dataset`` names."""
    if config.data is not None:
        budget = Budget(epsilon=config.budget_epsilon, delta=config.budget_delta)
        made = make_dataset(config.dataset, config.data, party=config.name, engine=engine_of(config))
        return ledger.register(made, budget, by=str(config.path))
    return ledger.dataset(config.dataset)


def engine_of(config: RoleConfig) -> RecordEngine:
    """Where this client's records are read and mapped, as its role file says."""
    if config.spark is not None:
        from tallystick.engines.spark.records import SparkEngine

        master, conf = config.spark
        return SparkEngine(master=master, conf=conf)
    return LocalEngine(memory=None if config.memory_mb is None else config.memory_mb << 20)


def own_dataset(config: RoleConfig, ledger: LedgerStore) -> DataSet | None:
    """The data set that studies use here; None if it is not registered yet."""
    return next((known for known in ledger.datasets() if known.name == config.dataset), None)


def source_of(config: RoleConfig, ledger: LedgerStore) -> str | None:
    """Where the records are; None if that is not known yet."""
    if config.data is not None:
        return str(config.data)
    known = own_dataset(config, ledger)
    return None if known is None else known.source
