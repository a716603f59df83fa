"""Two-sided geometric noise on the integers (Ghosh, Roughgarden and Sundararajan 2012)."""

from typing import Any

import numpy as np

from noisewise.mechanisms.base import Guarantee, Lattice, scale_from_budget
from noisewise.numerics import namespace


class DiscreteLaplace(Lattice):
    """s_dp = s + z on the integers, P(z) = tanh(1 / (2 scale)) exp(-|z| / scale).

    Calibration: scale = sensitivity / epsilon, `sensitivity` in the l1 norm, is epsilon-DP.
    Sampler: the difference of two geometric variates with success probability 1 - exp(-1/scale).
    Supremum: attained at s = s_dp.
    """

    supremum = "attained"
    scale: Any

    def __init__(self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None) -> None:
        asked = {"epsilon": epsilon}
        scale, sensitivity, budget = scale_from_budget("DiscreteLaplace", scale, sensitivity, asked)
        guarantee = None
        if scale is None:
            scale = sensitivity / budget["epsilon"]
            guarantee = Guarantee(**budget, sensitivity=sensitivity, norm="l1")
        self._freeze(guarantee, scale=scale)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return confidential + draw(rng, self.scale, np.shape(confidential))

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log tanh(1/(2 scale)) - |released - confidential| / scale on the integers, else -inf."""
        xp = namespace(released, confidential, self.scale)
        distance = xp.abs(released - confidential)
        value = _log_mode(xp, self.scale) - distance / self.scale
        return xp.where(distance == xp.floor(distance), value, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """log tanh(1/(2 scale)), at confidential = released."""
        xp = namespace(released, self.scale)
        return xp.zeros_like(released, dtype=float) + _log_mode(xp, self.scale)


def _log_mode(xp: Any, scale: Any) -> Any:
    # (1 - a)/(1 + a) with a = exp(-1/scale); expm1 keeps the digits when the scale is large.
    decay = -1.0 / xp.asarray(scale)
    return xp.log(-xp.expm1(decay)) - xp.log1p(xp.exp(decay))


def draw(rng: np.random.Generator, scale: Any, shape: tuple[int, ...]) -> Any:
    """Discrete Laplace variates, int64."""
    success = -np.expm1(-1.0 / np.asarray(scale))
    return rng.geometric(success, shape) - rng.geometric(success, shape)
