"""A queue of jobs: one worker process, the job it is at, and the jobs that wait for it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
PATIENCE = 3.0
"""Seconds a job gets to stop by itself before its process is ended."""
OVER = ("done", "failed", "cancelled")


class Full(Exception):
    """So many jobs wait already that no more are taken."""


@dataclass(eq=False)
class Job:
    """Something to compute, and how far it is."""

    request: dict[str, Any]
    state: JobState = "waiting"
    stage: str = ""
    done: int = 0
    total: int = 0
    reached: dict[str, int] = field(default_factory=dict, repr=False)
    """How far the job came in each stage: the last `done` of each."""
    message: str = ""
    result: dict[str, Any] | None = None
    seconds: float = 0.0
    stopping: bool = field(default=False, repr=False)
    id: int = field(default_factory=count().__next__, repr=False)

    @property
    def over(self) -> bool:
        """Whether the job has ended: done, failed or cancelled."""
        return self.state in OVER


class JobQueue:
    """Runs jobs one after the other in a process of its own, which is started when first needed.

    `changed` is called, on any thread, whenever a job's state or progress moved.
    """

    def __init__(self, most_waiting: int, changed: Callable[[], None] = lambda: None) -> None:
        self.most_waiting, self.changed = most_waiting, changed
        self.finished: Callable[[Job], None] = lambda job: None
        """Called, on the queue's thread, when a job is over and nothing of it runs any more."""
        self._jobs: deque[Job] = deque()
        self._current: Job | None = None
        self._news = threading.Condition()
        self._closed = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="noisewise page")
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue; `Full` where too many wait."""
        with self._news:
            if len(self._jobs) + (self._current is not None) > self.most_waiting:
                raise Full("Too many runs wait already. Cancel one, or wait for the first to finish.")
            self._jobs.append(job)
            self._news.notify_all()
        self.changed()

    def warm(self) -> None:
        """Start the process, so that the libraries load while the user reads the page."""
        self._ensure()

    def cancel(self, job: Job, *, gently: bool = False) -> None:
        """Take a job out of the queue, or stop it; its process is ended if it does not stop by itself.

        `gently` leaves the process alone, so that what it has compiled serves the next job.
        """
        with self._news:
            if job in self._jobs:
                self._jobs.remove(job)
                job.state = "cancelled"
            elif job is self._current:
                if not job.stopping:
                    job.stopping = True
                    self._send({"stop": job.id})
                if not gently:
                    threading.Thread(target=self._end_if_stuck, args=(job,), daemon=True).start()
        self.changed()

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        with self._news:
            return self._current is None and not self._jobs

    def close(self) -> None:
        """End the process and the thread; what runs is lost."""
        with self._news:
            self._closed = True
            process = self._process
            self._news.notify_all()
        if process is not None:
            process.kill()
            process.wait()
        self._thread.join(timeout=10)
        _hang_up(process)

    # The queue's own thread --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._jobs or self._closed)
                if self._closed:
                    return
                job = self._current = self._jobs.popleft()
                job.state = "running"
            self.changed()
            start = time.monotonic()
            self._run(job)
            job.seconds = time.monotonic() - start
            with self._news:
                self._current = None
            self.changed()
            self.finished(job)

    def _run(self, job: Job) -> None:
        process = self._ensure()
        if process is None or not self._send(job.request | {"id": job.id}):
            job.state, job.message = "failed", "The process that computes could not be started."
            return
        if job.stopping:  # cancelled before the process had started
            self._send({"stop": job.id})
        assert process.stdout is not None
        for line in process.stdout:
            if self._take(job, json.loads(line)):
                return
        process.wait()
        _hang_up(process)
        if job.stopping or self._closed:
            job.state = "cancelled"
        else:
            advice = "Perhaps memory ran out: ask for fewer draws."
            job.state, job.message = "failed", f"The computation ended unexpectedly ({process.returncode}). {advice}"

    def _take(self, job: Job, message: dict[str, Any]) -> bool:
        """Note what the worker says; True when the job is over."""
        kind = message["kind"]
        if kind == "progress":
            job.stage, job.done, job.total = message["stage"], message["done"], message["total"]
            job.reached[job.stage] = job.done
            self.changed()
            return False
        job.result, job.message = message.get("result"), message.get("message", "")
        job.state = kind
        return True

    def _ensure(self) -> subprocess.Popen[str] | None:
        """The process, started if there is none."""
        with self._news:
            if self._closed:
                return None
            if self._process is None or self._process.poll() is not None:
                _hang_up(self._process)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "noisewise.page.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    encoding="utf-8",
                    env=os.environ | {"MPLBACKEND": "agg"},
                )
            return self._process

    def _send(self, message: dict[str, Any]) -> bool:
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except (OSError, ValueError):  # the process has just ended: `_run`, which reads from it, notices
            return False
        return True

    def _end_if_stuck(self, job: Job) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if job.over:
                return
            time.sleep(0.05)
        with self._news:
            if job is self._current and not job.over and self._process is not None:
                self._process.kill()


def _hang_up(process: "subprocess.Popen[str] | None") -> None:
    """Close the pipes to a process that has ended."""
    for end in () if process is None else (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            if end is not None:
                end.close()
