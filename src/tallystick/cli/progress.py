"""Progress on a terminal, on stderr: events as lines, rounds as a bar below them, and no bar where nobody watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Story:
    """What happens while it happens."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console, self._bar = console, bar
        self._task = bar.add_task("rounds", total=None)
        self._title = "rounds"

    def tell(self, words: str) -> None:
        """A line."""
        self._console.print(f"  {words}", markup=False)

    def step(self, done: int, rounds: int) -> None:
        """So many rounds are done."""
        self._bar.update(self._task, completed=done, total=rounds or None)

    def titled_step(self, title: str, done: int, rounds: int) -> None:
        """The same, of several bars one after the other."""
        if title != self._title:
            self._bar.reset(self._task, description=title)
            self._title = title
        self.step(done, rounds)


@contextmanager
def told_on_stderr(*, quiet: bool) -> Iterator[Story]:
    """A story for as long as the block lasts; a silent one for programs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    live = console.is_terminal and not quiet
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not live, transient=True) as bar:
        yield Story(console, bar)
