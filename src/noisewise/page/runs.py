"""The runs of a page: a folder each, a queue, a history; and what was explored of each."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisewise.errors import refusal
from noisewise.page.lane import Full, Job, Lane

FILES = {
    "analysis.toml": ("analysis file", "analysis.toml"),
    "release.json": ("release", "results/release.json"),
    "report.html": ("report", "results/report.html"),
    "draws.csv": ("draws (CSV)", "results/draws.csv"),
    "posterior.nc": ("draws (NetCDF)", "results/posterior.nc"),
    "summary.csv": ("summary", "results/summary.csv"),
    "figure.svg": ("picture", "results/figures/posterior.svg"),
}
"""What can be downloaded of a run, by the only names there are: what it is, and where it lies."""
MOST_WAITING = 5
REPLICATES = 8
"""Simulated releases behind an expected width."""
SIMULATING = "simulated releases"
"""The stage of an exploration that counts them."""
VERSION = 1
"""Of what a run leaves for the page to show again."""
_FOLDER = re.compile(r"run-(\d{4,6})")


@dataclass(eq=False)
class Run(Job):
    """One analysis that was asked for."""

    number: int = 0
    folder: Path = field(default_factory=Path)
    title: str = ""
    when: str = ""

    def file(self, name: str) -> Path | None:
        """A file of this run that may be downloaded, if it is there."""
        if name not in FILES:
            return None
        path = self.folder / FILES[name][1]
        inside = path.resolve().is_relative_to(self.folder.resolve())  # no link leads out
        return path if inside and path.is_file() else None


class Runs:
    """All runs below one folder, run one at a time; and explorations of finished runs in a process beside."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refusal("serve", "folder", f"must be writable ({error})", str(folder), "Choose another.") from None
        self.folder = folder.resolve()
        self.version = 0
        """Grows whenever there is something new to show."""
        self._runs: dict[int, Run] = {run.number: run for run in _earlier(self.folder)}
        self._explored: dict[tuple[int, float], Job] = {}
        self._lane, self._beside = Lane(MOST_WAITING, self._changed), Lane(1, self._changed)

    def _changed(self) -> None:
        self.version += 1

    def __iter__(self) -> Iterator[Run]:
        """Newest first."""
        return iter(sorted(self._runs.values(), key=lambda run: -run.number))

    def get(self, number: Any) -> Run | None:
        """The run of that number, if there is one."""
        return self._runs.get(number)

    def start(self, text: str, title: str) -> Run:
        """Give a run its folder, write the analysis file there and queue it; `Full` where too many wait."""
        number, folder = self._new_folder()
        run = Run({"task": "run", "folder": str(folder)}, number=number, folder=folder, title=title)
        run.when = time.strftime("%Y-%m-%d %H:%M")
        written = folder / "analysis.toml"
        written.write_text(text, encoding="utf-8")
        try:
            self._lane.submit(run)
        except Full:
            written.unlink()
            folder.rmdir()
            raise
        self._runs[number] = run
        self._changed()
        return run

    def _new_folder(self) -> tuple[int, Path]:
        named = (_FOLDER.fullmatch(path.name) for path in self.folder.iterdir())
        number = max((int(found[1]) for found in named if found), default=0)
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
            self._lane.cancel(run)

    def explore(self, run: Run, factor: float) -> Job:
        """What could be learnt from a finished run at another budget; asked for once, the latest question first."""
        known = self._explored.get((run.number, factor))
        if known is not None and known.state in ("waiting", "running", "done"):
            return known
        for key, job in list(self._explored.items()):
            if not job.over:
                self._beside.cancel(job)
                del self._explored[key]
        job = Job({"task": "explore", "folder": str(run.folder), "factor": factor})
        self._explored[run.number, factor] = job
        self._beside.submit(job)
        return job

    def explored(self, run: Run) -> list[dict[str, Any]]:
        """All finished explorations of a run, smallest budget first."""
        found = [job.result for (number, _), job in list(self._explored.items()) if number == run.number]
        return sorted((each for each in found if each is not None), key=lambda each: each["factor"])

    @property
    def explorations(self) -> list[Job]:
        """All that was asked for, in order."""
        return list(self._explored.values())

    def stop(self, job: Job) -> None:
        """Stop an exploration."""
        self._beside.cancel(job)

    def warm(self) -> None:
        """Start both processes before they are needed."""
        self._lane.warm()
        self._beside.warm()

    def close(self) -> None:
        """End both processes."""
        self._lane.close()
        self._beside.close()


def _earlier(folder: Path) -> Iterator[Run]:
    """Runs of earlier sessions, where they finished."""
    for path in sorted(folder.glob("run-*")):
        named = _FOLDER.fullmatch(path.name)
        if named is None or not path.is_dir() or path.is_symlink():
            continue
        run = Run({}, number=int(named[1]), folder=path, title="earlier run")
        run.state, run.message = "cancelled", "Of an earlier session; it did not finish, or not with this version."
        with contextlib.suppress(OSError, ValueError):
            shown = json.loads((path / "page.json").read_text(encoding="utf-8"))
            if isinstance(shown, dict) and shown.get("page") == VERSION:
                run.result, run.title = shown, str(shown["title"])
                run.state, run.message = "done", ""
        run.when = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
        yield run
