"""Blocks in processes of this machine: how they are started, given work, stopped, and replaced when they die."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Self

from noisewise import checks
from noisewise.engine.base import Ended, Engine, Mixed, Source, Task, drive, numbers
from noisewise.engine.machine import processors
from noisewise.engine.threads import Threads
from noisewise.engine.transport import Books, encode, require_cloudpickle
from noisewise.engine.worker import receive, send
from noisewise.errors import InferenceError

MOST_DEATHS = 5
"""Workers that may die on one block before the run ends with an error."""
MOST_STILLBORN, MOST_KILLED = 3, 20
"""Workers in a row that may end before they are ready: by themselves, and by a signal from outside."""
GRACE, ANSWER = 3.0, 1.0
"""Seconds that a worker has to notice that its block is no longer wanted, and to say what it is doing."""


@dataclass(frozen=True)
class Processes(Engine):
    """Blocks in worker processes, for simulators written in Python, which hold the interpreter lock.

    `workers` defaults to the processors available; the result does not depend on it. A block that takes longer than
    `timeout` seconds ends the run with an error that names the parameter value it hangs at. Workers are started fresh
    (never forked), stay for the next run with this engine, and end with it, or with `close()`. JAX in them uses the CPU
    unless JAX_PLATFORMS says otherwise. A worker that dies is replaced, and its block run again, to the same result.
    """

    workers: int | None = None
    timeout: float | None = None
    handful = 4
    _crew: "_Crew" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.workers is not None:
            checks.integer("Processes", "workers", self.workers, least=1, advice="Leave it out to use all processors.")
        if self.timeout is not None:
            checks.positive_number("Processes", "timeout", self.timeout, "Seconds for one block, or None for no limit.")
        require_cloudpickle("Processes")
        object.__setattr__(self, "_crew", _Crew(self.workers or processors(), self.timeout))
        weakref.finalize(self, self._crew.close)

    def __reduce__(self) -> Any:
        return Threads, (1,)  # inside a worker there are no further ones

    def execute(self, source: Source) -> None:
        """Keep every worker busy until the source runs dry."""
        with self._crew.lock:  # one run at a time: its workers answer to whoever asks
            drive(source, Mixed(self._crew, Threads(self.workers).crew))

    @property
    def processes(self) -> list[int]:
        """Identifiers of the worker processes now alive."""
        return [worker.process.pid for worker in self._crew.workers]

    def close(self) -> None:
        """End the workers. They are started again when needed."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass
class _Job:
    number: int
    content: bytes
    books: Books
    deaths: int = 0


class _Worker:
    """One process, a thread that reads its messages, and the job that it runs."""

    def __init__(self, heard: "SimpleQueue[Heard]") -> None:
        program = f"import sys; sys.path[:] = {sys.path!r}; from noisewise.engine.worker import main; main()"
        environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.job: _Job | None = None
        self.begun: float | None = None
        self.known: set[str] = set()
        self.ready = False
        self.reader = threading.Thread(target=self._listen, args=(heard,), name="noisewise-reader", daemon=True)
        self.reader.start()

    def _listen(self, heard: "SimpleQueue[Heard]") -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(Exception):  # a worker that cannot be understood is as good as dead
            while (message := receive(self.process.stdout)) is not None:
                heard.put((self, message))
        heard.put((self, None))

    def tell(self, *message: Any) -> None:
        """Send; a worker that has just died is noticed by its reader."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            send(self.process.stdin, message)

    def give(self, job: _Job) -> None:
        """Send it a job, with the books that it has not seen."""
        self.job, self.begun = job, None
        self.tell("run", job.number, job.content, {k: v for k, v in job.books.items() if k not in self.known})
        self.known |= set(job.books)

    def end(self) -> None:
        """Kill and reap it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.reader is not threading.current_thread():
            self.reader.join(1.0)


Heard = tuple[_Worker | None, tuple[Any, ...] | None]
"""A worker and its message: no worker where a wait is to end, no message where the worker has gone."""


