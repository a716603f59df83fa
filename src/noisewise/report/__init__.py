"""The report: one self-contained HTML file of an analysis, to read, print and hand on. docs/report.md.

It needs no network and runs no script; its own security policy forbids both.
"""

import os
from pathlib import Path
from typing import Any

from noisewise.errors import NoisewiseError
from noisewise.model import Model
from noisewise.release import Release
from noisewise.report.likelihood import FitReport
from noisewise.report.posterior import Report


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` in a folder of results, from the files in it."""
    return report_of(folder).save(Path(folder) / "report.html")


def report_of(folder: str | os.PathLike[str]) -> Report | FitReport:
    """The report of a results folder: of a posterior, or of a likelihood fit."""
    from noisewise import results_folder

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


__all__ = ["FitReport", "Report", "report_of", "write_report"]
