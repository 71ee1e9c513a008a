"""`docs/architecture.md` follows one number: every file it passes in a simulation is named there."""

import re
from pathlib import Path

from benchmarks.doors import simulated

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_door_of_a_simulation_is_in_the_document() -> None:
    doors = simulated()
    listed = PAGE[PAGE.index("### Doors") : PAGE.index("## Rooms")]
    assert f"simulated: {len(doors)} " in listed
    for door in doors:
        floor, name = door.removesuffix(".py").split("/", 1)
        row = next(line for line in listed.splitlines() if line.startswith(f"| `{floor}`"))
        assert re.search(rf"\b{name.split('/')[-1]}\b", row), door
