"""Columns that stay on an accelerator between two blocks: what one accepted is what the next takes.

To fetch survivors and send them back would take longer than to make them. A column is a list of pieces of arrays there;
cutting and joining change the list alone, until a block takes its rows, or somebody asks for them as a NumPy array.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Piece = tuple[jax.Array, int, int]
"""An array on the device, and the rows of it that count: from, to."""


class Held:
    """Rows on an accelerator, as far as streams of blocks need an array."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        every = list(pieces)
        self.pieces = [piece for piece in every if piece[1] < piece[2]] or every[:1]

    def __len__(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return (len(self), *self.pieces[0][0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its numbers."""
        return np.dtype(self.pieces[0][0].dtype)

    @property
    def nbytes(self) -> int:
        """Of the rows that count."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __getitem__(self, rows: Any) -> Any:
        if not isinstance(rows, slice):
            return np.asarray(self[rows : rows + 1])[0]
        low, high, step = rows.indices(len(self))
        assert step == 1
        pieces, at = [], 0
        for array, start, stop in self.pieces:
            first, last = max(low - at, 0), min(high - at, stop - start)
            if first < last:
                pieces.append((array, start + first, start + last))
            at += stop - start
        return Held(pieces or [(*self.pieces[0][:2], self.pieces[0][1])])

    def astype(self, dtype: Any, copy: bool = True) -> "Held":
        """Itself: numbers keep their kind there."""
        assert self.dtype == dtype
        return self

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """`np.concatenate` of such columns is one of them."""
        if function is not np.concatenate or options or len(arguments) != 1:
            return NotImplemented
        return Held(piece for column in arguments[0] for piece in column.pieces)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Fetched."""
        parts = [np.asarray(array[start:stop]) for array, start, stop in self.pieces]
        return np.concatenate(parts).astype(dtype or self.dtype, copy=False)

    def joined(self) -> jax.Array:
        """One array on the device."""
        (array, start, stop), *others = self.pieces
        rows, at = _begun(array, start, len(self)), stop - start
        for array, start, stop in others:
            rows = _spliced(rows, array, at, start, stop - start)
            at += stop - start
        return rows


@partial(jax.jit, static_argnums=2)
def _begun(piece: Any, start: Any, size: int) -> Any:
    """So many rows from `start` on; what lies beyond the piece is put in later."""
    return piece[jnp.clip(jnp.arange(size) + start, 0, len(piece) - 1)]


@jax.jit
def _spliced(rows: Any, piece: Any, at: Any, start: Any, count: Any) -> Any:
    """`rows` with `count` rows of the piece from `start` on put in at `at`: one program for any of these numbers."""
    number = jnp.arange(len(rows))
    inside = (number >= at) & (number < at + count)
    moved = piece[jnp.clip(number - at + start, 0, len(piece) - 1)]
    return jnp.where(inside.reshape((-1,) + (1,) * (rows.ndim - 1)), moved, rows)
