"""The tables that exact measurements leave possible, and moves that are known to join all of them.

Whole numbers x >= 0 with E x = v. Cells that v determines are found first. What remains must be sums over blocks of one
partition, or over the rows and columns of complete tables; for these, pairs within a block and 2 x 2 swaps join all
tables (Diaconis and Sturmfels 1998). Proof: docs/derivations/measured-tables.md. Anything else is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, eye_array, hstack, vstack
from scipy.sparse.csgraph import connected_components

from noisewise.numerics import Array

Row = tuple[Array, int]
"""Cells, and what they add up to."""


MOST_PAIRS = 2**13
"""Most pairs of cells that are all tried."""
MOST_SWAPS = 2**13
"""Most 2 x 2 swaps of a complete table."""


class Unknown(Exception):
    """Raised where no moves are known to join the tables, or no table is possible; the message ends a sentence."""


@dataclass(frozen=True)
class Fact:
    """A sum of cells with whole coefficients, known to lie between two ends, either of which may be infinite."""

    cells: Array
    coefficients: Array
    low: float
    high: float


@dataclass(frozen=True)
class Fibre:
    """The tables of `size` cells that exact measurements, and declared bounds (`facts.py`), leave possible.

    All other fields count from `least`, what each cell holds at least, or from 0 where that is -inf.
    """

    fixed: Array
    """The value of each cell that is determined; -1 where it is not."""
    first: Array
    """The block of each cell in the first partition; -1 where it is in none."""
    second: Array
    """The same in the second partition, which crosses the first."""
    sums: tuple[Array, Array]
    """What the blocks of each partition add up to."""
    least: Array
    room: Array
    """How much more than `least` each cell may hold."""
    facts: tuple[Fact, ...] = ()
    """Bounds of sums of cells that may move."""
    joined: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """A number for each cell, shared by cells that facts require to move in pairs; -1: none. Empty: no facts."""

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.fixed)

    @property
    def origin(self) -> Array:
        """The value from which each cell is counted."""
        return np.where(np.isfinite(self.least), self.least, 0.0).astype(np.int64)

    @property
    def free(self) -> Array:
        """Cells that may move."""
        return np.flatnonzero(self.fixed < 0)

    @property
    def crossed(self) -> bool:
        """Whether two partitions cross."""
        return bool(np.any(self.second >= 0))

    @property
    def bound(self) -> bool:
        """Whether any exact measurement restricts the table."""
        return bool(np.any(self.first >= 0) or np.any(self.fixed >= 0))

    @property
    def paired_all(self) -> bool:
        """Whether the pairs of cells within classes are so few that all of them are tried."""
        partners = self.partners()[self.free]
        sizes = np.unique(partners[partners >= 0], return_counts=True)[1].astype(float)
        return bool(np.sum(sizes * (sizes - 1) / 2) <= MOST_PAIRS)

    @property
    def needed(self) -> Array:
        """Room that each cell must have if not all pairs are tried: a unit, or all that its margins let it hold."""
        crossed = self.second >= 0
        needed = np.where(self.first >= 0, 1, 0)
        rows, columns = self.sums[0][self.first[crossed]], self.sums[1][self.second[crossed]]
        needed[crossed] = np.minimum(rows, columns)
        return needed

    def classes(self) -> Array:
        """A number for each cell; cells with the same number may exchange units. -1: a cell that moves by itself."""
        width = int(self.second.max(initial=-1)) + 2
        return np.where(self.first >= 0, self.first * width + self.second + 1, -1)

    def partners(self) -> Array:
        """A number for each cell; cells with the same number are moved in pairs. -1: a cell that needs none."""
        classes = self.classes()
        joined = self.joined if len(self.joined) else np.full(self.size, -1)
        return np.where(classes < 0, np.where(joined >= 0, classes.max(initial=-1) + 1 + joined, -1), classes)


def fibre_of(rows: Sequence[tuple[Array, Array, int]], size: int) -> Fibre:
    """The tables that exact rows (cells, coefficients, value) allow; raises `Unknown` where they are not understood."""
    fixed = np.full(size, -1, dtype=np.int64)
    sums = _reduced(list(rows), fixed)
    while True:
        blocks, crossing = _laminar(sums, size)
        second, more = _laminar(crossing, size)
        single = [(cells, value) for cells, value in (*blocks, *second) if len(cells) == 1 or value == 0]
        if not single:
            break
        for cells, value in single:
            _set(fixed, cells, np.full(len(cells), value))
        sums = _reduced([(cells, np.ones(len(cells), dtype=np.int64), value) for cells, value in sums], fixed)
    if more:
        raise Unknown("has exact measurements that overlap in more than two ways, whose tables it may not all reach")
    labels = [np.full(size, -1, dtype=np.int64) for _ in range(2)]
    for label, part in zip(labels, (blocks, second), strict=True):
        for number, (cells, _) in enumerate(part):
            label[cells] = number
    first, other = ([value for _, value in part] for part in (blocks, second))
    both = (np.array(first, dtype=np.int64), np.array(other, dtype=np.int64))
    fibre = Fibre(fixed, labels[0], labels[1], both, np.zeros(size), np.full(size, np.inf))
    if fibre.crossed:
        _check_complete(fibre)
    return fibre


def _reduced(rows: list[tuple[Array, Array, int]], fixed: Array) -> list[Row]:
    """Rows without determined cells, their coefficients 1; `fixed` is filled in on the way."""
    while True:
        before = np.count_nonzero(fixed >= 0)
        left: list[tuple[Array, Array, int]] = []
        for cells, coefficients, value in rows:
            known = fixed[cells] >= 0
            rest = int(value - np.sum(coefficients[known] * fixed[cells][known]))
            cells, coefficients = cells[~known], coefficients[~known]
            same_sign = np.all(coefficients > 0) or np.all(coefficients < 0)
            if not len(cells) and rest:
                raise Unknown("has exact measurements that no table of counts obeys")
            if len(cells) == 1 or (len(cells) and same_sign and rest == 0):
                _set(fixed, cells, rest / coefficients if len(cells) == 1 else np.zeros(len(cells)))
            elif len(cells):
                left.append((cells, coefficients, rest))
        rows = left
        if np.count_nonzero(fixed >= 0) == before:
            return _plain_sums(rows)


def _set(fixed: Array, cells: Array, values: Array) -> None:
    known = fixed[cells]
    if np.any(values < 0) or np.any(values != np.floor(values)) or np.any((known >= 0) & (known != values)):
        raise Unknown("has exact measurements that no table of counts obeys")
    fixed[cells] = values


def _plain_sums(rows: list[tuple[Array, Array, int]]) -> list[Row]:
    sums: dict[bytes, Row] = {}
    for cells, coefficients, value in rows:
        if np.any(coefficients != coefficients[0]):
            raise Unknown("has exact measurements with coefficients that differ, whose tables it may not all reach")
        total, odd = divmod(value, int(coefficients[0]))
        cells = np.sort(cells)
        if odd or total < 0 or sums.setdefault(cells.tobytes(), (cells, total))[1] != total:
            raise Unknown("has exact measurements that no table of counts obeys")
    return sorted(sums.values(), key=lambda row: len(row[0]))


def _laminar(sums: list[Row], size: int) -> tuple[list[Row], list[Row]]:
    """(disjoint blocks that say the same as nested sums, sums that cross those); `sums` has smaller ones first."""
    owner = np.full(size, -1, dtype=np.int64)
    inside: list[Row] = []
    blocks: list[Row] = []
    crossing: list[Row] = []
    for cells, value in sums:
        owners, counts = np.unique(owner[cells], return_counts=True)
        held = owners >= 0
        if any(len(inside[o][0]) != n for o, n in zip(owners[held], counts[held], strict=True)):
            crossing.append((cells, value))
            continue
        rest = cells[owner[cells] < 0]
        left = value - sum(inside[o][1] for o in owners[held])
        if left < 0 or (left and not len(rest)):
            raise Unknown("has exact measurements that no table of counts obeys")
        if len(rest):
            blocks.append((rest, left))
        owner[cells] = len(inside)
        inside.append((cells, value))
    return blocks, crossing


def grids(fibre: Fibre) -> list[tuple[Array, Array]]:
    """The blocks of both partitions that belong together, one pair for each complete table."""
    crossed = fibre.second >= 0
    rows, columns = fibre.first[crossed], fibre.second[crossed]
    shape = (len(fibre.sums[0]), len(fibre.sums[1]))
    links: Any = coo_array((np.ones(len(rows)), (rows, columns + shape[0])), shape=(sum(shape), sum(shape)))
    number, label = connected_components(links, directed=False)
    parts = [np.flatnonzero(label == which) for which in range(number)]
    blocks = [(part[part < shape[0]], part[part >= shape[0]] - shape[0]) for part in parts]
    return [(r, c) for r, c in blocks if len(c)]


def _check_complete(fibre: Fibre) -> None:
    """Refuse incomplete tables, where a row misses a column or a cell lies in only one; also too many swaps."""
    if np.any((fibre.second >= 0) & (fibre.first < 0)):
        raise Unknown("has exact measurements that overlap in part, whose tables it may not all reach")
    for rows, columns in grids(fibre):
        of_rows = np.isin(fibre.first, rows)
        places = np.unique(fibre.first[of_rows] * (len(fibre.sums[1]) + 1) + fibre.second[of_rows])
        if np.any(fibre.second[of_rows] < 0) or len(places) != len(rows) * len(columns):
            raise Unknown("has exact margins of a table with structural zeros, whose tables it may not all reach")
        depth = len(np.flatnonzero(of_rows)) / len(places)
        if (len(rows) * (len(rows) - 1) / 2) * (len(columns) * (len(columns) - 1) / 2) * depth**4 > MOST_SWAPS:
            raise Unknown(f"has exact margins of a table with more than {MOST_SWAPS:,} swaps of a unit")
        if fibre.sums[0][rows].sum() != fibre.sums[1][columns].sum():
            raise Unknown("has exact measurements that no table of counts obeys")


# A table to start from ------------------------------------------------------------------------------------------------


def projected(fibre: Fibre, guess: Array, most: Array, rng: np.random.Generator) -> Array:
    """A table of the fibre near a guess of whole numbers, none above `most`."""
    origin = fibre.origin
    guess = np.maximum(guess, fibre.least) - origin
    return origin + _counted(fibre, guess.astype(np.int64), np.minimum(fibre.room, most - origin), rng)


def _counted(fibre: Fibre, guess: Array, most: Array, rng: np.random.Generator) -> Array:
    """`projected`, with cells counted from the origin."""
    table = np.where(fibre.fixed >= 0, fibre.fixed, np.minimum(guess, most)).astype(np.int64)
    if fibre.facts:
        return _nearest(fibre, table, np.where(fibre.fixed >= 0, fibre.fixed, most))
    if fibre.crossed:
        for rows, columns in grids(fibre):
            _fill_grid(fibre, table, rows, columns, rng)
    alone = np.where(fibre.second < 0, fibre.first, -1)
    order = np.argsort(alone, kind="stable")
    ends = np.searchsorted(alone[order], np.arange(len(fibre.sums[0]) + 1))
    for block, value in enumerate(fibre.sums[0]):
        cells = order[ends[block] : ends[block + 1]]
        if len(cells):
            table[cells] = _scaled(table[cells], int(value), most[cells])
    return table


def _nearest(fibre: Fibre, guess: Array, most: Array) -> Array:
    """The table of the fibre that differs least from the guess, by an integer program."""
    size, least = fibre.size, np.maximum(fibre.fixed, 0)
    parts, low, high = [], [], []
    for label, sums in zip((fibre.first, fibre.second), fibre.sums, strict=True):
        inside = np.flatnonzero(label >= 0)
        parts.append(csr_array((np.ones(len(inside)), (label[inside], inside)), shape=(len(sums), size)))
        low.append(sums)
        high.append(sums)
    rows = np.repeat(np.arange(len(fibre.facts)), [len(fact.cells) for fact in fibre.facts])
    columns, entries = (
        np.concatenate([getattr(fact, part) for fact in fibre.facts]) for part in ("cells", "coefficients")
    )
    parts.append(csr_array((entries, (rows, columns)), shape=(len(fibre.facts), size)))
    low.append(np.array([fact.low for fact in fibre.facts]))
    high.append(np.array([fact.high for fact in fibre.facts]))
    sums, one = vstack(parts), eye_array(size)
    design = vstack(
        [hstack([sums, csr_array(sums.shape)]), hstack([one, one]), hstack([-one, one])]
    )  # off >= |x - guess|
    ends = np.concatenate([*low, guess, -guess]), np.concatenate([*high, np.full(2 * size, np.inf)])
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    solution = milp(
        np.repeat([0.0, 1.0], size),
        integrality=np.repeat([1, 0], size),
        bounds=Bounds(np.concatenate([least, np.zeros(size)]), np.concatenate([most, np.full(size, np.inf)])),
        constraints=LinearConstraint(design, *ends),
    )
    if solution.x is None:
        raise Unknown("has exact measurements and declared bounds that no table of the model obeys")
    return np.round(solution.x[:size]).astype(np.int64)


def _scaled(guess: Array, total: int, most: Array) -> Array:
    """Whole numbers in proportion to the guess, as far as `most` allows, that add up to the total."""
    table = np.zeros(len(guess), dtype=np.int64)
    while (left := total - int(table.sum())) > 0:
        room = np.maximum(most - table, 0)
        if not np.any(room > 0):
            raise Unknown("has exact measurements that no table of the model obeys")
        weight = np.where(room > 0, guess + 1e-3, 0.0)
        share = left * weight / weight.sum()
        add = np.minimum(np.floor(share), room).astype(np.int64)
        if not add.any():
            add[np.argsort(-share + (room <= 0) * 1e300, kind="stable")[: min(left, int(np.sum(room > 0)))]] = 1
        table += add
    return table


def _fill_grid(fibre: Fibre, table: Array, rows: Array, columns: Array, rng: np.random.Generator) -> None:
    """Fill in a random table with these margins; cells of one place share its count in proportion to the guess."""
    from scipy.stats import random_table

    drawn = random_table.rvs(fibre.sums[0][rows], fibre.sums[1][columns], random_state=rng).astype(np.int64)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            cells = np.flatnonzero((fibre.first == row) & (fibre.second == column))
            table[cells] = _scaled(table[cells], int(drawn[i, j]), np.full(len(cells), np.inf))
