"""Columns that stay on an accelerator: between two blocks, and as draws of which only summaries may be wanted.

Fetching survivors and sending them back would take longer than making them. A column is a list of pieces of arrays on
the device; cutting and joining change the list alone, until a block takes its rows, or they are asked for in NumPy.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from noisewise.numerics import Placement, double, placed, placement

LOCKED = "pinned_host"
"""JAX's name for memory of the host whose pages cannot move."""
FULL = "RESOURCE_EXHAUSTED"
"""What XLA's error says where a device has no memory left."""
PART = 2**22
"""Numbers that are fetched at a time: locked pages are costly."""
Piece = tuple[jax.Array, int, int]
"""An array on the device, and the rows of it that count: from, to."""


class Held:
    """Rows on an accelerator, with as much of an array's interface as streams of blocks need."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        every = list(pieces)
        self.pieces = [piece for piece in every if piece[1] < piece[2]] or every[:1]

    def __len__(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows as one array."""
        return (len(self), *self.pieces[0][0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return np.dtype(self.pieces[0][0].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that count."""
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
        """Itself; only the type that it has can be asked for."""
        assert self.dtype == dtype
        return self

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """`np.concatenate` of such columns is such a column; no other function is supported."""
        if function is not np.concatenate or options or len(arguments) != 1:
            return NotImplemented
        return Held(piece for column in arguments[0] for piece in column.pieces)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """The rows as a NumPy array, fetched part by part."""
        rows, at = np.empty(self.shape, self.dtype), 0
        with self.there():
            for array, start, stop in self.pieces:
                size = min(len(array), rows_or_more(stop - start), max(1, PART * len(array) // max(1, array.size)))
                for first in range(start, stop, size):
                    last = min(first + size, stop)
                    begin = min(first, len(array) - size)  # a part may not reach beyond the array
                    part = to_host(_cut(array, begin, size))
                    rows[at : at + last - first] = part[first - begin : last - begin]
                    at += last - first
        return rows.astype(dtype or self.dtype, copy=False)

    @contextmanager
    def there(self) -> Iterator[None]:
        """Run what is compiled inside on the device of these rows, in 64 bits: threads inherit neither."""
        [device] = self.pieces[0][0].devices()
        with placed(Placement(device)), double():
            yield

    def first_rows_of(self) -> jax.Array:
        """An array on the device that begins with these rows, and may be longer."""
        array, start, _ = self.pieces[0]
        return array if len(self.pieces) == 1 and start == 0 else self.joined()

    def joined(self) -> jax.Array:
        """One array on the device."""
        (array, start, stop), *others = self.pieces
        rows, at = _begun(array, start, len(self)), stop - start
        for array, start, stop in others:
            rows = _spliced(rows, array, at, start, stop - start)
            at += stop - start
        return rows


class GrowingColumn:
    """One array on the device for the rows of all blocks, one after the other: all that a run keeps of them."""

    def __init__(self, rows: int, like: Held) -> None:
        self.filled = 0
        with like.there():
            self.array = jnp.zeros((rows_or_more(rows), *like.shape[1:]), like.dtype)

    @staticmethod
    def of(rows: int, like: Held) -> "GrowingColumn | None":
        """A column with room for `rows` rows; None where the device has no memory left."""
        try:
            return GrowingColumn(rows, like)
        except jax.errors.JaxRuntimeError as error:
            if FULL not in str(error):
                raise
            return None

    def put(self, column: Held, at: int) -> None:
        """Put rows in after the first `at`. A call that was interrupted may be repeated."""
        with column.there():
            for piece, start, stop in column.pieces:
                self.array = _put(self.array, piece, at, start, stop)
                at += stop - start
        self.filled = at

    def __getitem__(self, rows: slice) -> Held:
        """The first rows of the array (a slice from 0), in an array that is not much longer."""
        whole = Held([(self.array, 0, self.filled)])[rows]
        (array, start, stop), size = whole.pieces[0], rows_or_more(len(whole))
        assert start == 0
        if size == len(array):
            return whole
        with whole.there():
            return Held([(_cut(array, 0, size), 0, stop)])


def rows_or_more(rows: int) -> int:
    """`rows` rounded up, by at most an eighth or to a multiple of 1024: few programs serve many lengths."""
    step = max(1024, (1 << max(rows - 1, 0).bit_length()) // 16)
    return max(1, -(-rows // step)) * step


def to_host(arrays: Any) -> Any:
    """A tree of the device's arrays as NumPy's arrays; through locked pages where the device has them.

    A device copies into pages that cannot move thirty times faster than into others.
    """
    where = placement()
    if where is not None and any(memory.kind == LOCKED for memory in where.device.addressable_memories()):
        arrays = jax.device_put(arrays, SingleDeviceSharding(where.device, memory_kind=LOCKED))
    return jax.tree.map(np.asarray, arrays)


@partial(jax.jit, static_argnums=2)
def _cut(rows: Any, start: Any, size: int) -> Any:
    """`size` rows from `start` on."""
    return jax.lax.dynamic_slice_in_dim(rows, start, size)


@partial(jax.jit, donate_argnums=0)
def _put(room: Any, piece: Any, at: Any, start: Any, stop: Any) -> Any:
    """`room` with the rows of the piece that count put in at `at`; nothing else is touched, nor copied."""
    number = jnp.arange(len(piece))
    counted = (number >= start) & (number < stop)
    place = jnp.where(counted, at + number - start, len(room) + number)  # no index twice, not even beyond the room
    return room.at[place].set(piece, mode="drop", unique_indices=True)


@partial(jax.jit, static_argnums=2)
def _begun(piece: Any, start: Any, size: int) -> Any:
    """`size` rows from `start` on; rows beyond the end of the piece are put in later."""
    return piece[jnp.clip(jnp.arange(size) + start, 0, len(piece) - 1)]


@jax.jit
def _spliced(rows: Any, piece: Any, at: Any, start: Any, count: Any) -> Any:
    """`rows` with `count` rows of the piece from `start` on put in at `at`: one program for any of these numbers."""
    number = jnp.arange(len(rows))
    inside = (number >= at) & (number < at + count)
    moved = piece[jnp.clip(number - at + start, 0, len(piece) - 1)]
    return jnp.where(inside.reshape((-1,) + (1,) * (rows.ndim - 1)), moved, rows)
