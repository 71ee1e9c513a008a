"""Progress on a terminal, on stderr; nothing at all when nobody is watching."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.engines.run import Progress

__all__ = ["round_progress"]


@contextmanager
def round_progress(title: str) -> Iterator[Progress]:
    """A callback for ``fit_study`` that draws a bar of rounds while the block runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def step(done: int, rounds: int) -> None:
            bar.update(task, completed=done, total=rounds)

        yield step
