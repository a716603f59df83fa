"""Releases with small values withheld."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.base import MECHANISM, NUMBERS, Mechanism, Supremum
from noisewise.mechanisms.processed import Cut, Processed, check_base, close, weakest
from noisewise.numerics import namespace


class Thresholded(Processed):
    """r = x if x >= threshold, else the token "suppressed"; x released by `base`. That it was withheld is information.

    Law: P(suppressed | s) = P(x < threshold | s); from the threshold on, the density or probabilities of `base`. With
    `absent_when_zero`, a statistic that is exactly 0 is always withheld, as where only the keys that occur in the data
    are considered (Korolova, Kenthapadi, Mishra and Ntoulas 2009; OpenDP's threshold measurements).
    The token is NaN in arrays, "suppressed" in files; `released` takes both.
    Sampler: withholds draws of `base`. Its guarantee is that of `base`, except with `absent_when_zero`: then whether
    a key occurs at all shows with a small probability, so no guarantee is taken over.
    Supremum: for a number that of `base`, attained away from s = 0. For the token 1, approached as s goes to -inf, or
    attained at s = 0 with `absent_when_zero`.
    """

    fields = ("base", "threshold")
    static = ("absent_when_zero",)
    arguments = {"base": MECHANISM, "threshold": NUMBERS, "absent_when_zero": {"type": "boolean"}}
    alternatives = (("base", "threshold"),)
    threshold: Any
    absent_when_zero: bool

    def __init__(self, base: Mechanism, threshold: Any, absent_when_zero: bool = False) -> None:
        who, advice = "Thresholded", "Give the least value that is published."
        check_base(who, base)
        threshold = checks.numeric(who, "threshold", threshold, advice)
        if not np.all(np.isfinite(threshold)):
            raise refusal(who, "threshold", "must be finite", threshold, advice)
        if not isinstance(absent_when_zero, bool):
            raise refusal(who, "absent_when_zero", "must be True or False", absent_when_zero, "The default is False.")
        if absent_when_zero:
            # After both checks no interval that leads to a published number is centred on s = 0: the suprema stand.
            if not np.all(threshold > 0):
                raise refusal(who, "threshold", "must be positive with absent_when_zero", threshold, advice)
            if _holds_affine(base):
                rule = "must not hold an Affine with absent_when_zero, which speaks of the count itself"
                raise refusal(who, "base", rule, base, "Put the Affine around the Thresholded.")
        guarantee = None if absent_when_zero else base.guarantee
        self._freeze(guarantee, base=base, threshold=threshold, absent_when_zero=absent_when_zero)

    @property
    def supremum(self) -> Supremum:
        """The token's is only approached, unless the statistic 0 gives it for certain."""
        return self.base.supremum if self.absent_when_zero else weakest("approached", self.base.supremum)

    @property
    def suppresses(self) -> bool:
        """Always."""
        return True

    def sample(self, rng: np.random.Generator, confidential: Any, **inputs: Any) -> Any:
        """Simulated release, NaN where withheld; not for publishing (see `Mechanism.sample`)."""
        released = super().sample(rng, confidential, **inputs)
        return np.where(np.asarray(confidential) == 0, np.nan, released) if self.absent_when_zero else released

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Those of `base` for the value and for the threshold."""
        xp = namespace(released, self)
        return self._base_landmarks(xp.where(xp.isnan(released), self.threshold, released), self.threshold)

    def apply(self, value: Any) -> Any:
        """NaN below the threshold."""
        xp = namespace(value, self)
        return xp.where(self._published(xp, value), value, np.nan)

    def _published(self, xp: Any, value: Any) -> Any:
        return (value >= self.threshold) | close(xp, value, self.threshold, self.inner.tolerance())

    def preimage(self, start: Cut, stop: Cut) -> tuple[Cut, Cut]:
        """A cut below the threshold moves up to it."""
        return self._cut(start), self._cut(stop)

    def _cut(self, cut: Cut) -> Cut:
        value, after = cut
        xp = namespace(value, after, self)
        at = close(xp, value, self.threshold, self.inner.tolerance())
        below = (value < self.threshold) & ~at
        return xp.where(below | at, self.threshold, value), xp.where(below, False, after)

    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """A possible value of `base`."""
        return self.inner.nearest(value, slack)

    def atomic(self, value: Any) -> Any:
        """For the token, and where `base` has positive probability."""
        xp = namespace(value, self)
        return xp.isnan(value) | self.inner.atomic(value)

    def tolerance(self) -> Any:
        """That of `base`."""
        return self.inner.tolerance()

    def describe(self) -> str:
        """The possible values, in words."""
        return f"'suppressed', or {self.inner.describe()} of at least {self.threshold}"

    def _log_prob(self, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
        xp = namespace(released, confidential, inputs, self)
        log_density = self.inner.log_prob(released, confidential, **inputs)
        return self._if_present(xp, xp.where(self._published(xp, released), log_density, -xp.inf), confidential)

    def _log_sup(self, released: Any) -> Any:
        xp = namespace(released, self)
        return xp.where(self._published(xp, released), self.inner.log_sup(released), -xp.inf)

    def log_between(self, start: Cut, stop: Cut, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log probability of a published number between two cuts."""
        xp = namespace(start, stop, confidential, inputs, self)
        return self._if_present(xp, super().log_between(start, stop, confidential, inputs), confidential)

    def _if_present(self, xp: Any, log_prob: Any, confidential: Any) -> Any:
        return xp.where(xp.asarray(confidential) == 0, -xp.inf, log_prob) if self.absent_when_zero else log_prob

    def log_suppressed(self, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log P(x < threshold), and what `base` withholds itself."""
        xp = namespace(confidential, inputs, self)
        log_below = self.inner.log_between((-xp.inf, False), (self.threshold, False), confidential, inputs)
        if self.inner.suppresses:
            log_below = xp.minimum(xp.logaddexp(log_below, self.inner.log_suppressed(confidential, inputs)), 0.0)
        return xp.where(xp.asarray(confidential) == 0, 0.0, log_below) if self.absent_when_zero else log_below

    def log_sup_suppressed(self) -> Any:
        """0 unless nothing can lie below the threshold."""
        xp = namespace(self)
        if self.absent_when_zero:
            return 0.0 * xp.asarray(self.threshold)
        log_below = self.inner.log_sup_between((-xp.inf, False), (self.threshold, False))
        # What is withheld below and what `base` withholds may be disjoint; each alone approaches 1 if it can occur.
        return xp.maximum(log_below, self.inner.log_sup_suppressed())


def _holds_affine(mechanism: Any) -> bool:
    return isinstance(mechanism, Affine) or (isinstance(mechanism, Processed) and _holds_affine(mechanism.base))
