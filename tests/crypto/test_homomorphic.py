"""Both schemes: sums exact at the edges of their room, uniform flooding, packing without carries, kept keys."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError
from tallystick.core.redaction import Secret
from tallystick.crypto.homomorphic import paillier
from tallystick.crypto.homomorphic.bfv import _flood, _signed
from tallystick.crypto.homomorphic.bfv_parameters import DEGREE, budget_left, coefficients, plain_bits
from tallystick.crypto.homomorphic.flooding import SHARE, error_bound, flooding_for
from tallystick.crypto.homomorphic.packing import pack, slot_bytes, unpack
from tallystick.crypto.homomorphic.scheme import Extent, scheme_for
from tallystick.crypto.prg import AesStream, system_stream


@pytest.mark.parametrize(
    ("name", "limit"),
    [("bfv", 10), ("bfv", 2**26), ("bfv", 2**52), ("bfv", 2**58 - 1), ("bfv", 2**62), ("paillier", 2**63 - 1)],
)
def test_sums_are_exact_at_the_edges_of_their_room(name: str, limit: int) -> None:
    scheme = scheme_for(name, Extent(size=100, limit=limit, owners=300, flood_bits=60 if name == "bfv" else 0))
    secret, source = scheme.generate(system_stream()), system_stream()
    key = scheme.public_key(secret.public.raw)
    count = min(100, scheme.block_values)
    ends = np.resize(np.array([limit, -limit, 0, 1, -1], dtype=np.int64), count)
    one = key.encrypt(ends, source)
    zero = key.encrypt(np.zeros(count, dtype=np.int64), source)
    total = key.total([one, zero, zero], np.zeros(count, dtype=np.int64), source)
    assert (secret.decrypt(total)[:count] == ends).all()
    split = np.resize(np.array([limit // 2, -(limit // 2)], dtype=np.int64), count)
    total = key.total([key.encrypt(split, source)], split, source)
    assert (secret.decrypt(total)[:count] == 2 * split).all()
    assert key.encrypt(ends, source) != one  # fresh randomness each time
    kept = scheme.secret_key(Secret(secret.reveal().reveal()))
    assert (kept.decrypt(total) == secret.decrypt(total)).all()
    with pytest.raises(LocalProtocolError):
        key.encrypt(np.zeros(scheme.block_values + 1, dtype=np.int64), source)
    kept.erase()
    with pytest.raises(LocalProtocolError, match="erased"):
        kept.decrypt(total)


def test_three_hundred_addends_wrap_nowhere() -> None:
    scheme = scheme_for("bfv", Extent(size=8192, limit=2**40, owners=300, flood_bits=70))
    secret, source = scheme.generate(system_stream()), system_stream()
    values = np.arange(8192, dtype=np.int64) - 4000
    block = secret.public.encrypt(values, source)
    total = secret.public.total([block] * 300, values, source)
    assert (secret.decrypt(total) == 301 * values).all()


@pytest.mark.parametrize("bits", [0, 5, 47, 48, 49, 69, 96])
def test_flooding_is_uniform_in_its_range(bits: int) -> None:
    bfv: Any = scheme_for("bfv", Extent(size=1, limit=2**20, owners=2, flood_bits=min(bits, 90)))
    object.__setattr__(bfv.extent, "flood_bits", bits)
    residues = _flood(bfv, AesStream(bytes(32), bytes([bits]))).astype(object)
    primes = [int(p) for p in bfv.primes[:, 0]]
    q, found = primes[0] * primes[1] * primes[2], 0
    for row, prime in zip(residues, primes):
        rest = q // prime
        found = found + row * (rest * pow(rest, -1, prime))
    values = [int(v) % q for v in found]
    signed = [v - q if v > q // 2 else v for v in values]
    assert min(signed) >= -(2**bits)
    assert max(signed) < 2**bits
    mean = float(np.mean([float(Fraction(v, 2**bits)) for v in signed]))
    assert abs(mean + 0.5 / 2**bits) < 6 / np.sqrt(3 * 8192)  # six deviations of the mean of 8,192 uniform ones
    if bits >= 5:
        top = np.bincount([(v + 2**bits) >> (bits - 4) for v in signed], minlength=32)
        assert ((top - 256) ** 2 / 256).sum() < 90  # chi-squared with 31 degrees of freedom: beyond 10^-7


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 63), st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=12), st.integers(1, 3))
def test_packed_integers_add_up_slot_by_slot(bits: int, raw: list[int], addends: int) -> None:
    limit = 2**bits - 1
    values = np.array([v % (2 * limit + 1) - limit for v in raw], dtype=np.int64) // addends
    width = slot_bytes(limit)
    packed = [pack(values, 12, width) for _ in range(addends)]
    expected = np.zeros(12, dtype=np.int64)
    expected[: len(values)] = values * addends
    assert (unpack(sum(packed), 12, width) == expected).all()


def test_what_lies_beyond_its_slot_is_not_told_before_the_last_noise_and_stays_out_of_range() -> None:
    """An abort by a total that has only the proxy's noise would tell an exact bit of it [hostile review]."""
    for limit in (2**39 - 2, 2**39, 2**47 - 1, 2**60):
        width = slot_bytes(limit)
        edge = 1 << (8 * width - 1)
        assert edge >= 2 * limit
        for slot in range(3):  # the top one wraps around all of them, the others carry into their neighbour
            found = unpack((edge + 5) << (8 * width * slot), 3, width)
            assert abs(int(found[slot])) >= 2 * limit - 5


