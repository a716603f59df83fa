"""Declared bounds of cells and of sums of cells, beside exact measurements: moves that join all tables that obey them.

Bounds of one cell are ends of its range. What remains must bound disjoint or nested sums, or bound sums from one side
only; for these, single cells and pairs of cells join all tables. Proof: docs/derivations/measured-tables.md. Anything
else is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.inference.tables.fibres import MOST_PAIRS, Fact, Fibre, Unknown, fibre_of
from noisewise.numerics import Array

IMPOSSIBLE = "has declared bounds that no table of the model obeys"


def bounded_fibre(rows: Sequence[Any], facts: Sequence[Fact], least: Array, most: Array) -> Fibre:
    """The tables from `least` to `most` that exact rows and facts allow; raises `Unknown` if not understood."""
    facts, least, most = _of_cells(facts, least, most)
    if (rows or facts) and np.any(np.isinf(least)):
        raise Unknown("has sums that are known of a statistic whose law has no least count")
    origin = np.where(np.isfinite(least), least, 0.0).astype(np.int64)
    room = most - origin
    rows = [(cells, by, int(value - by @ origin[cells])) for cells, by, value in rows]
    rows += [(np.array([cell]), np.ones(1, dtype=np.int64), 0) for cell in np.flatnonzero(most == least)]
    facts = [_moved(fact, float(fact.coefficients @ origin[fact.cells])) for fact in facts]
    while True:
        fibre = fibre_of(rows, len(least))
        if np.any(fibre.fixed > room):
            raise Unknown("has exact measurements that no table of the model obeys")
        facts, tight = _sharpened(facts, fibre.fixed, room)
        if not tight:
            break
        rows = [*rows, *tight]
    fibre = replace(fibre, least=least, room=room)
    check_room(fibre, room)
    left, joined = _joined(fibre, facts)
    fibre = replace(fibre, facts=tuple(left), joined=joined)
    inside = any(np.any(fibre.partners()[fact.cells] >= 0) for fact in left)
    if inside and not fibre.paired_all:
        raise Unknown(
            f"has declared bounds of sums over cells with more than {MOST_PAIRS:,} pairs, too many to try all"
        )
    return fibre


def check_room(fibre: Fibre, room: Array) -> None:
    """Where partitions cross or not all pairs are tried, refuse cells with less room than `Fibre.needed`."""
    if (fibre.crossed or not fibre.paired_all) and np.any(room[fibre.free] < fibre.needed[fibre.free]):
        raise Unknown("has exact sums of cells with upper bounds, whose tables it may not all reach")


def _of_cells(facts: Sequence[Fact], least: Array, most: Array) -> tuple[list[Fact], Array, Array]:
    """(facts about several cells, least, most), with facts about single cells taken into the ends least and most."""
    least, most, rest = least.astype(float), most.astype(float), []
    for fact in facts:
        if len(fact.cells) > 1:
            rest.append(fact)
            continue
        cell, one = fact.cells[0], _divided(fact)
        least[cell], most[cell] = max(least[cell], one.low), min(most[cell], one.high)
    if np.any(least > most):
        raise Unknown(IMPOSSIBLE)
    return rest, least, most


def _divided(fact: Fact) -> Fact:
    """The same fact with coefficients as small as they can be, and whole ends; positive where all have one sign."""
    common = int(np.gcd.reduce(fact.coefficients)) * (-1 if np.all(fact.coefficients < 0) else 1)
    low, high = sorted((fact.low / common, fact.high / common))
    return Fact(fact.cells, fact.coefficients // common, float(np.ceil(low)), float(np.floor(high)))


def _moved(fact: Fact, by: float) -> Fact:
    return replace(fact, low=fact.low - by, high=fact.high - by)


def _sharpened(facts: Sequence[Fact], fixed: Array, room: Array) -> tuple[list[Fact], list[Any]]:
    """(facts about cells that may move, without ends that cannot be passed; facts that have become exact, as rows)."""
    facts_by_row: dict[bytes, Fact] = {}
    for fact in facts:
        known = fixed[fact.cells] >= 0
        fact = _moved(fact, float(fact.coefficients[known] @ fixed[fact.cells[known]]))
        order = np.flatnonzero(~known)[np.argsort(fact.cells[~known])]
        if not len(order):
            if fact.low > 0 or fact.high < 0:
                raise Unknown(IMPOSSIBLE)
            continue
        fact = _divided(replace(fact, cells=fact.cells[order], coefficients=fact.coefficients[order]))
        key = fact.cells.tobytes() + fact.coefficients.tobytes()
        other = facts_by_row.get(key, fact)
        facts_by_row[key] = replace(fact, low=max(fact.low, other.low), high=min(fact.high, other.high))
    left, exact = [], []
    for fact in facts_by_row.values():
        reach = fact.coefficients * room[fact.cells]
        lowest, highest = float(np.minimum(reach, 0.0).sum()), float(np.maximum(reach, 0.0).sum())
        low, high = max(fact.low, lowest), min(fact.high, highest)
        if low > high:
            raise Unknown(IMPOSSIBLE)
        if low == high:
            exact.append((fact.cells, fact.coefficients, int(low)))
        elif low > lowest or high < highest:
            low, high = (low if low > lowest else -np.inf), (high if high < highest else np.inf)
            left.append(replace(fact, low=low, high=high))
    return left, exact


def _joined(fibre: Fibre, facts: Sequence[Fact]) -> tuple[list[Fact], Array]:
    """(facts without whole blocks, `Fibre.joined`); raises `Unknown` where the bounded sums are not understood."""
    left = [fact for fact in (_without_blocks(fibre, fact) for fact in facts) if len(fact.cells)]
    wide, none = [fact for fact in left if len(fact.cells) > 1], np.full(fibre.size, -1, dtype=np.int64)
    overlap = "has declared bounds of sums that overlap, whose tables it may not all reach"
    if any(np.any(fibre.second[fact.cells] >= 0) for fact in left):
        raise Unknown("has declared bounds of sums within tables of exact margins, whose tables it may not all reach")
    apart = all(np.all(fibre.first[fact.cells] < 0) for fact in left)
    sides = {side for fact in wide for side in _sides(fact)}
    if not wide or (apart and len(sides) == 1):
        return left, none
    plain = all(np.all(fact.coefficients == 1) for fact in wide)
    inside_one = all(len(np.unique(fibre.first[fact.cells])) == 1 for fact in wide)
    outermost, disjoint = _nested(wide, fibre.size)
    if not (plain and inside_one) or outermost is None:
        raise Unknown(overlap)
    return left, none if disjoint and apart else outermost


def _sides(fact: Fact) -> set[str]:
    """From which sides a fact bounds all its cells; of coefficients with both signs, from both."""
    both = {"below", "above"} if np.any(fact.coefficients < 0) else set()
    return both | ({"below"} if fact.low > -np.inf else set()) | ({"above"} if fact.high < np.inf else set())


def _without_blocks(fibre: Fibre, fact: Fact) -> Fact:
    """The same fact without blocks that lie in it as a whole, whose sums are known."""
    owners, counts = np.unique(fibre.first[fact.cells], return_counts=True)
    for block, count in zip(owners, counts, strict=True):
        own = fibre.first[fact.cells] == block
        same = np.all(fact.coefficients[own] == fact.coefficients[own][:1])
        if block >= 0 and same and count == np.count_nonzero(fibre.first == block):
            fact = _moved(fact, float(fact.coefficients[own][0] * fibre.sums[0][block]))
            fact = replace(fact, cells=fact.cells[~own], coefficients=fact.coefficients[~own])
    if not len(fact.cells) and (fact.low > 0 or fact.high < 0):
        raise Unknown(IMPOSSIBLE)
    return fact


def _nested(facts: Sequence[Fact], size: int) -> tuple[Array | None, bool]:
    """(the outermost fact of each cell, or None where some overlap in part; whether all are disjoint)."""
    owner, disjoint = np.full(size, -1, dtype=np.int64), True
    ordered = sorted(facts, key=lambda fact: len(fact.cells))
    for number, fact in enumerate(ordered):
        owners, counts = np.unique(owner[fact.cells], return_counts=True)
        for held, count in zip(owners, counts, strict=True):
            if held >= 0 and count != len(ordered[held].cells):
                return None, False
            disjoint = disjoint and held < 0
        owner[fact.cells] = number
    return owner, disjoint
