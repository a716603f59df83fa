"""Laplace noise (Dwork, McSherry, Nissim and Smith 2006)."""

from typing import Any

import numpy as np

from noisewise.mechanisms.base import Guarantee, Mechanism, scale_from_budget
from noisewise.numerics import namespace


class Laplace(Mechanism):
    """s_dp = s + scale * u, with u standard Laplace: density exp(-|s_dp - s| / scale) / (2 scale).

    Calibration: scale = sensitivity / epsilon, `sensitivity` in the l1 norm, is epsilon-DP.
    Sampler: `Generator.laplace`, an inverse CDF. Supremum: attained at s = s_dp.
    """

    measure = "density"
    supremum = "attained"
    scale: Any

    def __init__(self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None) -> None:
        scale, sensitivity, budget = scale_from_budget("Laplace", scale, sensitivity, {"epsilon": epsilon})
        guarantee = None
        if scale is None:
            scale = sensitivity / budget["epsilon"]
            guarantee = Guarantee(**budget, sensitivity=sensitivity, norm="l1")
        self._freeze(guarantee, scale=scale)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return confidential + self.scale * rng.laplace(size=np.shape(confidential))

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """-|released - confidential| / scale - log(2 scale)."""
        xp = namespace(released, confidential, self.scale)
        return -xp.abs(released - confidential) / self.scale - xp.log(2.0 * self.scale)

    def log_sup(self, released: Any) -> Any:
        """-log(2 scale), at confidential = released."""
        xp = namespace(released, self.scale)
        return xp.zeros_like(released, dtype=float) - xp.log(2.0 * self.scale)
