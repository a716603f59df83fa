"""Is a sample uniform? Simultaneous bands for its empirical distribution function, and the exact test behind them.

Saeilynoja, Buerkner and Vehtari (2022): at each point z of a grid the number of values below z is binomial, so how far
out it lies is a tail probability; the test looks at the smallest of them over the grid. Its law is found exactly: a
binomial process is a Poisson process given its total, and the probability that a Poisson process stays within bands is
a chain of convolutions (Moscovich and Nadler 2017). docs/calibrate.md has the formulas.
"""

from functools import lru_cache

import numpy as np
from scipy.special import bdtr, gammaln

from noisewise.numerics import Array

FALSE_ALARM = 0.01
"""Probability that a calibration's verdict calls a right sampler miscalibrated."""
MOST_POINTS = 200
"""Intervals of the grid on which the distribution function is watched."""
ROUNDING = 1e-12
"""Most rounding error of the chain of convolutions."""


def p_value(values: Array) -> float:
    """Probability that uniform values would give a distribution function as far out, somewhere, as these do."""
    size = len(values)
    if size == 0:
        return float("nan")
    grid, tails = _tails(size)
    counts = np.searchsorted(np.sort(values), grid, side="right")
    smallest = float(tails[counts, np.arange(len(grid))].min())
    # Both are upper bounds: the exact probability up to rounding, and the union bound where that is finer.
    return min(1.0, 1.0 - _inside(size, smallest) + ROUNDING, (len(grid) + 1) * smallest)


def bands(size: int, level: float) -> tuple[Array, Array, Array]:
    """(z, low, high): a uniform sample's distribution function leaves the bands with probability at most `level`."""
    grid, tails = _tails(size)
    least, most = np.log(level / (4 * len(grid))), 0.0
    for _ in range(40):
        middle = 0.5 * (least + most)
        if 1.0 - _inside(size, float(np.exp(middle))) <= level:
            least = middle
        else:
            most = middle
    allowed = tails > np.exp(least)
    low = allowed.argmax(axis=0)
    return grid, low / size, (low + allowed.sum(axis=0) - 1) / size


@lru_cache(maxsize=32)
def _tails(size: int) -> tuple[Array, Array]:
    """Grid, and for each count (rows) and point (columns) the two-sided binomial tail probability of that count."""
    points = max(10, min(size, MOST_POINTS))
    grid = np.arange(1, points) / points
    counts = np.arange(size + 1)[:, None]
    below = bdtr(counts, size, grid)
    above = np.where(counts > 0, 1.0 - bdtr(np.maximum(counts - 1, 0), size, grid), 1.0)
    # The upper tail without cancellation: P(N >= n) at z is P(N <= size - n) at 1 - z.
    above = np.where(above < 0.5, bdtr(size - counts, size, 1.0 - grid), above)
    return grid, np.minimum(1.0, 2.0 * np.minimum(below, above))


def _inside(size: int, threshold: float) -> float:
    """Probability that every tail probability of a uniform sample stays above `threshold`."""
    grid, tails = _tails(size)
    allowed = tails > threshold
    if not allowed.any(axis=0).all():
        return 0.0
    lows = allowed.argmax(axis=0)
    highs = lows + allowed.sum(axis=0) - 1
    step = size / (len(grid) + 1)
    jumps = np.arange(size + 1)
    poisson = np.exp(jumps * np.log(step) - step - gammaln(jumps + 1))
    state, start = np.ones(1), 0  # probabilities of the counts start, start + 1, ...
    for low, high in zip([*lows, size], [*highs, size], strict=True):
        moved = np.convolve(state, poisson[: high - start + 1])
        state, start = moved[max(low - start, 0) : high - start + 1], max(low, start)
    total = np.exp(size * np.log(size) - size - gammaln(size + 1))
    return float(min(state[0] / total, 1.0)) if len(state) else 0.0
