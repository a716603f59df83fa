"""Linear measurements of a statistic: which entries, or which sums of entries with whole-numbered coefficients."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import jax
import numpy as np
from scipy.sparse import csr_array

from noisewise import checks
from noisewise.errors import Place, refusal
from noisewise.mechanisms.packing import plain, unpacked
from noisewise.numerics import Array

MATRIX = "Give a matrix of whole numbers: a row for each measured value, a column for each entry of the statistic."
SHORT = 2**12
"""Most entries of a matrix that is multiplied as a dense array; a larger one by way of its nonzero entries."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse matrix of whole numbers: its nonzero entries, in the order of its rows."""

    shape: tuple[int, int]
    rows: Array
    columns: Array
    entries: Array

    @classmethod
    def of(cls, who: str, value: Any) -> Self:
        """A matrix from an array, nested lists or a sparse matrix of SciPy's; anything else is refused."""
        if hasattr(value, "tocoo"):
            sparse = value.tocoo()
            shape, entries = sparse.shape, np.asarray(sparse.data)
            rows, columns = (np.asarray(index) for index in (sparse.row, sparse.col))
        else:
            try:
                dense = np.asarray(value)
            except ValueError:
                raise refusal(who, "matrix", "must be a matrix of whole numbers", value, MATRIX) from None
            shape = dense.shape
            if dense.ndim != 2 or dense.dtype.kind not in "biuf":
                raise refusal(who, "matrix", "must be a matrix of whole numbers", value, MATRIX)
            rows, columns = np.nonzero(dense)
            entries = dense[rows, columns]
        whole = entries.dtype.kind in "biu" or (entries.dtype.kind == "f" and np.all(entries == np.floor(entries)))
        if not whole or np.any(np.abs(entries.astype(float)) > 2**31):
            raise refusal(who, "matrix", "must be a matrix of whole numbers up to 2**31 in size", value, MATRIX)
        return cls._collected(who, (int(shape[0]), int(shape[1])), rows, columns, entries.astype(np.int64))

    @classmethod
    def _collected(cls, who: str, shape: tuple[int, int], rows: Array, columns: Array, entries: Array) -> Self:
        """The matrix of these entries: those at the same place are added up; every row must have a nonzero one."""
        if math.prod(shape) >= 2**62 or len(rows) < shape[0]:
            advice = "Leave rows of zeros out."
            raise refusal(who, "matrix", "must measure something in every row", f"shape {shape}", advice)
        places, index = np.unique(rows.astype(np.int64) * shape[1] + columns, return_inverse=True)
        summed = np.zeros(len(places), dtype=np.int64)
        np.add.at(summed, index, entries)
        places, summed = places[summed != 0], summed[summed != 0]
        missing = np.setdiff1d(np.arange(shape[0]), places // max(shape[1], 1))
        if missing.size or not shape[0]:
            value = f"row {int(missing[0])} is zero" if missing.size else "no rows"
            raise refusal(who, "matrix", "must measure something in every row", value, "Leave that row out.")
        return cls(shape, places // shape[1], places % shape[1], summed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file."""
        parts = {name: plain(getattr(self, name)) for name in ("rows", "columns", "entries")}
        return {"shape": list(self.shape), **parts}

    @classmethod
    def from_dict(cls, content: Any, where: str) -> Self:
        """A matrix from a file's object."""
        advice = 'Give {"shape": [1, 3], "rows": [0, 0, 0], "columns": [0, 1, 2], "entries": [1, 1, 1]}.'
        if not isinstance(content, dict) or set(content) != {"shape", "rows", "columns", "entries"}:
            raise refusal(where, "matrix", "must have shape, rows, columns and entries", content, advice)
        shape = content["shape"]
        if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape):
            raise refusal(where, "shape", "must be two positive whole numbers", shape, advice)
        parts = {}
        for name, least, most in (
            ("rows", 0, shape[0]),
            ("columns", 0, shape[1]),
            ("entries", -(2**31), 2**31),
        ):
            array = np.asarray(unpacked(content[name], Place.below(where, name)))
            if array.ndim != 1 or array.dtype.kind != "i" or np.any((array < least) | (array >= most)):
                rule = f"must be a list of whole numbers from {least}, below {most}"
                raise refusal(where, name, rule, content[name], advice)
            parts[name] = array
        if len({len(array) for array in parts.values()}) > 1:
            lengths = [len(array) for array in parts.values()]
            raise refusal(where, "matrix", "must have as many rows and columns as entries", lengths, advice)
        return cls._collected(where, (shape[0], shape[1]), **parts)

    @cached_property
    def dense(self) -> Array:
        """The matrix as an array."""
        full = np.zeros(self.shape, dtype=np.int64)
        full[self.rows, self.columns] = self.entries
        return full

    @cached_property
    def sparse(self) -> Any:
        """The matrix as SciPy's, row by row."""
        return csr_array((self.entries, (self.rows, self.columns)), shape=self.shape)

    def times(self, vector: Any) -> Any:
        """The product with a vector; traceable."""
        if math.prod(self.shape) <= SHORT:
            return jax.numpy.asarray(self.dense) @ vector
        terms = vector[self.columns] * self.entries
        return jax.ops.segment_sum(terms, self.rows, self.shape[0], indices_are_sorted=True)

    def times_rows(self, rows: Array) -> Array:
        """The product with each of many vectors, the rows of an array."""
        products: Array = rows @ self.dense.T if math.prod(self.shape) <= SHORT else (self.sparse @ rows.T).T
        return products

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matrix) or self.shape != other.shape:
            return False
        return all(np.array_equal(getattr(self, part), getattr(other, part)) for part in ("rows", "columns", "entries"))

    def __hash__(self) -> int:
        return hash((self.shape, self.rows.tobytes(), self.columns.tobytes(), self.entries.tobytes()))


