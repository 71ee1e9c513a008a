"""The README shows the table the machine runs on."""

from __future__ import annotations

import os
from pathlib import Path

import tallystick.protocol.selection as room
from tallystick.protocol.machine import transition_table
from tallystick.protocol.selection.machine import Event, SelectionMachine, State

README = Path(room.__file__).with_name("README.md")


def test_readme_shows_the_transitions() -> None:
    """TALLYSTICK_WRITE_TABLES=1 writes them anew."""
    text = README.read_text()
    start, end = "<!-- party -->\n", "<!-- /party -->"
    before, rest = text.split(start)
    inside, after = rest.split(end)
    table = transition_table(SelectionMachine.TRANSITIONS)
    if os.environ.get("TALLYSTICK_WRITE_TABLES"):
        README.write_text(f"{before}{start}{table}\n{end}{after}")
        inside = table
    assert inside.strip() == table


def test_every_state_and_event_is_used() -> None:
    table = SelectionMachine.TRANSITIONS
    assert {state for state, _ in table} | set(table.values()) == set(State)
    assert {event for _, event in table} == set(Event)


def test_an_ended_selection_has_no_way_back() -> None:
    assert not {State.CHOSEN, State.ABORTED} & {state for state, _ in SelectionMachine.TRANSITIONS}


def test_every_file_is_in_the_readme() -> None:
    files = {path.stem for path in README.parent.glob("*.py")} - {"__init__"}
    assert all(f"`{name}`" in README.read_text() for name in files)
