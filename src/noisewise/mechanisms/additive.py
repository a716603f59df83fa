"""Additive noise: s_dp = s + z with a law of z that does not depend on s."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import Measure, Mechanism, Supremum, kept_whole
from noisewise.mechanisms.discrete import log, log_sum
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace

NARROW = 1e-2
"""Probabilities of intervals narrower than this part of the scale are integrals of the density, not differences."""
_NODES, _WEIGHTS = (0.5 * (np.polynomial.legendre.leggauss(5)[0] + 1.0), 0.5 * np.polynomial.legendre.leggauss(5)[1])


class Additive(Mechanism):
    """s_dp = s + z, z independent of s with a density that is symmetric about zero and largest there.

    Subclasses give `noise_log_prob` and `noise_sample`, and `noise_log_cdf` where it is tractable (rounding,
    clipping and thresholds need it). Supremum: attained at s = s_dp.
    """

    measure: Measure = "density"
    supremum: Supremum = "attained"
    unit: ClassVar[str | None] = None
    """The name of the parameter on whose scale the density is smooth, except at zero and where `_log_side` cuts.

    Over intervals much narrower than that parameter the density is integrated. None: the probabilities of all intervals
    are differences of the distribution function.
    """
    scale: Any

    @abstractmethod
    def noise_log_prob(self, z: Any) -> Any:
        """log density of the noise at `z`."""

    @abstractmethod
    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Independent noise of the given shape."""

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return confidential + self.noise_sample(rng, np.shape(confidential))

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log density of the noise at the difference."""
        return self.noise_log_prob(released - confidential)

    def log_sup(self, released: Any) -> Any:
        """log density of the noise at zero, attained at confidential = released."""
        return self.noise_log_prob(namespace(released).zeros_like(released, dtype=float))

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The released value, where the density has its top; not known without a `unit`."""
        return None if self.unit is None or self.event_dim else [(released, getattr(self, self.unit))]

    @property
    def noise_bound(self) -> Any:
        """A size that the noise never exceeds; infinite where there is none."""
        return np.inf

    # Intervals, for post-processing -----------------------------------------------------------------------

    def noise_log_cdf(self, z: Any) -> Any:
        """log P(noise <= z), accurate in the lower tail; not every law has one that can be computed."""
        raise NotImplementedError

    @property
    def has_intervals(self) -> bool:
        """Whether probabilities of intervals are tractable."""
        return type(self).noise_log_cdf is not Additive.noise_log_cdf

    def log_interval(self, low: Any, high: Any, confidential: Any) -> Any:
        """log P(low <= released < high | confidential); `low` may be -inf and `high` inf."""
        return self._log_mass(low - confidential, high - confidential)

    def log_sup_interval(self, low: Any, high: Any) -> Any:
        """Supremum of `log_interval` over the confidential value: attained at the middle; 0 for a half-line."""
        xp = namespace(low, high, self)
        bounded = xp.isfinite(low) & xp.isfinite(high)
        if xp is np and not np.any(bounded):
            return np.zeros(np.shape(bounded))
        half = 0.5 * xp.where(bounded, high - low, 0.0)
        return xp.where(bounded, self._log_mass(-half, half), 0.0)

    def _log_mass(self, low: Any, high: Any) -> Any:
        """log P(low <= noise < high), from the side where the distribution function keeps its digits."""
        xp = namespace(low, high, self)
        return self._unless_narrow(xp, low, high - low, self._log_wide(xp, low, high))

    def _log_wide(self, xp: Any, low: Any, high: Any) -> Any:
        flip = low > 0
        first, last = xp.where(flip, -high, low), xp.where(flip, -low, high)
        return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first))

    def log_cell(self, centre: Any, width: Any) -> Any:
        """log mass of the noise in [centre - width/2, centre + width/2), however narrow beside the centre."""
        xp = namespace(centre, width, self)
        low = centre - 0.5 * width
        return self._unless_narrow(xp, low, width, self._log_wide(xp, low, centre + 0.5 * width))

    def _unless_narrow(self, xp: Any, low: Any, width: Any, log_mass: Any) -> Any:
        """`log_mass` of [low, low + width); integrated anew where so narrow that a difference loses its digits."""
        if self.unit is None:
            return log_mass
        narrow = width < NARROW * xp.asarray(getattr(self, self.unit))
        low, width = xp.broadcast_arrays(xp.where(narrow, low, 0.0), xp.where(narrow, width, 0.0))
        below = xp.clip(-low, 0.0, width)
        sides = self._log_side(xp, xp.stack([low, xp.maximum(low, 0.0)]), xp.stack([below, width - below]))
        return xp.where(narrow, xp.logaddexp(sides[0], sides[1]), log_mass)

    def _log_side(self, xp: Any, start: Any, width: Any) -> Any:
        """log mass of each narrow [start, start + width) on one side of zero: five Gauss-Legendre nodes."""
        ahead = (-1, *(1,) * np.ndim(width))  # the nodes go first: parameters may have one number per entry
        points = start + width * _NODES.reshape(ahead)
        return log_sum(xp, self.noise_log_prob(points) + np.log(_WEIGHTS).reshape(ahead), axis=0) + log(xp, width)

    def _log_pieces(self, xp: Any, start: Any, width: Any, *edges: Any) -> Any:
        """As `_log_side`, by pieces that are cut where |noise| is at one of the edges."""
        sign = xp.where(start < 0, -1.0, 1.0)
        cuts = [xp.clip(sign * edge - start, 0.0, width) for edge in edges]
        ends = xp.sort(xp.stack([xp.zeros_like(width), *cuts, width]), axis=0)
        return log_sum(xp, Additive._log_side(self, xp, start + ends[:-1], ends[1:] - ends[:-1]), axis=0)

    def _log_cdf(self, xp: Any, z: Any) -> Any:
        # Infinite ends are kept out of the formulas, whose derivatives there are not numbers.
        inner = self.noise_log_cdf(xp.where(xp.isfinite(z), z, 0.0))
        return xp.where(xp.isfinite(z), inner, xp.where(z > 0, 0.0, -xp.inf))


