"""The exponential mechanism on finitely many candidates (McSherry and Talwar 2007)."""

from typing import Any

import numpy as np

from noisewise.mechanisms.discrete import log_sum
from noisewise.mechanisms.selection import Selection, calibrated, largest


class ExponentialMechanism(Selection):
    """Selects candidate i with probability proportional to exp(s_i / scale), s the confidential scores.

    Calibration: scale = 2 sensitivity / epsilon is epsilon-DP; sensitivity / epsilon where `monotone`.
    Sampler: the largest of s_i / scale + Gumbel noise. Supremum: 1, approached as s_i rises above the others.
    """

    def __init__(
        self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None, monotone: bool = False
    ) -> None:
        self._freeze(**calibrated("ExponentialMechanism", scale, epsilon, sensitivity, monotone))

    def log_choice(self, xp: Any, gaps: Any, own: Any) -> Any:
        """gap_i - log sum_j exp(gap_j)."""
        return log_softmax(xp, gaps, own)

    def choose(self, rng: np.random.Generator, gaps: Any) -> Any:
        """Gumbel noise, then the largest."""
        return largest(rng.gumbel(size=gaps.shape), gaps)


def log_softmax(xp: Any, gaps: Any, own: Any) -> Any:
    """log of exp(gap_i) / sum_j exp(gap_j) at the marked i."""
    return xp.sum(xp.where(own, gaps, 0.0), axis=-1) - log_sum(xp, gaps, axis=-1)
