"""The attacks on the paper's protocol, and on a repaired one with a hole in it; what is built passes them.

1. The paper masks column sums by b = N·b~, so that exponents stay integral: v' mod N is v mod N, for certain.
2. It calibrates for a sensitivity of 1 what has one of up to 4, and the proxy knows all the noise there is.
3. The holder of a BFV key sees errors, and errors tell addends: proxy's noise in the plaintext hides nothing then.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.statistical.audit_bounds import epsilon_lower_bound
from tests.trust.bfv_errors import errors, modulus_of, polynomial, scaled

from tallystick.crypto.homomorphic.flooding import error_bound, flooding_for
from tallystick.crypto.homomorphic.scheme import Extent, scheme_for
from tallystick.crypto.prg import AesStream, system_stream

N = 1000  # records, public to proxy and data user


@cache
def scheme(flood_bits: int, name: str = "bfv") -> Any:
    return scheme_for(name, Extent(size=8192, limit=2**45, owners=10, flood_bits=flood_bits))


# -- 1. masks that are multiples of N ----------------------------------------------------------------------------------


def residues(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a data user reads modulo N of column sums that a proxy masked, in real ciphertexts; and the truth."""
    packed = scheme(0, "paillier")
    secret, source = packed.generate(system_stream()), system_stream()
    size = packed.block_values
    owners = [np.arange(size, dtype=np.int64) * k + 11 * k for k in (1, 2, 3)]
    key = secret.public
    total = key.total([key.encrypt(v, source) for v in owners], mask[:size], source)
    return secret.decrypt(total)[:size] % N, sum(owners) % N


def test_the_papers_masks_tell_every_column_sum_modulo_the_number_of_records() -> None:
    random = system_stream().words(100) >> np.uint64(34)
    read, truth = residues(N * random.astype(np.int64))
    assert (read == truth).all()


def test_the_repaired_protocols_noise_does_not() -> None:
    noise = (system_stream().words(100) >> np.uint64(44)).astype(np.int64)  # full noise: not a multiple of anything
    read, truth = residues(noise)
    assert (read == truth).mean() < 0.2


# -- 2. the true epsilon of the paper --------------------------------------------------------------------------------


def test_the_papers_noise_is_short_of_its_claim() -> None:
    epsilon, delta, runs = 0.9, 1 / N, 400_000
    tau = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    m = np.array([1.0, 0.0])
    scatters = []
    for last in (-m, m):  # unit rows, all alike but the last one: the worst pair of neighbours
        rows = np.vstack([np.tile(m, (N - 1, 1)), last])
        v = rows.sum(axis=0)
        scatters.append(rows.T @ rows - np.outer(v, v) / N)
    gap = np.linalg.norm(scatters[1] - scatters[0])
    assert gap == pytest.approx(4 * (N - 1) / N)  # claimed: 1
    noise = tau * np.random.default_rng(5).standard_normal((2, runs))
    first, second = noise[0], noise[1] + gap  # in the direction that they differ in
    cut = 2.2 * tau
    measured = epsilon_lower_bound(int((second > cut).sum()), int((first > cut).sum()), runs, delta=delta, alpha=1e-3)
    assert measured > 2 * epsilon  # 3.2 in truth
    repaired = tau * gap  # scaled to the Frobenius norm of what is released
    second = repaired * np.random.default_rng(6).standard_normal(runs) + gap
    first = repaired * np.random.default_rng(7).standard_normal(runs)
    hits = [int((law > 2.2 * repaired).sum()) for law in (second, first)]
    assert epsilon_lower_bound(*hits, runs, delta=delta, alpha=1e-3) < epsilon


def test_the_papers_proxy_strips_the_only_noise_there_is() -> None:
    released, noise = np.array([5.0, 7.0]) + (drawn := np.array([0.3, -1.2])), drawn
    assert (released - noise == np.array([5.0, 7.0])).all()


# -- 3. addends in the errors of BFV ---------------------------------------------------------------------------------


def unflooded(bfv: Any, block: bytes, noise: np.ndarray) -> bytes:
    """A proxy's total as it would be without flooding and encryption of zero: exact, and correctly noised."""
    modulus = bfv.moduli[0]
    total: bytes = modulus.evaluator.add_plain(modulus.ciphertext(block), modulus.encode(noise)).to_string()
    return total[-len(block) :]


def guess(flood_bits: int, *, blocks: int) -> tuple[float, float]:
    """How much more the errors speak for the true owner's vector than for its neighbour's; and that in deviations.

    The proxy has put noise of its own into every plaintext. The data user knows the two candidates, and the noised sum.
    """
    bfv = scheme(flood_bits)
    secret, source = bfv.generate(source=system_stream()), system_stream()
    q, t = modulus_of(bfv), bfv.moduli[0].t
    stream = AesStream(bytes(32), b"candidates")
    score, spread = 0.0, 0.0
    for _ in range(blocks):
        true = (stream.words(8192) >> np.uint64(30)).astype(np.int64)
        other = true.copy()
        other[17] += 1  # a neighbour: one entry differs by one
        noise = (stream.words(8192) >> np.uint64(28)).astype(np.int64)  # sixteen times what it has to hide
        upload = secret.public.encrypt(true, source)
        total = secret.public.total([upload], noise, source) if flood_bits else unflooded(bfv, upload, noise)
        plain, error = errors(bfv, secret, total)
        told = [_rounding(q, t, polynomial(bfv, candidate), plain) for candidate in (true, other)]
        difference = np.array(told[0], dtype=float) - np.array(told[1], dtype=float)
        seen = np.array(error, dtype=float)
        score += float(difference @ (seen - np.array(told, dtype=float).mean(axis=0)))
        spread += float((difference**2).sum()) * float(seen.var())
    return score, score / math.sqrt(spread)


def _rounding(q: int, t: int, own: list[int], whole: list[int]) -> list[int]:
    """By how much ⌊q·a/t⌉ + ⌊q·b/t⌉ misses ⌊q·(a + b)/t⌉, if the owner's part is ``own``: −1, 0 or 1."""
    found = []
    for a, w in zip(own, whole):
        b = (w - a) % t
        found.append((scaled(q, t, a) + scaled(q, t, b) - scaled(q, t, w) + q // 2) % q - q // 2)
    return found


def test_unflooded_errors_tell_an_owners_vector_from_its_neighbours() -> None:
    score, deviations = guess(0, blocks=40)
    assert score > 0
    assert deviations > 2.5  # 7 on average; and a study has more ciphertexts than forty


def test_flooded_errors_do_not() -> None:
    flooding = flooding_for(coefficients=8192, rounds=1, degree=8192, owners=10, epsilon=1.0, delta=1e-6)
    assert flooding.left <= 1e-9
    _, deviations = guess(flooding.bits, blocks=2)
    assert abs(deviations) < 4.5


def test_no_error_is_larger_than_its_bound() -> None:
    """V is a worst case: errors of sums of ten lie far below it."""
    bfv = scheme(0)
    secret, source = bfv.generate(system_stream()), system_stream()
    values = np.arange(8192, dtype=np.int64)
    blocks = [secret.public.encrypt(values, source) for _ in range(10)]
    _, found = errors(bfv, secret, secret.public.total(blocks, values, source))
    assert 10 < max(map(abs, found)) < error_bound(8192, 10)
