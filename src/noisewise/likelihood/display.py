"""Progress of an iterative fit: the iteration, and how the likelihood does."""

import sys
import time
from typing import Any

from noisewise.inference.progress import REFRESH, Progress


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
