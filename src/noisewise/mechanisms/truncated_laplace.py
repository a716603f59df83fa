"""Truncated Laplace noise (Geng, Ding, Guo and Kumar 2020)."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import namespace

_ADVICE = "Give scale and bound, or epsilon, delta and sensitivity."


class TruncatedLaplace(Additive):
    """s_dp = s + z, with z Laplace given |z| <= bound: density exp(-|z| / scale) / (2 scale (1 - exp(-bound / scale))).

    Calibration, `sensitivity` in the l1 norm, delta <= 1/2: scale = sensitivity / epsilon and bound = scale log(1 +
    (exp(epsilon) - 1) / (2 delta)) is (epsilon, delta)-DP (Geng, Ding, Guo and Kumar 2020). Where both
    neighbours can give a value, the densities differ by at most exp(epsilon); the mass of (bound - sensitivity, bound],
    which the neighbour cannot give, is delta. That mass is a convex function of the shift, zero at zero, so
    splitting the shift over several entries adds up to no more.
    Sampler: inversion, |z| = -scale log(1 - U (1 - exp(-bound / scale))), with a fair sign.
    Supremum: attained at s = s_dp.
    """

    did = "got Laplace noise of scale {scale} that is never larger than {bound}"
    fields = ("scale", "bound")
    unit = "scale"
    arguments = {"scale": POSITIVE, "bound": POSITIVE} | dict.fromkeys(("epsilon", "delta", "sensitivity"), BUDGET)
    alternatives = (("scale", "bound"), ("epsilon", "delta", "sensitivity"))
    scale: Any
    bound: Any

    def __init__(
        self,
        scale: Any = None,
        bound: Any = None,
        *,
        epsilon: Any = None,
        delta: Any = None,
        sensitivity: Any = None,
    ) -> None:
        who, budget = "TruncatedLaplace", {"epsilon": epsilon, "delta": delta}
        calibration = scale_and_guarantee(who, scale, sensitivity, budget, norm="l1", rule=_scale)
        if scale is not None:
            bound = checks.positive(who, "bound", bound, _ADVICE) if bound is not None else None
            if bound is None:
                raise refusal(who, "bound", "must come with scale", bound, _ADVICE)
        elif bound is not None:
            raise refusal(who, "bound", "must not come together with a budget", bound, _ADVICE)
        else:
            # log(1 + (exp(epsilon) - 1) / (2 delta)), without overflow
            log_ratio = epsilon + math.log(-math.expm1(-epsilon)) - math.log(2.0 * delta)
            bound = calibration["scale"] * float(np.logaddexp(0.0, log_ratio))
        self._freeze(**calibration, bound=bound)

    def noise_log_prob(self, z: Any) -> Any:
        """-|z| / scale - log(2 scale (1 - exp(-bound / scale))); -inf beyond the bound."""
        xp = namespace(z, self)
        value = -xp.abs(z) / self.scale - xp.log(2.0 * self.scale) - self._log_within(xp, self.bound)
        return xp.where(xp.abs(z) <= self.bound, value, -xp.inf)

    def noise_log_cdf(self, z: Any) -> Any:
        """log of exp(z / scale) (1 - exp(-(bound + z) / scale)) / (2 (1 - exp(-bound / scale))) below zero."""
        xp = namespace(z, self)
        inside = xp.abs(z) < self.bound
        size = xp.where(inside, xp.abs(z), 0.0)
        log_tail = -size / self.scale + self._log_within(xp, self.bound - size) - self._log_within(xp, self.bound)
        log_tail = xp.where(inside, log_tail - math.log(2.0), -xp.inf)
        return xp.where(z < 0, log_tail, xp.log1p(-xp.exp(log_tail)))

    @property
    def noise_bound(self) -> Any:
        """Where it is truncated."""
        return self.bound

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The released value, and the two ends of the noise about it."""
        return [(released + sign * self.bound, self.scale) for sign in (-1.0, 0.0, 1.0)]

    def _log_side(self, xp: Any, start: Any, width: Any) -> Any:
        """Cut at the end of the noise."""
        return self._log_pieces(xp, start, width, xp.asarray(self.bound))

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Inverted truncated exponential variates with a fair sign."""
        scale = np.asarray(self.scale)
        size = np.minimum(-scale * np.log1p(rng.random(shape) * np.expm1(-self.bound / scale)), self.bound)
        return np.where(rng.random(shape) < 0.5, -size, size)

    def _log_within(self, xp: Any, reach: Any) -> Any:
        """log(1 - exp(-reach / scale)): the share of Laplace noise within `reach`."""
        return xp.log(-xp.expm1(-reach / xp.asarray(self.scale)))


def _scale(sensitivity: float, epsilon: float | None = None, delta: float | None = None) -> float:
    if epsilon is None or delta is None:
        missing = "epsilon" if epsilon is None else "delta"
        raise refusal("TruncatedLaplace", missing, "must come with the rest of the budget", None, _ADVICE)
    if delta > 0.5:
        raise refusal("TruncatedLaplace", "delta", "must be at most 1/2", delta, "Give a small probability.")
    return sensitivity / epsilon
