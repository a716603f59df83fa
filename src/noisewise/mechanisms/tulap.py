"""Truncated-uniform-Laplace noise, the canonical noise of (epsilon, delta)-DP (Awan and Slavkovic 2018)."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive, jumps_that_count
from noisewise.mechanisms.base import NUMBERS, POSITIVE
from noisewise.mechanisms.discrete import log
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace


class Tulap(Additive):
    """s_dp = s + sensitivity * u; u is discrete Laplace noise plus uniform noise on (-1/2, 1/2), its tails cut off.

    With b = exp(-epsilon), the untruncated density is (1 - b) / (1 + b) b^[u], [u] the whole number nearest to |u|.
    For delta > 0 each tail of mass q / 2 is cut off, q = 2 delta b / (1 - b + 2 delta b). Since (1 - b) / (1 - q) =
    1 - b + 2 delta b, the density is (1 - b + 2 delta b) / (1 + b) b^[u] on |u| <= t, where t follows from the tail
    P(|u| > k - 1/2 + r) / 2 = b^k (1 - r (1 - b)) / (1 + b), 0 <= r <= 1, set to q / 2.
    Calibration: a shift by one whole `sensitivity` has exactly the trade-off function of (epsilon, delta)-DP, smaller
    shifts less: canonical noise (Awan and Slavkovic 2018; Awan and Vadhan 2023); `make_canonical_noise` in OpenDP.
    The guarantee recorded is that of one entry, for neighbours that differ in it by at most `sensitivity`: where one
    record moves several entries, they compose. It is recorded when all arguments are single numbers.
    Sampler: inversion. The untruncated tail at |u| is uniform on (q / 2, 1 / 2); it is solved for k and r as above.
    Supremum: attained at s = s_dp, and on the whole step about it.
    """

    did = "got truncated uniform-Laplace (Tulap) noise with epsilon {epsilon} and delta {delta}"
    fields = ("epsilon", "delta", "sensitivity")
    unit = "sensitivity"
    arguments = {"epsilon": POSITIVE, "delta": NUMBERS, "sensitivity": POSITIVE}
    alternatives = (("epsilon",),)
    epsilon: Any
    delta: Any
    sensitivity: Any

    def __init__(self, epsilon: Any, delta: Any = 0.0, sensitivity: Any = 1.0) -> None:
        who, advice = "Tulap", "Give one number, or one per entry."
        epsilon = checks.positive(who, "epsilon", epsilon, advice)
        sensitivity = checks.positive(who, "sensitivity", sensitivity, advice)
        original, delta = delta, checks.numeric(who, "delta", delta, advice)
        if not np.all((np.asarray(delta) >= 0.0) & (np.asarray(delta) < 1.0)):
            raise refusal(who, "delta", "must be at least 0 and below 1", original, "Give a small probability, or 0.")
        guarantee = None
        if np.ndim(epsilon) == np.ndim(delta) == np.ndim(sensitivity) == 0:
            guarantee = Guarantee(epsilon=epsilon, delta=delta or None, sensitivity=sensitivity)
        self._freeze(guarantee, epsilon=epsilon, delta=delta, sensitivity=sensitivity)

    def noise_log_prob(self, z: Any) -> Any:
        """log((1 - b + 2 delta b) / ((1 + b) sensitivity)) - epsilon [|z| / sensitivity]; -inf beyond t."""
        xp = namespace(z, self)
        size = xp.abs(z) / self.sensitivity
        inside = size <= self._bound(xp)
        value = self._log_height(xp) - xp.log(self.sensitivity) - self.epsilon * xp.floor(size + 0.5)
        return xp.where(inside, value, -xp.inf)

    def noise_log_cdf(self, z: Any) -> Any:
        """log of the mass from |z| to t below zero, summed over steps; by symmetry above."""
        xp = namespace(z, self)
        size, bound = xp.abs(z) / self.sensitivity, self._bound(xp)
        inside = size < bound
        size = xp.where(inside, size, 0.0)
        step, last = xp.floor(size + 0.5), xp.floor(bound + 0.5)
        rest = size + 0.5 - step
        end = xp.where(last < xp.inf, bound + 0.5, 0.0) - xp.where(last < xp.inf, last, 0.0)
        # In units of the height at |z|: the rest of its step, the whole steps between, the part of the last one.
        between = xp.maximum(last - step - 1.0, 0.0)
        decay = -xp.asarray(self.epsilon)
        whole = xp.exp(decay) * xp.expm1(decay * between) / xp.expm1(decay)
        apart = 1.0 - rest + whole + xp.exp(decay * (between + 1.0)) * end
        mass = xp.where(last > step, apart, end - rest)
        log_mass = xp.log(xp.where(inside & (mass > 0), mass, 1.0)) + self._log_height(xp) + decay * step
        log_tail = xp.where(inside & (mass > 0), log_mass, -xp.inf)
        return xp.where(z < 0, log_tail, xp.log1p(-xp.exp(log_tail)))

    @property
    def noise_bound(self) -> Any:
        """t, in units of the released value; infinite for delta = 0."""
        return self.sensitivity * self._bound(np)

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The released value and the jumps on either side of it; not known where there are too many."""
        count = jumps_that_count(self.epsilon)
        if count is None:
            return None
        distances = [self.sensitivity * (step + 0.5) for step in range(count)] + [
            self.sensitivity * self._bound(namespace(released, self))
        ]
        sides = [released + sign * distance for distance in distances for sign in (-1.0, 1.0)]
        return [(place, self.sensitivity) for place in (released, *sides)]

    def _log_side(self, xp: Any, start: Any, width: Any) -> Any:
        """Cut at the one half step that a narrow interval can hold, and at the end of the noise."""
        near = xp.minimum(xp.abs(start), xp.abs(start + width)) / self.sensitivity
        step = xp.floor(near + 0.5) + 0.5
        return self._log_pieces(xp, start, width, self.sensitivity * step, self.sensitivity * self._bound(xp))

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Inverted tail probabilities with a fair sign."""
        size = self.sensitivity * self._inverse(np, 1.0 - rng.random(shape))
        return np.where(rng.random(shape) < 0.5, -size, size)

    def _log_height(self, xp: Any) -> Any:
        """log of the density at zero, for sensitivity 1."""
        b = xp.exp(-xp.asarray(self.epsilon))
        return xp.log(-xp.expm1(-xp.asarray(self.epsilon)) + 2.0 * self.delta * b) - xp.log1p(b)

    def _bound(self, xp: Any) -> Any:
        """t, where the noise ends; infinite for delta = 0."""
        return self._inverse(xp, 0.0)

    def _inverse(self, xp: Any, share: Any) -> Any:
        """The |u| beyond which a given share of the noise lies."""
        loss = xp.asarray(self.epsilon)
        gap = -xp.expm1(-loss)
        total = gap + 2.0 * self.delta * xp.exp(-loss)
        # log of 2 T, T = q / 2 + share (1 - q) / 2 the untruncated tail: by adding, or by subtracting from 1 if near it
        log_cut = log(xp, xp.asarray(2.0 * self.delta)) - loss - xp.log(total)
        added = xp.logaddexp(log_cut, log(xp, xp.asarray(share)) + xp.log(gap / total))
        possible, near_one = added > -xp.inf, added > -0.5
        subtracted = xp.log1p(-xp.where(near_one, (1.0 - share) * gap / total, 0.0))
        # log of (1 + b) T = b^steps (1 - rest (1 - b))
        level = xp.where(possible, xp.where(near_one, subtracted, added), 0.0) + xp.log1p(-0.5 * gap)
        steps = xp.floor(-level / loss)
        rest = xp.clip(-xp.expm1(level + loss * steps) / gap, 0.0, 1.0)
        return xp.where(possible, xp.maximum(steps + rest - 0.5, 0.0), xp.inf)
