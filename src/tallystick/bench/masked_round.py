"""One round of masked sums with every party in this process: what each computes, and nothing of what carries it.

The steps are those of the trust model ``masks``: every client draws its two secrets of the round, deals shares of them,
sealed, to its neighbours, and wraps its round keys; opens what it was dealt; masks its vector; and the survivors
sign their set. The reducer adds up the survivors' vectors, rebuilds self seeds and drop-outs' wrapping keys from the
shares the survivors tell, and takes the masks off. The total is compared with the plain sum.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto import field, masking, shamir
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.mask_graph import MaskGraph, graph_seed
from tallystick.crypto.masking import PairSecret, RoundSecrets
from tallystick.crypto.prg import system_stream
from tallystick.crypto.shamir import SHARE_BYTES, Share
from tallystick.crypto.signing import SigningKey

_STUDY = digest(b"bench masks")


class MaskedRound:
    """A study's clients with their keys; ``seconds`` gathers CPU seconds by step."""

    def __init__(self, plan: GraphPlan, size: int) -> None:
        self.plan, self.size = plan, size
        self.names = [f"client-{i:04}" for i in range(plan.clients)]
        self.seconds: dict[str, float] = defaultdict(float)
        self.source = system_stream()
        self._own = {name: AgreementKey.generate(self.source) for name in self.names}
        self._identity = {name: SigningKey(self.source.bytes(32)) for name in self.names}
        public = {name: self._study_key(name) for name in self.names}
        with self._timed("agree"):
            self.graph = MaskGraph(
                self.names, plan, graph_seed(_STUDY, {name: self.source.bytes(32) for name in self.names})
            )
            self._pairs: dict[str, dict[str, PairSecret]] = {
                name: {
                    other: masking.agree_pair(self._own[name], mine=public[name], theirs=public[other])
                    for other in self.graph.neighbours(name)
                }
                for name in self.names
            }
        # A few vectors, visited in turn, stand for everybody's: more than the caches hold.
        self.vectors = [(np.arange(size, dtype=np.int64) * (2 * i + 1) - size) for i in range(min(plan.clients, 50))]
        dropped = [int(at) for at in np.linspace(0, plan.clients, plan.dropping, endpoint=False)]
        self.dropped = {self.names[at] for at in dropped}
        self.survivors = [name for name in self.names if name not in self.dropped]

    def run(self, round: int) -> None:
        """One round, all parties; raises if the total is not the sum of the survivors' vectors."""
        refusal = self.graph.refusal(self.survivors)
        if refusal is not None:
            raise LocalProtocolError(f"these drop-outs end the round: {refusal}")
        self.seconds.clear()
        secrets, wrapped, packets = {}, {}, {}
        with self._timed("deal"):
            for name in self.names:
                secrets[name] = RoundSecrets.generate(self.source)
                wrapped[name], packets[name] = self._deal(name, secrets[name], round)
        held: dict[str, dict[str, bytes]] = {}
        with self._timed("open"):
            for name in self.names:
                held[name] = {
                    other: pair.open(packets[other][name], round=round, sender=other)
                    for other, pair in self._pairs[name].items()
                }
        total = np.zeros(self.size, dtype=np.uint64)
        for at, name in enumerate(self.names):  # a drop-out has done its work too, and is not heard
            with self._timed("mask"):
                vector = field.encode_signed(self.vectors[at % len(self.vectors)])
                keys = [pair.round_key(round) for pair in self._pairs[name].values()]
                masking.mask(vector, keys, secrets[name].self_seed, study_hash=_STUDY, round=round, party=name)
            if name not in self.dropped:
                with self._timed("add"):
                    field.add_into(total, vector, party=name)
        with self._timed("unmask"):
            self._unmask(total, wrapped, held, round)
        if not np.array_equal(field.decode_signed(total), self.plain_sum()):
            raise LocalProtocolError("a total that was unmasked is not the sum")

    def plain_sum(self) -> NDArray[np.int64]:
        """The survivors' vectors, added by NumPy."""
        acc = np.zeros(self.size, dtype=np.int64)
        for at, name in enumerate(self.names):
            if name not in self.dropped:
                np.add(acc, self.vectors[at % len(self.vectors)], out=acc)
        return acc

    def agree_on_survivors(self, verifying: int) -> float:
        """CPU seconds of signing a survivor set, each client verifying a quorum; measured on so many of them."""
        statement = digest(_STUDY, *[name.encode() for name in self.survivors])
        started = time.process_time()
        signed = [(self._identity[name].public, self._identity[name].sign(statement)) for name in self.survivors]
        signing = time.process_time() - started
        started = time.process_time()
        for _ in range(verifying):
            for identity, signature in signed[: self.plan.signatures]:
                identity.verify(statement, signature)
        return signing + (time.process_time() - started) * len(self.survivors) / verifying

    def _deal(self, name: str, secrets: RoundSecrets, round: int) -> tuple[bytes, dict[str, bytes]]:
        pairs = self._pairs[name]
        keys = [pair.round_key(round) for pair in pairs.values()]
        wrapped = masking.wrap_round_keys(keys, secrets.wrapping_key, study_hash=_STUDY, round=round, party=name)
        seed_shares, key_shares = shamir.split(
            [secrets.self_seed, secrets.wrapping_key],
            threshold=self.plan.threshold,
            shares=self.plan.degree,
            source=self.source,
        )
        packets = {}
        for other, pair in pairs.items():
            at = self.graph.point(name, other) - 1
            packets[other] = pair.seal(seed_shares[at] + key_shares[at], round=round, sender=name, source=self.source)
        return wrapped, packets

    def _told(self, owner: str, held: dict[str, dict[str, bytes]]) -> list[Share]:
        """A share from each neighbour left: of the seed if the owner survived, else of its wrapping key."""
        half = slice(SHARE_BYTES) if owner not in self.dropped else slice(SHARE_BYTES, None)
        return [
            (self.graph.point(owner, holder), held[holder][owner][half])
            for holder in self.graph.neighbours(owner)
            if holder not in self.dropped
        ]

    def _unmask(
        self, total: NDArray[np.uint64], wrapped: dict[str, bytes], held: dict[str, dict[str, bytes]], round: int
    ) -> None:
        owners = [*self.survivors, *sorted(self.dropped)]
        rebuilt = shamir.rebuild_all([self._told(name, held) for name in owners], threshold=self.plan.threshold)
        secret = dict(zip(owners, rebuilt))
        opened = {
            name: masking.unwrap_round_keys(
                wrapped[name],
                secret[name],
                study_hash=_STUDY,
                round=round,
                party=name,
                neighbours=self.graph.neighbours(name),
            )
            for name in self.dropped
        }
        seeds = {name: secret[name] for name in self.survivors}
        masking.unmask(total, study_hash=_STUDY, round=round, seeds=seeds, dropped=opened)

    def _study_key(self, name: str) -> StudyKey:
        identity = self._identity[name]
        return self._own[name].sign(identity, study_hash=_STUDY, party=name, role="client")

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[step] += time.process_time() - started
