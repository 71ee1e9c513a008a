"""The rounds of a study with more clients than can mask in one process: the same totals, with the masks left out.

Everybody's work is done in one process here, and the work of masks grows with the square of the clients: at 4,000 each
of them would check 2,000 signatures a round. What a total is does not depend on it. Masks cancel in Z_p to the last
bit, so a round's total is the sum of the survivors' sums and noise; these are drawn and added here as they are there,
from the same streams, over the same survivors, and refused by the same conditions on the graph (``tests/trust``
compares both ways). A deployment never does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.core.errors import PrivacyRefused, RoundAborted, TooFewParties
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.mask_keys import KEY_BYTES, TAG_BYTES
from tallystick.crypto.prg import SEED_BYTES
from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.protocol.boots import BOOT_VALUE_BYTES, Start
from tallystick.protocol.instructions import NoisySum
from tallystick.protocol.masked_sum import encode
from tallystick.protocol.masked_sum import messages as said
from tallystick.protocol.masked_sum.parameters import PACKET_BYTES
from tallystick.protocol.noise_source import NoiseSource
from tallystick.transport.memory_parties import Contribute

_HASH, _SIGNATURE = bytes(32), bytes(64)


class UnmaskedRounds:
    """What ``MemoryRounds`` gives, for many clients."""

    def __init__(
        self,
        *,
        clients: tuple[str, ...],
        noise: Mapping[str, NoiseSource],
        plan: GraphPlan,
        seed: bytes,
        size: int,
        model_size: int,
        min_clients: int,
        result_limit: int,
        every_peer: bool,
        secret_models: bool = False,
    ) -> None:
        self._clients, self._noise, self._size, self._limit = clients, noise, size, result_limit
        self._graph = MaskGraph(clients, plan, seed)
        self._least = max(min_clients, plan.signatures, plan.min_survivors)
        up, down = traffic(plan, size=size, model_bytes=8 * model_size, every_peer=every_peer)
        self._traffic = up, down + (SEED_BYTES if secret_models else 0)  # the blind of the model's hash
        self.bytes_up, self.bytes_down = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)

    def run_round(
        self,
        round: int,
        model: bytes,
        contribute: Mapping[str, Contribute],
        absent: frozenset[str] = frozenset(),
        leaving: frozenset[str] = frozenset(),
    ) -> NoisySum:
        """One sum; raises ``RoundAborted`` or ``TooFewParties`` when it ends without a result."""
        dealt = [name for name in self._clients if name in contribute and name not in absent]
        self._enough(len(dealt), "are ready for this round", round)
        there = [name for name in dealt if name not in leaving]
        self._enough(len(there), "have sent their sums", round)
        refusal = self._graph.refusal(there)
        if refusal is not None:
            raise TooFewParties(refusal, rule="too-few-clients", round=round)
        total = np.zeros(self._size, dtype=np.int64)
        for name in dealt:
            try:
                self._noise[name].admit(round, model)
            except PrivacyRefused as error:
                raise RoundAborted(error.cause, rule="bad-model", party=name, round=round) from None
            if name not in leaving:  # below 2^63: checked against the field when the study was planned
                total += contribute[name](model)
                total += self._noise[name].draw(round)
        if (np.abs(total) > self._limit).any():
            cause = "the total is outside what honest clients can produce; it is withheld"
            raise RoundAborted(cause, rule="out-of-range", round=round)
        for name in there:
            self.bytes_up[name] += self._traffic[0]
            self.bytes_down[name] += self._traffic[1]
        inside = set(there)
        return NoisySum(
            round=round,
            total=total,
            participants=tuple(there),
            dropped=tuple(name for name in self._clients if name not in inside),
            makers=len(there),
        )

    def _enough(self, there: int, what: str, round: int) -> None:
        if there < self._least:
            cause = f"{there} clients {what}, and {self._least} are needed"
            raise TooFewParties(cause, rule="too-few-clients", round=round)


def traffic(plan: GraphPlan, *, size: int, model_bytes: int, every_peer: bool) -> tuple[int, int]:
    """Bytes that one client sends and receives in a round from which nobody is missing, as the messages are encoded;
    left out is that whoever tells its shares late hears once more that the round is closed."""
    n, k, quorum = plan.clients, plan.degree, plan.signatures
    threshold = quorum if plan.complete else plan.threshold
    start = Start(boot=0, value=bytes(BOOT_VALUE_BYTES), noise=_HASH)
    about: dict[str, Any] = {"study_hash": _HASH, "round": 1}
    mine = {**about, "client": 0}
    everybody = tuple(range(n))
    signers = everybody[:quorum]
    revealed = said.Revealed(**mine, agreement=_HASH, shares=bytes(SHARE_BYTES * (k + 1)))
    up: list[said.Message] = [
        said.Dealing(
            **mine, model_hash=_HASH, start=start, seed_commitment=_HASH, key_commitment=_HASH,
            signature=_SIGNATURE, wrapped=bytes(KEY_BYTES * k + TAG_BYTES), packets=bytes(PACKET_BYTES * k),
        ),
        said.Masked(
            **mine, model_hash=_HASH, dealers=_HASH, size=size, signature=_SIGNATURE, vector=bytes(8 * size)
        ),
        said.Signed(**mine, agreement=_HASH, signature=_SIGNATURE),
        revealed,
    ]  # fmt: skip
    facts: dict[str, Any] = {
        **about, "model_hash": _HASH, "dealers": everybody, "clients": everybody, "starts": (start,) * n,
        "signatures": (_SIGNATURE,) * n,
    }  # fmt: skip
    named = said.TiedSurvivors(**facts, sums=(_HASH,) * n) if every_peer else said.Survivors(**facts)
    told = said.Quorum(**about, agreement=_HASH, signers=signers, signatures=(_SIGNATURE,) * quorum)
    down: list[said.Message] = [
        said.RoundOpen(**about, deadline_ms=1, model_hash=_HASH, model=bytes(model_bytes)),
        said.Relay(**about, dealers=everybody, packets=bytes(PACKET_BYTES * k)),
        said.Stored(**about),
        named,
        told,
        said.RoundClosed(**about, agreement=_HASH),
    ]
    up.append(up[0])  # a client says its dealing again with its masked sum
    sent, received = (sum(len(encode(message)) for message in some) for some in (up, down))
    if every_peer:  # shares are told until there are enough of everybody's; on a circle that takes nearly all
        tellers = threshold if plan.complete else n
        evidence = said.Evidence(
            **about, survivors=encode(named), quorum=encode(told), commitments=bytes(32 * n),
            vectors=bytes(8 * size * n), dealt=b"", wrapped=(), reveals=(encode(revealed),) * tellers,
        )  # fmt: skip
        received += len(encode(evidence))
    return sent, received
