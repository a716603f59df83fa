"""What the page computes, in its worker: a run (prior, naive and exact side by side), and other privacy budgets."""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import results_folder, weights
from noisewise.analysis import Analysis
from noisewise.compare import Comparison, compare
from noisewise.errors import NoisewiseError
from noisewise.mechanisms import Released
from noisewise.page import budget
from noisewise.page.runs import SIMULATING, VERSION
from noisewise.posterior import Posterior
from noisewise.release import Release
from noisewise.report import Report, report_of, words
from noisewise.results_folder import Results
from noisewise.samplers import sample
from noisewise.streams import Purpose, generator

Progress = Callable[[str, int, int], None]

RESULTS = "results"
"""Below a run's folder, what `noisewise compare` would have written."""
REPLICATES = 8
"""Simulated releases behind an expected width."""
DRAWS = 1_000
"""Posterior draws for each of them."""
MOST_TOLD = 4
"""Parameters compared in words."""
MOST_SHOWN = 12
"""Scalars in the page's table; files hold all."""


@lru_cache(maxsize=4)
def analysis_of(text: str) -> Analysis:
    """The analysis of a text; kept, so that what was compiled for a model serves again."""
    return Analysis.from_text(text, "analysis file")


def _read(folder: Path) -> Analysis:
    return analysis_of((folder / "analysis.toml").read_text(encoding="utf-8"))


def run(folder: Path, progress: Progress) -> dict[str, Any]:
    """Fit naively and exactly, write the files of the run into its folder, and return what the page shows."""
    analysis = _read(folder)
    settings = analysis.settings
    progress("starting", 0, 0)
    found = compare(
        analysis.model, analysis.release, settings.method, draws=settings.draws, seed=settings.seed, progress=False
    )
    progress("writing files", 0, 0)
    results = Results(analysis, "compare", found.exact, found.naive, found.reason)
    results_folder.write(results, folder / RESULTS, report=False)
    report = report_of(folder / RESULTS)
    report.save(folder / RESULTS / "report.html")
    shown: dict[str, Any] = results_folder.plain(summary(found, settings.level) | {"verdict": told(report)})
    shown["title"] = analysis.title or "untitled"
    (folder / "page.json").write_text(json.dumps(shown), encoding="utf-8")
    return shown


# What the page shows ------------------------------------------------------------------------------------------


def summary(found: Comparison, level: float) -> dict[str, Any]:
    """Rows of the table and how they were made, as plain data."""
    prior = _prior(found, level)
    exact = _rows(found.exact.summary(level))
    naive = _rows(found.naive.summary(level)) if found.naive is not None else {}
    rows = [
        {
            "name": name,
            "parameter": name.split("[")[0] in found.exact.parameters,
            "prior": prior.get(name),
            "naive": naive.get(name) if name.split("[")[0] in found.exact.parameters else None,
            "exact": row,
        }
        for name, row in exact.items()
    ]
    epsilon = budget.stated_epsilon(found.release)
    shown = {"rows": rows[:MOST_SHOWN], "scalars": len(rows), "level": level, "epsilon": epsilon}
    shown |= {"page": VERSION, "reason": found.exact.reason}
    return shown | {"draws": len(found.exact), "sampler": type(found.exact.sampler).__name__}


def _rows(table: Any) -> dict[str, list[float]]:
    """Mean, sd and interval of each scalar."""
    return {
        str(name): [float(value) for value in row]
        for name, row in zip(table.index, table.iloc[:, :4].values, strict=True)
    }


def _prior(found: Comparison, level: float) -> dict[str, list[float]]:
    drawn = found.model.simulate(10_000, found.exact.seed)
    tails = [(1 - level) / 2, (1 + level) / 2]
    rows = {}
    for name, values in drawn.items():
        for index in np.ndindex(values.shape[1:]):
            column = values[(slice(None), *index)].astype(float)
            label = name + (f"[{','.join(map(str, index))}]" if index else "")
            rows[label] = [float(column.mean()), float(column.std()), *map(float, np.quantile(column, tails))]
    return rows


