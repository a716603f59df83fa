"""Tails of the draws: moments that do not exist are noticed, so that they are not printed as numbers.

The mean of a law exists if the shape k of its tail is below 1, its variance if k is below 1/2. How often the rule here
errs, by law and number of draws: docs/derivations/moments.md.
"""

import math

import numpy as np

from noisewise.diagnostics.weights import fit_pareto
from noisewise.numerics import Array

HEAVY = 0.65
"""A tail of this shape or above: mean and standard deviation are not given."""
LEAST = 400
"""Independent draws below which nothing is said of tails."""
WIDE = 6.0
"""No tail is fitted where the largest distance is at most this many times the distance at which the tail begins: the
chance of that with shape 0.65 and a tail of 100 draws is 0.1%, of 40 draws 8%."""
GROWING = 1.5
"""No tail is fitted either where the largest distance is at most this many times the tenth largest, as in a far, narrow
mode, where all are about the same. With shape 1 the chance of that is 5e-5."""


def heavy_tails(values: Array) -> Array:
    """For every scalar of independent draws (the first axis) the shape of its tail, if at least `HEAVY`, else NaN.

    The tail is that of the distances from the median.
    """
    shape, size = values.shape[1:], len(values)
    if size < LEAST or not np.all(np.isfinite(values)):
        return np.full(shape, np.nan)
    flat = values.reshape(size, -1)
    shapes = np.full(flat.shape[1], np.nan)
    count = tail_size(size)
    distances = np.abs(flat - np.median(flat, axis=0))
    tops = np.partition(distances, (size - count - 1, size - 10), axis=0)
    cut, tenth, top = tops[size - count - 1], tops[size - 10], distances.max(axis=0)
    for scalar in np.flatnonzero(may_be_heavy(cut, tenth, top)):
        shapes[scalar] = shape_if_heavy(np.sort(tops[size - count :, scalar]), cut[scalar])
    return shapes.reshape(shape)


def may_be_heavy(cut: Array, tenth: Array, top: Array) -> Array:
    """Whether a tail is worth fitting, by three distances: the last before it, its tenth largest and its largest."""
    return (top > WIDE * cut) & (top > GROWING * tenth)


def shape_if_heavy(tail: Array, cut: float) -> float:
    """The shape of a tail of ascending distances, if at least `HEAVY`, else NaN; `cut` is the distance before it."""
    excess = (tail[tail > cut] - cut) / tail[-1]
    k = fit_pareto(excess) if len(excess) >= 10 else -math.inf
    return k if k >= HEAVY else math.nan


def tail_size(draws: int) -> int:
    """Draws in the tail: 6 sqrt(N), or a tenth where that is less."""
    return math.ceil(min(0.1 * draws, 6.0 * math.sqrt(draws)))


def without_repeats(draws: int, size: float, weights: Array | None) -> Array:
    """Indices of about `size` draws, as many as all are worth, at equal steps of their weights or of their number."""
    count = max(1, min(draws, int(size))) if np.isfinite(size) else draws
    steps = (np.arange(count) + 0.5) / count
    if weights is None:
        return (steps * draws).astype(int)
    total = np.cumsum(weights)
    return np.minimum(np.searchsorted(total, steps * total[-1]), draws - 1)
