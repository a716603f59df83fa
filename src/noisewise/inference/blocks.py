"""A task: consecutive blocks of one stream, each with its own random numbers, some of them evaluated side by side.

How many blocks a task has is the scheduler's choice, and changes no draw: a block's random numbers come from its own
key, and every row's arithmetic is its own. See docs/derivations/rejection.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.engine import Stopped
from noisewise.engine.failures import located
from noisewise.inference.randomness import following
from noisewise.numerics import Array, SideBySide

Columns = dict[str, Array]
Survivors = tuple[Columns, Array]
"""Survivors by name, and their positions among the rows."""
Found = tuple[Columns, Array, list[int]]
"""Survivors of blocks evaluated together, their positions in their own blocks, and where each block's survivors end."""
Work = Callable[[np.random.Generator, Columns, int, Callable[[], None]], Survivors]
"""(rng, inputs, rows, poll) -> survivors."""
Parts = Sequence[Sequence[Columns]]
"""The rows that blocks take, in order: for each child stream, a list of pieces."""


def run_blocks(
    work: Work,
    key: np.random.SeedSequence,
    inputs: Parts,
    rows: int,
    blocks: int,
    together: int,
    poll: Callable[[], None],
) -> list[Found]:
    """The survivors of `blocks` blocks, the first of which has `key`; at most `together` are evaluated at a time."""
    columns = _joined(inputs)
    results = []
    for first in range(0, blocks, together):
        count = min(together, blocks - first)
        some = _cut(columns, first * rows, count * rows)
        keys = following(key, first, count)
        results.append(_evaluated(work, keys, some, rows, poll))
    return results


def _evaluated(
    work: Work, keys: list[np.random.SeedSequence], columns: Columns, rows: int, poll: Callable[[], None]
) -> Found:
    """The survivors of blocks that are evaluated together.

    After a failure they are evaluated one by one, so that the error, and the block it names, are as if each had run
    alone.
    """
    if len(keys) == 1:
        return _of_one(work, keys[0], columns, rows, poll)
    rng: Any = SideBySide([np.random.default_rng(key) for key in keys], rows, poll)
    try:
        survivors, positions = work(rng, columns, len(keys) * rows, poll)
    except Stopped:
        raise
    except Exception:
        for number, key in enumerate(keys):
            _of_one(work, key, _cut(columns, number * rows, rows), rows, poll)
        raise
    starts = rows * np.arange(1, len(keys))
    ends = [*np.searchsorted(positions, starts).tolist(), len(positions)]
    return survivors, np.remainder(positions, rows, dtype=np.int32, casting="unsafe"), ends


def _of_one(work: Work, key: np.random.SeedSequence, columns: Columns, rows: int, poll: Callable[[], None]) -> Found:
    try:
        survivors, positions = work(np.random.default_rng(key), columns, rows, poll)
    except Stopped:
        raise
    except Exception as error:
        located(error, key)
        raise
    return survivors, positions.astype(np.int32, copy=False), [len(positions)]


def _cut(columns: Columns, start: int, rows: int) -> Columns:
    return {name: column[start : start + rows] for name, column in columns.items()}


def rows_within(most: int, least: int, cells: float, room: int) -> int:
    """Rows of a block, `cells` numbers each: `most`, halved while they take more than `room`, down to `least`."""
    rows = most
    while rows > least and rows * cells > room:
        rows //= 2
    return rows


def by_block(results: Sequence[Found]) -> list[Survivors]:
    """The survivors of every block of a task, block by block: views, so that the calling thread copies nothing."""
    parted: list[Survivors] = []
    for columns, positions, ends in results:
        start = 0
        for end in ends:
            parted.append(({name: column[start:end] for name, column in columns.items()}, positions[start:end]))
            start = end
    return parted


def _joined(inputs: Parts) -> Columns:
    """Pieces of each child's rows, end to end."""
    columns: Columns = {}
    for pieces in inputs:
        for name in pieces[0] if pieces else ():
            columns[name] = pieces[0][name] if len(pieces) == 1 else np.concatenate([piece[name] for piece in pieces])
    return columns
