"""Intervals of weighted draws, entry by entry and for all entries of a vector at once."""

import math

import numpy as np

from noisewise.diagnostics.weights import quantiles
from noisewise.numerics import Array

ROUNDING = 1e-12
"""Sums of weights nearer than this are the same."""


def central(values: Array, weights: Array | None, level: float) -> tuple[Array, Array]:
    """The interval with the same probability below as above, entry by entry."""
    low, high = quantiles(values, weights, [(1 - level) / 2, (1 + level) / 2])
    return low, high


def shortest(values: Array, weights: Array | None, level: float) -> tuple[Array, Array]:
    """The shortest interval with `level` of the draws, entry by entry: of highest density where there is one mode.

    It begins and ends at draws. Of intervals of one length, the first is taken.
    """
    size = len(values)
    flat = values.reshape(size, -1)
    ends = np.empty((2, flat.shape[1]))
    for column in range(flat.shape[1]):
        order = np.argsort(flat[:, column], kind="stable")
        ordered = flat[order, column]
        if weights is None:
            count = rows_inside(size, level)
            first = np.arange(size - count + 1)
            last = first + count - 1
        else:
            above = np.cumsum(weights[order])
            before = above - weights[order]
            last = np.searchsorted(above, before + level * above[-1] - ROUNDING)
            first = np.flatnonzero(last < size)
            last = last[first]
        best = int(np.argmin(ordered[last] - ordered[first]))
        ends[:, column] = ordered[first[best]], ordered[last[best]]
    low, high = ends.reshape((2, *values.shape[1:]))
    return low, high


def rows_inside(size: int, level: float) -> int:
    """How many of `size` draws of equal weight make up `level` of them."""
    return min(size, max(1, math.ceil(level * size - ROUNDING)))


def joint(values: Array, weights: Array | None, level: float) -> tuple[Array, Array]:
    """Intervals that hold all entries of `level` of the draws at once: Besag, Green, Higdon and Mengersen (1995, 6.3).

    Each draw has the most extreme rank of its entries, in either tail, and lies within the band at r if that is at most
    r. The r used is the smallest whose band holds `level` of the draws. Ranks are shares of the weight. Ties all have
    the innermost of their ranks: an entry that hardly varies is extreme in no draw, and leaves the others as they would
    be without it.
    """
    if weights is not None:  # draws without weight are no ends
        values, weights = values[weights > 0.0], weights[weights > 0.0]
    size = len(values)
    flat = values.reshape(size, -1)
    weight = np.full(size, 1.0 / size) if weights is None else weights
    extreme = np.zeros(size)
    for column in flat.T:
        np.maximum(extreme, np.maximum(*_tails(column, weight)), out=extreme)
    order = np.argsort(extreme, kind="stable")
    reached = np.searchsorted(np.cumsum(weight[order]), level - ROUNDING)
    r = extreme[order[min(int(reached), size - 1)]] + ROUNDING
    ends = np.empty((2, flat.shape[1]))
    for place, column in enumerate(flat.T):  # tails again: those of all entries at once would fill the memory
        below, above = _tails(column, weight)
        ends[:, place] = np.min(column[above <= r]), np.max(column[below <= r])
    low, high = ends.reshape((2, *values.shape[1:]))
    return low, high


def _tails(column: Array, weight: Array) -> tuple[Array, Array]:
    """For each draw, the weight below it, and the weight above it."""
    _, place = np.unique(column, return_inverse=True)
    mass = np.bincount(place, weights=weight)
    upwards = np.cumsum(mass)
    return (upwards - mass)[place], (upwards[-1] - upwards)[place]
