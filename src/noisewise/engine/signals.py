"""Ctrl-C and SIGTERM: held back while an engine keeps its accounts, and turned into a run's orderly end."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("noisewise")


class Terminated(SystemExit):
    """SIGTERM came during a run: the run has ended, and the process ends with status 143.

    `result` is what the run had by then; None where it had nothing.
    """

    def __init__(self, result: Any = None) -> None:
        super().__init__(128 + signal.SIGTERM)
        self.result = result


_ending = threading.Event()
"""Whether SIGTERM has come during this run."""


@contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C and SIGTERM back: the function yielded raises KeyboardInterrupt where either has come.

    So neither arrives in the middle of bookkeeping. A second one interrupts at once. SIGTERM is held back only inside
    `terminable`. Handlers of the user's own are left alone, and so is everything outside the main thread.
    """
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if number == signal.SIGTERM:
            _ending.set()
        if received:
            raise KeyboardInterrupt
        received.append(number)

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    with _handlers(note, {signal.SIGINT: (signal.SIG_DFL, signal.default_int_handler), signal.SIGTERM: ()}):
        yield check
    check()


@contextmanager
def terminable() -> Iterator[list[Any]]:
    """SIGTERM interrupts the run as Ctrl-C does, then ends the process: `Terminated` is raised when the run is over.

    It carries what was put last into the list yielded. In the main thread only, and not where the user handles SIGTERM.
    """
    results: list[Any] = []

    def interrupt(number: int, frame: Any) -> None:
        _ending.set()
        raise KeyboardInterrupt

    try:
        with _handlers(interrupt, {signal.SIGTERM: (signal.SIG_DFL,)}):
            yield results
    except BaseException:
        if not _ending.is_set():
            raise
    if _ending.is_set():
        _ending.clear()
        logger.warning("SIGTERM: the run has ended, and the process ends with status %d.", 128 + signal.SIGTERM)
        raise Terminated(results[-1] if results else None)


@contextmanager
def _handlers(handler: Callable[[int, Any], None], defaults: dict[signal.Signals, tuple[Any, ...]]) -> Iterator[None]:
    """Install `handler` in place of the `defaults`, or of a handler of ours, and put the old ones back at the end."""
    handler.__dict__["of_noisewise"] = True
    replaced: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, usual in defaults.items():
            present = signal.getsignal(number)
            if present in usual or hasattr(present, "of_noisewise"):
                replaced[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, present in replaced.items():
            signal.signal(number, present)
