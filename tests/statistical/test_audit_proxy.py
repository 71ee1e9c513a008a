"""ε of a proxy's sums, measured through the deployed machines, in real ciphertexts: as each of the two sees them.

The data user sees the decrypted sum before it adds noise; the proxy sees what is released, and takes its own noise off.
Each view must hold the promise by itself. Two planted bugs, a proxy and a data user that make no noise, must be found.
Every coordinate of a long vector is one run: neighbours differ in it by the whole sensitivity.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.statistical.audit_bounds import Outputs, find_bound

from tallystick.core.identifiers import digest
from tallystick.crypto.homomorphic.scheme import Extent, scheme_for
from tallystick.crypto.prg import AesStream, system_stream
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.mechanisms import discrete_gaussian
from tallystick.protocol.noise_source import NoiseSource
from tallystick.trust.proxy.memory_rounds import DATA_USER, PROXY, MemoryRounds

EPSILON, DELTA, SENSITIVITY, SIZE = 1.0, 1e-5, 1000, 8192 * 6
OWNERS = ("a", "b", "c")


class Drawn(NoiseSource):
    """Full noise, as the plan has it; what was drawn is remembered, for the audit alone."""

    def __init__(self, name: str, silent: bool) -> None:
        self.silent, self.last = silent, np.zeros(SIZE, dtype=np.int64)
        self._stream = AesStream(digest(b"noise of the audit", name.encode()))

    def draw(self, round: int) -> np.ndarray:
        variance = Fraction(SENSITIVITY) ** 2 / (2 * gaussian_rho(EPSILON, 0.999 * DELTA))
        if not self.silent:
            self.last = discrete_gaussian.sample(variance, SIZE, self._stream)
        return self.last


def views(bug: str | None) -> dict[str, list[Outputs]]:
    """What the data user and the proxy see of two neighbouring databases."""
    scheme = scheme_for("bfv", Extent(size=SIZE, limit=2**40, owners=10, flood_bits=69))
    noise = {name: Drawn(name, silent=bug == name) for name in (PROXY, DATA_USER)}
    rounds = MemoryRounds(
        scheme,
        study_hash=digest(b"audit"),
        clients=OWNERS,
        noise=noise,
        source=system_stream(),
        min_clients=3,
    )
    seen: dict[str, list[Outputs]] = {PROXY: [], DATA_USER: []}
    for number, shift in enumerate((0, SENSITIVITY), start=1):
        vectors = {name: np.full(SIZE, shift * (name == "b"), dtype=np.int64) for name in OWNERS}
        result = rounds.run_round(number, b"", {name: (lambda _m, v=v: v) for name, v in vectors.items()})
        p, step = rounds.parameters, scheme.block_bytes
        raw = b"".join(rounds.uploads.get_sum(number, i) for i in range(p.chunks))
        secret = rounds.data_user._decrypting
        decrypted = np.concatenate([secret.decrypt(raw[at : at + step]) for at in range(0, len(raw), step)])[:SIZE]
        seen[DATA_USER].append(_outputs(decrypted))
        seen[PROXY].append(_outputs(result.total - noise[PROXY].last))
    return seen


def _outputs(values: np.ndarray) -> Outputs:
    return Outputs(statistics=values.astype(float)[:, None], low=values % 8, off_grid=np.zeros(len(values), dtype=bool))


def bound(pair: list[Outputs]) -> float:
    return find_bound(pair[0], pair[1], delta=DELTA, alpha=1e-3).epsilon


def test_both_views_hold_the_promise() -> None:
    for name, pair in views(None).items():
        measured = bound(pair)
        assert measured < EPSILON, name
        assert measured > 0.2, name  # the audit is not blind


@pytest.mark.parametrize("bug", [PROXY, DATA_USER])
def test_noise_that_is_missing_at_one_is_found_in_the_others_view(bug: str) -> None:
    found = views(bug)
    other = DATA_USER if bug == PROXY else PROXY
    assert bound(found[other]) > 2 * EPSILON
    assert bound(found[bug]) < EPSILON  # who made none still sees the other's