def test_what_two_moduli_do_not_hold_is_cut_and_not_wrapped() -> None:
    moduli = [34359214081, 34359410689]
    for value in (2**62 + 2**40, 2**63 - 1, -(2**62) - 2**40, -(2**63)):
        residues = [np.array([value % t], dtype=np.uint64) for t in moduli]
        (found,) = _signed(residues, moduli)
        assert 2**61 < abs(int(found)) <= 2**62 + 2**36
        assert (found > 0) == (value > 0)
    (small,) = _signed([np.array([-12345 % t], dtype=np.uint64) for t in moduli], moduli)
    assert small == -12345


def test_the_flooding_bound_is_the_least_that_fits() -> None:
    facts = {"coefficients": coefficients(2_001_000, 2**50), "rounds": 3, "degree": 8192, "owners": 1000}
    made = flooding_for(**facts, epsilon=1.0, delta=1e-6)
    assert made.left <= 1e-6 * float(SHARE) < 2 * made.left
    assert made.error == error_bound(8192, 1000) == 1002 * 4098
    assert budget_left(Extent(size=1, limit=2**50, owners=1000, flood_bits=made.bits)) > 20
    assert "charged to delta" in made.words


def test_plaintext_moduli_hold_the_sum_and_are_none_of_qs() -> None:
    for limit in [*(2**k for k in range(1, 64)), *(2**k - 1 for k in range(2, 64))]:
        bits = plain_bits(limit)
        assert len(bits) in (1, 2)
        assert sum(b - 1 for b in bits) >= (2 * limit + 1).bit_length()
        assert not {54, 55} & set(bits)


def test_a_sum_without_room_is_refused_by_name() -> None:
    with pytest.raises(StudyError) as error:
        scheme_for("bfv", Extent(size=10, limit=2**58 - 1, owners=1000, flood_bits=105))
    assert error.value.rule == "homomorphic-headroom"
    with pytest.raises(StudyError, match="no scheme"):
        scheme_for("rot13", Extent(size=1, limit=1, owners=1))


@functools.cache
def _primes() -> tuple[Any, Any]:
    secret: Any = scheme_for("paillier", Extent(size=1, limit=1000, owners=3)).generate(system_stream())
    return secret._primes  # type: ignore[no-any-return]


def _paillier_with(base: Any) -> bytes:
    """A key that is well-formed but for its base, with the proof that belongs to it."""
    p, q = _primes()
    n, order = p * q, (p - 1) * (q - 1)
    h = base(n) % n
    root = gmpy2.invert(n, order)
    proof = [gmpy2.powmod(c, root, n) for c in paillier._challenges(n, h)]
    return b"".join(paillier._written(v, paillier._BYTES) for v in (n, h, *proof))


@pytest.mark.parametrize(
    "base",
    [lambda n: n - 1, lambda n: 1, lambda n: 0],
    ids=["of order 2: every sum has two ciphertexts only", "one", "zero"],
)
def test_a_paillier_base_that_hides_nothing_is_refused(base: Any) -> None:
    """h = n − 1 is coprime to n and in range, and its powers are ±1: each plaintext would have two ciphertexts."""
    scheme = scheme_for("paillier", Extent(size=1, limit=1000, owners=3))
    with pytest.raises(RemoteProtocolError, match="base is out of range") as error:
        scheme.public_key(_paillier_with(base), party="data-user")
    assert error.value.rule == "bad-public-key"
    scheme.public_key(_paillier_with(lambda n: n - 4), party="data-user")  # −2², as honest bases are: it is accepted


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("limit", [2**40, 2**62], ids=["one modulus", "two moduli"])
def test_a_bfv_key_with_a_zero_polynomial_is_refused(which: int, limit: int) -> None:
    """With p₁ = 0 an upload is its plaintext and a small error; with p₀ = 0 it decrypts to nothing."""
    scheme = scheme_for("bfv", Extent(size=10, limit=limit, owners=3, flood_bits=60))
    raw = scheme.generate(system_stream()).public.raw
    moduli = 2 if limit == 2**62 else 1
    words = np.frombuffer(raw, dtype="<u8").copy().reshape(moduli, 2, -1)
    words[-1, which] = 0
    with pytest.raises(RemoteProtocolError, match="one of its polynomials is zero") as error:
        scheme.public_key(words.tobytes(), party="data-user")
    assert error.value.rule == "bad-public-key"
    residues = np.frombuffer(raw, dtype="<u8").copy().reshape(moduli, 2, -1, DEGREE)
    residues[0, which, 0] = 0  # zero modulo one prime alone is as bad there
    with pytest.raises(RemoteProtocolError, match="one of its polynomials is zero"):
        scheme.public_key(residues.tobytes(), party="data-user")
    scheme.public_key(raw, party="data-user")
