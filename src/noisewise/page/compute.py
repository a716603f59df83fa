"""What the page computes, in its worker: runs (prior, naive and exact side by side), designs, and other budgets."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.analysis import Analysis, DesignFile
from noisewise.diagnostics.tails import heavy_tails
from noisewise.errors import InputError
from noisewise.inference.progress import listen
from noisewise.page import budget
from noisewise.page import explore as other_budgets
from noisewise.page.runs import VERSION
from noisewise.report import Report, figures, words
from noisewise.report.page import why_not
from noisewise.report.short_answer import in_order
from noisewise.results.labels import label_of, owner_of
from noisewise.results.posterior import Posterior
from noisewise.workflow import designing
from noisewise.workflow import folder as results_folder
from noisewise.workflow.reporting import report_on
from noisewise.workflow.results import plain
from noisewise.workflow.run import run_posterior

Progress = Callable[[str, int, int], None]

RESULTS = "results"
"""The folder inside a run's folder that holds the files which the command line would have written."""
MOST_COMPARED = 4
"""Parameters compared in words."""
CONSTANT = 1e-12
"""Standard deviations of up to this share of the mean are rounding errors, and are shown as zero."""
MOST_CARDS = 4
"""Pictures on the page; the report has more."""
MOST_SHOWN = 12
"""Scalars in the page's table; files hold all."""


@lru_cache(maxsize=4)
def analysis_of(text: str) -> Analysis:
    """The analysis in a file's text; cached, so that programs compiled for its model are used again."""
    return Analysis.from_text(text, "analysis file")


def _read(folder: Path) -> Analysis:
    return analysis_of((folder / "analysis.toml").read_text(encoding="utf-8"))


def answer_fits(folder: Path, progress: Progress) -> dict[str, Any]:
    """Fit exactly and naively, write the files of the run into its folder, and return what the page shows.

    A run that fell short is shown with what it has, and its verdict says so.
    """
    analysis = _read(folder)
    progress("starting", 0, 0)
    results = run_posterior(analysis, "compare", progress=False)
    if results.ended:  # this process was asked to end
        raise SystemExit(results.ended)
    progress("writing files", 0, 0)
    record = results_folder.write(results, folder / RESULTS)
    report = report_on(results, analysis.to_text(), record)
    assert isinstance(report, Report)
    report.save(folder / RESULTS / "report.html")
    with np.errstate(all="ignore"):
        shown: dict[str, Any] = plain(summary(report) | {"verdict": verdict_in_words(report), "cards": cards(report)})
    shown["title"] = analysis.title or "untitled"
    (folder / "page.json").write_text(json.dumps(shown), encoding="utf-8")
    return shown


# What the page shows ------------------------------------------------------------------------------------------


def summary(report: Report) -> dict[str, Any]:
    """Rows of the table and how they were made, as plain data; no rows where there is no answer."""
    posterior, level = report.posterior, report.level
    prior = _prior(report)
    naive = _rows(report.naive.summary(level)) if report.comparison is not None and report.naive is not None else {}
    exact = _rows(in_order(posterior, report.summary)) if report.has_answer else {}
    rows = [
        {
            "name": name,
            "label": report.naming.listed(name),
            "parameter": owner_of(name) in posterior.parameters,
            "confidential": owner_of(name) in posterior.statistics,
            "chance": posterior[owner_of(name)].dtype.kind == "b",
            "prior": prior.get(name),
            "naive": naive.get(name) if owner_of(name) not in posterior.statistics else None,
            "exact": row,
        }
        for name, row in exact.items()
    ]
    epsilon = budget.stated_epsilon(report.release)
    shown = {"rows": rows[:MOST_SHOWN], "scalars": len(rows), "level": level, "epsilon": epsilon}
    shown |= {"page": VERSION, "reason": posterior.reason, "status": posterior.status}
    return shown | {"draws": len(posterior), "sampler": type(posterior.sampler).__name__}


def _rows(table: Any) -> dict[str, list[float]]:
    """Mean, sd and interval of each scalar."""
    return {
        str(name): [float(row[0]), float(row[1]) if row[1] > CONSTANT * abs(row[0]) else 0.0, *map(float, row[2:])]
        for name, row in zip(table.index, table.iloc[:, :4].values, strict=True)
    }


