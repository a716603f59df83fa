"""Laplace noise (Dwork, McSherry, Nissim and Smith 2006)."""

from typing import Any

import numpy as np

from noisewise.mechanisms.additive import Additive, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE
from noisewise.numerics import namespace


class Laplace(Additive):
    """s_dp = s + scale * u, with u standard Laplace: density exp(-|s_dp - s| / scale) / (2 scale).

    Calibration: scale = sensitivity / epsilon, `sensitivity` in the l1 norm, is epsilon-DP.
    Sampler: `Generator.laplace`, an inverse CDF.
    """

    did = "got Laplace noise of scale {scale}"
    unit = "scale"
    arguments = {"scale": POSITIVE, "epsilon": BUDGET, "sensitivity": BUDGET}
    alternatives = (("scale",), ("epsilon", "sensitivity"))
    scale: Any

    def __init__(self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None) -> None:
        budget = {"epsilon": epsilon}
        self._freeze(
            **scale_and_guarantee(
                "Laplace", scale, sensitivity, budget, norm="l1", rule=lambda delta, epsilon: delta / epsilon
            )
        )

    def noise_log_prob(self, z: Any) -> Any:
        """-|z| / scale - log(2 scale)."""
        xp = namespace(z, self.scale)
        return -xp.abs(z) / self.scale - xp.log(2.0 * self.scale)

    def noise_log_cdf(self, z: Any) -> Any:
        """log of exp(z / scale) / 2 below zero, of 1 - exp(-z / scale) / 2 above."""
        xp = namespace(z, self.scale)
        tail = 0.5 * xp.exp(-xp.abs(z) / self.scale)
        return xp.where(z < 0, -xp.abs(z) / self.scale - xp.log(2.0), xp.log1p(-tail))

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Scaled standard Laplace variates."""
        return self.scale * rng.laplace(size=shape)
