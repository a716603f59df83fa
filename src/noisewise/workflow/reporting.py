"""From results, in memory or in their folder, to the report that `noisewise.report` draws."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.errors import InputError, NoisewiseError, Unwritten
from noisewise.inference.status import POSTERIOR
from noisewise.model import Model
from noisewise.release import Release
from noisewise.report import FitReport, Report
from noisewise.results.posterior import Posterior
from noisewise.results.replicates import Replicates
from noisewise.workflow import folder as folders
from noisewise.workflow.expectations import expectations
from noisewise.workflow.rescue import rescued
from noisewise.workflow.results import Results

MOST_REPLICATED = 3_000_000
"""Numbers in all replicated releases, at most."""


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` in a folder of results, from the files in it."""
    return report_of(folder).save(Path(folder) / "report.html")


def report_of(folder: str | os.PathLike[str]) -> Report | FitReport:
    """The report of a results folder: of a posterior, or of a likelihood fit."""
    place = Path(folder)
    results = folders.load(place)
    text = (place / "analysis.toml").read_text(encoding="utf-8")
    return report_on(results, text, folders.run_record(place))


def write(results: Results, folder: Path) -> Report | FitReport:
    """Write a run's folder, and the report in it, from the results in memory; return the report.

    The folder comes into being only when all is written. Where it cannot be, what was computed is saved elsewhere, and
    the error says where: `InputError` where the disk refuses, `Unwritten` where the fault is ours.
    """
    try:
        with folders.filling(folder) as partial:
            record = folders.write_files(results, partial)
            report = report_on(results, results.analysis.to_text(), record)
            report.save(partial / "report.html")
    except InputError as error:
        raise error.advising(rescued(results, folder)) from None
    except Exception as error:
        raise Unwritten(rescued(results, folder)) from error
    return report


def report_on(results: Results, text: str, record: dict[str, Any]) -> Report | FitReport:
    """The report of results in memory; `text` is their analysis file, `record` what `run.json` says of their run."""
    analysis = results.analysis
    model, release = analysis.model, analysis.release
    common: dict[str, Any] = {"question": analysis.question, "title": analysis.title, "content": analysis.content}
    common |= {"level": analysis.settings.level, "no_naive": results.no_naive, "seed": analysis.settings.seed}
    common |= {"inputs": {"analysis.toml": text}}
    common |= {"replay": str(record.get("replay") or f"noisewise {results.command} analysis.toml --out replay")}
    common |= {"finished": str(record.get("finished") or "")}
    if results.fit is not None:
        return FitReport(model, release, results.fit, naive=results.naive_fit, **common)
    assert results.posterior is not None
    expected = results.expected if results.expected is not None else expectations(analysis)
    common |= {"conflict": expected.tails, "far": expected.sentences}
    again = _replicates(model, release, results.posterior, analysis.settings.seed)
    return Report(model, release, results.posterior, naive=results.naive, replicates=again, **common)


def _replicates(model: Model, release: Release, posterior: Posterior, seed: int) -> Replicates | None:
    """Releases drawn anew from the posterior; None where that would be of no use, or take too long.

    That is: the posterior's numbers are not usable, a statistic is no law, or `MOST_REPLICATED` would be exceeded.
    """
    entries = sum(np.size(item.value) for item in release.values())
    laws = all(model.has_density(name) for name in model.statistics)
    if not laws or POSTERIOR[posterior.status].numbers != "usable" or entries * len(posterior) > MOST_REPLICATED:
        return None
    try:
        return posterior.replicate(model, release, seed=seed)
    except NoisewiseError:  # the report does without them
        return None
