"""What a noise maker vouches for where prices were left open: the noise of what it has itself admitted and kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.engines.test_open_rounds import LEAST, made

from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.protocol.governance.bodies import check_body
from tallystick.protocol.governance.plan_summary import noise_of, summarise, within_reservation
from tallystick.roles.governance.attestation import attest

_, _, PLAN = made((LEAST,))
NOTE = {"participants": ["a", "b"], "partial": "sha256:" + "0" * 64}


def attested(prices: Prices | None, rounds: tuple[int, ...]) -> Any:
    said: dict[str, Any] = {}
    exchange: Any = SimpleNamespace(
        name="server-1", store=SimpleNamespace(statements=lambda _study: ()), say=lambda _kind, body: said.update(body)
    )
    kept = {} if prices is None else {"prices": prices.to_bytes()}
    store: Any = SimpleNamespace(records=lambda _study: kept, boot=1)
    attest(exchange, store, bytes(32), SimpleNamespace(plan=PLAN), dict.fromkeys(rounds, NOTE))  # type: ignore[arg-type]
    check_body("attestation", said)
    return said["noise"]


def sound(noise: Any, rounds: int) -> bool:
    return within_reservation(summarise(PLAN)["open"], noise, rounds)


def test_it_is_the_noise_of_the_prices_that_were_admitted() -> None:
    prices = Prices({1: PARTS // 2, 2: LEAST, 3: PARTS // 4})
    noise = attested(prices, (1, 2))
    assert noise == noise_of(PLAN.noise_parameters(2, prices))
    assert noise != noise_of(PLAN.noise_parameters(2))
    assert sound(noise, 2)


def test_a_round_that_was_never_admitted_had_no_noise() -> None:
    """A coordinator that skips a number: the server must not fail over it, nor vouch for what it never drew."""
    noise = attested(Prices({2: LEAST}), (2,))
    assert noise[0] == [1, []]
    assert not sound(noise, 2)


def test_without_kept_prices_nothing_is_vouched_for() -> None:
    """The plan's own noise is that of the least price: the most there could be, and not what anybody added."""
    assert attested(None, (1, 2)) == [[1, []]]
    assert not sound([[1, []]], 2)
