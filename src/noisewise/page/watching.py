"""Polling: what a window shows is computed anew when a value outside the page has changed."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from shiny import reactive
from shiny.session import require_active_session

EVERY = 0.25
"""Seconds between two looks."""

T = TypeVar("T")

_UNDER_WAY: set[asyncio.Task[None]] = set()
"""The polling tasks of all windows, held here because an event loop does not keep its tasks alive."""


def watched(look: Callable[[], Any]) -> Callable[[Callable[[], T]], Callable[[], T]]:
    """A decorator for functions that are to be computed anew whenever the value of `look()` has changed.

    It takes the place of `reactive.poll`, which prints a traceback where a window is closed while its timer waits. The
    task here is not cancelled: closing the window wakes it, and it returns.
    """
    last = look()
    changes: reactive.Value[int] = reactive.Value(0)
    closed = asyncio.Event()
    require_active_session(None).on_ended(closed.set)

    async def watch() -> None:
        nonlocal last
        while not closed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), EVERY)
            async with reactive.lock():
                if not closed.is_set() and (now := look()) != last:
                    last = now
                    with reactive.isolate():
                        changes.set(changes() + 1)
                    await reactive.flush()

    task = asyncio.get_running_loop().create_task(watch())
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)

    def decorated(compute: Callable[[], T]) -> Callable[[], T]:
        @reactive.calc
        def value() -> T:
            changes()
            return compute()

        return value

    return decorated
