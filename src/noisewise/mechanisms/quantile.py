"""The private quantile: the exponential mechanism over an interval (Smith 2011)."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import BUDGET, Mechanism
from noisewise.mechanisms.discrete import log, log_sum
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace

_ADVICE = "Give scale, or epsilon (with sensitivity, 1 if left out)."


class PrivateQuantile(Mechanism):
    """A point r of [low, high] with density proportional to exp(-|rank(r) - quantile n| / scale).

    The confidential statistic is the vector of n records, in any order; they are clamped to [low, high], and rank(r)
    is the number of records below r. The density is constant between neighbouring records: exp(-|i - q n| / scale) /
    sum_l (x_(l+1) - x_(l)) exp(-|l - q n| / scale), with x_(0) = low, x_(n+1) = high and i = rank(r).

    Calibration: scale = 2 sensitivity / epsilon is epsilon-DP, `sensitivity` being that of |rank - q n|: 1 (the
    default) when a record is replaced, max(q, 1 - q) when one is added or removed. `n` must be public in any case:
    see the supremum.
    Sampler: an interval by Gumbel noise on its log weight, then a uniform point.
    Supremum, approached: with i records just below r and n - i just above, i next to q n, the weight of the rest of the
    domain falls to (r - low) exp(-q n / scale) + (high - r) exp(-(1 - q) n / scale) and no lower, since ranks below r
    lie in [0, i] and above in [i, n]. It grows without limit in n, so there is no bound that holds for every n.
    """

    did = (
        "is a random point near the {quantile} quantile of {n} records, between {low} and {high} (exponential "
        "mechanism; a point e times less likely for every {scale} ranks that it is off)"
    )
    fields = ("scale", "quantile", "low", "high")
    static = ("n",)
    arguments = {
        "quantile": {"type": "number", "minimum": 0, "maximum": 1},
        "low": {"type": "number"},
        "high": {"type": "number"},
        "n": {"type": "integer", "minimum": 1},
        "scale": BUDGET,
        "epsilon": BUDGET,
        "sensitivity": BUDGET,
    }
    alternatives = (("quantile", "low", "high", "n", "scale"), ("quantile", "low", "high", "n", "epsilon"))
    measure = "density"
    supremum = "approached"
    scale: Any
    quantile: Any
    low: Any
    high: Any
    n: int

    def __init__(
        self,
        quantile: Any,
        low: Any,
        high: Any,
        n: Any,
        *,
        scale: Any = None,
        epsilon: Any = None,
        sensitivity: Any = None,
    ) -> None:
        who = type(self).__name__
        quantile = _number(who, "quantile", quantile, "Give 0.5 for the median.")
        if not 0.0 <= quantile <= 1.0:
            raise refusal(who, "quantile", "must lie between 0 and 1", quantile, "Give 0.5 for the median.")
        low, high = (_number(who, name, value, "Give it.") for name, value in (("low", low), ("high", high)))
        if not low < high or not np.isfinite(high - low):
            raise refusal(who, "high", f"must exceed low = {low}", high, "Give the interval the curator clamped to.")
        n = checks.integer(who, "n", n, least=1, advice="Give the number of records, which must be public.")
        if (scale is None) == (epsilon is None):
            arguments = {"scale": scale, "epsilon": epsilon}
            raise refusal(who, "scale", "or epsilon must be given, exactly one of them", arguments, _ADVICE)
        guarantee = None
        if scale is not None:
            if sensitivity is not None:
                raise refusal(who, "sensitivity", "must come together with epsilon", sensitivity, _ADVICE)
            scale = checks.positive_number(who, "scale", scale, _ADVICE)
        else:
            epsilon = checks.positive_number(who, "epsilon", epsilon, _ADVICE)
            change = 1.0 if sensitivity is None else checks.positive_number(who, "sensitivity", sensitivity, _ADVICE)
            scale = 2.0 * change / epsilon
            neighbours = "replace-one" if sensitivity is None else None
            guarantee = Guarantee(epsilon=epsilon, sensitivity=change, norm="linf", neighbours=neighbours)
        self._freeze(guarantee, scale=scale, quantile=quantile, low=low, high=high, n=n)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        edges, log_weight = self._intervals(np, np.asarray(confidential, dtype=float))
        index = np.argmax(log_weight + rng.gumbel(size=log_weight.shape), axis=-1)[..., None]
        start = np.take_along_axis(edges, index, axis=-1)[..., 0]
        end = np.take_along_axis(edges, index + 1, axis=-1)[..., 0]
        return start + (end - start) * rng.random(index.shape[:-1])

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log density; -inf outside [low, high]."""
        xp = namespace(released, confidential, self)
        released, records = xp.asarray(released, dtype=float), xp.asarray(confidential, dtype=float)
        edges, log_weight = self._intervals(xp, records)
        rank = xp.sum(edges[..., 1:-1] < released[..., None], axis=-1)
        log_density = -xp.abs(rank - self.quantile * self.n) / self.scale - log_sum(xp, log_weight, axis=-1)
        return xp.where((released >= self.low) & (released <= self.high), log_density, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """The limit in the class's docstring, at the better of the two ranks next to q n."""
        xp = namespace(released, self)
        released = xp.asarray(released, dtype=float)
        target = self.quantile * self.n
        best: Any = -xp.inf
        for rank in (xp.floor(target), xp.minimum(xp.floor(target) + 1.0, self.n)):
            before = xp.maximum(target, rank - target) / self.scale
            after = xp.maximum(self.n - target, target - rank) / self.scale
            log_weight = xp.logaddexp(
                log(xp, released - self.low) - before,
                log(xp, self.high - released) - after,
            )
            best = xp.maximum(best, -xp.abs(rank - target) / self.scale - log_weight)
        return xp.where((released >= self.low) & (released <= self.high), best, -xp.inf)

    def _intervals(self, xp: Any, records: Any) -> tuple[Any, Any]:
        """The n + 2 edges of the intervals between records, and the log weights of the n + 1 intervals."""
        inside = xp.sort(xp.clip(records, self.low, self.high), axis=-1)
        ends = (*inside.shape[:-1], 1)
        edges = xp.concatenate([xp.full(ends, self.low), inside, xp.full(ends, self.high)], axis=-1)
        rank = xp.arange(self.n + 1.0)
        gaps = edges[..., 1:] - edges[..., :-1]
        return edges, log(xp, gaps) - xp.abs(rank - self.quantile * self.n) / self.scale

    def check_released(self, value: Any) -> Any:
        """Numbers in [low, high]."""
        who = "PrivateQuantile.released"
        value = super().check_released(value)
        if np.any(np.asarray(value) < self.low) or np.any(np.asarray(value) > self.high):
            raise refusal(who, "value", f"must lie in [{self.low}, {self.high}]", value, "Check low and high.")
        return value

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """One more axis than the release, of n records."""
        expected = (*released, self.n)
        return None if confidential == expected else f"must have shape {expected}, n records for each release"


def _number(who: str, name: str, value: Any, advice: str) -> float:
    number = checks.numeric(who, name, value, advice)
    if not isinstance(number, float) or not np.isfinite(number):
        raise refusal(who, name, "must be one finite number", value, advice)
    return number
