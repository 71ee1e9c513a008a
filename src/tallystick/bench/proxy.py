"""``tallystick bench proxy``: one round of a scatter matrix's upper triangle under both schemes, party by party.

d features make d·(d + 1)/2 entries; room and flooding are for 1,000 owners, ε = 1, δ = 10⁻⁶, one round. Seconds are CPU
seconds of this process. Every block is encrypted, added to another owner's, finished with noise, and decrypted before
the next one is made: memory does not grow with d. Paillier is run whole up to d = 617; beyond, 1,000 ciphertexts are,
and the rest is extrapolated, which the case says. References are the raw library calls: SEAL's encryption, addition and
decryption; GMP's fixed-base multiplications, multiplication modulo n² and two powers modulo p² and q²; for bytes, the
integers themselves.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.bench.measuring import row
from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.homomorphic.bfv_parameters import DEGREE, budget_left, coefficients
from tallystick.crypto.homomorphic.flooding import flooding_for
from tallystick.crypto.homomorphic.scheme import DecryptingKey, Extent, Integers, Scheme, scheme_for
from tallystick.crypto.prg import system_stream

FEATURES = (100, 617, 2000, 5000)
OWNERS = 1000
EPSILON, DELTA = 1.0, 1e-6
WHOLE_TO, SOME_BLOCKS = 617, 1000  # Paillier
LIMITS = {"60-bit": 2**58 - 1, "two moduli": 2**62}
"""The largest sum that one plaintext modulus of 60 bits holds, and one that needs two."""
MORE = 8  # further addends, by which the cost of one is measured
_SLOT_LIMIT = 2**54  # Paillier: slots of 56 bits


@dataclass
class Spent:
    """CPU seconds by party, over the blocks that were done."""

    owner: float = 0.0
    adding: float = 0.0
    finishing: float = 0.0
    data_user: float = 0.0
    blocks: int = 0
    left: list[int] = field(default_factory=list)


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """Per scheme and d: seconds of an owner, of the proxy per owner and once, of the data user; bytes of each."""
    table: list[dict[str, Any]] = []
    for name in LIMITS:
        table += [r for d in ((100,) if quick else FEATURES) for r in _bfv(d, name)]
    for d in (20,) if quick else FEATURES:
        table += _paillier(d)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*table, row("peak memory", round(peak), "MB", None, None)]


def _entries(d: int) -> int:
    return d * (d + 1) // 2


def _bfv(d: int, moduli: str) -> Iterator[dict[str, Any]]:
    size, limit = _entries(d), LIMITS[moduli]
    flooding = flooding_for(
        coefficients=coefficients(size, limit), rounds=1, degree=DEGREE, owners=OWNERS, epsilon=EPSILON, delta=DELTA
    )
    extent = Extent(size=size, limit=limit, owners=OWNERS, flood_bits=flooding.bits)
    scheme = scheme_for("bfv", extent)
    secret = scheme.generate(system_stream())
    raw = _raw_bfv(scheme, secret)
    spent = _run(scheme, secret, scheme.blocks, budget=lambda block: secret.noise_budget(block))  # type: ignore[attr-defined]
    yield from _rows(f"bfv {moduli} d={d}", scheme, spent, scheme.blocks, raw)
    note = f"flooded with ±2^{flooding.bits}, bound {flooding.left:.2g} of delta {DELTA:g}"
    yield row(f"bfv {moduli} d={d} budget", min(spent.left), "bits left", budget_left(extent), None) | {"note": note}


def _paillier(d: int) -> Iterator[dict[str, Any]]:
    scheme = scheme_for("paillier", Extent(size=_entries(d), limit=_SLOT_LIMIT, owners=OWNERS))
    secret = scheme.generate(system_stream())
    secret.public.encrypt(np.zeros(1, dtype=np.int64), system_stream())  # the table of powers, made once a study
    whole = d <= WHOLE_TO
    blocks = scheme.blocks if whole else min(scheme.blocks, SOME_BLOCKS)
    spent = _run(scheme, secret, blocks)
    case = f"paillier d={d}" + ("" if whole else " extrapolated")
    yield from _rows(case, scheme, spent, scheme.blocks, _raw_paillier(secret))


def _run(scheme: Scheme, secret: DecryptingKey, blocks: int, *, budget: Callable[[bytes], int] | None = None) -> Spent:
    """Block by block: an owner's, another one's, the proxy's total of both with noise, the data user's plaintext."""
    source, key, spent = system_stream(), secret.public, Spent()
    for block in range(blocks):
        count = min(scheme.block_values, scheme.extent.size - block * scheme.block_values)
        values, noise = _values(count, block), _values(count, block + 1)
        started = time.process_time()
        one = key.encrypt(values, source)
        spent.owner += time.process_time() - started
        started = time.process_time()
        once = key.total([one], noise, source)
        single = time.process_time() - started
        started = time.process_time()
        total = key.total([one] * (1 + MORE), noise, source)
        several = time.process_time() - started
        spent.adding += max(0.0, several - single) / MORE
        spent.finishing += single
        started = time.process_time()
        found = secret.decrypt(total)
        spent.data_user += time.process_time() - started
        if not (found[:count] == (1 + MORE) * values + noise).all() or len(once) != len(total):
            raise LocalProtocolError("a total that was decrypted is not the sum")
        spent.blocks += 1
        if budget is not None and block < 3:
            spent.left.append(budget(total))
    return spent


def _values(count: int, block: int) -> Integers:
    return (np.arange(count, dtype=np.int64) * 7_919 + block) % (1 << 50) - (1 << 49)


def _rows(case: str, scheme: Scheme, spent: Spent, blocks: int, raw: dict[str, float]) -> Iterator[dict[str, Any]]:
    times = blocks / spent.blocks
    measured = {
        "owner encrypts": (spent.owner, raw["encrypt"]),
        "proxy adds an owner": (spent.adding, raw["add"]),
        "proxy finishes": (spent.finishing, None),
        "data user decrypts": (spent.data_user, raw["decrypt"]),
    }
    for what, (seconds, reference) in measured.items():
        per = None if reference is None else reference * blocks
        ratio = None if per is None or not seconds else round(per / (seconds * times), 3)
        yield row(f"{case} {what}", round(seconds * times, 5), "CPU s", per if per is None else round(per, 5), ratio)
    sent, plain = blocks * scheme.block_bytes, 8 * scheme.extent.size
    # A total is as long as one owner's upload; what the data user releases is the vector itself.
    for who, measured_bytes in (
        ("owner uploads", sent),
        ("proxy takes in, of all owners", OWNERS * sent),
        ("data user takes in", sent),
    ):
        reference = plain * (measured_bytes // sent)
        yield row(f"{case} {who}", measured_bytes, "bytes", reference, round(reference / measured_bytes, 3))


def _seconds(work: Callable[[], Any], times: int = 20) -> float:
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times


def _raw_bfv(scheme: Any, secret: Any) -> dict[str, float]:
    """SEAL's own calls for one block, both moduli where there are two."""
    found = {"encrypt": 0.0, "add": 0.0, "decrypt": 0.0}
    for modulus, encryptor, decryptor in zip(scheme.moduli, secret.public._encryptors, secret._decryptors):
        plain = modulus.encode(_values(scheme.block_values, 0))
        one, other = encryptor.encrypt(plain), encryptor.encrypt(plain)
        found["encrypt"] += _seconds(lambda e=encryptor, p=plain: e.encrypt(p))  # type: ignore[misc]
        found["add"] += _seconds(lambda m=modulus, a=one, b=other: m.evaluator.add_inplace(a, b), 200)  # type: ignore[misc]
        found["decrypt"] += _seconds(lambda d=decryptor, c=other: d.decrypt(c))  # type: ignore[misc]
    return found


def _raw_paillier(secret: Any) -> dict[str, float]:
    """GMP's own: the multiplications of a fixed-base power, one modulo n², and two secret powers."""
    return secret.raw_costs(lambda work: _seconds(work))  # type: ignore[no-any-return]
