"""Staircase noise (Geng and Viswanath 2014)."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive, jumps_that_count
from noisewise.mechanisms.base import POSITIVE
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace


class Staircase(Additive):
    """s_dp = s + z, with a density of z that is constant on steps and falls by exp(-epsilon) from each to the next.

    With b = exp(-epsilon) and D = `sensitivity`, the density at z is a b^k, where k counts the edges
    (j + gamma) D, j = 0, 1, ..., that lie at or below |z|; a = (1 - b) / (2 D (gamma + b (1 - gamma))).
    Calibration: moving z by at most D passes at most one edge, so each entry is epsilon-DP for neighbours that
    differ in it by at most `sensitivity`. The guarantee recorded is that of one entry: where one record moves several
    entries, they compose. It is recorded when both arguments are single numbers. By default gamma = 1 / (1 +
    exp(epsilon / 2)), which minimises E|z| among all epsilon-DP noise (Geng and Viswanath 2014; Geng, Kairouz, Oh and
    Viswanath 2015).
    Sampler: |z| = D (G + position), G geometric with P(G = k) = (1 - b) b^k; the position is uniform on [0, gamma) with
    probability gamma / (gamma + b (1 - gamma)), else on [gamma, 1); a fair sign.
    Supremum: attained at s = s_dp, and on the whole step about it.
    """

    did = "got staircase noise (epsilon {epsilon}, sensitivity {sensitivity})"
    fields = ("epsilon", "sensitivity", "gamma")
    unit = "sensitivity"
    arguments = dict.fromkeys(fields, POSITIVE)
    alternatives = (("epsilon", "sensitivity"),)
    epsilon: Any
    sensitivity: Any
    gamma: Any

    def __init__(self, epsilon: Any, sensitivity: Any, gamma: Any = None) -> None:
        who = "Staircase"
        epsilon = checks.positive(who, "epsilon", epsilon, "Give one number, or one per entry.")
        sensitivity = checks.positive(who, "sensitivity", sensitivity, "Give one number, or one per entry.")
        advice = "Leave it out for the step that minimises the mean absolute noise."
        if gamma is None:
            advice = "The best gamma underflows for so large an epsilon: give one."
            gamma = np.exp(-np.logaddexp(0.0, 0.5 * np.asarray(epsilon)))
        original, gamma = gamma, checks.positive(who, "gamma", gamma, advice)
        if not np.all(np.asarray(gamma) <= 1.0):
            raise refusal(who, "gamma", "must be at most 1, a share of the step", original, advice)
        single = np.ndim(epsilon) == np.ndim(sensitivity) == 0
        guarantee = Guarantee(epsilon=float(epsilon), sensitivity=float(sensitivity)) if single else None
        self._freeze(guarantee, epsilon=epsilon, sensitivity=sensitivity, gamma=gamma)

    def noise_log_prob(self, z: Any) -> Any:
        """log a - epsilon k, k the number of edges passed."""
        xp = namespace(z, self)
        steps, rest = self._steps(xp, z)
        height = xp.log(-xp.expm1(-xp.asarray(self.epsilon))) - xp.log(2.0 * self.sensitivity) - xp.log(self._width(xp))
        return height - self.epsilon * (steps + xp.where(rest < self.gamma, 0.0, 1.0))

    def noise_log_cdf(self, z: Any) -> Any:
        """log of b^k P(|noise| > rest) / 2 below zero, |z| being k whole steps and a rest; by symmetry above."""
        xp = namespace(z, self)
        steps, rest = self._steps(xp, z)
        b = xp.exp(-xp.asarray(self.epsilon))
        # P(|z| > r D) (gamma + b (1 - gamma)), r < 1, as sums of positive terms: before the edge, and after it
        # divided by b.
        before = self.gamma - rest + b * (1.0 - self.gamma + rest)
        after = 1.0 - (rest - self.gamma) * (1.0 - b)
        inside = rest < self.gamma
        log_rest = xp.log(xp.where(inside, before, after)) - xp.where(inside, 0.0, self.epsilon)
        log_tail = log_rest - self.epsilon * steps - xp.log(2.0 * self._width(xp))
        return xp.where(z < 0, log_tail, xp.log1p(-xp.exp(log_tail)))

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The released value and the jumps on either side of it; not known where there are too many."""
        count = jumps_that_count(self.epsilon)
        if count is None:
            return None
        distances = [self.sensitivity * (step + self.gamma) for step in range(count)]
        sides = [released + sign * distance for distance in distances for sign in (-1.0, 1.0)]
        return [(place, self.sensitivity) for place in (released, *sides)]

    def _log_side(self, xp: Any, start: Any, width: Any) -> Any:
        """Cut at the one edge that a narrow interval can hold."""
        near = xp.minimum(xp.abs(start), xp.abs(start + width)) / self.sensitivity
        return self._log_pieces(xp, start, width, self.sensitivity * (xp.floor(near - self.gamma) + 1.0 + self.gamma))

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Whole steps, a place in the last one, a sign."""
        gamma = np.asarray(self.gamma)
        steps = np.floor(rng.standard_exponential(shape) / self.epsilon)  # geometric
        first = rng.random(shape) * self._width(np) < gamma
        place = rng.random(shape)
        place = np.where(first, gamma * place, gamma + (1.0 - gamma) * place)
        size = self.sensitivity * (steps + place)
        return np.where(rng.random(shape) < 0.5, -size, size)

    def _steps(self, xp: Any, z: Any) -> tuple[Any, Any]:
        """Whole sensitivities in |z|, and the rest as a share of one."""
        size = xp.abs(z) / self.sensitivity
        within = xp.where(xp.isfinite(size), size, 0.0)
        return xp.floor(size), within - xp.floor(within)

    def _width(self, xp: Any) -> Any:
        """gamma + b (1 - gamma): a step's width in units of its upper height."""
        return self.gamma + xp.exp(-xp.asarray(self.epsilon)) * (1.0 - self.gamma)
