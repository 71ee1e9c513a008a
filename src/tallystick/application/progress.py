"""Progress on a terminal, on stderr; nothing at all when nobody is watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tallystick.engines.run import Progress

__all__ = ["StoryProgress", "round_progress", "story_progress"]


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


@dataclass(frozen=True, kw_only=True)
class StoryProgress:
    """Events as lines, rounds as a bar below them."""

    tell: Callable[[str], None]
    step: Progress


@contextmanager
def story_progress(*, quiet: bool) -> Iterator[StoryProgress]:
    """What happens while it happens, on stderr; lines alone where nobody watches a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    live = console.is_terminal and not quiet
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, disable=not live, transient=True) as bar:
        task = bar.add_task("rounds", total=None)

        def tell(words: str) -> None:
            console.print(f"  {words}", markup=False)

        def step(done: int, rounds: int) -> None:
            bar.update(task, completed=done, total=rounds)

        yield StoryProgress(tell=tell, step=step)
