"""What the machine offers: processors, memory, and how many blocks may be in flight while memory is short."""

import contextlib
import ctypes
import os
import sys
import time
import warnings
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from noisewise.errors import NoisewiseWarning

SHORT = 0.08
"""Share of the machine's memory below which fewer blocks are kept in flight; twice as much is plenty."""
KEPT = 2**25
"""Bytes of the largest array whose memory is kept when it is freed."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
OFTEN = 0.1
"""Seconds between two looks at the memory."""
GROUP = Path("/sys/fs/cgroup")
"""Where a container says how much memory it may use."""


def memory() -> tuple[int, int] | None:
    """(available, total) bytes of this machine, or of this container; None where the system does not say."""
    machine = _machine_memory()
    limit, used = _number(GROUP / "memory.max"), _number(GROUP / "memory.current")
    if machine is None or limit is None or used is None or limit >= machine[1]:
        return machine
    return min(machine[0], max(0, limit - used + _reclaimable())), limit


def total_memory() -> float:
    """Bytes that this machine or container has; infinite where the system does not say."""
    measured = memory()
    return float("inf") if measured is None else float(measured[1])


def _reclaimable() -> int:
    """Bytes of cached files, which count as used but are given up when memory is wanted: a checkpoint's, say."""
    try:
        entries = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return int(entries["inactive_file"])
    except (OSError, KeyError, ValueError):
        return 0


def _machine_memory() -> tuple[int, int] | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available, total = (1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
        return available, total
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


@lru_cache(maxsize=1)
def _recent_memory(tick: int) -> tuple[int, int] | None:
    """`memory`, measured once for each `tick`: a search of many short runs does not ask the system for each of them."""
    return memory()


class Room:
    """How many blocks may be in flight: `most`, and fewer while memory is short. Results never depend on it."""

    def __init__(self) -> None:
        self._now, self._next, self._warned = 2**31, 0.0, False

    def __call__(self, most: int) -> int:
        """The number at this moment; memory is looked at ten times a second."""
        now = time.monotonic()
        if now < self._next:
            return min(self._now, most)
        self._next = now + OFTEN
        measured = _recent_memory(int(now / OFTEN))
        if measured is not None and measured[0] < SHORT * measured[1]:
            self._now = max(1, min(self._now, most) // 2)
            self._warn(measured[0])
        elif measured is None or measured[0] > 2 * SHORT * measured[1]:
            self._now = min(self._now + max(1, most // 16), most)
        return min(self._now, most)

    def _warn(self, available: int) -> None:
        if not self._warned:
            self._warned = True
            why = f"memory is short ({available / 2**20:,.0f} MiB left): fewer blocks at a time, so the run is slower."
            warnings.warn(NoisewiseWarning(f"{why} Its draws are the same.", "sample"), stacklevel=2)


@cache
def keep_freed_memory(whatever_was_set: bool = False) -> None:
    """Ask the allocator, once in a process, to keep what is freed for the next array instead of giving it back.

    The C library of Linux maps large arrays anew, page by page, until it has seen one of that size freed. Blocks make
    and free arrays of a few megabytes all the time; pages that come and go take a tenth of one thread's time and more,
    and make threads wait for each other. What is kept is what the blocks under way need; the array here is never
    touched. Dask sets the allocator of its workers to give everything back: `whatever_was_set` overrides that.
    """
    np.empty(KEPT - 2**20, np.uint8)
    if whatever_was_set and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, KEPT)
            mallopt(_M_TRIM_THRESHOLD, 2 * KEPT)


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
