"""Draws from finite laws by inverting their distribution functions, with a guide table (Chen and Asau 1974)."""

import numpy as np

from noisewise.numerics.namespaces import Array

CELLS, LEAST_CELLS, MOST = 2**12, 2**4, 2**22
"""Cells of equal probability in the guide of one law, at most and at least; those of all laws together, at most."""


class Inversion:
    """Laws given by weights, one law in each column; a draw is the index of a value.

    The index is the number of cumulative sums that are at most a uniform number. Most cells of the guide lie between
    two sums, and leave one index only; in the others the index is found by bisection. So a draw takes a few operations,
    however many values there are.
    """

    def __init__(self, weights: Array) -> None:
        """`weights` (values, laws) are positive or 0, and one of each law is positive."""
        sums = np.cumsum(weights, axis=0)
        self._sums = sums / sums[-1]
        self._laws = sums.shape[1]
        self._cells = int(np.clip(2 ** int(np.log2(MOST / self._laws)), LEAST_CELLS, CELLS))
        edges = np.arange(self._cells + 1) / self._cells
        columns = self._sums.T
        first = [np.searchsorted(column, edges[:-1], side="right") for column in columns]
        last = [np.searchsorted(column, edges[1:], side="left") for column in columns]
        self._first, self._last = (np.concatenate(ends).astype(np.int32) for ends in (first, last))
        self._only = np.where(self._first == self._last, self._first, -1)

    def __call__(self, uniform: Array) -> Array:
        """The indices of values for (rows, laws) of uniform numbers below 1."""
        cell = (uniform * self._cells).astype(np.int32)  # exact: the number of cells is a power of two
        if self._laws > 1:
            cell += self._cells * np.arange(self._laws, dtype=np.int32)
        number = self._only[cell]
        open_ = np.nonzero(number < 0)
        if len(open_[0]):
            number[open_] = self._halved(uniform[open_], cell[open_], open_[1])
        return number

    def _halved(self, uniform: Array, cell: Array, law: Array) -> Array:
        low, high = self._first[cell], self._last[cell]
        while np.any(low < high):
            middle = (low + high) // 2
            passed = (low < high) & (self._sums[middle, law] <= uniform)
            low, high = np.where(passed, middle + 1, low), np.where(passed, high, middle)
        return low
