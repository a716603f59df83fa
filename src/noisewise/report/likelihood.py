"""The report of a maximum likelihood fit: estimates, naive beside exact, information lost, the climb."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.inference.settings import method_in_words
from noisewise.inference.status import FIT
from noisewise.model import Model
from noisewise.report import fit_figures, page, words
from noisewise.report.markup import NONE, Html, bullets, joined, number, tag
from noisewise.report.page import Section
from noisewise.report.verdict import Check, Verdict, sentence, verdict_of
from noisewise.results.derived import NO_SLOPE, answers
from noisewise.results.fit import Fit

SMALL = 0.1
"""Monte Carlo error of an estimate, in its standard errors, that needs no second look."""


@dataclass(frozen=True, eq=False)
class FitReport(page.Shown):
    """What a likelihood report shows: `FitReport(model, release, nw.fit(model, release, ...)).save("report.html")`.

    `naive` is the fit that ignored the noise, `nw.fit(model, release.naive(), ...)`; `no_naive` says why there is none.
    """

    kind = ("fit", Fit, "nw.fit")

    fit: Fit
    _: KW_ONLY
    naive: Fit | None = None

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the numbers may be used, and why."""
        return judge(self.fit, self.level)

    @cached_property
    def summary(self) -> Any:
        """The fit's table, with the quantities asked for first."""
        return with_answers(self.fit, self.model, self.level)

    @cached_property
    def claimed(self) -> Any:
        """The same table of the naive fit; None where there is no naive fit, or its numbers are not usable."""
        if self.naive is None or FIT[self.naive.status].numbers != "usable":
            return None
        return with_answers(self.naive, self.model, self.level)

    @property
    def short(self) -> list[str]:
        """The short answer, unless the verdict is that the numbers should not be used."""
        with np.errstate(all="ignore"):
            return [] if self.verdict.state == "bad" else _answers(self)

    def html(self) -> str:
        """The whole file."""
        with np.errstate(all="ignore"):
            return page.around(self, SECTIONS)


def with_answers(fit: Fit, model: Model, level: float) -> Any:
    """The fit's table, with the model's derived quantities first where the estimate has them."""
    import pandas as pd

    asked = answers(fit, model)[0] if fit.status == "converged" else None
    table = fit.summary(level)
    return table if asked is None else pd.concat([asked.summary(level), table])


# The verdict --------------------------------------------------------------------------------------------------------


def judge(fit: Fit, level: float) -> Verdict:
    """All checks of a fit."""
    checks = [_run(fit), *_starts(fit), *_simulated(fit), _intervals(level)]
    error = Verdict.error if fit.monte_carlo_error else "rounding"
    return verdict_of(checks, error)


def _run(fit: Fit) -> Check:
    message = sentence(fit.message)
    end = FIT[fit.status]
    if end.numbers != "usable":
        return Check("bad", "The climb", f"{end.meaning} (Status {fit.status}.){message}")
    steps = f"{len(fit.trace):,} step{'s' if len(fit.trace) != 1 else ''}"
    return Check("good", "The climb", f"It reached a top of the likelihood in {steps}.")


def _starts(fit: Fit) -> list[Check]:
    """Whether the top depends on where the climb began."""
    starts = fit.diagnostics.get("starts", 0)
    count = int(starts) if isinstance(starts, (int, float)) else len(starts)
    if fit.diagnostics.get("multimodal"):
        return [Check("look", "Starting points", f"The likelihood has more than one top. {fit.message}")]
    if fit.status != "converged" or not count:
        return []
    if count == 1:
        explanation = "The climb had one starting point, so that another top cannot be ruled out."
        return [Check("note", "Starting points", explanation)]
    return [Check("good", "Starting points", f"Of {count} starting points none led to another top that is as high.")]


def _simulated(fit: Fit) -> list[Check]:
    if not fit.monte_carlo_error or fit.status != "converged":
        return []
    table = fit.summary()
    share = (table["Monte Carlo error"] / table["standard error"]).replace([np.inf, -np.inf], np.nan).dropna()
    if not len(share):
        return []
    label = str(share.idxmax())
    explanation = (
        f"With another seed the estimate of {label} would move by about "
        f"{number(table['Monte Carlo error'][label], 2)}, which is {number(100 * share[label], 2)}% of its standard "
        "error; others move less in proportion."
    )
    return [Check("good" if share[label] < SMALL else "look", "Simulation error", explanation)]


def _intervals(level: float) -> Check:
    explanation = (
        f"The {100 * level:g}% intervals are the estimate, give or take so many standard errors. They hold the true "
        f"value in about {100 * level:g}% of repetitions where the release holds very many records' worth of numbers; "
        "with one or a few noisy numbers it can be less often, and they may reach beyond what a parameter can be. "
        "The exact posterior (noisewise fit) makes no such approximation."
    )
    return Check("note", "Intervals", explanation)


# The sections -------------------------------------------------------------------------------------------------------


def _question(report: FitReport) -> Section:
    return page.question(report, _answers)


