"""Gaussian noise on the integers (Canonne, Kamath and Steinke 2020), as in the 2020 U.S. Census."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import discrete_laplace
from noisewise.mechanisms.additive import Lattice, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import log_ndtr, namespace

_TERMS = np.arange(1, 13)


class DiscreteGaussian(Lattice):
    """s_dp = s + z on the integers, P(z) proportional to exp(-z^2 / (2 scale^2)).

    `scale` is the sigma of the formula, not exactly the standard deviation; `variance` is its square, as the Census
    Bureau publishes it. Calibration: scale =
    sensitivity / sqrt(2 rho), `sensitivity` in the l2 norm, is rho-zCDP (their Theorem 14).
    Sampler: their Algorithm 3 (rejection from discrete Laplace noise), in floating point.
    """

    did = "got whole-numbered normal noise of scale {scale}"
    arguments = {"scale": POSITIVE, "variance": POSITIVE, "rho": BUDGET, "sensitivity": BUDGET}
    alternatives = (("scale",), ("variance",), ("rho", "sensitivity"))
    scale: Any

    def __init__(self, scale: Any = None, *, variance: Any = None, rho: Any = None, sensitivity: Any = None) -> None:
        if variance is not None:
            advice = "Give variance, scale, or sensitivity with rho."
            if scale is not None:
                raise refusal("DiscreteGaussian", "variance", "must not come together with scale", variance, advice)
            scale = np.sqrt(checks.positive("DiscreteGaussian", "variance", variance, advice))
        budget, rule = {"rho": rho}, lambda delta, rho: delta / math.sqrt(2.0 * rho)
        self._freeze(**scale_and_guarantee("DiscreteGaussian", scale, sensitivity, budget, norm="l2", rule=rule))

    def noise_log_prob(self, z: Any) -> Any:
        """-z^2 / (2 scale^2) less the log normaliser."""
        xp = namespace(z, self.scale)
        standard = z / self.scale
        return -0.5 * standard * standard - _log_normaliser(xp, self.scale)

    def noise_log_cdf(self, z: Any) -> Any:
        """log P(noise <= z): the tail summed from its near end, or by Euler-Maclaurin where it is long."""
        xp = namespace(z, self.scale)
        point = xp.floor(z)
        start = xp.where(point < 0, -point, point + 1.0)  # the first term of the tail on the shorter side
        log_tail = _log_tail(xp, start, xp.asarray(self.scale, dtype=float)) - _log_normaliser(xp, self.scale)
        return xp.where(point < 0, log_tail, xp.log1p(-xp.exp(xp.minimum(log_tail, 0.0))))

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


def _log_tail(xp: Any, start: Any, scale: Any) -> Any:
    """log sum_{k >= m} exp(-k^2 / (2 scale^2)), m = start >= 1.

    Term by term where 160 terms reach 1e-17 of the first: for scales up to 14, or m beyond a quarter of scale^2.
    Else Euler-Maclaurin about a = m - 1/2: the integral from a, and derivatives of f at a weighted by 1/24, -7/5760,
    31/967680, -127/154828800; there a / scale^2 <= 1/4 and scale > 14, and the next term is below 1e-13 of f(a).
    """
    start = xp.minimum(start, 1e-4 * float(xp.finfo(scale.dtype).max) ** 0.5 * scale)  # beyond, squares overflow
    short = (scale <= 14.0) | (start >= 0.25 * scale * scale)
    first = -0.5 * (start / scale) ** 2
    terms = xp.zeros_like(first)
    for j in range(1, 160):
        terms = terms + xp.exp(-j * (2.0 * start + j) / (2.0 * scale * scale))
    direct = first + xp.log1p(terms)
    x = xp.where(short, 1.0, (start - 0.5) / scale)
    hermite = [xp.ones_like(x), x]
    for n in range(1, 7):
        hermite.append(x * hermite[n] - n * hermite[n - 1])
    # f^(n) = (-1)^n He_n(x) f / scale^n; only odd derivatives enter
    derivative = {n: -hermite[n] / scale**n for n in (1, 3, 5, 7)}
    correction = derivative[1] / 24.0 - 7.0 * derivative[3] / 5760.0
    correction = correction + 31.0 * derivative[5] / 967680.0 - 127.0 * derivative[7] / 154828800.0
    log_integral = xp.log(scale) + 0.9189385332046727 + log_ndtr(-x)
    ratio = correction * xp.exp(xp.minimum(-0.5 * x * x - log_integral, 50.0))
    long = log_integral + xp.log1p(xp.where(ratio > -0.5, ratio, 0.0))
    return xp.where(short, direct, long)


def draw(rng: np.random.Generator, scale: Any, shape: tuple[int, ...]) -> Any:
    """Discrete Gaussian variates, int64, by rejection.

    Discrete Laplace proposals y of scale t = floor(sigma) + 1 are kept with probability
    exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
    """
    sigma = np.broadcast_to(np.asarray(scale, dtype=float), shape).ravel()
    result = np.empty(sigma.size, dtype=np.int64)
    pending = np.arange(sigma.size)
    while pending.size:
        s = sigma[pending]
        t = np.floor(s) + 1.0
        proposal = discrete_laplace.draw(rng, t, s.shape)
        excess = (np.abs(proposal) - s * s / t) / s
        accepted = rng.standard_exponential(s.shape) >= 0.5 * excess * excess
        result[pending[accepted]] = proposal[accepted]
        pending = pending[~accepted]
    return result.reshape(shape)
