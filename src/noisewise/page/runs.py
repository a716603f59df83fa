"""The runs of a page: each has a folder, a place in the queue and the history, and explorations of other budgets."""

import contextlib
import hashlib
import json
import re
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from noisewise.errors import writable
from noisewise.page.job_queue import Full, Job, JobQueue

FILES = {
    "analysis.toml": ("analysis file", "analysis.toml"),
    "release.json": ("release", "results/release.json"),
    "report.html": ("report", "results/report.html"),
    "draws.csv": ("draws (CSV)", "results/draws.csv"),
    "posterior.nc": ("draws (NetCDF)", "results/posterior.nc"),
    "summary.csv": ("summary", "results/summary.csv"),
    "figure.svg": ("picture", "results/figures/posterior.svg"),
    "design.json": ("design (JSON)", "results/design.json"),
    "curve.csv": ("curve (CSV)", "results/curve.csv"),
    "curve.svg": ("picture of the curve", "results/curve.svg"),
    "split.csv": ("split (CSV)", "results/split.csv"),
    "candidates.csv": ("what was compared (CSV)", "results/candidates.csv"),
}
"""The files of a run that can be downloaded, by name: what a file is, and its path in the run's folder."""
MOST_WAITING = 5
REPLICATES = 8
"""Simulated releases behind an expected width."""
AHEAD = (1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0)
"""Budgets, in doublings, that are explored before anybody asks, while nothing else is computed."""
SIMULATING = "simulated releases"
"""The stage of an exploration whose progress counts simulated releases."""
VERSION = 2
"""Version of `page.json`, which a run leaves for later sessions to show."""
_FOLDER = re.compile(r"run-(\d{4,6})")


@dataclass(eq=False)
class Run(Job):
    """One analysis that was asked for."""

    number: int = 0
    folder: Path = field(default_factory=Path)
    title: str = ""
    when: str = ""
    is_design: bool = False
    """Whether it looks for a budget, or for a number of people; else it fits."""

    @property
    def has_answer(self) -> bool:
        """Whether it is a finished fit with numbers to show."""
        return self.result is not None and not self.is_design and bool(self.result["rows"])

    @property
    def explorable(self) -> bool:
        """Whether it has an answer that releases can be simulated from."""
        return self.has_answer and self.result is not None and self.result["verdict"]["state"] != "bad"

    def file(self, name: str) -> Path | None:
        """A file of this run that may be downloaded, if it is there."""
        if name not in FILES:
            return None
        path = self.folder / FILES[name][1]
        inside = path.resolve().is_relative_to(self.folder.resolve())  # no link leads out
        return path if inside and path.is_file() else None


