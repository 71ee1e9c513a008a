"""The rounds of one study with every party in this process: owners, the proxy and the data user (see transport)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.core.randomness import WordSource
from tallystick.crypto.homomorphic.scheme import Scheme
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.encrypted_sum import (
    DataUserMachine,
    Drop,
    EncryptedSumParameters,
    MemoryUploads,
    OwnerMachine,
    ProxyMachine,
    SumUp,
    encode,
)
from tallystick.protocol.noise_source import NoiseSource
from tallystick.transport.memory_parties import Contribute as Contribute
from tallystick.transport.memory_parties import MemoryParties

PROXY, DATA_USER = "proxy", "data-user"


class MemoryRounds(MemoryParties):
    """All parties of a study's encrypted sums, made once; :meth:`run_round` sums once.

    ``noise`` has the proxy's and the data user's; ``source`` gives keys, ciphertexts and what drowns errors.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        study_hash: bytes,
        clients: tuple[str, ...],
        noise: Mapping[str, NoiseSource],
        source: WordSource,
        min_clients: int,
        **options: Any,
    ) -> None:
        keys = {name: SigningKey.generate(source) for name in (PROXY, DATA_USER)}
        self.parameters = p = EncryptedSumParameters(
            study_hash=study_hash,
            clients=clients,
            proxy=PROXY,
            data_user=DATA_USER,
            proxy_key=keys[PROXY].public,
            data_user_key=keys[DATA_USER].public,
            scheme=scheme,
            min_clients=min_clients,
            **options,
        )
        self.uploads = MemoryUploads()
        self.proxy = ProxyMachine(p, uploads=self.uploads, key=keys[PROXY], noise=noise[PROXY], source=source)
        self.data_user = DataUserMachine(
            p, scheme.generate(source), key=keys[DATA_USER], noise=noise[DATA_USER], source=source
        )
        machines: dict[str, Any] = {name: OwnerMachine(p, name) for name in clients}
        machines |= {PROXY: self.proxy, DATA_USER: self.data_user}
        super().__init__(machines, coordinator=DATA_USER, clients=clients, encode=encode, source=source)

    def other(self, name: str, step: Any) -> list[Any]:
        if isinstance(step, SumUp):
            return self._sum_up(step.round)
        if isinstance(step, Drop):
            self.uploads.drop(step.round, sums=step.sums)
        return []

    def _sum_up(self, round: int) -> list[Any]:
        digests, job = [], self.proxy.sum_job()
        for index in range(self.parameters.chunks):
            payload = job.chunk(index, self._source)
            self.uploads.put_sum(round, index, payload)
            digests.append(job.digest(index, payload))
        return list(self.proxy.summed(round, tuple(digests)))
