"""Releases clipped to a range."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import MECHANISM, NUMBERS, Mechanism, Supremum
from noisewise.mechanisms.processed import ROUND_OFF, Cut, Processed, check_base, check_range, close, weakest
from noisewise.numerics import namespace

_BOUND = {"oneOf": [NUMBERS, {"type": "null"}]}


class Clipped(Processed):
    """r = min(max(x, low), high), x released by `base`; either bound may be absent (None, or infinite).

    Law: an atom P(x <= low | s) at `low`, an atom P(x >= high | s) at `high`, and between them the density or the
    probabilities of `base`. Relative to Lebesgue measure with an atom at each end, or to counting if `base` counts.
    Sampler: clips a draw of `base`. Its guarantee is that of `base`.
    Supremum: inside, that of `base`. At an end it is 1, approached as s goes off to that side.
    """

    fields = ("base", "low", "high")
    arguments = {"base": MECHANISM, "low": _BOUND, "high": _BOUND}
    alternatives = (("base",),)
    low: Any
    high: Any

    def __init__(self, base: Mechanism, low: Any = None, high: Any = None) -> None:
        who, advice = "Clipped", "Give low, high or both, with low below high."
        check_base(who, base)
        low, high = _bound("low", low, -np.inf), _bound("high", high, np.inf)
        if low is None and high is None:
            raise refusal(who, "low", "must be given, or high", low, advice)
        if low is not None and high is not None:
            check_range(who, low, high, advice)
        self._freeze(base.guarantee, base=base, low=low, high=high)

    @property
    def supremum(self) -> Supremum:
        """Only approached at the ends."""
        return weakest("approached", self.base.supremum)

    def apply(self, value: Any) -> Any:
        """min(max(x, low), high); what differs from an end by rounding errors is that end."""
        return self.nearest(namespace(value, self).clip(value, self.low, self.high))

    def preimage(self, start: Cut, stop: Cut) -> tuple[Cut, Cut]:
        """A cut below the range goes to -inf, one above to inf, one inside stays."""
        return self._cut(start), self._cut(stop)

    def _cut(self, cut: Cut) -> Cut:
        value, after = cut
        xp = namespace(value, after, self)
        after, pulled = xp.asarray(after), xp.asarray(value)
        if self.low is not None:
            at = self._at(xp, value, self.low)
            outside = xp.where(at, ~after, value < self.low)
            pulled = xp.where(outside, -xp.inf, xp.where(at, self.low, pulled))
        if self.high is not None:
            at = self._at(xp, value, self.high)
            outside = xp.where(at, after, value > self.high)
            pulled = xp.where(outside, xp.inf, xp.where(at, self.high, pulled))
        return pulled, after

    def _at(self, xp: Any, value: Any, bound: Any) -> Any:
        return close(xp, value, bound, self.inner.tolerance())

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Those of `base` for the value and for the ends of the range."""
        return self._base_landmarks(released, *(end for end in (self.low, self.high) if end is not None))

    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """An end, or a possible value of `base`."""
        xp = namespace(value, self)
        possible = self.inner.nearest(value, slack)
        for bound in (self.low, self.high):
            if bound is not None:
                possible = xp.where(close(xp, value, bound, self.inner.tolerance() + slack), bound, possible)
        return possible

    def atomic(self, value: Any) -> Any:
        """At the ends, and where `base` has positive probability."""
        xp = namespace(value, self)
        atoms = self.inner.atomic(value)
        for bound in (self.low, self.high):
            if bound is not None:
                atoms = atoms | self._at(xp, value, bound)
        return atoms

    def tolerance(self) -> Any:
        """That of `base` and the rounding errors of the ends."""
        ends = [abs(bound) for bound in (self.low, self.high) if bound is not None]
        return self.inner.tolerance() + ROUND_OFF * sum(ends)

    def describe(self) -> str:
        """The possible values, in words."""
        inside = self.inner.describe()
        if self.low is None:
            return f"{self.high}, or {inside} below it"
        if self.high is None:
            return f"{self.low}, or {inside} above it"
        return f"{self.low}, {self.high}, or {inside} between them"

    def _log_prob(self, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
        xp = namespace(released, confidential, inputs, self)
        log_density = self.inner.log_prob(released, confidential, **inputs)
        return self._with_ends(
            xp, released, log_density, lambda start, stop: self.inner.log_between(start, stop, confidential, inputs)
        )

    def _log_sup(self, released: Any) -> Any:
        xp = namespace(released, self)
        return self._with_ends(xp, released, self.inner.log_sup(released), self.inner.log_sup_between)

    def _with_ends(self, xp: Any, released: Any, log_density: Any, between: Any) -> Any:
        """`log_density` inside, the probabilities of all that was clipped at the ends, -inf outside."""
        if self.low is not None:
            log_density = xp.where(released < self.low, -xp.inf, log_density)
            atom = between((-xp.inf, False), (self.low, True))
            log_density = xp.where(self._at(xp, released, self.low), atom, log_density)
        if self.high is not None:
            at = self._at(xp, released, self.high)
            log_density = xp.where((released > self.high) & ~at, -xp.inf, log_density)
            log_density = xp.where(at, between((self.high, False), (xp.inf, False)), log_density)
        return log_density


def _bound(argument: str, value: Any, absent: float) -> Any:
    """A finite bound, or None where it is absent or infinite on its own side."""
    if value is None:
        return None
    value = checks.numeric("Clipped", argument, value, "Give a number, one per entry, or None.")
    if np.all(value == absent):
        return None
    if not np.all(np.isfinite(value)):
        raise refusal("Clipped", argument, f"must be finite, or {absent} throughout", value, "None means no bound.")
    return value
