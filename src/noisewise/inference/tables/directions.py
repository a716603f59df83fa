"""Directions in which a table of whole numbers moves, in batches whose members touch nothing in common.

Directions are single cells, pairs within a class of cells (`fibres.py`), and 2 x 2 swaps. A wide noisy sum, of a county
say, is changed by every cell and would let only one direction move at a time. So pairs of cells that enter all wide
sums alike are batched apart for each width: they leave these sums as they are. Batches are chosen at random, whatever
the state.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array, vstack

from noisewise.inference.tables.fibres import Fibre, grids
from noisewise.numerics import Array

WIDTHS = (16, 256, 4096)
"""For each in turn, there are directions that leave sums of more cells than this as they are."""
MATCHINGS = 4
"""Ways in which cells of one kind are paired at random, for each width."""
LEAST_WINDOW, MOST_WINDOW = 8, 64
SIGMAS = 6.0
"""Length of a window in standard deviations of the noise along its direction."""
MOST_COLOURS = 128
"""Most batches of one family; directions that find no place in one move one by one."""

Direction = tuple[tuple[int, ...], tuple[int, ...]]
"""Cells, and what each gains in one step."""


@dataclass(frozen=True)
class Family:
    """Batches of directions, padded to equal lengths by coefficients of zero."""

    cells: Array
    """(batch, direction, cell)."""
    gains: Array
    rows: tuple[Array, ...]
    """(batch, direction, row) for each noisy measurement: the rows that a direction changes."""
    changes: tuple[Array, ...]
    length: int
    """Length of the window in which the step along a direction is drawn."""

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self.cells)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All arrays; None for the rows of measurements that no direction changes."""
        is_changed = [bool(np.any(change)) for change in self.changes]
        rows, changes = (
            [part if keep else None for part, keep in zip(parts, is_changed, strict=True)]
            for parts in (self.rows, self.changes)
        )
        return self.cells, self.gains, rows, changes

    @property
    def sizes(self) -> Array:
        """Directions in each batch."""
        return np.count_nonzero(np.any(self.gains != 0, axis=2), axis=1)


@dataclass(frozen=True)
class Sums:
    """The noisy measurements: for each a matrix with a row for each sum and a column for each cell; scales of noise."""

    measured: Sequence[csc_array]
    scale: Array
    """One for each row, of all measurements in turn."""

    def together(self, size: int) -> csc_array:
        """The rows of all measurements in one matrix, of `size` columns."""
        return csc_array(vstack([csc_array((0, size), dtype=np.int64), *self.measured], format="csc"))


def families(fibre: Fibre, sums: Sums, rng: np.random.Generator) -> list[Family]:
    """All directions, in families of batches."""
    noisy, measured = sums.together(fibre.size), sums.measured
    width = np.bincount(noisy.indices, minlength=noisy.shape[0])
    groups = [_groups(fibre, matrix) for matrix in measured]
    moves: list[Family] = []
    for most, next_ in itertools.pairwise((*WIDTHS, fibre.size)):
        if np.any((width > most) & (width <= next_)):  # otherwise the moves would be those of the next width
            kinds = _kinds(fibre, noisy, width > most)
            moves += _families(_narrow(fibre, kinds, rng), noisy, sums)
            finest = [
                own for own in groups if len(own) and np.bincount(own[own >= 0]).max(initial=0) in range(2, most + 1)
            ]
            exchanges = [_exchanges(fibre, kinds, own, rng) for own in finest]
            moves += _families([direction for part in exchanges for direction in part], noisy, sums)
    alike = [_matched(fibre.free[own[fibre.free] >= 0], _both(own, fibre.classes()), rng) for own in groups]
    moves += _families(_once(direction for part in alike for direction in part), noisy, sums)
    moves += _families([*_singles(fibre, fibre.free), *_pairs(fibre, rng), *_swaps(fibre)], noisy, sums, every=True)
    return moves


def _once(directions: Iterable[Direction]) -> list[Direction]:
    return list(dict.fromkeys(directions))


def _groups(fibre: Fibre, matrix: csc_array) -> Array:
    """The row of one measurement that each cell enters, where cells enter one row at most; -1 for cells in none."""
    own = np.full(fibre.size, -1, dtype=np.int64)
    counts = np.diff(matrix.indptr)
    if counts.max(initial=0) > 1:
        return own
    own[counts == 1] = matrix.indices
    return own


def _both(first: Array, second: Array) -> Array:
    """A number for each combination of two numbers from -1 on."""
    return (first + 1) * (int(second.max(initial=-1)) + 2) + second + 1


