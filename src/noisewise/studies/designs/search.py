"""The least budget, or the least number of people, that meets a goal: a root of a function known with noise.

A place is a budget or a number of people. Evaluations at different places share their random numbers, so that
differences are far better known than values. The search stops where the noise hides the sign of the difference from the
goal, and asks for more releases while the noise is too large. docs/derivations/design.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from noisewise.diagnostics.proportions import Z95, wilson
from noisewise.numerics import Array
from noisewise.results.goal import Goal
from noisewise.studies.designs.run import PER_BATCH

Evaluate = Callable[[list[float], int, int], Array]
"""A function of places, first and last: averages by place and batch, for batches from the first to before the last."""
SEEN = 0.25
"""Fraction of a standard error within which a value cannot be told from the goal."""
HALVINGS = 8
"""Most places tried between two neighbours of the grid."""


@dataclass
class Curve:
    """Averages by batch at every place that was looked at."""

    evaluate: Evaluate
    target: Goal | None = None
    """The target where it is simulated, since chances have errors of their own; None with closed forms."""
    batches: dict[float, Array] = field(default_factory=dict)

    def look(self, places: list[float], batches: int) -> None:
        """Make sure that there are at least `batches` batches at each place."""
        fewest = {len(self.batches.get(place, ())) for place in places}
        for there in sorted(fewest):
            wanting = sorted(place for place in places if len(self.batches.get(place, ())) == there < batches)
            if wanting:
                more = self.evaluate(wanting, there, batches)
                for place, row in zip(wanting, more, strict=True):
                    self.batches[place] = np.concatenate([self.batches.get(place, np.empty(0)), row])

    @property
    def seen(self) -> list[float]:
        """The places that were looked at, in their order."""
        return sorted(self.batches)

    def mean(self, place: float) -> float:
        """The target's average at a place."""
        return float(np.mean(self.batches[place]))

    def error(self, place: float) -> float:
        """Its standard error; for a chance that is counted, at least half the width of Wilson's interval at z = 1.

        Batches are independent. Where all releases answered alike they have no scatter, but the chance need not be 0
        or 1.
        """
        scatter = self._scatter(place)
        if self.target is None or not self.target.is_counted:
            return scatter
        low, high = wilson(self.mean(place), self.releases(place), 1.0)
        return max(scatter, 0.5 * (high - low))

    def band(self, place: float) -> tuple[float, float]:
        """A 95% interval of the target there: Wilson's for a chance, which stays within 0 and 1."""
        value, scatter = self.mean(place), self._scatter(place)
        if self.target is None or not self.target.is_chance:
            return value - Z95 * scatter, value + Z95 * scatter
        size = value * (1.0 - value) / scatter**2 if scatter > 0.0 else math.inf
        if self.target.is_counted or scatter == 0.0:
            size = min(size, self.releases(place))
        return wilson(value, size)

    def releases(self, place: float) -> int:
        """Simulated releases there."""
        return PER_BATCH * len(self.batches[place])

    def _scatter(self, place: float) -> float:
        values = self.batches[place]
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))


@dataclass(frozen=True)
class Solution:
    """Where the goal is met: the place, its standard error, and what was seen of it."""

    place: float
    error: float
    status: str
    """"complete"; "everywhere" or "nowhere" where all or none of the places meet it; "noisy" where the error is larger
    than asked for."""


def least(
    curve: Curve, grid: list[float], goal: float, falls: bool, *, batches: int, most: int, tolerance: float
) -> Solution:
    """The least place at which the target meets the goal, on a curve that falls (or rises) in the long run."""
    sign = 1.0 if falls else -1.0

    def excess(place: float) -> float:
        return sign * (curve.mean(place) - goal)

    curve.look(grid, batches)
    smooth = falling(np.array([excess(place) for place in grid]))
    if smooth[0] <= 0.0:
        return Solution(grid[0], 0.0, "everywhere")
    if smooth[-1] > 0.0:
        return Solution(grid[-1], math.inf, "nowhere")
    after = int(np.argmax(smooth <= 0.0))
    while True:
        near = grid[max(after - 2, 0) : after + 2]
        curve.look(near, batches)
        root = _between(curve, grid[after - 1], grid[after], excess, batches)
        x = np.log(near)
        slope = abs(float(np.polyfit(x, [curve.mean(place) for place in near], 1)[0]))
        noise = curve.error(min(near, key=lambda place: abs(math.log(place / root))))
        error = root * noise / slope if slope > 0.0 else math.inf
        if error <= tolerance * root:
            return Solution(root, error, "complete")
        if batches >= most:
            return Solution(root, error, "noisy")
        batches = min(2 * batches, most)


def _between(curve: Curve, low: float, high: float, excess: Callable[[float], float], batches: int) -> float:
    """The root between two places, by interpolation in logarithms; it ends where noise hides the sign."""
    curve.look([low, high], batches)
    above, below = max(excess(low), 0.0), min(excess(high), 0.0)
    for _ in range(HALVINGS):
        share = above / (above - below) if above > below else 0.5
        share = min(max(share, 0.1), 0.9)  # never so near to an end that nothing is learnt
        middle = math.exp(math.log(low) + share * math.log(high / low))
        curve.look([middle], batches)
        value = excess(middle)
        if abs(value) <= SEEN * curve.error(middle):
            return middle
        low, above, high, below = (middle, value, high, below) if value > 0.0 else (low, above, middle, value)
    share = above / (above - below) if above > below else 0.5
    return math.exp(math.log(low) + share * math.log(high / low))


def falling(values: Array) -> Array:
    """The nearest sequence that never rises, by pooling neighbours that do (isotonic regression)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((float(value), 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (second, m), (first, n) = blocks.pop(), blocks.pop()
            blocks.append(((first * n + second * m) / (n + m), n + m))
    return np.concatenate([np.full(size, value) for value, size in blocks])
