"""A declared bound: whether the confidential value lies within a range, and nothing more."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import NUMBERS, Mechanism, kept_whole
from noisewise.numerics import namespace

_END = {"oneOf": [NUMBERS, {"type": "null"}]}
_ADVICE = "Give low, high or both, with low not above high."


class Within(Mechanism):
    """s_dp = 1 if low <= s <= high, else 0; either end may be absent. For facts: `.of("cells").released([True, True])`.

    A fact is evidence like any published value: what is known to hold, with probability one where s obeys it.
    The law is an atom, so `log_prob` is 0 or -inf, relative to counting on 0 and 1. Supremum: 0, at any s that obeys.
    It gives no privacy.
    """

    fields = ("low", "high")
    arguments = {"low": _END, "high": _END}
    alternatives = ()
    measure = "atoms"
    supremum = "attained"
    low: Any
    high: Any

    def __init__(self, low: Any = None, high: Any = None) -> None:
        low, high = _end("low", low), _end("high", high)
        if low is None and high is None:
            raise refusal("Within", "low", "must be given, or high", low, _ADVICE)
        if low is not None and high is not None:
            try:
                np.broadcast_shapes(np.shape(low), np.shape(high))
            except ValueError:
                raise refusal("Within", "high", "must have the shape of low", high, _ADVICE) from None
            if not np.all(low <= high):
                raise refusal("Within", "low", f"must not be above high={high}", low, _ADVICE)
        self._freeze(low=low, high=high)

    def check_released(self, value: Any) -> Any:
        """True or False for each entry, as 1 and 0."""
        array = np.asarray(value)
        checked = np.asarray(super().check_released(array.astype(int) if array.dtype.kind == "b" else value))
        if not np.all((checked == 0) | (checked == 1)):
            advice = "Give True for a bound that holds: released(True), or released([True, True]) for two entries."
            raise refusal("Within.released", "value", "must be True or False, one per entry", value, advice)
        return kept_whole(checked)

    def inside(self, confidential: Any) -> Any:
        """Whether each value lies within the range."""
        xp = namespace(confidential, self)
        held = xp.ones_like(confidential, dtype=bool)
        if self.low is not None:
            held = held & (xp.asarray(confidential) >= self.low)
        if self.high is not None:
            held = held & (xp.asarray(confidential) <= self.high)
        return held

    def ends(self, released: Any) -> tuple[Any, Any]:
        """The two numbers between which each confidential value lies; both infinite where it is outside of two ends."""
        shape = np.shape(released)
        low = np.broadcast_to(-np.inf if self.low is None else self.low, shape)
        high = np.broadcast_to(np.inf if self.high is None else self.high, shape)
        below = np.inf if self.low is None or self.high is not None else np.nextafter(low, -np.inf)
        above = -np.inf if self.high is None or self.low is not None else np.nextafter(high, np.inf)
        held = np.asarray(released) == 1
        return np.where(held, low, above), np.where(held, high, below)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """1 within the range, 0 outside; nothing is random."""
        return np.asarray(self.inside(confidential)).astype(np.int64)

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """0 where `released` is true of the confidential value, else -inf."""
        xp = namespace(released, confidential, self)
        return xp.where(self.inside(confidential) == xp.asarray(released), 0.0, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """0: some value lies within the range, and some outside."""
        return namespace(released).zeros_like(released, dtype=float)

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """The ends, where the density jumps."""
        width = 1.0 if self.low is None or self.high is None else namespace(self).maximum(self.high - self.low, 1.0)
        return [(end + 0.0 * released, width) for end in (self.low, self.high) if end is not None]


def _end(argument: str, value: Any) -> Any:
    """A finite end, or None."""
    if value is None:
        return None
    value = checks.numeric("Within", argument, value, "Give a number, one per entry, or None for no bound.")
    if not np.all(np.isfinite(value)):
        raise refusal("Within", argument, "must be finite", value, "Leave it out for no bound.")
    return value
