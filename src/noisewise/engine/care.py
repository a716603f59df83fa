"""What every engine takes care of: signals, memory, and saying where a failure can be found again."""

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.errors import NoisewiseError, NoisewiseWarning
from noisewise.statistics import BoundSimulator

logger = logging.getLogger("noisewise")

PATIENCE = 60.0
"""Seconds without a sign of life before a block is reported."""
SHORT = 0.08
"""Share of the machine's memory below which fewer blocks are kept in flight; twice as much is plenty."""


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Signals --------------------------------------------------------------------------------------------------------------


class Terminated(SystemExit):
    """SIGTERM came during a run, which has ended: the process ends too, with status 143. `result` is what there is."""

    def __init__(self, result: Any = None) -> None:
        super().__init__(128 + signal.SIGTERM)
        self.result = result


_ending = threading.Event()
"""Whether SIGTERM has come during this run."""


@contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C and SIGTERM back until the function given is called, which raises KeyboardInterrupt for either.

    So that neither arrives in the middle of bookkeeping. A second one interrupts at once. SIGTERM is held back only
    where `terminable` has it. Handlers of the user's own are left alone, and so is everything outside the main thread.
    """
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if number == signal.SIGTERM:
            _ending.set()
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    with _handlers(note, {signal.SIGINT: (signal.SIG_DFL, signal.default_int_handler), signal.SIGTERM: ()}):
        yield check
    check()


@contextmanager
def terminable() -> Iterator[list[Any]]:
    """SIGTERM interrupts the run as Ctrl-C does, then ends the process: `Terminated` is raised when the run is over.

    It carries what was put last into the list given. In the main thread only, and not where the user handles SIGTERM.
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
    """Install `handler` in place of the defaults given, or of one installed here, and put things back at the end."""
    handler.__dict__["of_noisewise"] = True
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, usual in defaults.items():
            present = signal.getsignal(number)
            if present in usual or hasattr(present, "of_noisewise"):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)


# Memory ---------------------------------------------------------------------------------------------------------------


GROUP = Path("/sys/fs/cgroup")
"""Where a container says how much memory it may use."""


def memory() -> tuple[int, int] | None:
    """(available, total) bytes of this machine, or of the container it is; None where nobody says."""
    found = _machine_memory()
    limit, used = _number(GROUP / "memory.max"), _number(GROUP / "memory.current")
    if found is None or limit is None or used is None or limit >= found[1]:
        return found
    return min(found[0], max(0, limit - used + _reclaimable())), limit


def total_memory() -> float:
    """Bytes that this machine or container has; without limit where nobody says."""
    found = memory()
    return float("inf") if found is None else float(found[1])


def _reclaimable() -> int:
    """Bytes of files that are counted as used, and given up when memory is wanted: a checkpoint's, for example."""
    try:
        told = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return int(told["inactive_file"])
    except (OSError, KeyError, ValueError):
        return 0


def _machine_memory() -> tuple[int, int] | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return tuple(1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "MemTotal"))  # type: ignore[return-value]
    except (OSError, KeyError, ValueError):
        pass
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class Room:
    """How many blocks may be in flight: `most`, and fewer while memory is short. Results never depend on it."""

    def __init__(self) -> None:
        self._now, self._next, self._warned = 2**31, 0.0, False

    def __call__(self, most: int) -> int:
        """The number at this moment; memory is looked at ten times a second."""
        now = time.monotonic()
        if now < self._next:
            return min(self._now, most)
        self._next = now + 0.1
        found = memory()
        if found is not None and found[0] < SHORT * found[1]:
            self._now = max(1, min(self._now, most) // 2)
            self._warn(found[0])
        elif found is None or found[0] > 2 * SHORT * found[1]:
            self._now = min(self._now + max(1, most // 16), most)
        return min(self._now, most)

    def _warn(self, available: int) -> None:
        if not self._warned:
            self._warned = True
            told = f"memory is short ({available / 2**20:,.0f} MiB left): fewer blocks at a time, so the run is slower."
            warnings.warn(f"sample: {told} Its draws are the same.", NoisewiseWarning, stacklevel=2)


# Where a failure can be found again -----------------------------------------------------------------------------------


def origin(work: Any) -> str:
    """The random stream a piece of work draws from, in words; "" where it does not show one among its arguments."""
    pending = [work]
    while pending:
        one = pending.pop()
        if isinstance(one, np.random.SeedSequence):
            numbers = ", ".join(str(int(number)) for number in one.spawn_key)
            return f"seed {one.entropy}, block ({numbers}) as purpose, stream and number"
        if isinstance(one, partial):
            pending += [one.func, *one.args, *one.keywords.values()]
    return ""


def located(error: Exception, work: Any) -> Exception:
    """`error` with the random stream that reproduces it."""
    where = origin(work)
    if where and isinstance(error, NoisewiseError) and error.args:
        error.args = (f"{error.args[0]} (With {where}.)", *error.args[1:])
    elif where:
        error.add_note(f"noisewise: with {where}.")
    return error


def whereabouts(thread: int) -> str:
    """What a simulator is being asked in a thread of this process; "" if none is running there."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is BoundSimulator._call.__code__:
            simulator, given, row = (frame.f_locals.get(name) for name in ("self", "given", "row"))
            if isinstance(simulator, BoundSimulator) and isinstance(given, dict):
                rows = f" in a batch of {len(next(iter(given.values())))} rows" if row is None and given else ""
                return f"{simulator.who}: the simulator is running{simulator._at(given, row)}{rows}"
        frame = frame.f_back
    return ""
