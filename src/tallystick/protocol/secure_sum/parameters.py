"""What every party of one study's secure sums knows and agrees on beforehand.

All of it is public and part of what the clients approved; each party builds it
from the study by itself, nothing here is ever taken from a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import HASH_BYTES, check_party_name
from tallystick.crypto.additive import vector_server_for
from tallystick.crypto.signing import VerifyKey

_MODULUS_HALF = ((1 << 64) - (1 << 32)) // 2
_MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class SumParameters:
    """Who takes part, how long the vectors are, when a round may be released.

    ``honest`` is h = m - max(1, t), see ``privacy/plan``: only carried and signed here, the noise is calibrated
    on it elsewhere. ``colluding`` is the study's t: with it h must be that of the servers there are, for
    noise planned for other ones would fall short. ``result_limit`` bounds every coordinate of a possible result.
    ``secret_models``: models tell of single people, so servers are told their hashes alone.
    ``holds``: a round that misses a party stays as it is, with all that is kept of it, until the study goes on or ends.
    ``simulation_of_one`` lets one client stand alone, for tests of exactness; no deployed role sets it.
    """

    study_hash: bytes
    size: int
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    server_keys: tuple[VerifyKey, ...]
    honest: int
    min_clients: int
    result_limit: int
    model_size: int | None = None  # float64 entries of the model; None: any number
    colluding: int | None = None  # None only where there is no study: in benches and tests of the protocol alone
    aggregator: str = "aggregator"
    round_seconds: float = 60.0
    agreement_seconds: float = 20.0
    retry_seconds: float = 5.0
    last_round: int = _MAX_U32
    max_model_size: int = 1 << 27
    simulation_of_one: bool = False
    holds: bool = False
    secret_models: bool = False
    client_index: dict[str, int] = field(init=False, repr=False, compare=False)
    server_index: dict[str, int] = field(init=False, repr=False, compare=False)
    _first_vector: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def check(fine: bool, cause: str, remedy: str) -> None:
            if not fine:
                raise StudyError(cause, remedy=remedy)

        check(len(self.study_hash) == HASH_BYTES, "the study hash is not 32 bytes", "Pass the SHA-256 of the study.")
        check(1 <= self.size <= _MAX_U32, f"a sum of {self.size} entries is not possible", "Sum at least one entry.")
        check(len(self.servers) >= 2, "fewer than two servers hide nothing", "Name at least two servers.")
        check(len(self.servers) < 1 << 16, "more than 65,535 servers", "Name fewer servers.")
        check(len(self.clients) < _MAX_U32, "too many clients", "Name fewer clients.")
        names = (*self.servers, *self.clients, self.aggregator)
        for name in names:
            check_party_name(name)
        check(len(set(names)) == len(names), "two parties have the same name", "Give every party a name of its own.")
        check(
            len(self.server_keys) == len(self.servers),
            "not every server has a public key",
            "Give one key per server, in the order of the servers.",
        )
        check(1 <= self.honest < len(self.servers), "honest must be m - max(1, t)", "Derive it.")
        if self.colluding is not None:
            check(
                self.honest == len(self.servers) - max(1, self.colluding),
                f"the noise is planned for {self.honest} honest servers; of {len(self.servers)}, with "
                f"{self.colluding} colluding, {len(self.servers) - max(1, self.colluding)} are",
                "Set servers under [trust] to the number of servers of the consortium.",
            )
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
            0 < self.result_limit <= _MODULUS_HALF,
            "the result limit does not fit the field",
            "Lower the number of records, the bound or the fraction bits.",
        )
        check(
            self.model_size is None or 0 <= self.model_size <= self.max_model_size,
            "the model size is not possible",
            "Set it between 0 and max_model_size.",
        )
        for seconds in (self.round_seconds, self.agreement_seconds, self.retry_seconds):
            check(0 < seconds < 4_000_000, "a time limit is not positive", "Give every time limit in seconds.")
        check(0 < self.last_round <= _MAX_U32, "last_round is not possible", "Number rounds from 1.")
        object.__setattr__(self, "client_index", {name: i for i, name in enumerate(self.clients)})
        object.__setattr__(self, "server_index", {name: i for i, name in enumerate(self.servers)})
        m = len(self.servers)
        first = tuple(vector_server_for(self.study_hash, 0, client, m) for client in self.clients)
        object.__setattr__(self, "_first_vector", first)

    def vector_server(self, round: int, client: int) -> int:
        """Which server gets this client's vector in this round; the others get seeds. It takes turns."""
        return (self._first_vector[client] + round) % len(self.servers)

    @property
    def message_limit(self) -> int:
        """No message of this study is longer: a transport cuts there, before it allocates."""
        model = self.max_model_size if self.model_size is None else self.model_size
        n, m = len(self.clients), len(self.servers)
        return 4096 + max(8 * self.size + 32 * m, 8 * model, 40 * n + 52 * m)
