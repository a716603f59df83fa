"""One number of the paper beside ours and the exact one, with a verdict."""

import math
from dataclasses import dataclass
from typing import Any

from scipy.stats import beta, binom, chi2, norm

FALSE_ALARM = 1e-6
LIMIT = float(norm.isf(FALSE_ALARM / 2))
"""Standard errors beyond which Monte Carlo error is no explanation: one false alarm in a million numbers."""

Limits = tuple[float, float]


@dataclass(frozen=True)
class Number:
    """`ours`, with the Monte Carlo standard error `error`, beside `paper` and `exact`, either of which may be missing.

    The paper's number is rounded to steps of `printed`, and has the standard error `paper_error`. A right number of
    ours lies outside `limits` one time in a million; by default they are LIMIT standard errors about the exact value.
    """

    section: str
    label: str
    ours: float
    error: float
    exact: float | None = None
    paper: float | None = None
    printed: float = 0.0
    paper_error: float = 0.0
    limits: Limits | None = None

    @property
    def holds(self) -> bool:
        """Whether ours is within its Monte Carlo error of the exact value."""
        if self.exact is None:
            return True
        low, high = self.limits or (self.exact - LIMIT * self.error, self.exact + LIMIT * self.error)
        slack = 1e-6 * abs(self.exact)  # of quadrature and searches
        return bool(low - slack <= self.ours <= high + slack)

    @property
    def verdict(self) -> str:
        """Whether ours agrees with the exact value, and the paper's too, each within its own error."""
        verdicts = []
        if self.exact is not None:
            verdicts.append("ours agrees with the exact value" if self.holds else "OURS DIFFERS FROM THE EXACT VALUE")
        if self.paper is not None:
            truth, noise = (self.exact, 0.0) if self.exact is not None else (self.ours, self.error)
            allowed = 0.5 * self.printed + LIMIT * math.hypot(self.paper_error, noise)
            agrees = abs(self.paper - truth) <= allowed * (1 + 1e-9)
            verdicts.append("the paper agrees" if agrees else "the paper differs")
        return "; ".join(verdicts)

    def row(self) -> dict[str, Any]:
        """As plain data."""
        names = ("section", "label", "paper", "ours", "error", "exact", "verdict")
        return {name: getattr(self, name) for name in names}


def share_limits(probability: float, trials: int) -> Limits:
    """Limits of a share of independent trials: binomial."""
    low, high = binom.ppf(FALSE_ALARM / 2, trials, probability), binom.isf(FALSE_ALARM / 2, trials, probability)
    return float(low) / trials, float(high) / trials


def quantile_limits(level: float, draws: float) -> Limits:
    """Levels between which a sample quantile of independent draws lies: ordered uniforms are Beta variates."""
    rank = 1 + level * (draws - 1)
    below, above = math.floor(rank), math.ceil(rank)
    low = beta.ppf(FALSE_ALARM / 2, below, draws + 1 - below)
    return float(low), float(beta.isf(FALSE_ALARM / 2, above, max(draws + 1 - above, 1.0)))


def spread_limits(sd: float, kurtosis: float, size: int) -> Limits:
    """Limits of a sample standard deviation, whose square is nearly chi-squared.

    Its degrees of freedom are those that give the variance of a sample variance under excess `kurtosis`.
    """
    freedom = 2.0 / (kurtosis / size + 2.0 / (size - 1))
    low, high = chi2.ppf(FALSE_ALARM / 2, freedom), chi2.isf(FALSE_ALARM / 2, freedom)
    return sd * math.sqrt(low / freedom), sd * math.sqrt(high / freedom)
