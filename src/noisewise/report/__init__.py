"""The report: one self-contained HTML file of an analysis, to read, print and hand on. docs/report.md.

It needs no network and runs no script; its own security policy forbids both.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.compare import Comparison
from noisewise.errors import InputError, NoisewiseError, refusal
from noisewise.fit import Fit
from noisewise.forecast import Forecast
from noisewise.model import Model
from noisewise.posterior import Posterior
from noisewise.release import Release
from noisewise.report.information import Lost, lost
from noisewise.report.verdict import Verdict, answers, judge

Array = np.ndarray[Any, Any]

PRIOR_BLOCKS, PRIOR_ROWS = 3, 4096
"""Draws of the prior, by blocks of the size that `Model.simulate` compiles for."""


@dataclass(frozen=True, eq=False)
class Report:
    """What a report shows: `Report(model, release, posterior).save("report.html")`.

    `naive` adds the analysis that ignored the noise (`no_naive` says why there is none), `forecast` the check of
    prior against release, `fit` maximum likelihood estimates.
    """

    model: Model
    release: Release
    posterior: Posterior
    question: str = ""
    title: str = ""
    naive: Posterior | None = None
    no_naive: str = ""
    forecast: Forecast | None = None
    fit: Fit | None = None
    level: float = 0.95
    conflict: Mapping[str, float] | None = None
    """Tail probabilities of the release under the prior; the forecast's, where there is one."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Tables of the analysis file, for the laws as they were written."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Files to replay from, by name, shown in full."""
    replay: str = ""
    """The command that gives the same numbers again."""
    finished: str = ""

    def __post_init__(self) -> None:
        for name, kind in (("model", Model), ("release", Release), ("posterior", Posterior)):
            if not isinstance(getattr(self, name), kind):
                advice = "Give the model, the release and what nw.sample returned."
                raise refusal("Report", name, f"must be a {kind.__name__}", getattr(self, name), advice)
        if self.posterior.release_hash != self.release.hash:
            rule = "must be of this release"
            raise refusal(
                "Report", "posterior", rule, self.posterior.release_hash, "Give the release it was made from."
            )
        checks.positive_number("Report", "level", self.level, "Give 0.95 for 95% intervals.")
        if self.level >= 1:
            raise refusal("Report", "level", "must lie below 1", self.level, "Give 0.95 for 95% intervals.")
        if self.conflict is None and self.forecast is not None:
            object.__setattr__(self, "conflict", self.forecast.conflict)

    @classmethod
    def of(cls, comparison: Comparison, **others: Any) -> "Report":
        """The report of what `nw.compare` returned."""
        given = {"naive": comparison.naive, "no_naive": comparison.reason}
        return cls(comparison.model, comparison.release, comparison.exact, **(given | others))

    @cached_property
    def has_answer(self) -> bool:
        """Whether there are draws, with weights that can be used."""
        return answers(self.posterior)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the numbers may be used, and why."""
        with np.errstate(all="ignore"):  # draws beyond the range of numbers are shown as such
            return judge(self.posterior, self.conflict)

    @cached_property
    def summary(self) -> Any:
        """The posterior's table."""
        return self.posterior.summary(self.level)

    @cached_property
    def before(self) -> dict[str, Array]:
        """Draws of the prior. The statistics, which may be sums over very many records, are not simulated."""
        names = [name for name in self.model.order if name in self.model.parameters]
        rngs = [np.random.default_rng([self.posterior.seed, block]) for block in range(PRIOR_BLOCKS)]
        blocks = [self.model.draw(rng, names, PRIOR_ROWS) for rng in rngs]
        return {name: np.concatenate([block[name] for block in blocks]) for name in names}

    @cached_property
    def lost(self) -> list[Lost]:
        """What privacy cost, for every scalar parameter."""
        return lost(self.posterior, self.release, self.before, self.level) if self.has_answer else []

    @cached_property
    def comparison(self) -> Comparison | None:
        """Naive beside exact, where both have draws."""
        if self.naive is None or not answers(self.naive) or not self.has_answer:
            return None
        return Comparison(self.model, self.release, self.posterior, self.naive)

    def html(self) -> str:
        """The whole file."""
        from noisewise.report.page import page

        with np.errstate(all="ignore"):
            return page(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file."""
        try:
            Path(path).write_text(self.html(), encoding="utf-8")
        except OSError as error:
            advice = "Check that the folder exists and can be written to."
            raise refusal("Report.save", "path", f"must be writable ({error})", str(path), advice) from None
        return Path(path)


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` in a folder that `noisewise fit` wrote, from the files in it."""
    return report_of(folder).save(Path(folder) / "report.html")


def report_of(folder: str | os.PathLike[str]) -> Report:
    """The report of a results folder."""
    from noisewise.analysis import Analysis
    from noisewise.results_folder import load_posterior

    place = Path(folder)
    posterior = load_posterior(place)
    analysis = Analysis.load(place / "analysis.toml", confined=True)
    run = _run(place / "run.json")
    naive = place / "naive.nc"
    return Report(
        analysis.model,
        analysis.release,
        posterior,
        question=analysis.question,
        title=analysis.title,
        naive=Posterior.load(naive) if naive.is_file() else None,
        no_naive=str(run.get("no_naive") or ""),
        level=analysis.settings.level,
        conflict=_conflict(analysis.model, analysis.release, analysis.settings.seed),
        content=analysis.content,
        inputs={"analysis.toml": (place / "analysis.toml").read_text(encoding="utf-8")},
        replay=str(run.get("replay") or "noisewise fit analysis.toml --out replay"),
        finished=str(run.get("finished") or ""),
    )


def _run(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a record of a run ({error}). Run 'noisewise fit' again.") from None
    return found if isinstance(found, dict) else {}


def _conflict(model: Model, release: Release, seed: int) -> dict[str, float] | None:
    """What `nw.forecast` finds of prior against release, with the same seed; None where there is no such check."""
    from noisewise.engine import Threads
    from noisewise.forecast import conflict
    from noisewise.samplers import choice
    from noisewise.samplers.problem import Problem

    try:
        return conflict(choice.pilot(Problem(model, release), seed, Threads(), index=2), seed)
    except NoisewiseError:  # the report is no place to fail in: it says that this was not checked
        return None


__all__ = ["Report", "report_of", "write_report"]