class Lattice(Additive):
    """Additive noise on the integers: s and s_dp are whole numbers, and `log_prob` gives log probabilities."""

    measure = "lattice"
    integers = True

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log probability of the noise at the difference; -inf where that is not a whole number."""
        xp = namespace(released, confidential, self)
        distance = xp.abs(released - confidential)
        return xp.where(distance == xp.floor(distance), self.noise_log_prob(distance), -xp.inf)

    def _log_mass(self, low: Any, high: Any) -> Any:
        # The noise lies among ceil(low), ..., ceil(high) - 1.
        xp = namespace(low, high, self)
        first, last = xp.ceil(low), xp.ceil(high) - 1.0
        flip = first > 0
        first, last = xp.where(flip, -last, first), xp.where(flip, -first, last)
        return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first - 1.0))

    def log_sup_interval(self, low: Any, high: Any) -> Any:
        """Supremum over whole confidential values: attained at the middle of the integers in the interval."""
        xp = namespace(low, high, self)
        bounded = xp.isfinite(low) & xp.isfinite(high)
        if xp is np and not np.any(bounded):
            return np.zeros(np.shape(bounded))
        first = xp.ceil(xp.where(bounded, low, 0.0))
        count = xp.ceil(xp.where(bounded, high, 0.0)) - first
        start = -xp.floor(0.5 * count)
        return xp.where(bounded, self._log_mass(start, start + count), 0.0)

    def check_released(self, value: Any) -> Any:
        """Whole numbers, kept as int64."""
        who = f"{type(self).__name__}.released"
        original, value = value, super().check_released(value)
        if not np.all(np.asarray(value) == np.floor(value)):
            raise refusal(who, "value", "must be whole numbers", value, "Integer noise gives integer releases.")
        if np.any(np.abs(value) > 2.0**53):
            advice = "Beyond that, differences are not exact in floating point."
            raise refusal(who, "value", "must be at most 2**53 in size", value, advice)
        return kept_whole(original)  # not by way of floats


def log_difference(xp: Any, larger: Any, smaller: Any) -> Any:
    """log(exp(larger) - exp(smaller)); -inf where `larger` does not exceed `smaller`."""
    above = larger > smaller
    gap = xp.where(above, smaller, -1.0) - xp.where(above, larger, 0.0)  # both may be -inf
    near = gap > -0.6931471805599453
    inner = xp.where(near, xp.log(-xp.expm1(xp.where(near, gap, -1.0))), xp.log1p(-xp.exp(xp.where(near, -1.0, gap))))
    return xp.where(above, larger + inner, -xp.inf)


def jumps_that_count(epsilon: Any) -> int | None:
    """How many factors exp(-epsilon) make 1e-12; None where it takes more than 48; 48 while epsilon is traced."""
    if isinstance(epsilon, jax.core.Tracer):
        return 48
    count = math.ceil(27.6 / float(np.min(epsilon)))
    return count if count <= 48 else None


def scale_and_guarantee(
    who: str,
    scale: Any,
    sensitivity: Any,
    budget: dict[str, Any],
    *,
    norm: str,
    rule: Callable[..., float],
    advice: str = "",
) -> dict[str, Any]:
    """Scale and guarantee, as arguments for `_freeze`: the `scale` itself, or `rule(sensitivity, **budget)`.

    Exactly one of the two must be given: a scale, or a budget with its sensitivity.
    """
    stated = {key: value for key, value in budget.items() if value is not None}
    advice = f"Give scale, or sensitivity with {advice or ' and '.join(budget)}."
    if scale is not None:
        if stated or sensitivity is not None:
            raise refusal(who, "scale", "must not come together with a budget", scale, advice)
        return {"scale": checks.positive(who, "scale", scale, advice), "guarantee": None}
    if not stated:
        raise refusal(who, "scale", "must be given when there is no budget", scale, advice)
    numbers = {key: checks.positive_number(who, key, value, advice) for key, value in stated.items()}
    if sensitivity is None:
        raise refusal(who, "sensitivity", "must come with a budget", sensitivity, advice)
    sensitivity = checks.positive_number(who, "sensitivity", sensitivity, advice)
    fields: dict[str, Any] = {**numbers, "sensitivity": sensitivity, "norm": norm}
    return {"scale": rule(sensitivity, **numbers), "guarantee": Guarantee(**fields)}
