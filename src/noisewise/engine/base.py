"""Tasks, the sources that hand them out, the crews that run them, and the one loop between them.

Every engine calls `drive` with its crew: threads, processes, a cluster or an accelerator.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from noisewise.engine.failures import located
from noisewise.engine.machine import Room
from noisewise.engine.signals import deferred_signals
from noisewise.errors import InferenceError

Poll = Callable[[], None]
Work = Callable[[Poll], Any]


class Stopped(Exception):
    """Raised inside a block that is no longer wanted."""


class Broken(InferenceError, KeyboardInterrupt):
    """The engine itself has failed. Samplers end as they do on Ctrl-C, with what they have."""


@dataclass
class Task:
    """One piece of work: `work(poll)` runs anywhere, `done(result)` in the calling thread.

    Work of any length calls `poll()` now and then; it raises `Stopped` when the run is over. Where the work is a
    `functools.partial` with its `SeedSequence` among the arguments, errors name that. `portable` work returns all it
    does and changes nothing else, so that it may run in another process. Other work stays in this one, and so does
    work that takes less time to do than to send.
    """

    work: Work
    done: Callable[[Any], None]
    portable: bool = True


class Source(Protocol):
    """Hands out tasks until there is nothing left to do."""

    def next_task(self, most: int) -> Task | None:
        """A task whose inputs are ready, or None when the run is over or must wait for what is in flight.

        `most` is how many tasks the engine may have in flight, given its workers and the memory there is.
        """

    @property
    def finished(self) -> bool:
        """Whether what is still in flight is no longer wanted."""

    def tick(self) -> None:
        """Called after every result and at least ten times a second, for progress and clocks."""


class Engine(ABC):
    """Runs a source's tasks; results are handed back in the calling thread, in any order."""

    handful: int = 1
    """Joint evaluations of blocks per task at most: more where handing one over takes long; 0: one block a task."""

    keeps: ClassVar[bool] = False
    """Whether a task's result may stay where it was made until another task takes it."""

    if TYPE_CHECKING:  # for types, so that an engine may state or compute them; in fact plain attributes

        @property
        def staying_bytes(self) -> float:
            """Bytes of results that may stay where they were made, until somebody asks for them."""

        @property
        def block_rows(self) -> int | None:
            """Rows of a block of scalars where the engine wants its own number; None leaves it to the algorithm."""
    else:
        staying_bytes, block_rows = 0.0, None

    @property
    def kind(self) -> str:
        """Engines of one kind give the same numbers: all that compute on processors, and accelerators of one sort."""
        return "processors"

    @abstractmethod
    def execute(self, source: Source) -> None:
        """Run until `source` has no more tasks; KeyboardInterrupt leaves no work behind."""


Ended = tuple[int, Any, BaseException | None]
"""(number of the task, its result, or else what it raised)."""
numbers = itertools.count()
"""Numbers of tasks, one sequence for all crews of this process."""


class Crew(Protocol):
    """Workers of one engine: threads, processes or a cluster."""

    def capacity(self) -> int:
        """Blocks that may be in flight: one in every worker's hands, and one waiting."""

    def submit(self, task: Task) -> int:
        """Begin a task; returns the number that its outcome will carry."""

    def collect(self, seconds: float) -> list[Ended]:
        """Outcomes since the last call; waits at most `seconds` for the first."""

    def abandon(self) -> None:
        """Stop all that is in flight; nobody waits for it any more."""


class CrewAway(Crew, Protocol):
    """Workers in other processes."""

    def wake(self) -> None:
        """End a wait in `collect`; from any thread."""


class Mixed:
    """A crew elsewhere, and one here for tasks that are not portable, made when the first such task comes.

    `away` is woken when a task ends here, so that a wait for the crew elsewhere is one for both.
    """

    def __init__(self, away: "CrewAway", here: Callable[[Callable[[], None]], Crew]) -> None:
        self.away, self._make = away, here
        self.here: Crew | None = None
        self.flying_here = 0

    def capacity(self) -> int:
        """The capacity of the crew elsewhere, and the tasks in flight here."""
        return self.away.capacity() + self.flying_here

    def submit(self, task: Task) -> int:
        """Begin a task, here or there."""
        if task.portable:
            return self.away.submit(task)
        self.here = self.here or self._make(self.away.wake)
        self.flying_here += 1
        return self.here.submit(task)

    def collect(self, seconds: float) -> list[Ended]:
        """Outcomes from either crew."""
        if self.here is None:
            return self.away.collect(seconds)
        ended = self.here.collect(0.0)
        self.flying_here -= len(ended)
        return ended + self.away.collect(0.0 if ended else seconds)

    def abandon(self) -> None:
        """Stop both."""
        self.away.abandon()
        if self.here is not None:
            self.here.abandon()


def drive(source: Source, crew: Crew) -> None:
    """Keep the crew busy until the source runs dry.

    Results that came together with an error are handed on before it is raised: nothing accepted is lost.
    """
    flying: dict[int, Task] = {}
    room = Room()
    with deferred_signals() as check:
        try:
            while True:
                most = room(crew.capacity())
                while len(flying) < most and (task := source.next_task(most)) is not None:
                    flying[crew.submit(task)] = task
                if source.finished or not flying:
                    return
                _hand_on(crew.collect(0.1), flying)
                source.tick()
                check()
        finally:
            crew.abandon()


def _hand_on(outcomes: list[Ended], flying: dict[int, Task]) -> None:
    failure: BaseException | None = None
    for number, result, error in sorted(outcomes, key=lambda outcome: outcome[0]):
        task = flying.pop(number, None)
        if task is None:  # left over from an earlier run that was interrupted while it was being abandoned
            continue
        if error is None:
            task.done(result)
        elif failure is None:
            failure = located(error, task.work) if isinstance(error, Exception) else error
    if failure is not None:
        raise failure


class _Batch:
    """Independent pieces of work whose results are wanted in order."""

    def __init__(
        self, works: Sequence[Work], tick: Callable[[], None], portable: bool, seen: Callable[[int, Any], None]
    ) -> None:
        self.works, self.results, self.launched, self.missing = works, [None] * len(works), 0, len(works)
        self.tick, self.portable, self.seen = tick, portable, seen

    def next_task(self, most: int) -> Task | None:
        if self.launched == len(self.works):
            return None
        number = self.launched
        self.launched += 1

        def done(result: Any) -> None:
            self.results[number] = result
            self.missing -= 1
            self.seen(number, result)

        return Task(self.works[number], done, self.portable)

    @property
    def finished(self) -> bool:
        return self.missing == 0


def gather(
    engine: Engine,
    works: Sequence[Work],
    tick: Callable[[], None] = lambda: None,
    *,
    portable: bool = False,
    seen: Callable[[int, Any], None] = lambda number, result: None,
) -> list[Any]:
    """The results of `works`, each called with `poll` somewhere on the engine, in the order of `works`.

    `tick` is called in the calling thread at least ten times a second, to show progress or to stop by raising.
    `portable` works return all they do and change nothing else, so that they may run in other processes; engines of
    other processes run works that are not portable on threads of this one. `seen(number, result)` is called in the
    calling thread as results come.
    """
    batch = _Batch(works, tick, portable, seen)
    engine.execute(batch)
    return batch.results
