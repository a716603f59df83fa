"""Gaussian noise on the integers (Canonne, Kamath and Steinke 2020), as in the 2020 U.S. Census."""

import math
from typing import Any

import numpy as np

from noisewise.mechanisms import discrete_laplace
from noisewise.mechanisms.additive import Lattice, calibrate
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import namespace

_TERMS = np.arange(1, 13)


class DiscreteGaussian(Lattice):
    """s_dp = s + z on the integers, P(z) proportional to exp(-z^2 / (2 scale^2)).

    `scale` is the sigma of the formula, not exactly the standard deviation. Calibration: scale =
    sensitivity / sqrt(2 rho), `sensitivity` in the l2 norm, is rho-zCDP (their Theorem 14).
    Sampler: their Algorithm 3 (rejection from discrete Laplace noise), in floating point.
    """

    arguments = {"scale": POSITIVE, "rho": BUDGET, "sensitivity": BUDGET}
    alternatives = (("scale",), ("rho", "sensitivity"))
    scale: Any

    def __init__(self, scale: Any = None, *, rho: Any = None, sensitivity: Any = None) -> None:
        budget, rule = {"rho": rho}, lambda delta, rho: delta / math.sqrt(2.0 * rho)
        self._freeze(**calibrate("DiscreteGaussian", scale, sensitivity, budget, norm="l2", rule=rule))

    def noise_log_prob(self, z: Any) -> Any:
        """-z^2 / (2 scale^2) less the log normaliser."""
        xp = namespace(z, self.scale)
        standard = z / self.scale
        return -0.5 * standard * standard - _log_normaliser(xp, self.scale)

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Discrete Gaussian variates, int64."""
        return draw(rng, self.scale, shape)


def _log_normaliser(xp: Any, scale: Any) -> Any:
    """log sum_z exp(-z^2 / (2 scale^2)).

    Summed directly below scale 0.5; above, by Poisson summation: scale sqrt(2 pi) sum_k exp(-2 (pi scale k)^2).
    In both ranges the thirteenth term is below 1e-140 of the first.
    """
    scale = xp.asarray(scale)
    few = xp.minimum(scale, 0.5)[..., None]
    many = xp.maximum(scale, 0.5)[..., None]
    direct = xp.log1p(2.0 * xp.sum(xp.exp(-0.5 * (_TERMS / few) ** 2), axis=-1))
    dual = xp.log1p(2.0 * xp.sum(xp.exp(-2.0 * (math.pi * many * _TERMS) ** 2), axis=-1))
    return xp.where(scale < 0.5, direct, xp.log(scale) + 0.5 * math.log(2.0 * math.pi) + dual)


def draw(rng: np.random.Generator, scale: Any, shape: tuple[int, ...]) -> Any:
    """Discrete Gaussian variates, int64: discrete Laplace proposals of scale t = floor(sigma) + 1,
    kept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2))."""
    sigma = np.broadcast_to(np.asarray(scale, dtype=float), shape).ravel()
    result = np.empty(sigma.size, dtype=np.int64)
    pending = np.arange(sigma.size)
    while pending.size:
        s = sigma[pending]
        t = np.floor(s) + 1.0
        proposal = discrete_laplace.draw(rng, t, s.shape)
        excess = (np.abs(proposal) - s * s / t) / s
        kept = rng.standard_exponential(s.shape) >= 0.5 * excess * excess
        result[pending[kept]] = proposal[kept]
        pending = pending[~kept]
    return result.reshape(shape)
