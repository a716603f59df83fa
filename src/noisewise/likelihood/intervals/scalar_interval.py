"""One scalar parameter along its free coordinate, and the walk outwards from the estimate to an interval's ends."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from noisewise import checks
from noisewise.errors import InferenceError, refusal
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.observed import Observed, positive_inverse
from noisewise.model.supports import declared_ends
from noisewise.numerics import double
from noisewise.results.labels import owner_of

NEAR = 1e-9
"""Share of the way from the estimate to the boundary at which the boundary counts as reached."""


@dataclass(frozen=True)
class Interval:
    """Confidence interval of one scalar parameter, or of a function of several; unpacks as `low, high`.

    `low_end` and `high_end` say what ends it: "crossing" (the criterion is met there), "boundary" (the parameter
    space ends first) or "unbounded" (the criterion is never met, however far one goes).
    """

    parameter: str
    method: str
    level: float
    low: float
    high: float
    low_end: str = "crossing"
    high_end: str = "crossing"
    message: str = ""

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))


@dataclass(frozen=True)
class Scalar:
    """A scalar parameter that moves by itself: its place among the parameters and among the free coordinates."""

    label: str
    row: int
    column: int
    low: float
    high: float


def scalar_of(who: str, argument: str, observed: Observed, name: Any) -> Scalar:
    """The scalar parameter or entry of this name; refused where it is tied to others."""
    coordinates = observed.coordinates
    label = name.replace(" ", "") if isinstance(name, str) and name not in coordinates.labels else name
    if label not in coordinates.labels:
        rule = "must be one scalar parameter, or one entry"
        raise refusal(who, argument, rule, name, checks.nearest(name, coordinates.labels))
    row = coordinates.labels.index(label)
    jacobian = coordinates.jacobian(observed.free)
    (columns,) = np.nonzero(jacobian[row])
    if len(columns) != 1 or np.count_nonzero(jacobian[:, columns[0]]) != 1:
        advice = "Test the whole parameter with likelihood_ratio_test."
        raise refusal(who, argument, "must move by itself, not tied to other entries", name, advice)
    owner = owner_of(label)
    low, high = declared_ends(coordinates.transforms[owner].codomain)
    shape, start = coordinates.shapes[owner], coordinates.labels.index(label) - first_of(coordinates, owner)
    ends = [float(np.broadcast_to(end, shape).reshape(-1)[start]) for end in (low, high)]
    return Scalar(label, row, int(columns[0]), ends[0], ends[1])


def first_of(coordinates: Coordinates, owner: str) -> int:
    """Where a parameter's entries begin among those of all parameters."""
    return [owner_of(label) for label in coordinates.labels].index(owner)


@dataclass
class Line:
    """The parameter's value along its free coordinate, and the walk outwards to where a criterion turns positive."""

    observed: Observed
    scalar: Scalar

    def value(self, u: float) -> float:
        """The parameter at the free coordinate u."""
        free = self.observed.free.copy()
        free[self.scalar.column] = u
        with double():
            flat = self.observed.coordinates.flat(self.observed.coordinates.constrained(jnp.asarray(free)))
            return float(flat[self.scalar.row])

    @property
    def start(self) -> float:
        """The free coordinate of the estimate."""
        return float(self.observed.free[self.scalar.column])

    @property
    def step(self) -> float:
        """About one standard error, others maximised out; 0.5 where that is zero, or 10 and more."""
        variance = positive_inverse(self.observed.curvature(self.observed.free))
        length = math.sqrt(max(float(variance[self.scalar.column, self.scalar.column]), 0.0))
        return length if 0 < length < 10.0 else 0.5

    def walk(self, criterion: Callable[[float], float], start: float, step: float) -> tuple[float, str]:
        """From `start`, where the criterion is negative, to its first change of sign; steps double."""
        from scipy.optimize import brentq

        begin, inside = self.value(start), start
        rising = self.value(start + step) > begin
        bound = self.scalar.high if rising else self.scalar.low
        for doubling in range(40):
            outside = start + step * 2.0**doubling
            before, after = self.value(inside), self.value(outside)
            gone = not np.isfinite(after) or after == before
            if not gone and criterion(outside) > 0:
                root = float(brentq(criterion, inside, outside, xtol=1e-11, rtol=1e-13))
                self._refuse_a_cliff(criterion, root)
                return self.value(root), "crossing"
            if np.isfinite(bound) and (gone or abs(after - bound) <= NEAR * abs(begin - bound)):
                return bound, "boundary"
            if gone:
                break
            inside = outside
        return bound, "boundary" if np.isfinite(bound) else "unbounded"

    def _refuse_a_cliff(self, criterion: Callable[[float], float], root: float) -> None:
        """Refuse an end beyond which the likelihood cannot be computed: that is no crossing."""
        if abs(criterion(root)) > 1e-3:
            raise InferenceError(
                f"the likelihood cannot be computed beyond {self.scalar.label} = {self.value(root):.6g}, "
                "before the interval's end. Use the bootstrap, or a narrower prior's support.",
                who="intervals",
            )

    def interval(self, method: str, level: float, ends: list[tuple[float, str]], message: str = "") -> Interval:
        """The interval, its ends in order, with a sentence on each end that is no crossing."""
        if ends[0][0] > ends[1][0]:
            ends = ends[::-1]
        said = [message] if message else []
        for side, (value, kind) in zip(("low", "high"), ends, strict=True):
            if kind == "boundary" and not message:
                said.append(f"The {side} end is the boundary of {self.scalar.label}'s space, {value:g}.")
            if kind == "unbounded":
                said.append(f"The {side} end is unbounded: the release does not rule out any such value.")
        (low, low_end), (high, high_end) = ends
        return Interval(self.scalar.label, method, float(level), low, high, low_end, high_end, " ".join(said))
