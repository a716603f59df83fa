"""A process of its own that computes for the page: `python -m noisewise.page.worker`.

Jobs come, and answers go, as lines of JSON. The page starts it, and stops it by closing its input or by ending it.
Nothing it is sent is ever run as code: a job names a run's folder, and the analysis file in it is read by the same code
as on the command line.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from noisewise.analysis.mistakes import mistake_in_words
from noisewise.errors import NoisewiseError
from noisewise.inference.progress import listen
from noisewise.page import compute

EVERY = 0.2
"""Seconds between two messages on progress."""


class Cancelled(Exception):
    """The page no longer wants this job."""


class Link:
    """The worker's side of the pipes: a thread reads, so that a request to stop is seen in the middle of a job."""

    def __init__(self, jobs: TextIO, answers: TextIO) -> None:
        self.jobs, self.answers = jobs, answers
        self.stopped: set[int] = set()
        self.current = -1
        self.waiting: list[dict[str, Any]] = []
        self.ready = threading.Condition()
        self.next, self.stage = 0.0, ""

    def read(self) -> None:
        """Take jobs until the page is gone; then end at once, whatever is being computed."""
        for line in self.jobs:
            message = json.loads(line)
            if "stop" in message:
                self.stopped.add(message["stop"])
                continue
            with self.ready:
                self.waiting.append(message)
                self.ready.notify()
        os._exit(0)

    def job(self) -> dict[str, Any]:
        """The next job, when there is one."""
        with self.ready:
            self.ready.wait_for(lambda: self.waiting)
            job = self.waiting.pop(0)
            self.current, self.next = job["id"], 0.0
            return job

    def say(self, **message: Any) -> None:
        """Send one message to the page."""
        self.answers.write(json.dumps(message) + "\n")
        self.answers.flush()

    def progress(self, stage: str, done: int, total: int) -> None:
        """How far a job is; raises `Cancelled` when the page asked to stop."""
        if self.current in self.stopped:
            raise Cancelled
        now = time.monotonic()
        if now >= self.next or stage != self.stage:
            self.next, self.stage = now + EVERY, stage
            self.say(kind="progress", stage=stage, done=int(done), total=int(total))


def answer(job: dict[str, Any], progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Do one job, and return its result."""
    if job["task"] == "run":
        return compute.answer_fits(Path(job["folder"]), progress)
    if job["task"] == "design":
        return compute.answer_design(Path(job["folder"]), Path(job["checkpoint"]), progress)
    if job["task"] == "explore":
        return compute.explore(Path(job["folder"]), float(job["factor"]), progress)
    return {}


def main() -> None:
    """Answer jobs until the page closes the input."""
    # Whatever a library prints must not get between the lines of JSON.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    link = Link(sys.stdin, answers)
    threading.Thread(target=link.read, daemon=True).start()
    listen(link.progress)
    while True:
        job = link.job()
        try:
            link.say(kind="done", result=answer(job, link.progress))
        except Cancelled:
            link.say(kind="cancelled")
        except NoisewiseError as error:
            link.say(kind="failed", message=mistake_in_words(error))
        except MemoryError:
            link.say(kind="failed", message="The computer's memory did not suffice. Ask for fewer draws.")
        except Exception as error:  # a bug: say so on the page, and keep serving
            link.say(kind="failed", message=f"This should not happen ({type(error).__name__}: {error}). Please report.")


if __name__ == "__main__":
    main()
