"""Blocks as tasks on a Dask cluster."""

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
from noisewise.engine.threads import Threads
from noisewise.engine.transport import Books, Reply, encode, perform, require_cloudpickle, versions
from noisewise.errors import InferenceError, NoisewiseWarning, refusal

MOST_DEATHS = 5
"""Times that a block is given to the cluster again after its workers died, each more than the scheduler allows."""
BOOK = "noisewise-model"
"""How tasks that hold a model or a release are called."""
LOOK = 1.0
"""Seconds between two looks at how many workers there are."""
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


def _run(content: bytes, keys: list[str], books: list[bytes], expected: dict[str, str]) -> Reply:
    found = versions()
    if found != expected:
        differences = [f"{name} {found[name]} there, {expected[name]} here" for name in found]
        told = ", ".join(text for name, text in zip(found, differences, strict=True) if found[name] != expected[name])
        advice = "Give workers and client the same versions: otherwise a seed does not decide the draws."
        return "error", InferenceError(f"Dask: a worker has other versions than the client ({told}). {advice}")
    return perform(content, dict(zip(keys, books, strict=True)), _poll())


def _poll() -> Poll:
    """Whether this very task is still wanted, asked of the worker it runs on at most ten times a second."""
    from distributed.worker import get_worker, thread_state  # type: ignore[attr-defined]

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
        self.editions, self.givings = itertools.count(), itertools.count()
        self.edition = ""
        self.flying: dict[int, tuple[Work, Any, int]] = {}
        """By number: the work, its future, and how often it was given out again."""
        self.ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.seen, self.threads, self.deserted, self.warned = 0.0, 1, time.monotonic(), False
        if self._lost():
            raise self._broken()

    # The loop's side ---------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Two blocks for every thread there is now; workers may come and go."""
        if time.monotonic() - self.seen >= LOOK and not self._lost():
            self._look()
        return self.in_flight or 2 * max(1, self.threads)

    def submit(self, task: Task) -> int:
        number = next(numbers)
        self._give(number, task.work, 0)
        return number

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
        found = [outcome for number, future in current if (outcome := self._failure(number, future)) is not None]
        good = [(number, future) for number, future in current if future.status == "finished"]
        return found + self._fetch(good)

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

    def _give(self, number: int, work: Work, again: int) -> None:
        content, books = encode("Dask", work)
        try:
            self._send(number, work, again, content, books)
        except Exception as error:
            if self._lost():
                raise self._broken() from error
            raise

    def _send(self, number: int, work: Work, again: int, content: bytes, books: Books) -> None:
        for key, book in books.items():
            if key not in self.books:
                self.books[key] = self.client.submit(_bound, book, key=f"{BOOK}-{key}{self.edition}", pure=True)
        future = self.client.submit(
            _run,
            content,
            list(books),
            [self.books[key] for key in books],
            self.versions,
            key=f"noisewise-{self.run}-{number}-{next(self.givings)}",
            pure=False,
        )
        self.flying[number] = work, future, again
        future.add_done_callback(lambda one: self.ended.put((number, one)))

    def _is_current(self, number: int, future: Any) -> bool:
        return number in self.flying and self.flying[number][1] is future

    def _failure(self, number: int, future: Any) -> Ended | None:
        """What is to be told of a task that Dask could not finish; None where it is given out again, or finished."""
        if future.status in ("finished", "pending"):
            return None
        if self._lost():
            raise self._broken()
        work, _, again = self.flying[number]
        error = future.exception(timeout=10) if future.status == "error" else None
        if error is not None and not isinstance(error, self.killed):
            del self.flying[number]
            return number, None, error
        if error is None or str(getattr(error, "task", "")).startswith(BOOK):
            # Its model was lost with the workers that held it: not the block's fault. The next is called otherwise.
            self.books.clear()
            self.edition = f"-{self.run}-{next(self.editions)}"
            self._give(number, work, again)
            return None
        if again < MOST_DEATHS:
            self._give(number, work, again + 1)
            return None
        del self.flying[number]
        told = f"the same block was lost with its workers {MOST_DEATHS + 1} times ({error})"
        advice = "A simulator may crash, or need more memory than a worker has."
        return number, None, InferenceError(f"Dask: {told}. {advice}")

    def _fetch(self, good: list[tuple[int, Any]]) -> list[Ended]:
        if not good:
            return []
        try:
            replies = self.client.gather([future for _, future in good])
        except Exception as error:
            if self._lost():
                raise self._broken() from error
            raise
        found: list[Ended] = []
        for (number, future), (kind, value) in zip(good, replies, strict=True):
            del self.flying[number]
            future.release()
            if kind == "error":
                found.append((number, None, value))
            elif kind == "done":
                found.append((number, value, None))
            else:
                found.append((number, None, InferenceError(f"Dask: a block that was wanted came back '{kind}'.")))
        return found

    # The cluster -------------------------------------------------------------------------------------------------

    def _lost(self) -> bool:
        return bool(self.client.status != "running")

    def _broken(self) -> Broken:
        cause = "the connection to the scheduler was lost; the run ends with what has been accepted."
        warnings.warn(NoisewiseWarning(cause, "Dask"), stacklevel=2)
        return Broken(f"Dask: {cause}")

    def _look(self) -> None:
        """See who is there."""
        try:
            found = self.client.nthreads()
            self._meet(set(found) - _met.get(self.client, set()))
            self.threads = sum(found.values())
        except (OSError, TimeoutError):
            self.threads = 0
        self.seen = time.monotonic()
        self._watch()

    def _meet(self, new: set[str]) -> None:
        """Refuse workers without noisewise: they would break down, one after the other, as soon as they get a block."""
        if not new:
            return
        found = self.client.run(importlib.resources.files, "noisewise", workers=sorted(new), on_error="return")
        for worker, told in found.items():
            if isinstance(told, ImportError):
                advice = "Install noisewise there, in the same version as here."
                raise InferenceError(f"Dask: the worker {worker} cannot import noisewise ({told}). {advice}")
            if not isinstance(told, Exception):
                _met.setdefault(self.client, set()).add(worker)

    def _watch(self) -> None:
        """Say so when there is nobody to do the work."""
        now = time.monotonic()
        if self.threads:
            self.deserted = now
        elif now - self.deserted > failures.PATIENCE and not self.warned:
            self.warned = True
            told = f"the cluster has had no worker for {now - self.deserted:.0f} s; waiting for one."
            warnings.warn(NoisewiseWarning(told, "Dask"), stacklevel=2)