@dataclass(frozen=True)
class Linear:
    """A linear measurement of a statistic: all its entries, sums over some of its axes, or a matrix times them."""

    statistic: str
    matrix: Matrix | None = None
    axes: tuple[str | int, ...] | None = None
    """The axes to sum over; () for none, None for all."""

    @classmethod
    def of(cls, who: str, statistic: Any, matrix: Any = None, axes: Any = None, total: Any = False) -> Self:
        """The measurement from the arguments of `Mechanism.of`, checked."""
        checks.name(who, "statistic", statistic)
        if not isinstance(total, (bool, np.bool_)):
            raise refusal(who, "sum", "must be True or False", total, 'Name axes by axes=("tract",).')
        if sum((matrix is not None, axes is not None, bool(total))) > 1:
            advice = "Give matrix, axes or sum=True, or none of them to measure every entry."
            raise refusal(who, "matrix", "must be the only one of matrix, axes and sum", statistic, advice)
        if matrix is not None:
            return cls(statistic, Matrix.of(who, matrix), ())
        if axes is None:
            return cls(statistic, None, None if total else ())
        chosen = (axes,) if isinstance(axes, (str, int)) else axes
        rule, advice = "must name or number the axes to sum over", 'Give axes=("tract",), or sum=True for all.'
        listed = tuple(chosen) if isinstance(chosen, Iterable) else ()
        good = all(isinstance(axis, (str, int, np.integer)) and not isinstance(axis, bool) for axis in listed)
        if not listed or not good or len(set(listed)) < len(listed):
            raise refusal(who, "axes", rule, axes, advice)
        return cls(statistic, None, tuple(axis if isinstance(axis, str) else int(axis) for axis in listed))

    @property
    def whole(self) -> bool:
        """Whether it measures every entry as it is."""
        return self.matrix is None and self.axes == ()

    def kept(self, who: str, shape: Sequence[int], dims: Sequence[str]) -> list[int]:
        """The axes of a statistic of this shape that are not summed over; `dims` are the names of its axes, if any."""
        if self.axes is None:
            return []
        gone = set()
        for axis in self.axes:
            if isinstance(axis, str) and axis not in dims:
                advice = checks.nearest(axis, dims) + " Name its axes by Model(dims=...), or give their numbers."
                raise refusal(who, "axes", f"must be axes of '{self.statistic}'", axis, advice)
            number = dims.index(axis) if isinstance(axis, str) else axis
            if not -len(shape) <= number < len(shape):
                rule, advice = f"must be axes of '{self.statistic}', {len(shape)} in number", "Count from 0."
                raise refusal(who, "axes", rule, axis, advice)
            gone.add(number % len(shape))
        return [axis for axis in range(len(shape)) if axis not in gone]

    def matrix_for(self, who: str, shape: Sequence[int], dims: Sequence[str]) -> tuple[Matrix, tuple[int, ...]]:
        """The matrix over the entries of a statistic of this shape, row by row, and the shape of what it measures."""
        size = math.prod(shape)
        if self.matrix is not None:
            if self.matrix.shape[1] != size:
                rule = f"must have a column for each of the {size} entries of '{self.statistic}'"
                raise refusal(who, "matrix", rule, f"shape {self.matrix.shape}", MATRIX)
            return self.matrix, (self.matrix.shape[0],)
        axes_left = self.kept(who, shape, dims)
        left = tuple(shape[axis] for axis in axes_left)
        index = np.indices(shape).reshape(len(shape), size)[axes_left]
        rows = np.ravel_multi_index(tuple(index), left) if axes_left else np.zeros(size, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        ones = np.ones(size, dtype=np.int64)
        return Matrix((math.prod(left), size), rows[order].astype(np.int64), order.astype(np.int64), ones), left

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file."""
        entry: dict[str, Any] = {"statistic": self.statistic}
        if self.matrix is not None:
            entry["matrix"] = self.matrix.to_dict()
        elif self.axes is None:
            entry["sum"] = True
        elif self.axes:
            entry["axes"] = list(self.axes)
        return entry

    @classmethod
    def from_dict(cls, content: Any, where: str) -> Self:
        """A measurement from a file's object."""
        known = ("statistic", "matrix", "axes", "sum")
        if not isinstance(content, Mapping) or not set(content) <= set(known) or "statistic" not in content:
            advice = 'Give {"statistic": "cells", "sum": true}, or axes or a matrix in place of sum.'
            raise refusal(where, "of", "must have statistic, and one of matrix, axes and sum", content, advice)
        matrix = content.get("matrix")
        along_axes = cls.of(where, content["statistic"], None, content.get("axes"), content.get("sum", False))
        if matrix is None:
            return along_axes
        if not along_axes.whole:
            raise refusal(where, "matrix", "must be the only one of matrix, axes and sum", sorted(content), "Keep one.")
        return cls(along_axes.statistic, Matrix.from_dict(matrix, Place.below(where, "matrix")), ())
