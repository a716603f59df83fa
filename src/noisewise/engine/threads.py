"""Blocks on threads of this process, and a warning where one of them does not return."""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from noisewise import checks
from noisewise.engine import failures
from noisewise.engine.base import Ended, Engine, Source, Stopped, Task, Work, drive, numbers
from noisewise.engine.machine import keep_freed_memory, processors
from noisewise.errors import NoisewiseWarning

MANY, TURN = 8, 0.0002
"""From `MANY` threads on, each has the interpreter for `TURN` seconds at a time: a 25th of Python's own turns."""
GRACE = 10.0
"""Seconds that blocks no longer wanted have to notice it."""


@dataclass(frozen=True)
class Threads(Engine):
    """Blocks on threads of this process: NumPy's generators and compiled JAX release the interpreter lock.

    `workers` defaults to the processors available. The result does not depend on it. A simulator written in Python
    holds the lock, and gains nothing from threads: use `Processes`, which can also stop one that hangs.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            checks.integer("Threads", "workers", self.workers, least=1, advice="Leave it out to use all processors.")

    def execute(self, source: Source) -> None:
        """Keep every thread busy until the source runs dry."""
        with short_turns() if (self.workers or processors()) >= MANY else nullcontext():
            drive(source, self.crew())

    def crew(self, wake: Callable[[], None] | None = None) -> "ThreadCrew":
        """The threads of one run; `wake` is called whenever a task has ended."""
        return ThreadCrew(self.workers or processors(), wake=wake)


@contextmanager
def short_turns() -> Iterator[None]:
    """Shorten Python's switch interval: threads that work outside the interpreter need it often, each for a moment.

    A thread that computes in Python makes all of them wait for one interval. A process has one switch interval: the
    last run to end sets it back.
    """
    global _short, _usual
    with _turns:
        if _short == 0:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN, _usual))
        _short += 1
    try:
        yield
    finally:
        with _turns:
            _short -= 1
            if _short == 0:
                sys.setswitchinterval(_usual)


_turns, _short, _usual = threading.Lock(), 0, 0.0
"""A lock, the number of runs that have short turns now, and the switch interval before the first of them."""


class ThreadCrew:
    """Threads that serve one queue. They are daemons: one that hangs does not keep Python from ending."""

    def __init__(
        self,
        size: int,
        place: Callable[[], AbstractContextManager[Any]] = nullcontext,
        wake: Callable[[], None] | None = None,
    ) -> None:
        keep_freed_memory()
        self.place, self.wake = place, wake
        """The context that every block runs in, and a function that is called after it."""
        self.inbox: SimpleQueue[tuple[int, Work] | None] = SimpleQueue()
        self.outbox: SimpleQueue[Ended] = SimpleQueue()
        self.stop, self.reported = threading.Event(), False
        self.busy: dict[int, tuple[float, Work]] = {}
        """By thread: when its block began, and the work."""
        self.threads = [threading.Thread(target=self._serve, name=f"noisewise-{n}", daemon=True) for n in range(size)]
        for thread in self.threads:
            thread.start()

    def poll(self) -> None:
        """Raise once the run is over."""
        if self.stop.is_set():
            raise Stopped

    def _serve(self) -> None:
        ident = threading.get_ident()
        while (item := self.inbox.get()) is not None:
            number, work = item
            if self.stop.is_set():
                continue
            self.busy[ident] = time.monotonic(), work
            try:
                with self.place():
                    outcome: Ended = number, work(self.poll), None
            except BaseException as error:
                outcome = number, None, error
            del self.busy[ident], item, work
            self.outbox.put(outcome)
            del outcome
            if self.wake is not None:
                self.wake()

    def capacity(self) -> int:
        """One block in hand and one waiting for every thread, so that none idles for the scheduler."""
        return 2 * len(self.threads)

    def submit(self, task: Task) -> int:
        """Begin a task; returns the number that its outcome will carry."""
        number = next(numbers)
        self.inbox.put((number, task.work))
        return number

    def collect(self, seconds: float) -> list[Ended]:
        """Outcomes since the last call."""
        outcomes = []
        try:
            outcomes.append(self.outbox.get(timeout=seconds))
            while True:
                outcomes.append(self.outbox.get_nowait())
        except Empty:
            if not outcomes:
                self._look()
            return outcomes

    def _look(self) -> None:
        """Warn, once, of a simulator that does not return."""
        if self.reported:
            return
        for thread, (since, work) in list(self.busy.items()):
            seconds = time.monotonic() - since
            if seconds > failures.PATIENCE and (at := failures.whereabouts(thread)):
                self._report(f"{at}, in a block begun {seconds:.0f} s ago", work)
                return

    def _report(self, finding: str, work: Work) -> None:
        self.reported = True
        where = failures.origin(work)
        advice = "A thread cannot be stopped: press Ctrl-C, and use nw.Processes(timeout=...) to have a time limit."
        cause = f"{finding}{f' (with {where})' if where else ''}. {advice}"
        warnings.warn(NoisewiseWarning(cause, "Threads"), stacklevel=2)

    def abandon(self) -> None:
        """Stop; a thread that does not is left behind."""
        self.stop.set()
        for _ in self.threads:
            self.inbox.put(None)
        left = GRACE
        for thread in self.threads:
            while thread.is_alive() and left > 0.0:
                thread.join(0.1)
                left -= 0.1
        for ident, (_, work) in list(self.busy.items()):
            if not self.reported:
                at = failures.whereabouts(ident) or "a block is running"
                self._report(f"{at} and does not stop; it is left behind", work)