def _exchanges(fibre: Fibre, kinds: Array, groups: Array, rng: np.random.Generator) -> list[Direction]:
    """Directions that move a unit between two kinds of cells in one group, and back in another: both sums stay."""
    at = {(int(groups[cell]), int(kinds[cell])): int(cell) for cell in fibre.free if groups[cell] >= 0}
    inside: dict[int, list[int]] = {}
    for group, kind in at:
        inside.setdefault(group, []).append(kind)
    exchanges: list[Direction] = []
    for _ in range(MATCHINGS):
        order = [int(group) for group in rng.permutation(sorted(inside))]
        for g, h in zip(order[::2], order[1::2], strict=False):
            shared = [int(kind) for kind in rng.permutation(sorted(set(inside[g]) & set(inside[h])))]
            for c, d in zip(shared[::2], shared[1::2], strict=False):
                exchanges.append(((at[g, c], at[g, d], at[h, c], at[h, d]), (1, -1, -1, 1)))
    return exchanges


def _narrow(fibre: Fibre, kinds: Array, rng: np.random.Generator) -> list[Direction]:
    """Directions that leave wide sums as they are: cells outside them, pairs of cells that enter them alike."""
    alone = fibre.free[(kinds[fibre.free] == 0) & (fibre.classes()[fibre.free] < 0)]
    paired = np.setdiff1d(fibre.free, alone)
    return [*_singles(fibre, alone), *_once(_matched(paired, kinds, rng))]


def _kinds(fibre: Fibre, noisy: csc_array, wide: Array) -> Array:
    """A number for each cell; cells with the same number are in one class and enter all wide sums alike. 0: in none."""
    keys: dict[bytes, int] = {b"": 0}
    classes, kinds = fibre.classes(), np.zeros(fibre.size, dtype=np.int64)
    for cell in range(fibre.size):
        part = slice(noisy.indptr[cell], noisy.indptr[cell + 1])
        rows, entries = noisy.indices[part], noisy.data[part]
        chosen = wide[rows]
        key = np.stack([rows[chosen], entries[chosen]]).astype(np.int64).tobytes()
        key += classes[cell : cell + 1].tobytes() if classes[cell] >= 0 else b""
        kinds[cell] = keys.setdefault(key, len(keys))
    return kinds


def _singles(fibre: Fibre, cells: Array) -> list[Direction]:
    classes = fibre.classes()
    return [((int(cell),), (1,)) for cell in cells if classes[cell] < 0]


def _pairs(fibre: Fibre, rng: np.random.Generator) -> list[Direction]:
    """All pairs of cells of one class; where these are many, each cell with the next, and some at random."""
    classes = fibre.classes()
    if fibre.paired_all:
        kinds = fibre.partners()
        parts = [np.flatnonzero((kinds == which) & (fibre.fixed < 0)) for which in np.unique(kinds) if which >= 0]
        return [_pair(a, b) for part in parts for a, b in itertools.combinations(part, 2)]
    cells = fibre.free[classes[fibre.free] >= 0]
    chain = cells[np.argsort(classes[cells], kind="stable")]
    linked = [_pair(a, b) for a, b in itertools.pairwise(chain) if classes[a] == classes[b]]
    return _once([*linked, *_matched(cells, classes, rng)])


def _pair(a: Any, b: Any) -> Direction:
    return (int(min(a, b)), int(max(a, b))), (1, -1)


def _matched(cells: Array, kinds: Array, rng: np.random.Generator) -> Iterable[Direction]:
    """Cells paired at random with others of their kind, several times over."""
    for _ in range(MATCHINGS):
        order = rng.permutation(cells)
        order = order[np.argsort(kinds[order], kind="stable")]
        starts = np.searchsorted(kinds[order], np.unique(kinds[order]))
        for start, end in itertools.pairwise([*starts, len(order)]):
            yield from (_pair(a, b) for a, b in zip(order[start:end:2], order[start + 1 : end : 2], strict=False))


def _swaps(fibre: Fibre) -> list[Direction]:
    """Every 2 x 2 swap of every complete table."""
    if not fibre.crossed:
        return []
    at: dict[tuple[int, int], list[int]] = {}
    for cell in np.flatnonzero(fibre.second >= 0):
        at.setdefault((int(fibre.first[cell]), int(fibre.second[cell])), []).append(int(cell))
    swaps: list[Direction] = []
    for rows, columns in grids(fibre):
        for (r, s), (c, d) in itertools.product(itertools.combinations(rows, 2), itertools.combinations(columns, 2)):
            places = (at[int(r), int(c)], at[int(r), int(d)], at[int(s), int(c)], at[int(s), int(d)])
            swaps += [(cells, (1, -1, -1, 1)) for cells in itertools.product(*places)]
    return swaps


def _families(directions: list[Direction], noisy: csc_array, sums: Sums, every: bool = False) -> list[Family]:
    """Directions by the number of cells they move and by the length of their window, in batches."""
    parted = []
    for width in sorted({len(cells) for cells, _ in directions}):
        alike = [direction for direction in directions if len(direction[0]) == width]
        cells, gains = (np.array(part) for part in zip(*alike, strict=True))
        lengths = _lengths(*_rows(cells, gains, noisy), sums.scale)
        for length in np.unique(lengths):
            own = lengths == length
            parted += _batched(cells[own], gains[own], noisy, sums, int(length), every)
    return parted


