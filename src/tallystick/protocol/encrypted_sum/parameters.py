"""What every party of one study's encrypted sums knows and agrees on beforehand; nothing here comes from a message."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import HASH_BYTES, check_party_name
from tallystick.crypto.homomorphic.scheme import Scheme
from tallystick.crypto.signing import VerifyKey

CHUNK_BYTES = 1_600_000
"""About as long as a chunk is: memory for a few of them is all that anybody needs, however long the vector."""
_MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class EncryptedSumParameters:
    """Who takes part, under which scheme, when a round may be released.

    ``result_limit`` bounds every coordinate of a possible result; the scheme's head-room was checked when it was made.
    ``secret_models``: models tell of single people, so the proxy is told their hashes alone.
    ``simulation_of_one`` lets one owner stand alone, for tests of exactness; no deployed role sets it.
    """

    study_hash: bytes
    clients: tuple[str, ...]
    proxy: str
    data_user: str
    proxy_key: VerifyKey
    data_user_key: VerifyKey
    scheme: Scheme = field(repr=False, compare=False)
    min_clients: int
    model_size: int | None = None
    round_seconds: float = 60.0
    agreement_seconds: float = 20.0
    retry_seconds: float = 5.0
    last_round: int = _MAX_U32
    max_model_size: int = 1 << 27
    simulation_of_one: bool = False
    secret_models: bool = False
    client_index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def check(fine: bool, cause: str, remedy: str) -> None:
            if not fine:
                raise StudyError(cause, remedy=remedy)

        check(len(self.study_hash) == HASH_BYTES, "the study hash is not 32 bytes", "Pass the SHA-256 of the study.")
        names = (self.proxy, self.data_user, *self.clients)
        for name in names:
            check_party_name(name)
        check(len(set(names)) == len(names), "two parties have the same name", "Give every party a name of its own.")
        least = 1 if self.simulation_of_one else 2
        check(
            least <= self.min_clients,
            f"min_clients = {self.min_clients} would let a round show one institution alone",
            f"Set min_clients to {least} or more.",
        )
        check(
            self.min_clients <= len(self.clients),
            f"min_clients = {self.min_clients} can never be met by {len(self.clients)} clients",
            "Invite more clients or lower min_clients.",
        )
        check(
            len(self.clients) <= self.scheme.extent.owners,
            f"{len(self.clients)} clients, and room and flooding are planned for {self.scheme.extent.owners}",
            "Set max_clients under [trust] to the number of clients or more.",
        )
        for seconds in (self.round_seconds, self.agreement_seconds, self.retry_seconds):
            check(0 < seconds < 4_000_000, "a time limit is not positive", "Give every time limit in seconds.")
        object.__setattr__(self, "client_index", {name: i for i, name in enumerate(self.clients)})

    @property
    def size(self) -> int:
        """Entries of a vector."""
        return self.scheme.extent.size

    @property
    def result_limit(self) -> int:
        """No coordinate of a result is larger."""
        return self.scheme.extent.limit

    @property
    def chunk_blocks(self) -> int:
        """Ciphertext blocks of a chunk; the last chunk may have fewer."""
        return min(self.scheme.blocks, max(1, CHUNK_BYTES // self.scheme.block_bytes))

    @property
    def chunks(self) -> int:
        """Chunks of a vector."""
        return -(-self.scheme.blocks // self.chunk_blocks)

    def blocks_of(self, chunk: int) -> range:
        """Which blocks a chunk has."""
        return range(chunk * self.chunk_blocks, min(self.scheme.blocks, (chunk + 1) * self.chunk_blocks))

    @property
    def message_limit(self) -> int:
        """No message of this study is longer: a transport cuts there, before it allocates."""
        model = 8 * (self.max_model_size if self.model_size is None else self.model_size)
        chunk = self.chunk_blocks * self.scheme.block_bytes
        return 4096 + max(model, chunk, self.scheme.public_bytes, 4 * len(self.clients), 32 * self.chunks)
