"""Generalised Cauchy noise (Nissim, Raskhodnikova and Smith 2007)."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import POSITIVE
from noisewise.numerics import namespace, special

_NEGLIGIBLE = 1e-20
"""Below this argument the incomplete beta function equals its leading term, up to rounding."""


class GeneralizedCauchy(Additive):
    """s_dp = s + scale * u, with u of density power sin(pi / power) / (2 pi) / (1 + |u|^power), power > 1.

    Calibration: none of its own. Heavy tails serve smooth sensitivity (Nissim, Raskhodnikova and Smith 2007),
    which gives the scale; `power` = 2 is Cauchy noise.
    Normaliser: substituting w = |u|^power turns 2 / (1 + u^power) over u > 0 into (2 / power) B(1/power, 1 - 1/power),
    which is 2 pi / (power sin(pi / power)) by Euler's reflection.
    Sampler: the same substitution says |u|^power = B / (1 - B) with B ~ Beta(1/power, 1 - 1/power), a ratio of two
    gamma variates. Each is drawn as Gamma(a) = Gamma(a + 1) U^(1/a), so that small shapes do not underflow. Values
    beyond the range of floating point come out infinite (powers close to 1).
    Distribution function: P(|u| > t) is the regularised incomplete beta function of 1 / (1 + t^power).
    Supremum: attained at s = s_dp.
    """

    did = "got heavy-tailed (generalised Cauchy) noise of scale {scale}"
    fields = ("power", "scale")
    unit = "scale"
    arguments = {"power": POSITIVE, "scale": POSITIVE}
    alternatives = (("power", "scale"),)
    power: Any
    scale: Any

    def __init__(self, power: Any, scale: Any) -> None:
        who, advice = "GeneralizedCauchy", "Give one number above 1, or one per entry; 2 is Cauchy noise."
        original, power = power, checks.positive(who, "power", power, advice)
        if not np.all(np.asarray(power) > 1.0):
            raise refusal(who, "power", "must be above 1, where the density has finite mass", original, advice)
        scale = checks.positive(who, "scale", scale, "Give one number, or one per entry.")
        self._freeze(power=power, scale=scale)

    def noise_log_prob(self, z: Any) -> Any:
        """-log(1 + |z / scale|^power) - log(2 pi scale / (power sin(pi / power)))."""
        xp = namespace(z, self)
        return -xp.logaddexp(0.0, self._log_power(xp, z)) - xp.log(self.scale) + self._log_sine(xp) - math.log(2.0)

    def noise_log_cdf(self, z: Any) -> Any:
        """log of I_x(1 - 1/power, 1/power) / 2 below zero, x = 1 / (1 + |z / scale|^power); by symmetry above."""
        xp = namespace(z, self)
        log_w = self._log_power(xp, z)
        inner, outer = 1.0 / xp.asarray(self.power), (self.power - 1.0) / self.power
        # Each end of the Beta law from its own side: x or 1 - x, whichever is at most a half.
        far = self._log_beta(xp, -xp.logaddexp(0.0, log_w), outer, inner)
        near = self._log_beta(xp, -xp.logaddexp(0.0, -log_w), inner, outer)
        is_far = log_w > 0
        log_tail = xp.where(is_far, far, xp.log1p(-xp.exp(xp.where(is_far, -1.0, near)))) - math.log(2.0)
        return xp.where(z < 0, log_tail, xp.log1p(-xp.exp(log_tail)))

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The released value, about which |u|^power may not be smooth: hence a small part of the scale."""
        return [(released, 1e-3 * self.scale)]

    def _log_side(self, xp: Any, start: Any, width: Any) -> Any:
        """Near zero, where |u|^power is not smooth, by the series t sum_k (-t^power)^k / (power k + 1)."""
        near = xp.minimum(xp.abs(start), xp.abs(start + width)) / self.scale
        size = width / self.scale
        use = near < 4.0 * size  # there t < 0.05, and thirteen terms suffice
        ends = [xp.where(use, end, 0.0) for end in (near, near + size)]
        inner, outer = (end * self._series(xp, end) for end in ends)
        mass = xp.where(use, outer - inner, 0.0)
        log_mass = xp.log(xp.where(mass > 0, mass, 1.0)) + self._log_sine(xp) - math.log(2.0)
        return xp.where(use & (mass > 0), log_mass, super()._log_side(xp, start, width))

    def _series(self, xp: Any, end: Any) -> Any:
        """The mean of 1 / (1 + u^power) over 0 < u < end."""
        step = -xp.exp(xp.minimum(self._log_power(xp, end * self.scale), -2.9))
        total: Any = 1.0 / (13.0 * self.power + 1.0)
        for k in range(12, -1, -1):
            total = 1.0 / (self.power * k + 1.0) + step * total
        return total

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Signed roots of a ratio of gamma variates."""
        power = np.asarray(self.power)
        ratio = rng.standard_gamma(1.0 + 1.0 / power, shape) / rng.standard_gamma(2.0 - 1.0 / power, shape)
        with np.errstate(over="ignore"):
            size = rng.random(shape) * ratio ** (1.0 / power) * (1.0 - rng.random(shape)) ** (-1.0 / (power - 1.0))
            return self.scale * np.where(rng.random(shape) < 0.5, -size, size)

    def _log_power(self, xp: Any, z: Any) -> Any:
        """log of |z / scale|^power; -inf at zero."""
        size = xp.abs(z) / self.scale
        return xp.where(size > 0, self.power * xp.log(xp.where(size > 0, size, 1.0)), -xp.inf)

    def _log_sine(self, xp: Any) -> Any:
        """log of power sin(pi / power) / pi, from the side of the sine that keeps its digits."""
        angle = xp.minimum(1.0 / xp.asarray(self.power), (self.power - 1.0) / self.power)
        return xp.log(self.power * xp.sin(math.pi * angle) / math.pi)

    def _log_beta(self, xp: Any, log_x: Any, a: Any, b: Any) -> Any:
        """log I_x(a, b) for a + b = 1 and x at most a half, where B(a, b) = pi / sin(pi a)."""
        x = xp.clip(xp.exp(log_x), _NEGLIGIBLE, 0.5)
        leading = a * log_x - xp.log(a) + self._log_sine(xp) - xp.log(self.power)
        return xp.where(log_x < math.log(_NEGLIGIBLE), leading, xp.log(special(x, self).betainc(a, b, x)))
