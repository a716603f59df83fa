"""Summaries of independent draws that stayed on an accelerator, computed there: only a few numbers are fetched.

Order statistics are those of the draws, to the last bit, and NumPy interpolates between them. Means and standard
deviations are computed from deviations from the mean, summed in groups of `GROUP`. They are those that NumPy gives of
the fetched draws but for 1e-12 of the standard deviation, and 1e-14 of the mean. Arrays on the accelerator may be
longer than the draws: rows beyond the first `count` are ignored.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.diagnostics import tails
from noisewise.model.on_device.held import Held, rows_or_more, to_host
from noisewise.numerics import Array
from noisewise.results.intervals import rows_inside

GROUP = 256
"""Numbers that are added one after the other; then their sums, and so on."""


def mean_and_sd(column: Held) -> tuple[Array, Array]:
    """As `weights.mean_and_sd` of equally weighted draws."""
    with column.there():
        mean, sd = to_host(_moments(column.first_rows_of(), len(column)))
    return mean.reshape(column.shape[1:]), sd.reshape(column.shape[1:])


def quantiles(column: Held, levels: list[float]) -> Array:
    """As `np.quantile` over the first axis, shape (levels, *rest)."""
    virtual = (len(column) - 1) * np.asarray(levels)
    below = np.floor(virtual).astype(int)
    places = np.stack([below, np.minimum(below + 1, len(column) - 1)])
    neighbours = _by_entry(column, _order_statistics, places).reshape(-1, *places.shape)
    result = np.empty((len(levels), len(neighbours)))
    for entry, pairs in enumerate(neighbours):
        for number, share in enumerate(virtual - below):
            # NumPy interpolates between two numbers as between these two among all the others.
            result[number, entry] = np.quantile(pairs[:, number], share)
    return result.reshape(len(levels), *column.shape[1:])


def central(column: Held, level: float) -> tuple[Array, Array]:
    """As `intervals.central`."""
    low, high = quantiles(column, [(1 - level) / 2, (1 + level) / 2])
    return low, high


def shortest(column: Held, level: float) -> tuple[Array, Array]:
    """As `intervals.shortest`."""
    low, high = _by_entry(column, _shortest, rows_inside(len(column), level)).reshape(-1, 2).T
    return low.reshape(column.shape[1:]), high.reshape(column.shape[1:])


def heavy_tails(column: Held) -> Array:
    """As `tails.heavy_tails`. A tail that may be heavy is fetched, 6 sqrt(N) numbers, and fitted on the processor."""
    size, shape = len(column), column.shape[1:]
    tail_shapes = np.full(math.prod(shape), np.nan)
    if size < tails.LEAST:
        return tail_shapes.reshape(shape)
    count = tails.tail_size(size)
    with column.there():
        rows = column.first_rows_of()
        for entry in range(tail_shapes.size):
            marks, farthest = _farthest(rows, size, entry, count, rows_or_more(count + 1))
            finite, cut, tenth, top = to_host(marks)
            if not finite:  # then nothing is said of any entry
                return np.full(shape, np.nan)
            if tails.may_be_heavy(cut, tenth, top):
                tail_shapes[entry] = tails.shape_if_heavy(to_host(farthest)[-count:], cut)
    return tail_shapes.reshape(shape)


def _by_entry(column: Held, program: Any, wanted: Any) -> Array:
    """A few numbers of each entry, one entry at a time: to sort all at once would fill the memory."""
    with column.there():
        rows = column.first_rows_of()
        numbers = [program(rows, len(column), entry, wanted) for entry in range(math.prod(column.shape[1:]))]
        return np.array(to_host(numbers), float)


# Programs -------------------------------------------------------------------------------------------------------------


@jax.jit
def _moments(rows: Any, count: Any) -> Any:
    rows = rows.reshape(len(rows), -1).astype(float)
    counted = (jnp.arange(len(rows)) < count)[:, None]
    rough = _total(jnp.where(counted, rows, 0.0)) / count
    rest = _total(jnp.where(counted, rows - rough, 0.0)) / count  # what rounding left
    mean = jnp.where(jnp.isfinite(rough), rough + rest, rough)
    squares = _total(jnp.where(counted, (rows - mean) ** 2, 0.0))
    return mean, jnp.sqrt(squares / (count - 1))


def _total(terms: Any) -> Any:
    """Sums over the first axis. Their rounding grows with the logarithm of the length."""
    while len(terms) > 1:
        padded = jnp.pad(terms, ((0, -len(terms) % GROUP), (0, 0)))
        terms = jnp.sum(padded.reshape(-1, GROUP, terms.shape[1]), axis=1)
    return terms[0]


def _sorted(rows: Any, count: Any, entry: Any) -> Any:
    """One entry's draws in order, and infinity after them. No draw is NaN: such a block is refused as it is made."""
    column = rows.reshape(len(rows), -1)[:, entry].astype(float)
    return jnp.sort(jnp.where(jnp.arange(len(rows)) < count, column, jnp.inf))


@jax.jit
def _order_statistics(rows: Any, count: Any, entry: Any, places: Any) -> Any:
    return _sorted(rows, count, entry)[places]


@jax.jit
def _shortest(rows: Any, count: Any, entry: Any, inside: Any) -> Any:
    """The first of the shortest intervals that begin and end at draws and hold so many of them."""
    ordered = _sorted(rows, count, entry)
    first = jnp.arange(len(ordered))
    last = first + inside - 1
    width = jnp.where(last < count, ordered[jnp.minimum(last, len(ordered) - 1)] - ordered, jnp.inf)
    best = jnp.argmin(width)
    return jnp.stack([ordered[best], ordered[best + inside - 1]])


@partial(jax.jit, static_argnums=4)
def _farthest(rows: Any, count: Any, entry: Any, tail: Any, most: int) -> Any:
    """Whether all draws are finite, with three distances from the median; and the largest distances, ascending.

    The three are the last before the `tail` largest, the tenth largest and the largest. `most` is more than `tail`: the
    `most` ordered draws at either end have the largest distances among them.
    """
    ordered = _sorted(rows, count, entry)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    number = jnp.arange(min(most, len(ordered)))
    low, high = number, count - 1 - number
    below = jnp.where(low < count, jnp.abs(ordered[low] - median), -1.0)
    above = jnp.where(high >= len(number), jnp.abs(ordered[high] - median), -1.0)  # no draw twice
    far = jnp.sort(jnp.concatenate([below, above]))
    finite = jnp.isfinite(ordered[0]) & jnp.isfinite(ordered[count - 1])
    return jnp.stack([finite.astype(float), far[len(far) - tail - 1], far[-10], far[-1]]), far
