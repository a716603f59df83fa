"""Progress of runs longer than about a second, drawn by rich in terminals and notebooks, or sent to a listener."""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar, Self

SHOW_AFTER = 1.0
"""Seconds before a bar appears."""
REFRESH = 0.1
"""Seconds between two refreshes."""
Listener = Callable[[str, int, int], None]
_listener: Listener | None = None


def listen(listener: Listener | None) -> Listener | None:
    """Send the progress of every run of this process to `listener(label, done, total)`, in place of bars.

    What the listener raises ends the run. None brings the bars back. Returns who listened before.
    """
    global _listener
    before, _listener = _listener, listener
    return before


def say(show: bool | None, text: str) -> None:
    """Print a line where bars would be shown, or send it to the listener."""
    if _listener is not None:
        _listener(text, 0, 0)
    elif show or (show is None and _is_watched()):
        print(text, file=sys.stderr, flush=True)


def _is_watched() -> bool:
    """Whether somebody looks on: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """Shows draws, rate, acceptance and time left. `show`: True, False, or None to decide by where it runs."""

    fields: ClassVar[tuple[str, ...]] = ("rate", "accepted")
    """Texts that the bar shows beside the counts."""
    unit: ClassVar[str] = "draws"
    """What is counted."""

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
        """Move to `done` of `total`, which may grow; `proposals()` counts the work behind them, if it is shown."""
        if _listener is not None:
            _listener(self.label, done, total)
            return
        if not self._is_due(total):
            return
        tried = proposals()
        rate = f"{done / (time.monotonic() - self._start):,.0f} {self.unit}/s"
        accepted = f"accepted {done / tried:.2g} of proposals" if tried else ""
        self._bar.update(self._task, completed=done, total=total, rate=rate, accepted=accepted)

    def _is_due(self, total: int | None) -> bool:
        """Whether there is a bar, opened now if need be, that was last refreshed long enough ago."""
        now = time.monotonic()
        if self.show is False or now < self._next:
            return False
        self._next = now + REFRESH
        if self._bar is None:
            self._open(total)
        return self._bar is not None

    def _open(self, total: int | None) -> None:
        if self.show is None and not _is_watched():
            self.show = False
            return
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
        except ImportError:
            self.show = False
            return
        console = Console(stderr=True)
        if console.is_jupyter and find_spec("ipywidgets") is None:  # rich would only say what to install
            self.show = False
            return
        self._bar = Bar(*self._columns(), console=console, transient=True)
        self._task = self._bar.add_task(self.label, total=total, **dict.fromkeys(self.fields, ""))
        self._bar.start()

    def _columns(self) -> list[Any]:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        return [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {self.unit}"),
            *(TextColumn(f"{{task.fields[{field}]}}") for field in self.fields),
            TimeRemainingColumn(),
        ]


class Releases(Progress):
    """Progress counted in simulated releases."""

    unit = "releases"


class Steps(Progress):
    """A line with the iteration and a note, for fits longer than about a second."""

    fields = ("note",)

    def step(self, iteration: int, note: str) -> None:
        """Show that `iteration` is under way."""
        if self._is_due(None):
            self._bar.update(self._task, completed=iteration, note=note)

    def _columns(self) -> list[Any]:
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        return [
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("iteration {task.completed:,.0f}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        ]