def _lengths(rows: Array, changes: Array, scale: Array) -> Array:
    """Lengths of windows, powers of two: about `SIGMAS` standard deviations of the noise along each direction."""
    if not len(scale):
        return np.full(len(rows), MOST_WINDOW)
    with np.errstate(divide="ignore"):
        spread = np.sum((changes / scale[rows]) ** 2, axis=1) ** -0.5
    return 2 ** np.ceil(np.log2(np.clip(SIGMAS * spread, LEAST_WINDOW, MOST_WINDOW))).astype(int)


def _batched(cells: Array, gains: Array, noisy: csc_array, sums: Sums, length: int, every: bool) -> list[Family]:
    """Families of batches whose directions touch nothing in common.

    A direction without a place is a batch by itself; it is left out where there are others, unless `every` is set.
    """
    batches = []
    touched = _touched(cells, *_rows(cells, gains, noisy), noisy.shape)
    nothing, placed = sum(noisy.shape), len(touched)
    number = int(np.bincount(touched[touched < nothing]).max())  # at least: so many directions touch one thing
    if number > MOST_COLOURS:
        colours = _coloured(touched, nothing, placed)
        number, placed = int(colours.max()) + 1, int(np.count_nonzero(colours >= 0))
    # batches of about one size leave little to pad
    colours = _coloured(touched, nothing, int(np.ceil(1.5 * placed / number)))
    by_one = np.flatnonzero(colours < 0) if np.bincount(colours + 1)[1:].max() > 1 else np.arange(len(cells))
    colours[by_one] = np.arange(len(by_one))
    batched = np.setdiff1d(np.arange(len(cells)), by_one)
    for chosen in (by_one, batched):
        if len(chosen) and (every or chosen is batched or not len(batched)):
            changed = [_rows(cells[chosen], gains[chosen], part) for part in sums.measured]
            parts = [cells[chosen], gains[chosen], *(part for pair in changed for part in pair)]
            padded = _padded(parts, colours[chosen])
            batches.append(Family(padded[0], padded[1], padded[2::2], padded[3::2], length))
    return batches


def _rows(cells: Array, gains: Array, noisy: csc_array) -> tuple[Array, Array]:
    """The noisy rows that each direction changes, and by how much; padded by rows that it does not."""
    number, width = cells.shape
    moves = csc_array(
        (gains.ravel(), cells.ravel(), np.arange(0, number * width + 1, width)), shape=(noisy.shape[1], number)
    )
    changed = csc_array(noisy @ moves)
    changed.eliminate_zeros()
    counts = np.diff(changed.indptr)
    rows = np.zeros((number, max(1, int(counts.max(initial=0)))), dtype=np.int64)
    changes = np.zeros_like(rows)
    inside = np.arange(rows.shape[1]) < counts[:, None]
    rows[inside], changes[inside] = changed.indices, changed.data
    return rows, changes


def _touched(cells: Array, rows: Array, changes: Array, shape: tuple[int, int]) -> Array:
    """Numbers of the cells and of the noisy rows that each direction changes; padded by one that stands for nothing."""
    return np.concatenate([cells, np.where(changes != 0, shape[1] + rows, sum(shape))], axis=1)


def _coloured(touched: Array, nothing: int, most: int) -> Array:
    """A batch for each direction, so that no two in a batch touch the same thing; -1 where there is no place.

    Each direction takes the first batch that has a place; a batch has at most `most` of them.
    """
    taken = [0] * (nothing + 1)
    full, closed = (1 << MOST_COLOURS) - 1, 0
    counts, colours = [0] * MOST_COLOURS, np.full(len(touched), -1)
    for direction, own in enumerate(touched.tolist()):
        used = closed
        for thing in own:
            used |= taken[thing]
        if used == full:
            continue
        colour = (~used & (used + 1)).bit_length() - 1
        colours[direction] = colour
        counts[colour] += 1
        closed |= (counts[colour] == most) << colour
        bit = 1 << colour
        for thing in own:
            taken[thing] |= bit
        taken[nothing] = 0
    return colours


def _padded(parts: Sequence[Array], colours: Array) -> tuple[Array, ...]:
    """Arrays with a row for each direction as arrays with a row for each batch."""
    counts = np.bincount(colours)
    order = np.argsort(colours, kind="stable")
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows_padded = []
    for part in parts:
        kind = np.int32 if np.abs(part).max(initial=0) < 2**31 else np.int64  # half the memory to read at every move
        padded = np.zeros((len(counts), int(counts.max()), part.shape[1]), dtype=kind)
        padded[colours[order], place] = part[order]
        rows_padded.append(padded)
    return tuple(rows_padded)
