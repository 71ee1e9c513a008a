"""A member's allowance: what it is, whose it is, and when it is there again."""

from __future__ import annotations

from tallystick.core.allowance import Allowances


def test_a_burst_then_a_rate_and_never_more_than_the_burst() -> None:
    some = Allowances(rate=2.0, burst=3)
    assert [some.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert some.wait("a", 0.0) == 0.5
    assert some.take("a", 0.5)
    assert not some.take("a", 0.5)
    assert some.left("a", 100.0) == some.burst
    assert [some.take("a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_one_member_uses_up_nothing_of_another() -> None:
    some = Allowances(rate=1.0, burst=5)
    assert sum(some.take("rogue", 0.0) for _ in range(10_000)) == 5
    assert all(some.take("honest", 0.0) for _ in range(5))


def test_what_is_larger_than_the_burst_goes_through_once_and_is_paid_off() -> None:
    some = Allowances(rate=10.0, burst=100)
    assert some.take("a", 0.0, 1000)
    assert not some.take("a", 89.0)
    assert some.wait("a", 0.0) == 90.1
    assert some.take("a", 90.1)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    some = Allowances(rate=1000.0, burst=1)
    assert some.take("a", 5.0)
    assert not some.take("a", 5.0)
    assert not some.take("a", 4.0)


def test_names_that_are_used_no_more_are_forgotten() -> None:
    some = Allowances(rate=1.0, burst=1)
    for i in range(20_000):
        some.take(i, float(i))
    assert len(some._left) <= 4097
