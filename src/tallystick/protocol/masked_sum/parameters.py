"""What every party of one study's masked sums knows and agrees on beforehand; nothing here comes from a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import HASH_BYTES, check_party_name
from tallystick.crypto.key_agreement import StudyKey
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.mask_keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES
from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.crypto.signing import VerifyKey

PACKET_BYTES = NONCE_BYTES + 4 + 4 + 32 + 52 + 2 * SHARE_BYTES + TAG_BYTES
_MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class MaskedSumParameters:
    """Who takes part, who masks with whom, when a round may be unmasked.

    ``keys`` are the clients' keys of this study, verified (:func:`tallystick.crypto.key_agreement.check_study_keys`):
    advertised once, signed by their identities. ``result_limit`` bounds every coordinate of a possible result.
    """

    study_hash: bytes
    clients: tuple[str, ...]
    reducer: str
    identities: Mapping[str, VerifyKey] = field(repr=False)
    keys: Mapping[str, StudyKey] = field(repr=False)
    graph: MaskGraph = field(repr=False, compare=False)
    size: int
    min_clients: int
    result_limit: int
    model_size: int | None = None
    round_seconds: float = 60.0
    agreement_seconds: float = 20.0
    retry_seconds: float = 5.0
    last_round: int = _MAX_U32
    every_peer: bool = False
    """Whether each client adds up itself what the reducer has collected, and believes no total but its own."""
    secret_models: bool = False
    """Whether models tell of single people: then the hash that is signed of one does not tell it."""
    max_model_size: int = 1 << 27
    client_index: dict[str, int] = field(init=False, repr=False, compare=False)
    near: dict[str, frozenset[int]] = field(init=False, repr=False, compare=False)
    """Each client's neighbours, by index."""

    def __post_init__(self) -> None:
        def check(fine: bool, cause: str, remedy: str) -> None:
            if not fine:
                raise StudyError(cause, remedy=remedy)

        check(len(self.study_hash) == HASH_BYTES, "the study hash is not 32 bytes", "Pass the SHA-256 of the study.")
        names = (self.reducer, *self.clients)
        for name in names:
            check_party_name(name)
        check(len(set(names)) == len(names), "two parties have the same name", "Give every party a name of its own.")
        check(
            3 <= self.min_clients <= len(self.clients),
            f"min_clients = {self.min_clients} of {len(self.clients)} clients: a sum of masks needs three of them",
            "Invite more clients, or set min_clients to 3 or more, and to no more than there are.",
        )
        check(
            set(self.graph.circle) == set(self.clients),
            "the graph of masks is of other clients",
            "Plan it for the clients that take part.",
        )
        check(
            set(self.keys) >= set(self.clients) and set(self.identities) >= set(self.clients),
            "not every client has its keys",
            "Pin one identity per client, and take its key of this study.",
        )
        check(1 <= self.size <= _MAX_U32, "a sum of no entries", "Sum at least one number.")
        for seconds in (self.round_seconds, self.agreement_seconds, self.retry_seconds):
            check(0 < seconds < 4_000_000, "a time limit is not positive", "Give every time limit in seconds.")
        index = {name: i for i, name in enumerate(self.clients)}
        object.__setattr__(self, "client_index", index)
        near = {name: frozenset(index[other] for other in self.graph.neighbours(name)) for name in self.clients}
        object.__setattr__(self, "near", near)

    @property
    def quorum(self) -> int:
        """More than (n + c)/2 survivors sign one set before anything is unmasked: no two sets can have so many."""
        return self.graph.plan.signatures

    @property
    def threshold(self) -> int:
        """So many shares rebuild a secret of a round. Everybody with everybody: more than (n + c)/2 of n, the owner's
        own among them; on a circle what the bound gives for a neighbourhood."""
        plan = self.graph.plan
        return plan.signatures if plan.complete else plan.threshold

    @property
    def least(self) -> int:
        """A round with fewer survivors is given up, unrevealed."""
        return max(self.min_clients, self.quorum, self.graph.plan.min_survivors)

    def session_key(self, client: str) -> StudyKey:
        """A client's key as masks and packets are derived from it: for this very roster, not only for this study."""
        return replace(self.keys[client], study_hash=self.study_hash)

    def holders(self, client: str) -> int:
        """How many shares of a client's secrets there are: its neighbours', and its own."""
        return len(self.near[client]) + 1

    def point(self, owner: str, holder: str) -> int:
        """Where the share is that ``holder`` has of ``owner``'s secrets; the last one is the owner's own."""
        return self.holders(owner) if owner == holder else self.graph.point(owner, holder)

    def held_by(self, client: str, dealers: tuple[int, ...]) -> tuple[int, ...]:
        """Of which dealers a client has shares to reveal, in order: itself and its neighbours."""
        own = self.client_index[client]
        return tuple(i for i in dealers if i == own or i in self.near[client])

    @property
    def message_limit(self) -> int:
        """No message of this study is longer: a transport cuts there, before it allocates."""
        model = 8 * (self.max_model_size if self.model_size is None else self.model_size)
        n, most = len(self.clients), max(len(near) for near in self.near.values())
        longest = max(model, 8 * self.size, (PACKET_BYTES + 64) * most + 4 * n, 64 * n + 60 * n)
        if self.every_peer:  # the evidence: all vectors, all shares, the wrapped keys, the set and who has signed it
            longest = max(longest, n * (8 * self.size + 400 + (KEY_BYTES + SHARE_BYTES + 8) * (most + 1)))
        return 4096 + longest
