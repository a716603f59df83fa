"""Section 5.1 of the paper: the privatised count. Figures 1 and 2, Table 1, maximum likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpyro.distributions as dist
from scipy import stats

import noisewise as nw
from noisewise.numerics import Array
from noisewise.paper.exact import Count
from noisewise.paper.numbers import FALSE_ALARM, Number, share_limits, spread_limits

Progress = Callable[[str], None]

PRIORS = (2.0, 5.0, 25.0, 50.0, 75.0)
PRINTED = {2.0: (0.09, 0.02), 5.0: (0.21, 0.06), 25.0: (16.24, 0.35), 50.0: (19.83, 0.31), 75.0: (0.64, 0.07)}
"""Table 1: acceptance rate and its standard deviation over repetitions, in percent."""
REPETITIONS, PROPOSALS = 20, 10_000


@cache  # a model keeps what was compiled for it
def count_model(alpha: float) -> nw.Model:
    """count ~ Poisson(theta), theta ~ Gamma(alpha, 1)."""
    return nw.Model(
        prior={"theta": dist.Gamma(alpha, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta)},
    )


def published_count() -> nw.Release:
    """37.4, published with Laplace noise for epsilon = 0.2."""
    return nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))


@dataclass(frozen=True)
class FigurePanel:
    """One posterior of Figures 1 and 2."""

    alpha: float
    exact: Count
    draws: Array

    @property
    def gap(self) -> float:
        """Kolmogorov's distance: the largest gap between the draws' and the analytic distribution function."""
        return float(stats.kstest(self.draws, self.exact.cdf).statistic)


def figure_panels(draws: int, seed: int, progress: Progress) -> dict[float, FigurePanel]:
    """Exact draws for each prior."""
    panels = {}
    for alpha in PRIORS:
        progress(f"Figures 1 and 2: {draws:,} exact draws with prior Gamma({alpha:g}, 1)")
        posterior = nw.sample(
            count_model(alpha), published_count(), nw.Rejection(), draws=draws, seed=seed, progress=False
        )
        panels[alpha] = FigurePanel(alpha, Count(alpha=alpha), np.asarray(posterior["theta"]))
    return panels


def figure_numbers(panels: dict[float, FigurePanel]) -> list[Number]:
    """How far the histograms are from the analytic posteriors, and moments of both (the paper prints none)."""
    numbers = []
    section = "Figures 1 and 2"
    for alpha, panel in panels.items():
        size, exact = len(panel.draws), panel.exact
        label = f"Gamma({alpha:g}, 1): posterior"
        mean, sd = float(panel.draws.mean()), float(panel.draws.std(ddof=1))
        numbers.append(Number(section, f"{label} mean", mean, exact.sd / np.sqrt(size), exact.mean))
        limits = spread_limits(exact.sd, exact.kurtosis, size)
        error = exact.sd * np.sqrt((exact.kurtosis + 2.0) / (4.0 * size))
        numbers.append(Number(section, f"{label} sd", sd, error, exact.sd, limits=limits))
        largest = float(stats.kstwo.isf(FALSE_ALARM, size))
        expected, spread = float(stats.kstwo.mean(size)), float(stats.kstwo.std(size))
        label = f"Gamma({alpha:g}, 1): Kolmogorov distance, and its expectation"
        numbers.append(Number(section, label, panel.gap, spread, expected, limits=(0.0, largest)))
    return numbers


@dataclass(frozen=True)
class Rate:
    """One row of Table 1; rates in percent."""

    alpha: float
    predictive: float
    rates: Array
    exact: float

    @property
    def mean(self) -> float:
        """Mean over the repetitions."""
        return float(self.rates.mean())

    @property
    def sd(self) -> float:
        """Standard deviation over the repetitions: what the paper calls s.e."""
        return float(self.rates.std(ddof=1))

    @property
    def exact_sd(self) -> float:
        """Standard deviation of a rate, which is binomial."""
        return float(np.sqrt(self.exact * (100.0 - self.exact) / PROPOSALS))

    def row(self) -> dict[str, Any]:
        """As plain data."""
        paper, error = PRINTED[self.alpha]
        return {
            "prior": f"Gamma({self.alpha:g}, 1)",
            "prior predictive mean": self.predictive,
            "paper: rate %": paper,
            "paper: s.e. %": error,
            "ours: rate %": self.mean,
            "ours: s.e. %": self.sd,
            "exact: rate %": self.exact,
            "exact: s.e. %": self.exact_sd,
        }


def table_1(repetitions: int, seed: int, progress: Progress) -> list[Rate]:
    """Acceptance of Algorithm 1 over repetitions of 10^4 proposals."""
    rows = []
    sampler = nw.Rejection(plan="joint", max_proposals=PROPOSALS)
    for alpha in PRIORS:
        progress(f"Table 1: {repetitions} repetitions with prior Gamma({alpha:g}, 1)")
        poisson = count_model(alpha)
        common: dict[str, Any] = {"draws": PROPOSALS, "progress": False, "on_failure": "return"}
        # Among at most 10^4 proposals, the draws returned are the proposals accepted.
        accepted = [
            len(nw.sample(poisson, published_count(), sampler, seed=seed + k, **common)) for k in range(repetitions)
        ]
        rates = 100.0 * np.array(accepted) / PROPOSALS
        predictive = float(poisson.simulate(PROPOSALS, seed)["count"].mean())  # of the release too: noise has mean zero
        rows.append(Rate(alpha, predictive, rates, 100.0 * Count(alpha=alpha).acceptance_rate))
    return rows


def table_numbers(rates: list[Rate]) -> list[Number]:
    """Rates, their standard deviations over repetitions, and prior predictive means."""
    numbers = []
    for rate in rates:
        paper, spread = PRINTED[rate.alpha]
        prior, size, share = f"Gamma({rate.alpha:g}, 1)", len(rate.rates), rate.exact / 100.0
        low, high = share_limits(share, PROPOSALS * size)
        compared = {"paper": paper, "printed": 0.01, "paper_error": rate.exact_sd / np.sqrt(REPETITIONS)}
        limits = (100.0 * low, 100.0 * high)
        error, label = rate.exact_sd / np.sqrt(size), f"{prior}: acceptance rate, %"
        numbers.append(Number("Table 1", label, rate.mean, error, rate.exact, **compared, limits=limits))
        kurtosis = 1.0 / (PROPOSALS * share * (1 - share)) - 6.0 / PROPOSALS  # of a binomial count
        compared = {"paper": spread, "printed": 0.01, "paper_error": rate.exact_sd / np.sqrt(2 * (REPETITIONS - 1))}
        limits = spread_limits(rate.exact_sd, kurtosis, size)
        error, label = rate.exact_sd / np.sqrt(2 * (size - 1)), f"{prior}: s.e., %"
        numbers.append(Number("Table 1", label, rate.sd, error, rate.exact_sd, **compared, limits=limits))
        error = np.sqrt(rate.alpha * 2.0 / PROPOSALS)  # the count's prior predictive variance is 2 alpha
        label = f"{prior}: prior predictive mean"
        numbers.append(Number("Table 1", label, rate.predictive, error, rate.alpha, rate.alpha, 1.0))
    return numbers


@dataclass(frozen=True)
class Likelihood:
    """The maximum likelihood fits of section 5.1."""

    staged: nw.Fit
    exact: nw.Fit
    naive: nw.Fit


def likelihood(staged: nw.Staged, seed: int, progress: Progress) -> Likelihood:
    """By the paper's staged Monte Carlo EM, by exact EM, and naively."""
    poisson, start = count_model(25.0), {"theta": 1.0}
    progress(f"Maximum likelihood: three stages, up to {max(staged.sizes):,} values a step")
    climbed = nw.fit(
        poisson, published_count(), nw.MCEM(schedule=staged, final=max(staged.sizes)), start=start, seed=seed
    )
    progress("Maximum likelihood: exact EM, and the naive fit")
    return Likelihood(
        climbed,
        nw.fit(poisson, published_count(), nw.EM(), start=start),
        nw.fit(poisson, published_count().naive(), nw.EM(), start=start),
    )


