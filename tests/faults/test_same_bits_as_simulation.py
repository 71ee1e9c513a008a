"""Real processes, mutual TLS, durable state: under the same seed the very bits of the simulation."""

from __future__ import annotations

from consortium_fixture import Parties, bits


def test_real_processes_give_the_bits_of_the_simulation(parties: Parties) -> None:
    parties.start()
    study = parties.study(rounds=3)
    real = parties.fit(study)
    simulated = parties.simulated(study)
    assert bits(real) == bits(simulated), parties.logs()
    assert real.contributors_ == simulated.contributors_
    assert real.privacy_.epsilon == simulated.privacy_.epsilon
