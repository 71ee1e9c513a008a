"""``ts.Federation``: simulate on this machine, or connect to a consortium. Every estimator fits either, same code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.engines.federation import Federation as SimulatingFederation
from tallystick.engines.federation import trust_settings
from tallystick.study.columns import Missing
from tallystick.study.schema import Schema

if TYPE_CHECKING:
    from tallystick.roles.analyst.connected import ConnectedFederation


class Federation(SimulatingFederation):
    """What estimators fit on: :meth:`simulate` or :meth:`connect`."""

    @staticmethod
    def connect(
        consortium: str | Path,
        *,
        config: str | Path | None = None,
        schema: Schema | None = None,
        records: int | None = None,
        missing: Missing | None = None,
        trust: str = "servers",
        min_clients: int | None = None,
        colluding: int | None = None,
        round_timeout_s: float = 60,
        connect_timeout_s: float = 30,
        approval_timeout_s: float = 60,
        progress: bool = True,
        holders: Mapping[str, Mapping[str, Any]] | None = None,
        identifier: str | Mapping[str, str] | None = None,
        dealer: str | None = None,
    ) -> ConnectedFederation:
        """Connect as the consortium's analyst.

        ``config`` is the analyst's role file; without it, the one beside ``consortium.toml`` (in its folder or a folder
        below it) is used. ``records`` is the public number of records of all institutions together (replace-one).
        A fit proposes its study and waits up to ``approval_timeout_s`` for the data stewards' decisions; with
        ``progress`` it says on stderr who has decided and how many rounds are done.

        ``holders``: the institutions hold different columns of the same people. For each of them, ``columns`` says
        which are there, ``people`` how many it names at most, and ``norm``, if it is given, how long a record is there
        at most (left out, it follows from the schema, as in a simulation). ``identifier`` is the column that names
        people, or a table that says how it is compared; ``records`` is how many they may have in common; ``dealer``
        deals the masks of joint moments (docs/protocols/vertical.md).
        """
        from tallystick.roles.analyst.connected import (
            ConnectedFederation,  # the network's libraries, when they are needed
        )

        return ConnectedFederation(
            Path(consortium),
            config=None if config is None else Path(config),
            schema=schema,
            records=records,
            missing=missing,
            trust=trust_settings(trust, colluding=colluding, min_clients=min_clients, round_timeout_s=round_timeout_s),
            connect_timeout=connect_timeout_s,
            approval_timeout=approval_timeout_s,
            progress=progress,
            holders=holders,
            identifier=identifier,
            dealer=dealer,
        )
