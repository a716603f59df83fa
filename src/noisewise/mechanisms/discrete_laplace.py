"""Two-sided geometric noise on the integers (Ghosh, Roughgarden and Sundararajan 2012)."""

from typing import Any

import numpy as np

from noisewise.mechanisms.additive import Lattice, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import namespace


class DiscreteLaplace(Lattice):
    """s_dp = s + z on the integers, P(z) = tanh(1 / (2 scale)) exp(-|z| / scale).

    Calibration: scale = sensitivity / epsilon, `sensitivity` in the l1 norm, is epsilon-DP.
    Sampler: the difference of two geometric variates with success probability 1 - exp(-1/scale).
    """

    did = "got whole-numbered Laplace noise of scale {scale}"
    arguments = {"scale": POSITIVE, "epsilon": BUDGET, "sensitivity": BUDGET}
    alternatives = (("scale",), ("epsilon", "sensitivity"))
    scale: Any

    def __init__(self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None) -> None:
        budget, rule = {"epsilon": epsilon}, lambda delta, epsilon: delta / epsilon
        self._freeze(**scale_and_guarantee("DiscreteLaplace", scale, sensitivity, budget, norm="l1", rule=rule))

    def noise_log_prob(self, z: Any) -> Any:
        """log tanh(1 / (2 scale)) - |z| / scale."""
        xp = namespace(z, self.scale)
        # (1 - a)/(1 + a) with a = exp(-1/scale); expm1 keeps the digits when the scale is large.
        decay = -1.0 / xp.asarray(self.scale)
        return xp.log(-xp.expm1(decay)) - xp.log1p(xp.exp(decay)) - xp.abs(z) / self.scale

    def noise_log_cdf(self, z: Any) -> Any:
        """log P(noise <= z): a^-floor(z) / (1 + a) below zero, 1 - a^(floor(z) + 1) / (1 + a) from zero on."""
        xp = namespace(z, self.scale)
        point = xp.floor(z)
        log_half = -xp.log1p(xp.exp(-1.0 / xp.asarray(self.scale)))
        above = xp.log1p(-xp.exp(-(xp.maximum(point, 0.0) + 1.0) / self.scale + log_half))
        return xp.where(point < 0, point / self.scale + log_half, above)

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Discrete Laplace variates, int64."""
        return draw(rng, self.scale, shape)


def draw(rng: np.random.Generator, scale: Any, shape: tuple[int, ...]) -> Any:
    """Discrete Laplace variates of any scales, int64."""
    success = -np.expm1(-1.0 / np.asarray(scale))
    return rng.geometric(success, shape) - rng.geometric(success, shape)