def told(report: Report) -> dict[str, Any]:
    """The report's verdict, what was not good about the run, and what ignoring the noise would have claimed."""
    verdict, compared = report.verdict, report.comparison
    lines = [verdict.told, *(check.told for check in verdict.checks if check.state in ("look", "bad"))]
    if compared is None:
        lines.append(f"There is no naive analysis to compare with: {report.no_naive}")
    else:
        rows = list(compared.table(report.level).iterrows())[:MOST_TOLD]
        lines += [words.beside(str(name), row, report.level) for name, row in rows]
    return {"state": verdict.state, "title": verdict.title, "lines": lines}


# Other budgets ------------------------------------------------------------------------------------------------


def explore(folder: Path, factor: float, progress: Progress) -> dict[str, Any]:
    """What could be learnt with `factor` times the privacy budget.

    `same`: the interval for the very value that was released, had it carried that noise. `expected`: the interval's
    width on average over releases simulated at that budget, from confidential statistics drawn from the posterior of
    the run: what an analyst may expect to learn, given all that is known now.
    """
    analysis = _read(folder)
    level, seed = analysis.settings.level, analysis.settings.seed
    posterior = Posterior.load(folder / RESULTS / "posterior.nc")
    release = budget.release_at(analysis.release, factor)
    progress("starting", 0, 0)
    widths: list[dict[str, float]] = []
    same = _intervals(_sampled(analysis, release, seed), level)
    rng = generator(seed, Purpose.FORECAST, 5)
    rows = _chosen(posterior, rng)
    failed = 0
    for number, row in enumerate(rows):
        progress(SIMULATING, number, REPLICATES)
        try:
            found = _sampled(analysis, _simulated(release, posterior, row, rng), seed + 1 + number)
        except NoisewiseError:  # a release so unlucky that its posterior cannot be had with few draws
            failed += 1
            continue
        widths.append({name: high - low for name, (low, high) in _intervals(found, level).items()})
    return {"factor": factor, "level": level, "failed": failed, "rows": _learnt(same, widths)}


def _sampled(analysis: Analysis, release: Release, seed: int) -> Posterior:
    return sample(analysis.model, release, analysis.settings.method, draws=DRAWS, seed=seed, progress=False)


def _chosen(posterior: Posterior, rng: np.random.Generator) -> Any:
    """Rows of the posterior, by weight."""
    if posterior.log_weights is None:
        return rng.choice(len(posterior), size=REPLICATES)
    return rng.permutation(weights.systematic(rng, posterior.log_weights, REPLICATES))


def _simulated(release: Release, posterior: Posterior, row: int, rng: np.random.Generator) -> Release:
    """A release drawn anew, given the confidential values of one posterior draw."""
    made = {}
    for name, item in release.items():
        confidential = posterior[name][row : row + 1]
        extra = {other: posterior[other][row : row + 1] for other in item.mechanism.inputs}
        made[name] = Released(item.mechanism, item.mechanism.sample(rng, confidential, **extra)[0])
    return Release(made)


def _intervals(posterior: Posterior, level: float) -> dict[str, tuple[float, float]]:
    table = posterior.summary(level)
    low, high = table.columns[2:4]
    return {
        str(name): (float(table.loc[name, low]), float(table.loc[name, high]))
        for name in table.index
        if name.split("[")[0] in posterior.parameters
    }


def _learnt(same: dict[str, tuple[float, float]], widths: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows = []
    for name, interval in list(same.items())[:MOST_SHOWN]:
        each = [found[name] for found in widths]
        mean = float(np.mean(each)) if each else None
        spread = float(np.std(each, ddof=1)) if len(each) > 1 else None
        rows.append({"name": name, "same": list(interval), "expected": mean, "spread": spread, "releases": len(each)})
    return rows
