"""Releases rounded to multiples of a step."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import MECHANISM, POSITIVE, Measure, Mechanism
from noisewise.mechanisms.processed import STEP, Cut, Processed, check_base, near_multiple
from noisewise.numerics import namespace


class Rounded(Processed):
    """r = step * floor(x / step + 1/2), x released by `base`. Ties go up: 2.5 to 3 and -2.5 to -2, for a step of 1.

    Probability: P(r | s) = P(r - step/2 <= x < r + step/2 | s), from the distribution function of the noise.
    Sampler: rounds a draw of `base`. Its guarantee is that of `base`.
    Supremum: the largest probability that `base` gives the interval; for additive noise it is attained where the
    interval lies centrally about s (s = r, or the whole number in its middle on the integers). See
    docs/mechanisms/processed.md for the proof.
    """

    fields = ("base", "step")
    arguments = {"base": MECHANISM, "step": POSITIVE}
    alternatives = (("base", "step"),)
    step: Any

    def __init__(self, base: Mechanism, step: Any) -> None:
        check_base("Rounded", base)
        step = checks.positive("Rounded", "step", step, "Give the width of the rounding, for example 10.")
        self._freeze(base.guarantee, base=base, step=step)

    @property
    def measure(self) -> Measure:
        """Counting on the multiples of the step."""
        return "atoms"

    def apply(self, value: Any) -> Any:
        """The nearest multiple of the step, half up; on discrete values ties are recognised despite rounding errors."""
        xp = namespace(value)
        raised = value / self.step + 0.5
        if self.inner.measure == "density":
            return self.step * xp.floor(raised)
        index, tie = near_multiple(xp, raised, 1.0, self.inner.tolerance() / self.step)
        return self.step * xp.where(tie, index, xp.floor(raised))

    def preimage(self, start: Cut, stop: Cut) -> tuple[Cut, Cut]:
        """Each cut becomes the lower edge of the first multiple after it."""
        return self._edge(start), self._edge(stop)

    def _edge(self, cut: Cut) -> Cut:
        value, after = cut
        xp = namespace(value, after, self)
        index, near = near_multiple(xp, value, self.step, STEP * self.step)
        first = xp.where(near, index + after, xp.ceil(value / self.step))
        return (first - 0.5) * self.step, False

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Those of `base` for the middle of the interval and its two ends."""
        return self._base_landmarks(released - 0.5 * self.step, released, released + 0.5 * self.step)

    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """The nearest multiple."""
        xp = namespace(value, self)
        index, near = near_multiple(xp, value, self.step, STEP * self.step + slack)
        return xp.where(near, self.step * index, value)

    def atomic(self, value: Any) -> Any:
        """Everywhere."""
        xp = namespace(value, self)
        return xp.ones_like(value, dtype=bool)

    def tolerance(self) -> Any:
        """A small part of the step."""
        return STEP * self.step

    def describe(self) -> str:
        """The possible values, in words."""
        return f"multiples of {_shown(self.step)}"

    def _log_prob(self, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
        xp = namespace(released, confidential, inputs, self)
        index, near = near_multiple(xp, released, self.step, STEP * self.step)
        start, stop = self._cell(index)
        if isinstance(self.base, Additive) and self.base.measure == "density":
            # The law depends on x - s only. Measured from s, a cell narrow beside r keeps its width.
            with np.errstate(all="ignore"):  # far out, logs of zero probabilities meet: the result is -inf
                log_mass = self.base.log_cell(self.step * index - confidential, self.step + 0.0 * index)
            log_mass = xp.minimum(log_mass, self.inner.log_sup_between(start, stop))
        else:
            log_mass = self.inner.log_between(start, stop, confidential, inputs)
        return xp.where(near, log_mass, -xp.inf)

    def _log_sup(self, released: Any) -> Any:
        xp = namespace(released, self)
        index, near = near_multiple(xp, released, self.step, STEP * self.step)
        start, stop = self._cell(index)
        return xp.where(near, self.inner.log_sup_between(start, stop), -xp.inf)

    def _cell(self, index: Any) -> tuple[Cut, Cut]:
        """The cuts about a multiple of the step; about zero where only their distance matters, to keep its digits."""
        if isinstance(self.base, Additive) and self.base.measure == "density":
            index = 0.0 * index
        return ((index - 0.5) * self.step, False), ((index + 0.5) * self.step, False)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
