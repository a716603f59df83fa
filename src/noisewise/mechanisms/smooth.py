"""Noise calibrated to smooth sensitivity (Nissim, Raskhodnikova and Smith 2007).

S is a xi-smooth sensitivity of the query if it bounds the local sensitivity at every data set, and if the values of
neighbours differ by a factor of at most exp(xi). Write h = c S for the scale of the noise, f for the density of the
noise u at scale 1, p for the number of entries. Between neighbours (s, h) and (s', h') with h' = h exp(-v), |v| <= xi,
the shifts ||s - s'|| / h and ||s - s'|| / h' are at most 1/c, and the privacy loss is
log f(u) - log f(u e^v + (s - s') / h') - p v. Each function below states the c and the xi for which this is at most
epsilon, except with probability delta.
"""

import math
from dataclasses import dataclass
from typing import Any

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.gaussian import Gaussian
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.laplace import Laplace
from noisewise.mechanisms.latent_scale import LatentScale

LARGEST_EPSILON = 10.0
"""The (epsilon, delta) calibrations are audited up to this epsilon; far beyond it (20 and more) they fail."""


@dataclass(frozen=True)
class Smooth:
    """Noise for a smooth sensitivity of 1, and the `xi` that the sensitivity must be smooth at."""

    noise: Additive
    xi: float
    guarantee: Guarantee

    def latent(self, statistic: str, bound: Any) -> LatentScale:
        """The noise as the curator adds it: its scale follows max(bound, S), S the confidential value `statistic`."""
        return _guaranteed(LatentScale(self.noise, statistic, bound), self.guarantee)

    def known(self, sensitivity: Any) -> Any:
        """The noise for one number S: a published smooth sensitivity, or a bound of it over all data sets.

        The guarantee is that of the released value. It does not cover S: a smooth sensitivity published without noise
        of its own is not private.
        """
        who, advice = "Smooth.known", "Give the smooth sensitivity that the curator used."
        factor = checks.positive_number(who, "sensitivity", sensitivity, advice)
        parameters = {name: getattr(self.noise, name) for name in self.noise.fields}
        parameters["scale"] = parameters["scale"] * factor
        return _guaranteed(type(self.noise)(**parameters), self.guarantee)


def laplace(epsilon: float, delta: float, *, dimension: int = 1, neighbours: str | None = None) -> Smooth:
    """(epsilon, delta)-DP Laplace noise: scale 2 S / epsilon, xi = epsilon / (4 (p + log(2 / delta))); l1 norm.

    The loss is at most epsilon/2 + (e^xi - 1) ||u||_1 - p xi, or epsilon/2 + p xi, which is below epsilon. The first
    exceeds epsilon with the probability that a Gamma(p) variate exceeds (epsilon/2 + p xi) / (e^xi - 1): below delta.
    Half that scale, S / epsilon (Gong 2022, Example 2), spends all of epsilon on the shift: it is not (epsilon,
    delta)-DP.
    """
    epsilon, xi = _approximate("smooth.laplace", epsilon, delta, dimension)
    return Smooth(
        Laplace(scale=2.0 / epsilon),
        xi,
        Guarantee(epsilon, delta, norm="l1", neighbours=neighbours, dimension=dimension),
    )


def gaussian(epsilon: float, delta: float, *, dimension: int = 1, neighbours: str | None = None) -> Smooth:
    """(epsilon, delta)-DP Gaussian noise: scale 5 sqrt(2 log(2 / delta)) S / epsilon, xi as for `laplace`; l2 norm.

    The loss is a quadratic in u, and the probability that it exceeds epsilon a noncentral chi-squared tail; the audit
    finds it far below delta.
    """
    epsilon, xi = _approximate("smooth.gaussian", epsilon, delta, dimension)
    scale = 5.0 * math.sqrt(2.0 * math.log(2.0 / delta)) / epsilon
    return Smooth(
        Gaussian(scale=scale), xi, Guarantee(epsilon, delta, norm="l2", neighbours=neighbours, dimension=dimension)
    )


def cauchy(epsilon: float, power: float = 4.0, *, dimension: int = 1, neighbours: str | None = None) -> Smooth:
    """epsilon-DP generalised Cauchy noise: scale 2 (power + 1) S / epsilon, xi = epsilon / (2 (power + 1) p); l1 norm.

    With g = power, |d log f / du| = g |u|^(g-1) / (1 + |u|^g) is at most (g - 1)^(1 - 1/g), and log f(u e^v) + v
    changes with v at a rate between 1 - g and 1, in each entry. So the loss is at most
    epsilon ((g - 1)^(1 - 1/g) + max(1, g - 1)) / (2 (g + 1)), below epsilon. `power` = 4 has a finite variance.
    """
    who = "smooth.cauchy"
    epsilon = checks.positive_number(who, "epsilon", epsilon, "Give the privacy budget.")
    dimension = checks.integer(who, "dimension", dimension, least=1, advice="It is the number of released entries.")
    power = checks.positive_number(who, "power", power, "Give one number above 1.")
    factor = 2.0 * (power + 1.0) / epsilon
    noise = GeneralizedCauchy(power=power, scale=factor)
    return Smooth(
        noise, 1.0 / (factor * dimension), Guarantee(epsilon, norm="l1", neighbours=neighbours, dimension=dimension)
    )


def _approximate(who: str, epsilon: float, delta: float, dimension: int) -> tuple[float, float]:
    epsilon = checks.positive_number(who, "epsilon", epsilon, "Give the privacy budget.")
    if epsilon > LARGEST_EPSILON:
        advice = "The calibration is not certified beyond."
        raise refusal(who, "epsilon", f"must be at most {LARGEST_EPSILON:g}", epsilon, advice)
    delta = checks.positive_number(who, "delta", delta, "Give a small probability.")
    if delta >= 1.0:
        raise refusal(who, "delta", "must be below 1", delta, "Give a small probability.")
    dimension = checks.integer(who, "dimension", dimension, least=1, advice="It is the number of released entries.")
    return epsilon, epsilon / (4.0 * (dimension + math.log(2.0 / delta)))


def _guaranteed(mechanism: Any, guarantee: Guarantee) -> Any:
    mechanism._freeze(guarantee)  # replaces the guarantee only
    return mechanism
