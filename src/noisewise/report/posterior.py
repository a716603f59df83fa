"""The report of a posterior: the answer, naive beside exact, whether it can be trusted, what privacy cost."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.inference.settings import method_in_words
from noisewise.model.prior import prior_draws
from noisewise.numerics import Array
from noisewise.report import check, figures, page, words
from noisewise.report.markup import NONE, Html, bullets, joined, listed, number, tag
from noisewise.report.page import Section
from noisewise.report.short_answer import in_order, sentences
from noisewise.report.verdict import Verdict, has_usable_draws, judge
from noisewise.results.beside import Beside
from noisewise.results.fit import Fit
from noisewise.results.information import Lost, lost
from noisewise.results.labels import owner_of
from noisewise.results.posterior import Posterior
from noisewise.results.replicates import Replicates

if TYPE_CHECKING:  # a report is given the results of studies, and runs none
    from noisewise.studies.compare import Comparison
    from noisewise.studies.forecast import Forecast

PRIOR_BLOCKS, PRIOR_ROWS = 3, 4096
"""Blocks of prior draws, and rows in each: the size that `Model.simulate` compiles for."""


@dataclass(frozen=True, eq=False)
class Report(page.Shown):
    """What a report shows: `Report(model, release, posterior).save("report.html")`.

    `naive` adds the analysis that ignored the noise (`no_naive` says why there is none), `forecast` the check of
    prior against release, `fit` maximum likelihood estimates.
    """

    kind = ("posterior", Posterior, "nw.sample")

    posterior: Posterior
    _: KW_ONLY
    naive: Posterior | None = None
    forecast: "Forecast | None" = None
    fit: Fit | None = None
    conflict: Mapping[str, float] | None = None
    """Tail probabilities of the release under the prior; the forecast's, where there is one."""
    replicates: Replicates | None = None
    """Releases drawn anew from the posterior, `posterior.replicate(...)`: adds the section on the model's fit."""
    far: Sequence[str] = ()
    """Sentences on published values that the prior did not expect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conflict is None and self.forecast is not None:
            object.__setattr__(self, "conflict", self.forecast.conflict)

    @classmethod
    def of(cls, comparison: "Comparison", **options: Any) -> "Report":
        """The report of what `nw.compare` returned."""
        settings = {"naive": comparison.naive, "no_naive": comparison.reason}
        return cls(comparison.model, comparison.release, comparison.exact, **(settings | options))

    @cached_property
    def has_answer(self) -> bool:
        """Whether there are draws, with weights that can be used."""
        return has_usable_draws(self.posterior)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the numbers may be used, and why."""
        with np.errstate(all="ignore"):  # draws beyond the range of numbers are shown as such
            return judge(self.posterior, self.conflict, self.far)

    @cached_property
    def summary(self) -> Any:
        """The posterior's table."""
        return self.posterior.summary(self.level)

    @property
    def short(self) -> list[str]:
        """The short answer, unless the verdict is that the numbers should not be used."""
        with np.errstate(all="ignore"):
            return [] if self.verdict.state == "bad" or not self.has_answer else sentences(self)

    @cached_property
    def before(self) -> dict[str, Array]:
        """Draws of the prior, statistics that are laws included; sums over records, perhaps very many, are not."""
        return prior_draws(self.model, self.posterior.seed, blocks=PRIOR_BLOCKS, rows=PRIOR_ROWS)

    @cached_property
    def lost(self) -> list[Lost]:
        """What privacy cost, for every scalar parameter."""
        return lost(self.posterior, self.release, self.before, self.level) if self.has_answer else []

    @cached_property
    def comparison(self) -> Beside | None:
        """Naive beside exact, where both have draws."""
        if self.naive is None or not has_usable_draws(self.naive) or not self.has_answer:
            return None
        return Beside(self.posterior, self.naive)

    def html(self) -> str:
        """The whole file."""
        with np.errstate(all="ignore"):
            return page.around(self, SECTIONS)


# The sections -------------------------------------------------------------------------------------------------------


def _question(report: Report) -> Section:
    return page.question(report, sentences)


def _answer(report: Report) -> Section | None:
    if not report.has_answer:
        return None
    summary = in_order(report.posterior, report.summary)
    low, high = summary.columns[2:4]
    rows = []
    for label, row in summary.iterrows():
        kind = _kind(report.posterior, owner_of(str(label)))
        rows.append(
            (report.naming.listed(str(label)), kind, *(number(row[column], 4) for column in ("mean", "sd", low, high)))
        )
    columns = ("Quantity", "Kind", "Mean", "Standard deviation", str(low), str(high))
    lead = (
        f"Given the model, the published values and the noise, each quantity lies within its interval with probability "
        f"{100 * report.level:g}%. That holds for the confidential statistics too: what the curator knows and did not "
        "publish."
    )
    if note := report.posterior.without_moments:
        lead = f"{lead} {note}"
    shown = page.long_table(f"Exact answers, with {100 * report.level:g}% intervals", columns, rows, "answer-table")
    fitted = _fitted(report)
    return "answer", "The answer", joined([tag("p", lead), shown, _pictures(report), fitted])


