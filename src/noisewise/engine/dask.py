"""Blocks as tasks on a Dask cluster: what is sent to its workers, and what happens when one of them is lost."""

import importlib.resources
import itertools
import time
import uuid
import warnings
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

from noisewise import checks
from noisewise.engine import failures
from noisewise.engine.base import Broken, Ended, Engine, Mixed, Poll, Source, Stopped, Task, Work, drive, numbers
from noisewise.engine.machine import keep_freed_memory
from noisewise.engine.threads import Threads
from noisewise.engine.transport import Books, Reply, encode, perform, require_cloudpickle, versions
from noisewise.errors import InferenceError, NoisewiseWarning, refusal

MOST_DEATHS = 5
"""Times that a block is given to the cluster again after it has cost more workers than the scheduler allows."""
BOOK = "noisewise-model"
"""Prefix of the names of tasks whose result is a pickled model or release."""
LOOK = 1.0
"""Seconds between two counts of the workers."""
_met: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""By client, the workers that are known to have noisewise."""


@dataclass(frozen=True)
class Dask(Engine):
    """Blocks as tasks on the workers of a `dask.distributed` client, the current one by default.

    At most `in_flight` blocks are with the cluster at any time, by default two for every thread of its workers. The
    result is that of `Threads` with the same seed, whichever worker ran a block, and however often: a block of a
    worker that was lost is run again elsewhere. If the scheduler is lost, the run ends with what has been accepted.
    """

    client: Any = None
    in_flight: int | None = None
    handful = 8

    def __post_init__(self) -> None:
        if self.in_flight is not None:
            checks.integer("Dask", "in_flight", self.in_flight, least=1, advice="Leave it out if unsure.")
        distributed = _distributed()
        if self.client is not None and not isinstance(self.client, distributed.Client):
            rule = "must be a dask.distributed.Client, or None for the current one"
            raise refusal("Dask", "client", rule, self.client, "For example Client('tcp://scheduler:8786').")

    def __reduce__(self) -> Any:
        return Threads, (1,)  # inside a worker there is no cluster

    def execute(self, source: Source) -> None:
        """Keep the cluster busy until the source runs dry."""
        drive(source, Mixed(_Crew(self._client(), self.in_flight), Threads().crew))

    def _client(self) -> Any:
        if self.client is not None:
            return self.client
        try:
            return _distributed().default_client()
        except ValueError:
            advice = "Make one, for example dask.distributed.Client(), or use nw.Threads()."
            raise refusal("Dask", "client", "must be there", None, advice) from None


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        advice = "Run pip install 'noisewise[dask]'."
        raise refusal("Dask", "engine", "needs dask.distributed, which is not installed", None, advice) from None
    require_cloudpickle("Dask")
    return distributed


# What runs on the workers ---------------------------------------------------------------------------------------------


def _bound(content: bytes) -> bytes:
    """A pickled model or release, as the result of a task: if its worker is lost, the scheduler makes it again."""
    return content


class _Sealed:
    """A reply that Dask sends as it is: pickled once, its arrays as plain buffers, not looked through for parts."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


def _run(content: bytes, keys: list[str], books: list[bytes], expected: dict[str, str]) -> _Sealed:
    keep_freed_memory(whatever_was_set=True)
    return _Sealed(_reply(content, keys, books, expected))


def _reply(content: bytes, keys: list[str], books: list[bytes], expected: dict[str, str]) -> Reply:
    present = versions()
    if present != expected:
        differing = [name for name in present if present[name] != expected[name]]
        listed = ", ".join(f"{name} {present[name]} there, {expected[name]} here" for name in differing)
        advice = "Give workers and client the same versions: otherwise a seed does not decide the draws."
        return "error", InferenceError(f"a worker has other versions than the client ({listed}). {advice}", who="Dask")
    return perform(content, dict(zip(keys, books, strict=True)), _poll())


def _poll() -> Poll:
    """The `poll` of the task that runs here: it asks the worker, ten times a second at most, if the task is wanted."""
    from distributed.worker import get_worker, thread_state  # type: ignore[attr-defined]  # there, and not in its stubs

    try:
        tasks, key = get_worker().state.tasks, thread_state.key
    except (ValueError, AttributeError):
        return lambda: None
    after = time.monotonic() + 0.1

    def poll() -> None:
        nonlocal after
        if time.monotonic() < after:
            return
        after = time.monotonic() + 0.1
        task = tasks.get(key)
        if task is None or task.state == "cancelled":
            raise Stopped

    return poll


# What runs here -------------------------------------------------------------------------------------------------------


