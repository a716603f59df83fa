"""Running an analysis: its posterior with the naive one beside it, or its likelihood fit likewise."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from noisewise.analysis import Analysis
from noisewise.analysis.file_words import in_file_words
from noisewise.analysis.mistakes import mistake_in_words
from noisewise.engine import Terminated
from noisewise.errors import NoisewiseError
from noisewise.inference.status import POSTERIOR
from noisewise.likelihood.fit import fit as fit_of
from noisewise.release import Release
from noisewise.results.fit import Fit
from noisewise.results.naming import Naming
from noisewise.results.posterior import Posterior
from noisewise.samplers.sample import sample
from noisewise.studies.compare import naive_posterior
from noisewise.workflow.expectations import expectations, refuse_mistakes
from noisewise.workflow.results import Results

NOT_ASKED = "it was not asked for"
INTERRUPTED = "the run was interrupted"
UNEXPECTED = "it ended with an unexpected error, a fault of noisewise"
NOTHING = "the exact analysis gave no answer to set beside it"
CTRL_C, SIGTERM = POSTERIOR["interrupted"].exit_code, 143
"""Exit statuses that a signal asks for."""

Result = TypeVar("Result", Posterior, Fit)


def run_posterior(
    analysis: Analysis,
    command: str,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    naive: bool = True,
    anyway: bool = False,
    progress: bool | None = None,
) -> Results:
    """The exact posterior, and the naive one where wanted and possible; a run that fell short returns what it has.

    So does one that Ctrl-C or SIGTERM ended, and its `ended` says which. A published value that can only be a mistake
    under the prior is refused before anything runs, unless `anyway`.
    """
    model, release, settings = analysis.model, analysis.release, analysis.settings
    expected = expectations(analysis)
    if not anyway:
        refuse_mistakes(expected)
    common: dict[str, Any] = {"draws": settings.draws, "seed": settings.seed, "progress": progress}
    exact, ended = _with_exit_status(
        lambda: sample(model, release, settings.method, on_failure="return", checkpoint=checkpoint, **common)
    )
    words = Naming.of(analysis.content)
    exact = replace(exact, naming=exact.naming | words)
    naive_draws, reason, fault = None, NOT_ASKED, None
    if ended:
        reason = INTERRUPTED
    elif len(exact) < 2:
        reason = NOTHING
    elif naive:
        try:
            naive_draws, reason = naive_posterior(model, release, **common)
            reason = in_file_words(reason)
            naive_draws = naive_draws and replace(naive_draws, naming=naive_draws.naming | words)
        except NoisewiseError as error:
            reason = mistake_in_words(error)
        except (KeyboardInterrupt, Terminated) as end:  # the exact answer is there, and is kept
            reason, ended = INTERRUPTED, _status(end)
        except Exception as error:
            reason, fault = UNEXPECTED, error
    results = Results(analysis, command, exact, naive_draws, reason, ended=ended, fault=fault)
    return replace(results, expected=expected)


def _with_exit_status(run: Callable[[], Result]) -> tuple[Result, int]:
    """The result of `run`, also where SIGTERM ended it early, and the exit status that a signal asked for, or 0."""
    try:
        result = run()
    except Terminated as end:
        if end.result is None:
            raise
        return _in_file_words(end.result), SIGTERM
    return _in_file_words(result), CTRL_C if result.status == "interrupted" else 0


def _in_file_words(result: Result) -> Result:
    """The result with its messages in the words of analysis files."""
    if isinstance(result, Posterior):
        return replace(result, message=in_file_words(result.message), reason=in_file_words(result.reason))
    return replace(result, message=in_file_words(result.message))


def _status(end: BaseException) -> int:
    return SIGTERM if isinstance(end, Terminated) else CTRL_C


def fit_results(analysis: Analysis, command: str, *, naive: bool = True, progress: bool | None = None) -> Results:
    """The maximum likelihood fit, and the naive one where wanted and possible."""
    exact, ended = _with_exit_status(lambda: _fitted(analysis, analysis.release, progress))
    naive_fit, reason, fault = None, NOT_ASKED, None
    if ended:
        reason = INTERRUPTED
    elif naive:
        try:
            naive_fit, ended = _with_exit_status(lambda: _fitted(analysis, analysis.release.naive(), progress))
            naive_fit, reason = (None, INTERRUPTED) if ended else (naive_fit, "")
        except NoisewiseError as error:
            reason = mistake_in_words(error)
        except (KeyboardInterrupt, Terminated) as end:
            reason, ended = INTERRUPTED, _status(end)
        except Exception as error:
            reason, fault = UNEXPECTED, error
    return Results(analysis, command, fit=exact, naive_fit=naive_fit, no_naive=reason, ended=ended, fault=fault)


def _fitted(analysis: Analysis, release: Release, progress: bool | None) -> Fit:
    settings = analysis.settings
    options: dict[str, Any] = {"start": settings.start, "seed": settings.seed, "progress": progress}
    return fit_of(analysis.model, release, settings.estimator, on_failure="return", **options)