def _only(matrix: Array | None) -> float:
    """The entry of a matrix of one parameter, which every fit here has."""
    assert matrix is not None
    return float(matrix[0, 0])


def likelihood_numbers(fits: Likelihood) -> list[Number]:
    """Estimates and information, beside the paper's."""
    top, information = Count().maximum
    naive = 1.0 / 37.4
    staged = fits.staged
    error = float(staged.monte_carlo_error["theta"])
    section, by_em = "Maximum likelihood", _only(fits.exact.information)
    by_stages, spread = _only(staged.information), _only(staged.information_error)
    claimed = _only(fits.naive.information)
    # The paper's third digit comes from 1e7 values: its own Monte Carlo error is about 1.5e-3.
    printed: dict[str, Any] = {"paper": 37.237, "printed": 1e-3, "paper_error": 2e-3}
    return [
        Number(section, "estimate, three stages", float(staged.estimate["theta"]), error, top, **printed),
        Number(section, "estimate, exact EM", float(fits.exact.estimate["theta"]), 0.0, top, **printed),
        Number(section, "information, three stages", by_stages, spread, information, 1.582e-2, 1e-5, 1e-5),
        Number(section, "information, exact EM", by_em, 0.0, information, 1.582e-2, 1e-5, 1e-5),
        Number(section, "naive estimate", float(fits.naive.estimate["theta"]), 0.0, 37.4, 37.4, 0.1),
        Number(section, "naive information", claimed, 0.0, naive, 2.674e-2, 1e-5),
        Number(section, "naive over exact information", claimed / by_em, 0.0, naive / information, 1.69, 0.01),
    ]
