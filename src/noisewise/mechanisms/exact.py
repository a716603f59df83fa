"""No noise at all: the released value is the confidential one."""

from typing import Any

import numpy as np

from noisewise.mechanisms.base import Mechanism, kept_whole
from noisewise.numerics import namespace


class Exact(Mechanism):
    """s_dp = s. For confidential-data fits and for the naive analysis that ignores the noise.

    The law is an atom at s, so `log_prob` is 0 or -inf, relative to that atom. A continuous statistic hits
    the atom with probability zero: samplers that know its density condition on s = s_dp instead, the
    others refuse.
    """

    did = "was published as it is, without noise"
    fields = ()
    arguments = {}
    alternatives = ()
    measure = "atoms"
    supremum = "attained"

    def __init__(self) -> None:
        self._freeze()

    def check_released(self, value: Any) -> Any:
        """As it is; whole numbers stay whole."""
        checked = super().check_released(value)
        return kept_whole(value) if np.asarray(value).dtype.kind in "iu" else checked

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """The confidential value itself."""
        return np.array(confidential)

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """0 where the two are equal, else -inf."""
        xp = namespace(released, confidential)
        return xp.where(released == xp.asarray(confidential), 0.0, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """0, at confidential = released."""
        return namespace(released).zeros_like(released, dtype=float)
