"""Releases shifted and scaled."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import MECHANISM, NUMBERS, Measure, Mechanism
from noisewise.mechanisms.processed import ROUND_OFF, Cut, Processed, check_entrywise
from noisewise.numerics import namespace


class Affine(Processed):
    """r = shift + factor * x, x released by `base`, factor not zero: other units, complements, shares of a known total.

    Law: the density of `base` at x = (r - shift) / factor, divided by |factor|; probabilities of `base` are unchanged.
    Sampler: shifts and scales a draw of `base`. Its guarantee is that of `base`.
    Supremum: that of `base` at x, divided by |factor| where it is a density; attained where that of `base` is.
    The statistic of the model is s, as `base` takes it; to shift or scale the statistic itself, do so in the model.
    """

    fields = ("base", "shift", "factor")
    arguments = {"base": MECHANISM, "shift": NUMBERS, "factor": NUMBERS}
    alternatives = (("base",),)
    shift: Any
    factor: Any

    def __init__(self, base: Mechanism, shift: Any = 0.0, factor: Any = 1.0) -> None:
        who, advice = "Affine", "Give additive noise such as Laplace or DiscreteGaussian, or a wrapper of it."
        check_entrywise(who, base, advice)
        if not isinstance(base, Processed) and base.measure not in ("density", "lattice"):
            rule = "must release numbers by a density or on the integers, where shifting and scaling has a meaning"
            raise refusal(who, "base", rule, base, advice)
        shift = checks.numeric(who, "shift", shift, "Give the number that is added.")
        factor = checks.numeric(who, "factor", factor, "Give the number that is multiplied by.")
        if not np.all(np.isfinite(shift)):
            raise refusal(who, "shift", "must be finite", shift, "Give the number that is added.")
        if not np.all(np.isfinite(factor) & (np.asarray(factor) != 0)):
            raise refusal(who, "factor", "must be finite and not zero", factor, "A factor of zero leaves nothing.")
        self._freeze(base.guarantee, base=base, shift=shift, factor=factor)

    @property
    def measure(self) -> Measure:
        """As for `base`, but "atoms" in place of "lattice": scaled integers need not be whole."""
        return "atoms" if self.base.measure == "lattice" else self.base.measure

    def apply(self, value: Any) -> Any:
        """shift + factor * x."""
        return self.shift + self.factor * value

    def _inside(self, value: Any, slack: Any = 0.0) -> Any:
        # Adding the shift rounds off: taken back, a value meets a possible value of the base only up to that error.
        xp = namespace(value, self)
        size = xp.abs(xp.where(xp.isfinite(value), value, 0.0)) + abs(self.shift)
        return self.inner.nearest((value - self.shift) / self.factor, (ROUND_OFF * size + slack) / abs(self.factor))

    def preimage(self, start: Cut, stop: Cut) -> tuple[Cut, Cut]:
        """Each cut less the shift, over the factor; a negative factor exchanges the cuts, and before with after."""
        xp = namespace(start, stop, self)
        flip = xp.asarray(self.factor) < 0
        low, high = self._inside(start[0]), self._inside(stop[0])
        first = xp.where(flip, high, low), xp.where(flip, ~xp.asarray(stop[1]), start[1])
        last = xp.where(flip, low, high), xp.where(flip, ~xp.asarray(start[1]), stop[1])
        return first, last

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Those of `base` for what it released."""
        return self.base.landmarks(self._inside(released))

    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """The image of a possible value of `base`."""
        if self.inner.measure == "density":
            return value
        xp = namespace(value, self)
        inside = self._inside(value, slack)
        return xp.where(self.inner.atomic(inside), self.shift + self.factor * inside, value)

    def atomic(self, value: Any) -> Any:
        """Where `base` has positive probability at x."""
        return self.inner.atomic(self._inside(value))

    def tolerance(self) -> Any:
        """That of `base`, scaled, and the rounding error of the shift."""
        return abs(self.factor) * self.inner.tolerance() + ROUND_OFF * abs(self.shift)

    def describe(self) -> str:
        """The possible values, in words."""
        return f"{self.shift} + {self.factor} times {self.inner.describe()}"

    def _log_prob(self, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
        inside = self._inside(released)
        return self.inner.log_prob(inside, confidential, **inputs) - self._log_stretch(inside)

    def _log_sup(self, released: Any) -> Any:
        inside = self._inside(released)
        return self.inner.log_sup(inside) - self._log_stretch(inside)

    def _log_stretch(self, inside: Any) -> Any:
        """log |factor| for a density, 0 for an atom."""
        xp = namespace(inside, self)
        return xp.where(self.inner.atomic(inside), 0.0, xp.log(xp.abs(self.factor)))
