"""The rounds of one study with every party in this process: clients and the reducer (see transport)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.instructions import NoisySum
from tallystick.protocol.masked_sum import (
    ClientMachine,
    MaskedSumParameters,
    MaskerParts,
    PeerMachine,
    ReducerMachine,
    encode,
)
from tallystick.protocol.masked_sum.messages import Dealing, Evidence
from tallystick.protocol.masked_sum.opening import open_evidence
from tallystick.protocol.masked_sum.peer import Replica
from tallystick.protocol.masked_sum.records import ResultRecord
from tallystick.protocol.noise_source import NoiseSource
from tallystick.transport.memory_parties import Contribute, MemoryParties

REDUCER = "reducer"


class Opened:
    """Evidence, opened once for all peers that are shown the same bytes: what comes of it is a function of them."""

    def __init__(self) -> None:
        self._last: tuple[bytes, ResultRecord] | None = None

    def __call__(self, p: MaskedSumParameters, evidence: Evidence) -> ResultRecord:
        name = digest(encode(evidence))
        if self._last is None or self._last[0] != name:
            self._last = name, open_evidence(p, evidence)
        return self._last[1]


class MemoryRounds(MemoryParties):
    """All parties of a study's masked sums, made once; :meth:`run_round` sums once.

    ``noise`` has every client's; ``source`` gives keys, secrets and blinds; ``seed`` the order of a plan's circle.
    Where every peer adds up itself, ``replica`` makes each one's own run of the program.
    """

    def __init__(
        self,
        *,
        study_hash: bytes,
        clients: tuple[str, ...],
        noise: Mapping[str, NoiseSource],
        source: WordSource,
        plan: GraphPlan,
        seed: bytes = b"",
        replica: Callable[[], Replica] | None = None,
        **options: Any,
    ) -> None:
        identities = {name: SigningKey.generate(source) for name in clients}
        agreements = {name: AgreementKey.generate(source) for name in clients}
        self.parameters = p = MaskedSumParameters(
            study_hash=study_hash,
            clients=clients,
            reducer=REDUCER,
            identities={name: key.public for name, key in identities.items()},
            keys={
                name: key.sign(identities[name], study_hash=study_hash, party=name, role="client")
                for name, key in agreements.items()
            },
            graph=MaskGraph(clients, plan, seed),
            every_peer=replica is not None,
            **options,
        )
        opened, machines = Opened(), dict[str, Any]()
        for name in clients:
            parts: MaskerParts = {"key": identities[name], "agreement": agreements[name], "noise": noise[name]}
            if replica is None:
                machines[name] = ClientMachine(p, name, **parts)
            else:
                machines[name] = PeerMachine(p, name, **parts, replica=replica(), open=opened)
        self.reducer = machines[REDUCER] = ReducerMachine(p)
        super().__init__(machines, coordinator=REDUCER, clients=clients, encode=encode, source=source)
        self._leaving: frozenset[str] = frozenset()

    def run_round(
        self,
        round: int,
        model: bytes,
        contribute: Mapping[str, Contribute],
        absent: frozenset[str] = frozenset(),
        leaving: frozenset[str] = frozenset(),
    ) -> NoisySum:
        """One masked sum without the ``absent``; those ``leaving`` fall silent once they have dealt."""
        self._leaving = leaving
        return super().run_round(round, model, contribute, absent)

    def sent(self, name: str, message: Any) -> None:
        if name in self._leaving and isinstance(message, Dealing):
            self.drop(name)