def _prior(report: Report) -> dict[str, list[float]]:
    tails = [(1 - report.level) / 2, (1 + report.level) / 2]
    rows = {}
    for name, values in report.before.items():
        heavy = heavy_tails(values.astype(float))
        for index in np.ndindex(values.shape[1:]):
            column = values[(slice(None), *index)].astype(float)
            moments = [float(column.mean()), float(column.std())] if np.isnan(heavy[index]) else [np.nan, np.nan]
            spread = [*moments, *map(float, np.quantile(column, tails))]
            rows[label_of(name, index, report.posterior.axes)] = spread
    return rows


def cards(report: Report) -> list[dict[str, str]]:
    """Pictures as the report draws them; the quantities asked for come first."""
    if not report.has_answer:
        return []
    drawn = figures.panels(report.posterior, report.naive, report.before, report.level, report.naming, MOST_CARDS)
    return [{"label": report.naming.listed(label), "svg": str(svg)} for label, svg, _ in drawn]


def verdict_in_words(report: Report) -> dict[str, Any]:
    """The report's verdict, what was not good about the run, and what ignoring the noise would have claimed."""
    verdict, compared = report.verdict, report.comparison
    lines = [verdict.explanation, *(check.explanation for check in verdict.checks if check.state in ("look", "bad"))]
    lines += report.short
    if not report.has_answer:
        pass
    elif compared is None:
        lines.append(f"There is no naive analysis to set beside the exact one: {why_not(report)}.")
    elif not report.posterior.derived:  # for quantities asked for, the short answer says it
        rows = list(in_order(report.posterior, compared.table(report.level)).iterrows())[:MOST_COMPARED]
        lines += [words.beside(report.naming.called(str(name)), row, report.level) for name, row in rows]
    return {"state": verdict.state, "title": verdict.title, "lines": lines}


# Designs ------------------------------------------------------------------------------------------------------

STAGES = {
    "allocate": "splitting the budget",
    "design": "looking for the budget",
    "sample_size": "looking for the number of people",
}
"""Stages whose progress counts simulated releases, and what the page calls them."""


def answer_design(folder: Path, checkpoint: Path, progress: Progress) -> dict[str, Any]:
    """Find what the file's [design] asks for, as `noisewise design` does; write its files, return what is shown."""
    file = DesignFile.from_text((folder / "analysis.toml").read_text(encoding="utf-8"), "analysis file")
    progress("starting", 0, 0)
    with _releases_counted(progress):
        designed = _designed(file, checkpoint)
    progress("writing files", 0, 0)
    report = designing.write(designed, folder / RESULTS)
    _forget(checkpoint)
    shown = {
        "page": VERSION,
        "kind": "design",
        "title": file.title or "untitled",
        "is_met": designed.is_met,
        "short": designed.in_short,
        "sentences": designed.sentences,
        "picture": str(report.picture),
        "tables": [asdict(table) for table in report.tables],
    }
    (folder / "page.json").write_text(json.dumps(shown), encoding="utf-8")
    return shown


def _designed(file: DesignFile, checkpoint: Path) -> designing.Designed:
    """The design, continued from its checkpoint; begun anew if that is refused, as one of another version is."""
    checkpoint.parent.mkdir(exist_ok=True)
    try:
        return designing.run_design(file, checkpoint=checkpoint, progress=False)
    except InputError as error:
        if error.argument != "checkpoint":
            raise
    _forget(checkpoint)
    return designing.run_design(file, checkpoint=checkpoint, progress=False)


def _forget(checkpoint: Path) -> None:
    for path in (checkpoint, designing.split_checkpoint(checkpoint)):
        path.unlink(missing_ok=True)


@contextmanager
def _releases_counted(progress: Progress) -> Iterator[None]:
    """Reports progress in simulated releases only, not in the draws made for one of them."""
    last = ("simulating the first releases", 0, 0)

    def counted(stage: str, done: int, total: int) -> None:
        nonlocal last
        last = (STAGES[stage], done, total) if stage in STAGES else last
        progress(*last)

    before = listen(counted)
    try:
        yield
    finally:
        listen(before)


# Other budgets ------------------------------------------------------------------------------------------------


def explore(folder: Path, factor: float, progress: Progress) -> dict[str, Any]:
    """What could be learnt with `factor` times the privacy budget of a finished run."""
    posterior = Posterior.load(folder / RESULTS / "posterior.nc")
    return other_budgets.explore(_read(folder), posterior, factor, progress)
