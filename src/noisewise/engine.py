"""Engines: where blocks of work run. They know nothing of what is computed."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from noisewise import checks


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Stopped(Exception):
    """Raised inside a block that is no longer wanted."""


@dataclass
class Task:
    """One piece of work: `work(poll)` runs anywhere, `done(result)` in the calling thread.

    Work of any length calls `poll()` now and then; it raises `Stopped` when the run is over.
    """

    work: Callable[[Callable[[], None]], Any]
    done: Callable[[Any], None]


class Source(Protocol):
    """Hands out tasks until there is nothing left to do."""

    def next_task(self) -> Task | None:
        """A task whose inputs are ready, or None when the run is over or must wait for what is in flight."""

    @property
    def finished(self) -> bool:
        """Whether what is still in flight is no longer wanted."""

    def tick(self) -> None:
        """Called after every result and at least ten times a second, for progress and clocks."""


class Engine(Protocol):
    """Runs a source's tasks; results are handed back in the calling thread, in any order."""

    def execute(self, source: Source) -> None:
        """Run until `source` has no more tasks; KeyboardInterrupt leaves no work behind."""


@dataclass(frozen=True)
class Threads:
    """Blocks on threads of this process: NumPy's generators and compiled JAX release the interpreter lock.

    `workers` defaults to the processors available. The result does not depend on it.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            checks.integer("Threads", "workers", self.workers, least=1, advice="Leave it out to use all processors.")

    def execute(self, source: Source) -> None:
        """Keep every thread busy until the source runs dry."""
        workers = self.workers or processors()
        stop = threading.Event()

        def poll() -> None:
            if stop.is_set():
                raise Stopped

        pool = ThreadPoolExecutor(workers, thread_name_prefix="noisewise")
        flying: dict[Future[Any], Task] = {}
        try:
            while True:
                # One task per worker in hand and one waiting, so that no thread idles for the scheduler.
                while len(flying) < 2 * workers and (task := source.next_task()) is not None:
                    flying[pool.submit(task.work, poll)] = task
                if source.finished or not flying:
                    return
                finished, _ = wait(flying, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in finished:
                    flying.pop(future).done(future.result())
                source.tick()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Batch:
    """Independent pieces of work whose results are wanted in order."""

    def __init__(self, works: Sequence[Callable[[Callable[[], None]], Any]], tick: Callable[[], None]) -> None:
        self.works, self.results, self.launched, self.missing = works, [None] * len(works), 0, len(works)
        self.tick = tick

    def next_task(self) -> Task | None:
        if self.launched == len(self.works):
            return None
        number = self.launched
        self.launched += 1

        def done(result: Any) -> None:
            self.results[number] = result
            self.missing -= 1

        return Task(self.works[number], done)

    @property
    def finished(self) -> bool:
        return self.missing == 0


def gather(
    engine: Engine, works: Sequence[Callable[[Callable[[], None]], Any]], tick: Callable[[], None] = lambda: None
) -> list[Any]:
    """The results of `works`, each called with `poll` somewhere on the engine, in the order of `works`.

    `tick` is called in the calling thread at least ten times a second, to show progress or to stop by raising.
    """
    batch = _Batch(works, tick)
    engine.execute(batch)
    return batch.results
