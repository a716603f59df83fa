"""The effort behind a design: how many releases are simulated, with what seed, engine, checkpoint and progress bar."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.checkpoint.opening import opened
from noisewise.engine import Engine, Threads
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress, Releases

PER_BATCH = 4
"""Simulated releases in a batch."""


@dataclass
class StudyRun:
    """A study under way: its checkpoint and its bar. The default keeps and shows nothing."""

    log: Log = NOTHING
    bar: Progress = field(default_factory=lambda: Releases(False, ""))
    total: int = 0
    """Releases that are expected to be simulated."""
    done: int = 0

    def tell(self, releases: int) -> None:
        """Count `releases` more as measured, on the bar and in the checkpoint."""
        self.done += releases
        total = max(self.total, self.done)
        self.bar.update(self.done, total, lambda: 0)
        self.log.put({"done": self.done, "total": total}, "simulated", "all", 0)


@dataclass(frozen=True)
class Effort:
    """The arguments that `design`, `allocate` and `sample_size` have in common with each other and with `sample`."""

    who: str
    replicates: int
    seed: int
    engine: Engine | None
    checkpoint: str | os.PathLike[str] | None
    progress: bool | None

    @classmethod
    def read(cls, who: str, replicates: Any, seed: Any, engine: Any, checkpoint: Any, progress: Any) -> Self:
        """The arguments, checked."""
        replicates = checks.integer(who, "replicates", replicates, least=4 * PER_BATCH, advice="Ask for 128, say.")
        seed = checks.integer(who, "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
        if engine is not None and not isinstance(engine, Engine):
            raise refusal(who, "engine", "must be an engine", engine, "For example nw.Threads(2).")
        if progress is not None and not isinstance(progress, bool):
            raise refusal(who, "progress", "must be True, False or None", progress, "Leave it out if unsure.")
        return cls(who, replicates, seed, engine, checkpoint, progress)

    @property
    def batches(self) -> int:
        """Batches that hold the replicates."""
        return -(-self.replicates // PER_BATCH)

    @contextmanager
    def running(self, problem: Problem, target: Any, total: int) -> Iterator[StudyRun]:
        """The run, begun anew or continued from its checkpoint.

        `problem` is one that a release of the first plan poses. Problem, seed and target identify the checkpoint.
        Budgets and replicates may differ from those that it was begun with: kept values are found by plan and batch.
        """
        engine = self.engine or Threads()
        with (
            opened(self.who, self.checkpoint, problem, None, self.seed, engine, target=repr(target)) as log,
            Releases(self.progress, self.who) as bar,
        ):
            log.put(None, "begin")
            log.put({"name": "releases"}, 0, "run")
            yield StudyRun(log.within(0), bar, total)
            log.put({"status": "complete"}, "end")