def _answers(report: FitReport) -> list[str]:
    """Sentences on the quantities asked for, or on every parameter where none was; and why some have no estimate."""
    low, high = report.summary.columns[2:4]
    asked, missing = answers(report.fit, report.model) if report.fit.status == "converged" else (None, {})
    rows = list(report.summary.iterrows())[: len(asked.labels) if asked is not None else None]
    sentences = []
    for label, row in rows[: page.MOST_SENTENCES]:
        called, unit = report.naming.called(str(label)), report.naming.unit(str(label))
        if math.isnan(row["standard error"]):
            value = f"{called} is estimated at {number(row['estimate'])}{unit}"
            sentences.append(f"{value}, without an interval: {NO_SLOPE}.")
            continue
        error = f"give or take {number(row['standard error'])}{unit} (its standard error)"
        interval = f"{100 * report.level:g}% interval from {number(row[low])} to {number(row[high])}"
        naive = report.claimed.loc[label] if report.claimed is not None and label in report.claimed.index else None
        without = "" if naive is None else f" (ignoring the noise: {number(naive[low])} to {number(naive[high])})"
        sentences.append(f"{called} is estimated at {number(row['estimate'])}{unit}, {error}: {interval}{without}.")
    for name, why in missing.items():
        called = report.naming.called(name)
        sentences.append(f"{called}: no estimate, since {why}. The posterior (noisewise fit) answers it.")
    return sentences


def _answer(report: FitReport) -> Section:
    summary = report.summary
    rows = [(report.naming.listed(str(label)), *(number(v, 4) for v in row)) for label, row in summary.iterrows()]
    columns = ("Quantity", *(page.column_title(str(column)) for column in summary.columns))
    lead = (
        "These are the parameter values under which the published values, noise included, were most likely. The prior "
        "laws say only which values a parameter can have. The standard errors count both what the confidential "
        "statistics vary by and what the noise adds."
    )
    shown = page.long_table(f"Estimates, with {100 * report.level:g}% intervals", columns, rows, "answer-table")
    is_known = not math.isnan(report.fit.log_likelihood)
    likelihood = f"The log likelihood there is {number(report.fit.log_likelihood, 6) if is_known else 'not known'}."
    return "answer", "The answer", joined([tag("p", lead), shown, tag("p", likelihood, class_="quiet"), _drawn(report)])


def _drawn(report: FitReport) -> Html | None:
    drawn = fit_figures.intervals(report.fit, report.naive, report.level)
    if not drawn:
        return None
    keys = [page.legend_key("exact", "exact: counts the noise")]
    if report.naive is not None:
        keys.append(page.legend_key("naive", "naive: ignores the noise"))
    caption = f"Dots are estimates, bars {100 * report.level:g}% intervals."
    return page.pictures([page.card(*each) for each in drawn], keys, caption)


def _naive(report: FitReport) -> Section:
    if report.naive is None:
        return page.nothing_beside(report)
    table = report.fit.beside(report.naive)
    sentences = [words.estimates(str(label), row) for label, row in list(table.iterrows())[: page.MOST_SENTENCES]]
    note = (
        "Wider: the exact standard error over the naive one. Shift: the exact estimate less the naive one, in naive "
        "standard errors. Information ratio: what the naive analysis claims to know, over what is known."
    )
    doubt = None
    if report.naive.status != "converged":
        doubt = tag("p", f"The naive analysis itself fell short ({report.naive.status}): {report.naive.message}")
    return page.beside("Naive and exact estimates", [bullets(sentences), doubt], table, str, note)


def _trust(report: FitReport) -> Section:
    name = type(report.fit.estimator).__name__
    ways = {"EM": "EM, which has no simulation error", "MCEM": "Monte Carlo EM, which simulates"}
    return page.trust(report, f"The estimator was {ways.get(name, name)}.")


def _climb(report: FitReport) -> Section | None:
    if len(report.fit.trace) < 2:
        return None
    lead = "How the estimates moved, step by step, on the way to the top of the likelihood. They should level out."
    cards = [page.card(*each) for each in fit_figures.climb(report.fit)]
    return "climb", "The climb", joined([tag("p", lead), tag("div", *cards, class_="grid")])


def _cost(report: FitReport) -> Section | None:
    shares = _information_kept(report.fit)
    if report.fit.status != "converged" or not shares:
        return None
    sentences = [words.information_kept(label, share) for label, share in list(shares.items())[: page.MOST_SENTENCES]]
    rows = []
    for label, share in shares.items():
        is_known = 0.0 < share <= 1.0 + 1e-6
        wider = number(share**-0.5, 3) if is_known else NONE
        rows.append((label, f"{number(100 * share, 2)}%" if is_known else NONE, wider))
    columns = ("Parameter", "Information kept", "Standard error, times that without noise")
    shown = page.long_table("What privacy cost", columns, rows, "cost-table")
    return "cost", "What privacy cost", joined([bullets(text for text in sentences if text), shown])


def _information_kept(fit: Fit) -> dict[str, float]:
    """Share of the information that the release keeps, by label."""
    if not fit.efficiency:
        return {}
    flat = np.concatenate([np.ravel(fit.efficiency[name]) for name in fit.estimate])
    return {label: float(share) for label, share in zip(fit.labels, flat, strict=True)}


def _replay(report: FitReport) -> Section:
    fit = report.fit
    command = report.replay or f"noisewise.fit(model, release, {fit.estimator!r}, seed={fit.seed})"
    facts = [("Seed", "none" if fit.seed is None else str(fit.seed)), ("Estimator", method_in_words(fit.estimator))]
    return page.replay(report, command, facts, fit.versions)


SECTIONS = (_question, page.published, page.model, _answer, _naive, _trust, _cost, _climb, page.cite, _replay)


__all__ = ["FitReport", "judge"]