def _kind(posterior: Posterior, name: str) -> str:
    if name in posterior.derived:
        return "asked for"
    return "parameter" if name in posterior.parameters else "confidential statistic"


def _pictures(report: Report) -> Html:
    drawn = figures.panels(report.posterior, report.naive, report.before, report.level, report.naming)
    cards = [page.card(report.naming.listed(label), svg, caption) for label, svg, caption in drawn]
    keys = [page.legend_key("exact", "exact: counts the noise"), page.legend_key("prior", "prior: before the release")]
    if report.naive is not None:
        keys.insert(1, page.legend_key("naive", "naive: ignores the noise"))
    keys.append(page.legend_key("mark", "published value", "◆"))
    caption = f"Bars under the curves are {100 * report.level:g}% intervals, dots are means."
    return page.pictures(cards, keys, caption)


def _fitted(report: Report) -> Html | None:
    if report.fit is None:
        return None
    summary = report.fit.summary(report.level)
    rows = [(label, *(number(value, 4) for value in row)) for label, row in summary.iterrows()]
    columns = ("Parameter", *(str(column).capitalize() for column in summary.columns))
    lead = (
        f"Maximum likelihood uses the priors only for the range of the parameters. Its status is {report.fit.status}. "
        f"{report.fit.message}"
    )
    return joined(
        [
            tag("h3", "Maximum likelihood"),
            tag("p", lead),
            page.long_table("Estimates that count the noise", columns, rows, "fit"),
        ]
    )


def _naive(report: Report) -> Section | None:
    comparison = report.comparison
    if comparison is None:
        return page.nothing_beside(report) if report.has_answer else None
    table = in_order(report.posterior, comparison.table(report.level))
    said = [
        words.beside(report.naming.called(str(label)), row, report.level)
        for label, row in list(table.iterrows())[: page.MOST_SENTENCES]
    ]
    note = (
        "Wider: the exact interval's width over the naive one's. Shift: the exact mean less the naive one, in naive "
        "standard deviations (SD)."
    )
    doubt = None
    if report.naive is not None and report.naive.status != "complete":
        doubt = tag("p", f"The naive analysis itself fell short: {report.naive.message}")
    return page.beside("Naive and exact answers", [doubt, bullets(said)], table, report.naming.listed, note)


def _trust(report: Report) -> Section:
    posterior = report.posterior
    how = f"The sampler was {type(posterior.sampler).__name__}."
    if posterior.reason:
        how = f"The sampler was {type(posterior.sampler).__name__}, chosen because: {posterior.reason.rstrip('.')}."
    if posterior.acceptance_rate is not None and np.isfinite(posterior.acceptance_rate):
        how += f" It accepted {number(100 * posterior.acceptance_rate, 2)}% of its proposals."
    return page.trust(report, how)


def _check(report: Report) -> Section | None:
    return None if report.replicates is None else check.section(report.replicates)


def _cost(report: Report) -> Section | None:
    if not report.lost:
        return None
    said = [words.cost(parameter, report.level) for parameter in report.lost[: page.MOST_SENTENCES]]
    rows = []
    for parameter in report.lost:
        share = NONE if parameter.noise_share is None else f"{number(100 * parameter.noise_share, 2)}%"
        change = NONE if not np.isfinite(parameter.narrowed) else f"{number(100 * parameter.narrowed, 2)}%"
        rows.append((parameter.label, share, f"{number(parameter.before[0])} to {number(parameter.before[1])}", change))
    columns = ("Parameter", "Variance due to the noise, at least about", "Prior interval", "Narrowed by the release")
    shown = page.long_table("What privacy cost", columns, rows, "cost-table")
    information = None
    if report.fit is not None and report.fit.efficiency:
        pairs = [
            f"{name} {listed([number(100 * float(value), 2) + '%' for value in np.ravel(share)[:6]])}"
            for name, share in report.fit.efficiency.items()
        ]
        information = tag(
            "p", f"Of the information in the confidential statistics, the release keeps: {listed(pairs)}."
        )
    return "cost", "What privacy cost", joined([bullets(said), shown, information])


def _replay(report: Report) -> Section:
    posterior = report.posterior
    command = report.replay or (
        f"noisewise.sample(model, release, {posterior.sampler!r}, draws={len(posterior)}, seed={posterior.seed})"
    )
    facts = [
        ("Seed", str(posterior.seed if report.seed is None else report.seed)),
        ("Draws", f"{len(posterior):,}"),
        ("Sampler", method_in_words(posterior.sampler)),
    ]
    return page.replay(report, command, facts, posterior.versions)


SECTIONS = (_question, page.published, page.model, _answer, _naive, _trust, _check, _cost, page.cite, _replay)
"""In the order of reading; a section that has nothing to say returns None."""


__all__ = ["Report"]
