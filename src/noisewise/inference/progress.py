"""A progress bar for runs longer than about a second, in terminals and notebooks."""

import sys
import time
from collections.abc import Callable
from typing import Any, Self

SHOW_AFTER = 1.0
"""Seconds before a bar appears."""
REFRESH = 0.1
"""Seconds between two refreshes."""
Listener = Callable[[str, int, int], None]
_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Send the progress of every run of this process to `listener(label, done, total)`, in place of bars.

    What the listener raises ends the run. None brings the bars back.
    """
    global _listener
    _listener = listener


class Progress:
    """Shows draws, rate, acceptance and time left. `show`: True, False, or None to decide by where it runs."""

    def __init__(self, show: bool | None, label: str) -> None:
        self.show, self.label = show, label
        self._bar: Any = None
        self._task: Any = None
        self._start = self._next = 0.0

    def __reduce__(self) -> Any:
        """A bar belongs to its terminal: work that is sent elsewhere shows none."""
        return Progress, (False, self.label)

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        self._next = self._start + SHOW_AFTER
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, proposals: Callable[[], int]) -> None:
        """Move to `done` of `total` draws; `proposals()` counts the work behind them, asked only when shown."""
        if _listener is not None:
            _listener(self.label, done, total)
            return
        now = time.monotonic()
        if self.show is False or now < self._next:
            return
        self._next = now + REFRESH
        if self._bar is None:
            self._open(total)
            if self._bar is None:
                return
        made = proposals()
        rate = f"{done / (now - self._start):,.0f} draws/s"
        accepted = f"accepted {done / made:.2g} of proposals" if made else ""
        self._bar.update(self._task, completed=done, rate=rate, accepted=accepted)

    def _open(self, total: int) -> None:
        if self.show is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self.show = False
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            self.show = False
            return
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} draws"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[accepted]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self.label, total=total, rate="", accepted="")
        self._bar.start()


class Steps(Progress):
    """A line with the iteration and a note, for fits longer than about a second."""

    def step(self, iteration: int, note: str) -> None:
        """Show that `iteration` is under way."""
        now = time.monotonic()
        if self.show is False or now < self._next:
            return
        self._next = now + REFRESH
        if self._bar is None:
            self._open(0)
            if self._bar is None:
                return
        self._bar.update(self._task, completed=iteration, note=note)

    def _open(self, total: int) -> None:
        if self.show is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self.show = False
            return
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
        except ImportError:
            self.show = False
            return
        columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        columns[2:2] = [TextColumn("iteration {task.completed:,.0f}"), TextColumn("{task.fields[note]}")]
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self.label, total=None, note="")
        self._bar.start()