class _Crew:
    """The cluster during one run."""

    def __init__(self, client: Any, in_flight: int | None) -> None:
        from distributed.scheduler import KilledWorker

        self.client, self.in_flight, self.killed = client, in_flight, KilledWorker
        self.run, self.versions = uuid.uuid4().hex[:12], versions()
        self.books: dict[str, Any] = {}
        self.editions, self.submissions = itertools.count(), itertools.count()
        self.edition = ""
        self.flying: dict[int, tuple[Work, Any, int]] = {}
        """By number: the work, its future, and how often its workers were lost with it."""
        self.ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.counted, self.threads, self.deserted, self.warned = 0.0, 1, time.monotonic(), False
        if self._lost():
            raise self._broken()

    # The loop's side ---------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Two blocks for every thread there is now; workers may come and go."""
        if time.monotonic() - self.counted >= LOOK and not self._lost():
            self._look()
        return self.in_flight or 2 * max(1, self.threads)

    def submit(self, task: Task) -> int:
        number = next(numbers)
        self._give(number, task.work, 0)
        return number

    def wake(self) -> None:
        self.ended.put((-1, None))

    def collect(self, seconds: float) -> list[Ended]:
        if self._lost():
            raise self._broken()
        ready: list[tuple[int, Any]] = []
        try:
            ready.append(self.ended.get(timeout=seconds))
            while True:
                ready.append(self.ended.get_nowait())
        except Empty:
            pass
        current = [(number, future) for number, future in ready if self._is_current(number, future)]
        failed = [outcome for number, future in current if (outcome := self._failure(number, future)) is not None]
        finished = [(number, future) for number, future in current if future.status == "finished"]
        return failed + self._fetch(finished)

    def abandon(self) -> None:
        futures = [future for _, future, _ in self.flying.values()]
        self.flying.clear()
        self.books.clear()
        if futures and not self._lost():
            try:
                self.client.cancel(futures, force=True)
            except (OSError, TimeoutError) as error:
                cause = f"blocks could not be cancelled ({error})."
                warnings.warn(NoisewiseWarning(cause, "Dask"), stacklevel=2)

    # Tasks -------------------------------------------------------------------------------------------------------

    def _give(self, number: int, work: Work, deaths: int) -> None:
        content, books = encode("Dask", work)
        try:
            self._send(number, work, deaths, content, books)
        except Exception as error:
            if self._lost():
                raise self._broken() from error
            raise

    def _send(self, number: int, work: Work, deaths: int, content: bytes, books: Books) -> None:
        for key, book in books.items():
            if key not in self.books:
                self.books[key] = self.client.submit(_bound, book, key=f"{BOOK}-{key}{self.edition}", pure=True)
        future = self.client.submit(
            _run,
            content,
            list(books),
            [self.books[key] for key in books],
            self.versions,
            key=f"noisewise-{self.run}-{number}-{next(self.submissions)}",
            pure=False,
        )
        self.flying[number] = work, future, deaths
        future.add_done_callback(lambda ended: self.ended.put((number, ended)))

    def _is_current(self, number: int, future: Any) -> bool:
        return number in self.flying and self.flying[number][1] is future

    def _failure(self, number: int, future: Any) -> Ended | None:
        """The outcome of a task that Dask gave up; None where it has finished, or is given to the cluster again."""
        if future.status in ("finished", "pending"):
            return None
        if self._lost():
            raise self._broken()
        work, _, deaths = self.flying[number]
        error = future.exception(timeout=10) if future.status == "error" else None
        if error is not None and not isinstance(error, self.killed):
            del self.flying[number]
            return number, None, error
        if error is None or str(getattr(error, "task", "")).startswith(BOOK):
            # The model was lost with the workers that held it, not by the block's fault: send it under another name.
            self.books.clear()
            self.edition = f"-{self.run}-{next(self.editions)}"
            self._give(number, work, deaths)
            return None
        if deaths < MOST_DEATHS:
            self._give(number, work, deaths + 1)
            return None
        del self.flying[number]
        cause = f"the same block was lost with its workers {MOST_DEATHS + 1} times ({error})"
        advice = "A simulator may crash, or need more memory than a worker has."
        return number, None, InferenceError(f"{cause}. {advice}", who="Dask")

    def _fetch(self, finished: list[tuple[int, Any]]) -> list[Ended]:
        if not finished:
            return []
        try:
            replies = self.client.gather([future for _, future in finished])
        except Exception as error:
            if self._lost():
                raise self._broken() from error
            raise
        outcomes: list[Ended] = []
        for (number, future), sealed in zip(finished, replies, strict=True):
            kind, value = sealed.reply
            del self.flying[number]
            future.release()
            if kind == "error":
                outcomes.append((number, None, value))
            elif kind == "done":
                outcomes.append((number, value, None))
            else:
                outcomes.append(
                    (number, None, InferenceError(f"a block that was wanted came back '{kind}'.", who="Dask"))
                )
        return outcomes

    # The cluster -------------------------------------------------------------------------------------------------

    def _lost(self) -> bool:
        return bool(self.client.status != "running")

    def _broken(self) -> Broken:
        cause = "the connection to the scheduler was lost; the run ends with what has been accepted."
        warnings.warn(NoisewiseWarning(cause, "Dask"), stacklevel=2)
        return Broken(f"Dask: {cause}")

    def _look(self) -> None:
        """Count the workers' threads, and meet those that are new."""
        try:
            threads = self.client.nthreads()
            self._meet(set(threads) - _met.get(self.client, set()))
            self.threads = sum(threads.values())
        except (OSError, TimeoutError):
            self.threads = 0
        self.counted = time.monotonic()
        self._watch()

    def _meet(self, new: set[str]) -> None:
        """Refuse workers without noisewise: they would break down, one after the other, as soon as they get a block."""
        if not new:
            return
        answers = self.client.run(importlib.resources.files, "noisewise", workers=sorted(new), on_error="return")
        for worker, answer in answers.items():
            if isinstance(answer, ImportError):
                advice = "Install noisewise there, in the same version as here."
                raise InferenceError(f"the worker {worker} cannot import noisewise ({answer}). {advice}", who="Dask")
            if not isinstance(answer, Exception):
                _met.setdefault(self.client, set()).add(worker)

    def _watch(self) -> None:
        """Warn once where the cluster has been without workers for long."""
        now = time.monotonic()
        if self.threads:
            self.deserted = now
        elif now - self.deserted > failures.PATIENCE and not self.warned:
            self.warned = True
            cause = f"the cluster has had no worker for {now - self.deserted:.0f} s; waiting for one."
            warnings.warn(NoisewiseWarning(cause, "Dask"), stacklevel=2)