class Runs:
    """All runs below one folder, run one at a time; and explorations of finished runs, in a second process."""

    def __init__(self, folder: Path) -> None:
        with writable("serve", folder, "folder", "Choose another."):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.version = 0
        """Grows whenever there is something new to show."""
        self._runs: dict[int, Run] = {run.number: run for run in _earlier(self.folder)}
        self._explored: dict[tuple[int, float], Job] = {}
        self._asked: set[tuple[int, float]] = set()
        self._ahead: list[tuple[Run, float]] = []
        """Runs, and factors of their budgets, that are to be explored unasked, in this order."""
        self._lock = threading.RLock()
        self._queue, self._beside = JobQueue(MOST_WAITING, self._changed), JobQueue(1, self._changed)
        self._queue.finished = self._look_ahead
        self._beside.finished = self._go_on

    def _changed(self) -> None:
        self.version += 1

    def _look_ahead(self, run: Job) -> None:
        """A run has finished: explore it before anybody asks, in place of what is still to explore of others."""
        assert isinstance(run, Run)
        if run.explorable:
            with self._lock:
                self._ahead = [(run, 2.0**step) for step in AHEAD]
        self._go_on()

    def _go_on(self, job: Job | None = None) -> None:
        """Start the next exploration that nobody has asked for, if nothing else is computed; none after a failure."""
        with self._lock:
            if job is not None and job.state == "failed":
                self._ahead.clear()
            while self._ahead and self._beside.idle and self._queue.idle:
                run, factor = self._ahead.pop(0)
                if (run.number, factor) not in self._explored:
                    self._submit(run, factor)
                    return

    def _submit(self, run: Run, factor: float) -> Job:
        job = Job({"task": "explore", "folder": str(run.folder), "factor": factor})
        self._explored[run.number, factor] = job
        self._beside.submit(job)
        return job

    def __iter__(self) -> Iterator[Run]:
        """Newest first."""
        return iter(sorted(self._runs.values(), key=lambda run: -run.number))

    def get(self, number: Any) -> Run | None:
        """The run of that number, if there is one."""
        return self._runs.get(number)

    def start(self, text: str, title: str, is_design: bool = False) -> Run:
        """Give a run its folder, write the analysis file there and queue it; `Full` where too many wait.

        A design has a checkpoint named by a hash of its text: stopped and started again, it goes on from there.
        """
        number, folder = self._new_folder()
        request = {"task": "run", "folder": str(folder)}
        if is_design:
            checkpoint = self.folder / "checkpoints" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.nwc"
            request |= {"task": "design", "checkpoint": str(checkpoint)}
        run = Run(request, number=number, folder=folder, title=title, is_design=is_design)
        run.when = time.strftime("%Y-%m-%d %H:%M")
        path = folder / "analysis.toml"
        path.write_text(text, encoding="utf-8")
        try:
            self._queue.submit(run)
        except Full:
            path.unlink()
            folder.rmdir()
            raise
        self._runs[number] = run
        self._changed()
        return run

    def _new_folder(self) -> tuple[int, Path]:
        matches = (_FOLDER.fullmatch(path.name) for path in self.folder.iterdir())
        number = max((int(match[1]) for match in matches if match), default=0)
        while True:  # another page may use the same folder
            number += 1
            folder = self.folder / f"run-{number:04d}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return number, folder

    def cancel(self, number: int) -> None:
        """Stop a run, or take it out of the queue."""
        run = self.get(number)
        if run is not None:
            self._queue.cancel(run)

    def explore(self, run: Run, factor: float) -> Job:
        """The job that explores another budget of a finished run; the earlier job, if the same was explored before.

        Explorations under way are cancelled in its favour; those that nobody asked for are taken up again later.
        """
        key = run.number, factor
        with self._lock:
            self._asked.add(key)
            earlier = self._explored.get(key)
            if earlier is not None and earlier.state in ("waiting", "running", "done") and not earlier.stopping:
                return earlier
            for put_off, job in list(self._explored.items()):
                if not job.over:
                    self._beside.cancel(job, gently=True)
                    del self._explored[put_off]
                    if put_off not in self._asked and (run_of_it := self.get(put_off[0])) is not None:
                        self._ahead.insert(0, (run_of_it, put_off[1]))
            return self._submit(run, factor)

    def explored(self, run: Run) -> list[dict[str, Any]]:
        """All finished explorations of a run that were asked for, smallest budget first."""
        jobs = [job for key, job in list(self._explored.items()) if key[0] == run.number and key in self._asked]
        return sorted((job.result for job in jobs if job.result is not None), key=itemgetter("factor"))

    @property
    def explorations(self) -> list[Job]:
        """All explorations that were asked for, in the order in which they were started."""
        return [job for key, job in list(self._explored.items()) if key in self._asked]

    def stop(self, job: Job) -> None:
        """Stop an exploration, and drop those that were to come unasked."""
        with self._lock:
            self._ahead.clear()
        self._beside.cancel(job)

    def warm(self) -> None:
        """Start both processes before they are needed."""
        self._queue.warm()
        self._beside.warm()

    def close(self) -> None:
        """End both processes."""
        self._queue.close()
        self._beside.close()


def _earlier(folder: Path) -> Iterator[Run]:
    """Runs of earlier sessions; those that did not finish, or that another version wrote, count as cancelled."""
    for path in sorted(folder.glob("run-*")):
        match = _FOLDER.fullmatch(path.name)
        if match is None or not path.is_dir() or path.is_symlink():
            continue
        run = Run({}, number=int(match[1]), folder=path, title=_title(path))
        run.state, run.message = "cancelled", "Of an earlier session; it did not finish, or not with this version."
        with contextlib.suppress(OSError, ValueError):
            shown = json.loads((path / "page.json").read_text(encoding="utf-8"))
            if isinstance(shown, dict) and shown.get("page") == VERSION:
                run.result, run.title = shown, str(shown["title"])
                run.is_design = shown.get("kind") == "design"
                run.state, run.message = "done", ""
        run.when = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
        yield run


def _title(folder: Path) -> str:
    """The title of the analysis file in a run's folder; "earlier run" where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(tomllib.loads((folder / "analysis.toml").read_text(encoding="utf-8"))["question"]["title"])
    return "earlier run"
