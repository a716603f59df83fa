"""Running an analysis: its posterior with the naive one beside it, or its likelihood fit likewise."""

import os
from typing import Any

from noisewise.analysis import Analysis
from noisewise.compare import naive_posterior
from noisewise.errors import InputError, NoisewiseError
from noisewise.fit import Fit
from noisewise.likelihood import fit as fit_of
from noisewise.results_folder import Results
from noisewise.samplers import sample

IN_A_FILE = {
    "nw.MCEM()": 'In the analysis file: [likelihood] with method = "MCEM".',
    "nw.sample": "On the command line: noisewise fit.",
}
"""What advice for programs means for an analysis file."""
NOT_ASKED = "it was not asked for"
INTERRUPTED = "the run was interrupted"
NOTHING = "the exact analysis gave no answer to set beside it"


def posterior_of(
    analysis: Analysis,
    command: str,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    naive: bool = True,
    progress: bool | None = None,
) -> Results:
    """The exact posterior, and the naive one where wanted and possible; a run that fell short returns what it has."""
    model, release, settings = analysis.model, analysis.release, analysis.settings
    common: dict[str, Any] = {"draws": settings.draws, "seed": settings.seed, "progress": progress}
    exact = sample(model, release, settings.method, on_failure="return", checkpoint=checkpoint, **common)
    other, reason = None, NOT_ASKED
    if exact.status == "interrupted":
        reason = INTERRUPTED
    elif len(exact) < 2:
        reason = NOTHING
    elif naive:
        other, reason = naive_posterior(model, release, **common)
    return Results(analysis, command, exact, other, reason)


def fit_results(analysis: Analysis, command: str, *, naive: bool = True, progress: bool | None = None) -> Results:
    """The maximum likelihood fit, and the naive one where wanted and possible."""
    exact = _fitted(analysis, analysis.release, progress)
    other, reason = None, NOT_ASKED
    if exact.status == "interrupted":
        reason = INTERRUPTED
    elif naive:
        try:
            other, reason = _fitted(analysis, analysis.release.naive(), progress), ""
        except NoisewiseError as error:
            reason = str(error)
    return Results(analysis, command, fit=exact, naive_fit=other, no_naive=reason)


def _fitted(analysis: Analysis, release: Any, progress: bool | None) -> Fit:
    settings = analysis.settings
    given: dict[str, Any] = {"start": settings.start, "seed": settings.seed, "progress": progress}
    try:
        return fit_of(analysis.model, release, settings.estimator, on_failure="return", **given)
    except InputError as error:
        hints = [hint for word, hint in IN_A_FILE.items() if word in str(error)]
        raise InputError(" ".join([str(error), *hints])) from None
