"""The report: one self-contained HTML file of an analysis, to read, print and hand on. docs/report.md.

It needs no network and runs no script; its own security policy forbids both.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise import checks
from noisewise.compare import Comparison
from noisewise.errors import NoisewiseError, refusal
from noisewise.fit import Fit
from noisewise.forecast import Forecast
from noisewise.model import Model
from noisewise.posterior import Posterior
from noisewise.release import Release
from noisewise.report.information import Lost, lost
from noisewise.report.markup import saved
from noisewise.report.verdict import Verdict, answers, judge

if TYPE_CHECKING:
    from noisewise.report.likelihood import FitReport

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
        """Draws of the prior, statistics that are laws included; sums over records, perhaps very many, are not."""
        names: list[str] = []
        for name in self.model.order:
            if self.model.has_density(name) and set(self.model.parents(name)) <= set(names):
                names.append(name)
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
        return saved(self.html(), path, "Report.save")


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` in a folder of results, from the files in it."""
    return report_of(folder).save(Path(folder) / "report.html")


def report_of(folder: str | os.PathLike[str]) -> "Report | FitReport":
    """The report of a results folder: of a posterior, or of a likelihood fit."""
    from noisewise import results_folder
    from noisewise.report.likelihood import FitReport

    place = Path(folder)
    found, run = results_folder.load(place), results_folder.run_record(place)
    analysis = found.analysis
    model, release = analysis.model, analysis.release
    common: dict[str, Any] = {"question": analysis.question, "title": analysis.title, "content": analysis.content}
    common |= {"level": analysis.settings.level, "no_naive": found.no_naive}
    common |= {"inputs": {"analysis.toml": (place / "analysis.toml").read_text(encoding="utf-8")}}
    common |= {"replay": str(run.get("replay") or f"noisewise {found.command} analysis.toml --out replay")}
    common |= {"finished": str(run.get("finished") or "")}
    if found.fit is not None:
        return FitReport(model, release, found.fit, naive=found.naive_fit, **common)
    assert found.posterior is not None
    conflict = _conflict(model, release, analysis.settings.seed)
    return Report(model, release, found.posterior, naive=found.naive, conflict=conflict, **common)


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
