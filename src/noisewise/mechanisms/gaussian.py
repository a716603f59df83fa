"""Gaussian noise, with the analytic calibration of Balle and Wang (2018)."""

import math
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from noisewise.errors import InputError, refusal
from noisewise.mechanisms.additive import Additive, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import log_ndtr as log_ndtr_of
from noisewise.numerics import namespace

_BUDGETS = "epsilon and delta, or rho, or mu"
_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Gaussian(Additive):
    """s_dp = s + scale * u, with u standard normal.

    Calibration, `sensitivity` in the l2 norm: `epsilon` with `delta` (the smallest scale that is
    (epsilon, delta)-DP; Balle and Wang 2018, Theorem 8), or `rho` (zCDP, scale = sensitivity / sqrt(2 rho);
    Bun and Steinke 2016), or `mu` (GDP, scale = sensitivity / mu; Dong, Roth and Su 2022).
    Sampler: `Generator.standard_normal`.
    """

    did = "got normal noise of standard deviation {scale}"
    unit = "scale"
    arguments = {"scale": POSITIVE} | dict.fromkeys(("epsilon", "delta", "rho", "mu", "sensitivity"), BUDGET)
    alternatives = (("scale",), ("epsilon", "delta", "sensitivity"), ("rho", "sensitivity"), ("mu", "sensitivity"))
    scale: Any

    def __init__(
        self,
        scale: Any = None,
        *,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        mu: Any = None,
        sensitivity: Any = None,
    ) -> None:
        budget = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
        self._freeze(
            **scale_and_guarantee("Gaussian", scale, sensitivity, budget, norm="l2", rule=calibrated, advice=_BUDGETS)
        )

    def noise_log_prob(self, z: Any) -> Any:
        """Normal log density."""
        xp = namespace(z, self.scale)
        standard = z / self.scale
        return -0.5 * standard * standard - xp.log(self.scale) - _LOG_ROOT_TWO_PI

    def noise_log_cdf(self, z: Any) -> Any:
        """log Phi(z / scale)."""
        return log_ndtr_of(z / self.scale)

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Scaled standard normal variates."""
        return self.scale * rng.standard_normal(shape)


def calibrated(sensitivity: float, **budget: float) -> float:
    """The scale for an l2 sensitivity and one budget: epsilon with delta, or rho, or mu."""
    match sorted(budget):
        case ["rho"]:
            return sensitivity / math.sqrt(2.0 * budget["rho"])
        case ["mu"]:
            return sensitivity / budget["mu"]
        case ["delta", "epsilon"]:
            if budget["delta"] >= 1.0:
                raise refusal("Gaussian", "delta", "must be below 1", budget["delta"], "Give a small probability.")
            return sensitivity * unit_scale(budget["epsilon"], budget["delta"])
        case _:
            raise not_one_budget("Gaussian", budget, "Give epsilon with delta, or rho, or mu, each with sensitivity.")


def not_one_budget(who: str, budget: dict[str, float], advice: str) -> InputError:
    """The refusal of anything but epsilon with delta, or rho alone, or mu alone."""
    match sorted(budget):
        case []:
            return refusal(who, "epsilon", "must be given, or rho or mu", None, advice)
        case ["delta" | "epsilon" as one]:
            other = "epsilon" if one == "delta" else "delta"
            return refusal(who, other, f"must come with {one}", None, advice)
    last = max(budget)
    return refusal(who, last, "must not come with another budget", budget[last], advice)


def log_delta(epsilon: float, scale: float) -> float:
    """log of the smallest delta for which unit-sensitivity Gaussian noise is (epsilon, delta)-DP.

    Phi(1/(2 scale) - epsilon scale) - e^epsilon Phi(-1/(2 scale) - epsilon scale), in logs.
    """
    first = log_ndtr(0.5 / scale - epsilon * scale)
    second = epsilon + log_ndtr(-0.5 / scale - epsilon * scale)
    return float(first + np.log1p(-np.exp(min(second - first, 0.0)))) if second < first else -math.inf


def unit_scale(epsilon: float, delta: float) -> float:
    """The smallest scale, for sensitivity 1, with `log_delta(epsilon, scale) <= log(delta)`."""
    from scipy.optimize import brentq

    target = math.log(delta)

    def excess(log_scale: float) -> float:
        return max(log_delta(epsilon, math.exp(log_scale)), -1e6) - target

    low, high = -1.0, 1.0
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    scale = math.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14))
    # Root finding stops on either side: step to the private one.
    while log_delta(epsilon, scale) > target:
        scale *= 1.0 + 1e-14
    return scale