class _Crew:
    """The workers of one `Processes`; kept from one run to the next."""

    def __init__(self, size: int, timeout: float | None) -> None:
        self.size, self.timeout, self.lock = size, timeout, threading.RLock()
        self.workers: list[_Worker] = []
        self.heard: SimpleQueue[Heard] = SimpleQueue()
        self.waiting: deque[_Job] = deque()
        self.ended: list[Ended] = []
        self.stillborn = 0

    # The loop's side ---------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        return 2 * self.size

    def submit(self, task: Task) -> int:
        job = _Job(next(numbers), *encode("Processes", task.work))
        self.waiting.append(job)
        self._assign()
        return job.number

    def wake(self) -> None:
        self.heard.put((None, None))

    def collect(self, seconds: float) -> list[Ended]:
        if not self.ended:
            self._hear(seconds)
            self._enforce_limit()
        outcomes, self.ended = self.ended, []
        return outcomes

    def abandon(self) -> None:
        """Ask busy workers to stop; those that do not are replaced when next needed."""
        self.waiting.clear()
        busy = [worker for worker in self.workers if worker.job is not None]
        for worker in busy:
            assert worker.job is not None
            worker.tell("stop", worker.job.number)
        deadline = time.monotonic() + GRACE
        while any(worker.job is not None for worker in self.workers) and time.monotonic() < deadline:
            self._hear(0.05)
        for worker in [worker for worker in self.workers if worker.job is not None]:
            self._dismiss(worker)
        self.ended.clear()

    def close(self) -> None:
        for worker in list(self.workers):
            self._dismiss(worker)

    # Workers -----------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        while self.waiting and len(self.workers) < self.size:
            self.workers.append(_Worker(self.heard))
        for worker in self.workers:
            if self.waiting and worker.job is None:
                worker.give(self.waiting.popleft())

    def _dismiss(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.end()

    def _hear(self, seconds: float) -> None:
        try:
            self._heed(*self.heard.get(timeout=seconds))
            while True:
                self._heed(*self.heard.get_nowait())
        except Empty:
            self._assign()

    def _heed(self, worker: _Worker | None, message: tuple[Any, ...] | None) -> None:
        if worker is None or worker not in self.workers:  # a call to wake up, or from a worker dismissed meanwhile
            return
        if message is None:
            self._mourn(worker)
        elif message[0] == "ready":
            worker.ready, self.stillborn = True, 0
        elif worker.job is None or len(message) < 2 or message[1] != worker.job.number:
            return
        elif message[0] == "begun":
            worker.begun = time.monotonic()
        elif message[0] == "missing":
            worker.known -= set(worker.job.books)
            worker.give(worker.job)
        else:
            job, worker.job = worker.job, None
            kind, _, value = message
            if kind == "done":
                self.ended.append((job.number, value, None))
            elif kind == "error":
                self.ended.append((job.number, None, value))
            self._assign()

    def _mourn(self, worker: _Worker) -> None:
        """Replace a worker that has died. Another runs its block, unless too many have died on it."""
        self._dismiss(worker)
        code, job = worker.process.returncode, worker.job
        if not worker.ready:
            self.stillborn += 1
            if self.stillborn >= (MOST_STILLBORN if code >= 0 else MOST_KILLED):
                raise InferenceError(
                    f"{self.stillborn} workers in a row ended (exit status {code}) before they were ready. "
                    "What they wrote to standard error says why; try nw.Threads().",
                    who="Processes",
                )
        if job is None:
            return
        job.deaths += 1
        if job.deaths < MOST_DEATHS:
            self.waiting.appendleft(job)
        else:
            cause = f"{MOST_DEATHS} workers ended (the last with exit status {code}) while they ran the same block"
            advice = "A simulator may crash, or need more memory than there is."
            self.ended.append((job.number, None, InferenceError(f"{cause}. {advice}", who="Processes")))

    def _enforce_limit(self) -> None:
        now = time.monotonic()
        for worker in list(self.workers):
            if self.timeout is None or worker.job is None or worker.begun is None:
                continue
            if now - worker.begun > self.timeout:
                self._time_out(worker, worker.job)

    def _time_out(self, worker: _Worker, job: _Job) -> None:
        at = self._ask(worker, job.number)
        if worker not in self.workers or worker.job is not job:  # it ended after all
            return
        self._dismiss(worker)
        cause = f"a block did not end within timeout={self.timeout:g} s" + (f"; {at}" if at else "")
        advice = "Make the simulator return for every parameter the prior allows, or raise timeout."
        self.ended.append((job.number, None, InferenceError(f"{cause}. {advice}", who="Processes")))

    def _ask(self, worker: _Worker, number: int) -> str:
        """What a worker is doing, in words; "" where it does not answer, as when it holds the interpreter lock."""
        worker.tell("where", number)
        deadline = time.monotonic() + ANSWER
        while (left := deadline - time.monotonic()) > 0:
            try:
                speaker, message = self.heard.get(timeout=left)
            except Empty:
                break
            if speaker is worker and message is not None and message[0] == "at" and message[1] == number:
                return str(message[2])
            self._heed(speaker, message)
        return ""
