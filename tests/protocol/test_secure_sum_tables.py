"""The README shows the tables the machines run on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tallystick.protocol.secure_sum as room
from tallystick.core.errors import LocalProtocolError
from tallystick.protocol.machine import transition_table
from tallystick.protocol.secure_sum.aggregator import AggregatorEvent, AggregatorMachine, AggregatorState
from tallystick.protocol.secure_sum.client import ClientEvent, ClientMachine, ClientState
from tallystick.protocol.secure_sum.open_round import ServerEvent, ServerState
from tallystick.protocol.secure_sum.server import ServerMachine

README = Path(room.__file__).with_name("README.md")
MACHINES = {
    "client": (ClientMachine, ClientState, ClientEvent),
    "server": (ServerMachine, ServerState, ServerEvent),
    "aggregator": (AggregatorMachine, AggregatorState, AggregatorEvent),
}


@pytest.mark.parametrize("name", MACHINES)
def test_readme_shows_the_transitions(name: str) -> None:
    """TALLYSTICK_WRITE_TABLES=1 writes them anew."""
    text = README.read_text()
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = text.split(start)
    inside, after = rest.split(end)
    table = transition_table(MACHINES[name][0].TRANSITIONS)
    if os.environ.get("TALLYSTICK_WRITE_TABLES"):
        README.write_text(f"{before}{start}{table}\n{end}{after}")
        inside = table
    assert inside.strip() == table


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_and_event_is_used(name: str) -> None:
    machine, states, events = MACHINES[name]
    table = machine.TRANSITIONS
    assert {state for state, _ in table} | set(table.values()) == set(states)
    assert {event for _, event in table} == set(events)


def test_a_released_round_has_no_way_back() -> None:
    ways = {
        event: after for (state, event), after in ServerMachine.TRANSITIONS.items() if state is ServerState.RELEASED
    }
    assert ways == {ServerEvent.OPEN: ServerState.COLLECTING}


def test_a_move_outside_the_table_is_our_bug() -> None:
    from secure_sum_examples import parameters

    machine = ClientMachine(parameters(), "c0")
    with pytest.raises(LocalProtocolError, match="no transition"):
        machine._move(ClientEvent.ACCEPTED)
