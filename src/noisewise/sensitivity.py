"""Sensitivities: how far one record can move a query.

The global sensitivity is the largest norm of s(x) - s(x') over all neighbours x, x'. Under "add-remove", one of two
neighbours has one record more than the other; under "replace-one", both have n records and differ in one of them. The
l1 norm goes with Laplace noise, l2 with Gaussian noise. The curator clamps records to the box from `low` to `high`
before anything is computed. Nothing here looks at confidential data, except the local and smooth sensitivities.

Every closed form is tested against its definition, `by_enumeration`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.guarantee import NEIGHBOURS
from noisewise.numerics import Array

Query = Callable[[Array], Any]

NORMS = ["l1", "l2", "linf"]

# Counts -----------------------------------------------------------------------------------------------------------


def count(*, neighbours: str) -> float:
    """Sensitivity of the number of records with some property: 1."""
    _relation("sensitivity.count", neighbours)
    return 1.0


def histogram(*, norm: str, neighbours: str) -> float:
    """Sensitivity of the counts over cells that partition the records.

    One cell changes by 1 (add-remove), or two do (replace-one).
    """
    return contingency_tables(1, norm=norm, neighbours=neighbours)


def contingency_tables(tables: int = 1, *, norm: str, neighbours: str) -> float:
    """Sensitivity of `tables` tables released together, each with every record in one cell (full tables, or margins).

    One cell of each table changes by 1, or two do under replace-one; margins over different variables can all change
    at once.
    """
    who = "sensitivity.contingency_tables"
    cells = checks.integer(who, "tables", tables, least=1, advice="Count the tables that are released.")
    if _relation(who, neighbours) == "replace-one":
        cells *= 2
    return _norm(who, norm)(np.ones(cells))


# Sums and means ---------------------------------------------------------------------------------------------------


def clamped_sum(low: Any, high: Any, *, neighbours: str, norm: str = "l1") -> float:
    """Sensitivity of the sum of records clamped to [low, high] (arrays: one interval per entry).

    A record added or removed contributes max(|low|, |high|); a record replaced moves the sum by high - low.
    """
    who = "sensitivity.clamped_sum"
    low, high = _box(who, low, high)
    if _relation(who, neighbours) == "add-remove":
        return _norm(who, norm)(np.maximum(np.abs(low), np.abs(high)))
    return _norm(who, norm)(high - low)


def clamped_mean(
    low: Any, high: Any, *, neighbours: str, n: int | None = None, least: int | None = None, norm: str = "l1"
) -> float:
    """Sensitivity of the mean of records clamped to [low, high].

    replace-one: (high - low) / n. add-remove: n is confidential, so give instead `least`, the smallest number of
    records that any data set in question may have; a record added to `least` equal ones moves their mean by
    (high - low) / (least + 1). With no such limit, release a noisy sum and a noisy count instead.
    """
    who = "sensitivity.clamped_mean"
    low, high = _box(who, low, high)
    size = _size(who, neighbours, n, least, at_least=1)
    divisor = size if neighbours == "replace-one" else size + 1
    return _norm(who, norm)((high - low) / divisor)


# Second moments ---------------------------------------------------------------------------------------------------


def variance(
    low: Any,
    high: Any,
    *,
    neighbours: str,
    n: int | None = None,
    least: int | None = None,
    ddof: int = 1,
    norm: str = "l1",
) -> float:
    """Sensitivity of the variance, denominator n - ddof, of records clamped to [low, high].

    The range squared times the factor of `covariance`. Arrays: one variance per entry.
    """
    who = "sensitivity.variance"
    low, high = _box(who, low, high)
    return _norm(who, norm)((high - low) ** 2 * _second_moment_factor(who, neighbours, n, least, ddof))


def covariance(
    low: Any,
    high: Any,
    *,
    neighbours: str,
    n: int | None = None,
    least: int | None = None,
    ddof: int = 1,
    norm: str = "l1",
    entries: str = "triangle",
) -> float:
    """Sensitivity of the covariance matrix, denominator n - ddof, of vectors clamped entry by entry to [low, high].

    `entries`: "triangle" (each pair of variables once, variances included), "full" (the whole matrix), or "pairs"
    (each pair once, no variances). Entry (j, k) moves by at most R_j R_k times a factor, R = high - low, and all
    entries do so at once when one record at a corner of the box joins n - 1 at the opposite corner. The factor is
    (n - 1) / n^2 for ddof 0 and 1 / n for ddof 1 (replace-one); under add-remove with at least m = `least` records
    m / (m + 1)^2 and 1 / (m + 1).
    """
    who = "sensitivity.covariance"
    low, high = _box(who, low, high, vector=True)
    factor = _second_moment_factor(who, neighbours, n, least, ddof)
    return _norm(who, norm)(_entries(who, np.outer(high - low, high - low) * factor, entries))


def cross_products(low: Any, high: Any, *, neighbours: str, norm: str = "l1", entries: str = "triangle") -> float:
    """Sensitivity of the sums of x_j x_k over vectors x clamped entry by entry; `entries` as in `covariance`.

    For regression let x hold the constant 1 (low = high = 1), the predictors and the outcome.
    add-remove: entry (j, k) is M_j M_k, M = max(|low|, |high|). replace-one: the range of x_j x_k over the box. All
    entries attain their range at once where no variable takes both signs. Where one does, the result is a bound
    (exact for linf and for single entries): the norm of the ranges, or twice the add-remove value if smaller.
    """
    who = "sensitivity.cross_products"
    low, high = _box(who, low, high, vector=True)
    relation, of = _relation(who, neighbours), _norm(who, norm)
    most = np.maximum(np.abs(low), np.abs(high))
    added = of(_entries(who, np.outer(most, most), entries))
    if relation == "add-remove":
        return added
    corners = np.stack([np.outer(a, b) for a in (low, high) for b in (low, high)])
    ranges = corners.max(axis=0) - corners.min(axis=0)
    least_size = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    np.fill_diagonal(ranges, most**2 - least_size**2)
    return min(of(_entries(who, ranges, entries)), 2.0 * added)


def _second_moment_factor(who: str, neighbours: str, n: Any, least: Any, ddof: Any) -> float:
    """The number that multiplies R_j R_k, the product of two ranges, in the sensitivity of (co)variances.

    Denominator n: with m' and C' the mean and covariance of the other n - 1 records, u = x - m', the covariance is
    (n-1)/n C' + (n-1)/n^2 u u^T. Replacing x moves u_j u_k by at most R_j R_k: the largest product less the smallest
    is, say, (R_j - a)(R_k - b) + a (R_k - b) = R_j (R_k - b), with a and b the distances of m' from the low ends. A
    record added to m moves C by -C / (m+1) + m / (m+1)^2 u u^T, entry by entry largest when all m are equal.
    """
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise refusal(who, "ddof", "must be 0 or 1", ddof, "The denominator is n - ddof.")
    size = _size(who, neighbours, n, least, at_least=1 + int(ddof))
    if neighbours == "replace-one":
        return 1.0 / size if ddof else (size - 1.0) / size**2
    return 1.0 / (size + 1.0) if ddof else size / (size + 1.0) ** 2


# The definitions, over small domains ------------------------------------------------------------------------------


def by_enumeration(
    query: Query, domain: Sequence[Any], n: int, *, neighbours: str, norm: str = "l1", least: int = 0
) -> float:
    """Global sensitivity by its definition: the largest change of `query` over all neighbours with records in `domain`.

    replace-one: data sets of n records. add-remove: the larger of the two has at most n records, the smaller at
    least `least`. `query` takes an array, records first, and must not depend on their order. The work grows as the
    number of multisets: small domains only.
    """
    who = "sensitivity.by_enumeration"
    of, points = _norm(who, norm), _domain(who, domain)
    n = checks.integer(who, "n", n, least=1, advice="It is the number of records.")
    largest = 0.0
    values = _values_of(query, points)
    sizes: Iterable[int] = [n] if _relation(who, neighbours) == "replace-one" else range(least, n + 1)
    for size in sizes:
        for data in combinations_with_replacement(range(len(points)), size):
            for neighbour in _neighbours_of(data, len(points), neighbours, least, n):
                if neighbour > data or len(neighbour) < len(data):  # each pair once
                    largest = max(largest, _finite(who, of(values(data) - values(neighbour)), data))
    return largest


def _finite(who: str, change: float, data: Any) -> float:
    if not np.isfinite(change):
        advice = "An average of no records, say, is none: raise `least`, or define it."
        raise refusal(
            who, "query", f"must give a number for every data set, {len(data)} records included", change, advice
        )
    return change


def local_by_enumeration(
    query: Query, data: Sequence[int], domain: Sequence[Any], *, neighbours: str, norm: str = "l1", least: int = 0
) -> float:
    """Local sensitivity by its definition: the largest change of `query` from one data set to its neighbours.

    `data` are positions in `domain`, one per record; the other arguments are as in `by_enumeration`.
    """
    who = "sensitivity.local_by_enumeration"
    of, points = _norm(who, norm), _domain(who, domain)
    _relation(who, neighbours)
    if not all(isinstance(place, (int, np.integer)) and 0 <= place < len(points) for place in data):
        raise refusal(who, "data", f"must be positions from 0 to {len(points) - 1}", data, "Give indices of `domain`.")
    values, start = _values_of(query, points), tuple(sorted(data))
    near = _neighbours_of(start, len(points), neighbours, least, len(start) + 1)
    return max((_finite(who, of(values(start) - values(neighbour)), start) for neighbour in near), default=0.0)


def smooth_by_enumeration(
    query: Query,
    data: Sequence[int],
    domain: Sequence[Any],
    xi: float,
    *,
    neighbours: str,
    norm: str = "l1",
    least: int = 0,
    steps: int | None = None,
) -> float:
    """Smooth sensitivity by its definition: the largest exp(-xi d) times the local sensitivity d steps from `data`.

    A step leads from a data set to a neighbour. `steps` (by default the number of records) is how far to look; under
    replace-one every data set is within that reach.
    """
    who = "sensitivity.smooth_by_enumeration"
    of, points = _norm(who, norm), _domain(who, domain)
    _relation(who, neighbours)
    xi = checks.positive_number(who, "xi", xi, "It is the smoothness.")
    values, start = _values_of(query, points), tuple(sorted(data))
    steps = len(start) if steps is None else steps
    top = len(start) + steps + 1
    seen, frontier, largest = {start}, [start], 0.0
    for distance in range(steps + 1):
        further = []
        for reached in frontier:
            for neighbour in _neighbours_of(reached, len(points), neighbours, least, top):
                largest = max(largest, math.exp(-xi * distance) * of(values(reached) - values(neighbour)))
                if neighbour not in seen:
                    seen.add(neighbour)
                    further.append(neighbour)
        frontier = further
    return largest


def _values_of(query: Query, points: Array) -> Callable[[tuple[int, ...]], Array]:
    """The query as a function of the records' positions in `points`; each data set is computed once."""
    return cache(lambda data: np.asarray(query(points[list(data)]), dtype=float))


def _neighbours_of(
    data: tuple[int, ...], kinds: int, neighbours: str, least: int, most: int
) -> Iterator[tuple[int, ...]]:
    """Sorted neighbours of a sorted multiset of positions."""
    without = {data[:at] + data[at + 1 :] for at in range(len(data))}
    if neighbours == "add-remove":
        if len(data) > least:
            yield from without
        if len(data) < most:
            yield from (tuple(sorted((*data, new))) for new in range(kinds))
        return
    for remaining in without:
        for new in range(kinds):
            neighbour = tuple(sorted((*remaining, new)))
            if neighbour != data:
                yield neighbour


def _domain(who: str, domain: Sequence[Any]) -> Array:
    points = np.asarray(domain, dtype=float)
    if points.ndim < 1 or not len(points):
        raise refusal(who, "domain", "must hold the possible records", domain, "Give a list of numbers or of vectors.")
    return points


# Local and smooth sensitivity -------------------------------------------------------------------------------------
#
# These read the confidential records: a curator computes them, and must not publish them as they are.


def median_local(data: Any, low: float, high: float, *, neighbours: str) -> float:
    """Local sensitivity of the median of records clamped to [low, high] (the mean of the middle two if n is even)."""
    who = "sensitivity.median_local"
    return _median_at(_records(who, data, low, high), *_ends(who, low, high), 0, _relation(who, neighbours))


def median_smooth(data: Any, low: float, high: float, xi: float, *, neighbours: str) -> float:
    """xi-smooth sensitivity of the median of records clamped to [low, high].

    replace-one, n odd: Nissim, Raskhodnikova and Smith (2007), section 3.1: the largest gap x_(i+k+1) - x_(i) that k
    replacements can bring next to the median, times exp(-k xi), over k; records are padded by `low` and `high`. With n
    even the median is the mean of the middle two, and half of x_(i+k+2) - x_(i) takes the place of the gap.
    add-remove: half the gap x_(i+r+1) - x_(i), where r of the k steps remove the records between the two and the others
    balance the two sides.
    """
    who = "sensitivity.median_smooth"
    low, high = _ends(who, low, high)
    xi = checks.positive_number(who, "xi", xi, "It comes with the noise: see noisewise.mechanisms.smooth.")
    records = _records(who, data, low, high)
    relation = _relation(who, neighbours)
    return _smoothed(lambda k: _median_at(records, low, high, k, relation), xi, high - low, len(records) + 1)


def mean_local(data: Any, low: float, high: float, *, neighbours: str, least: int | None = None) -> float:
    """Local sensitivity of the mean of records clamped to [low, high]; `least` as in `clamped_mean`."""
    who = "sensitivity.mean_local"
    records = _records(who, data, low, high)
    least = _least(who, neighbours, least, len(records))
    return _mean_at(records, *_ends(who, low, high), 0, _relation(who, neighbours), least)


def mean_smooth(data: Any, low: float, high: float, xi: float, *, neighbours: str, least: int | None = None) -> float:
    """xi-smooth sensitivity of the mean of records clamped to [low, high]; `least` as in `clamped_mean`.

    replace-one: one step away some record is at an end of the interval, so the smooth sensitivity is the larger of the
    local one and exp(-xi) (high - low) / n. It gains on the global one only where all records are far from both ends.
    add-remove: the largest over all numbers of records removed and added.
    """
    who = "sensitivity.mean_smooth"
    low, high = _ends(who, low, high)
    xi = checks.positive_number(who, "xi", xi, "It comes with the noise: see noisewise.mechanisms.smooth.")
    records = _records(who, data, low, high)
    relation = _relation(who, neighbours)
    least = _least(who, neighbours, least, len(records))
    if relation == "replace-one":
        last, top = 1, (high - low) / len(records)
    else:
        last, top = 2 * len(records) + 2, (high - low) / (least + 1)
    return _smoothed(lambda k: _mean_at(records, low, high, k, relation, least), xi, top, last)


def _smoothed(at: Callable[[int], float], xi: float, top: float, last: int) -> float:
    """Largest exp(-xi k) at(k), for k up to `last`; at(k) never exceeds `top`."""
    largest = 0.0
    for k in range(last + 1):
        shrink = math.exp(-xi * k)
        if shrink * top <= largest:
            break
        largest = max(largest, shrink * at(k))
    return largest


def _median_at(records: Array, low: float, high: float, k: int, relation: str) -> float:
    """Largest local sensitivity of the median just k steps from the sorted records; callers take all smaller k too."""
    n = len(records)
    pad = k + 2
    padded = np.concatenate([np.full(pad, low), records, np.full(pad, high)])  # x_(i) is padded[pad - 1 + i]

    def widest(first: int, last: int, width: int) -> float:
        starts = np.arange(max(first, 1 - pad), min(last, n + pad - width) + 1)
        return float(np.max(padded[pad - 1 + starts + width] - padded[pad - 1 + starts])) if len(starts) else 0.0

    if relation == "replace-one":
        if n % 2:
            middle = (n + 1) // 2
            return widest(middle - k - 1, middle, k + 1)
        middle = n // 2
        return 0.5 * widest(middle - k - 1, middle, k + 2)
    if k > n:  # all records gone, one at an end added
        return 0.5 * (high - low)
    # i records lie left of the gap, n - i - removed right of it: these are balanced if they differ by at most one, else
    # the spare steps must just suffice to balance them (where fewer suffice, a smaller k has the same gap).
    removed = np.arange(k + 1)
    spare = k - removed
    largest = 0.0
    for sign in (-1, 0, 1):
        twice = n - removed + sign * (spare + 1)
        starts = twice // 2
        fits = (twice % 2 == 0) & (starts >= 0) & (starts <= n - removed) & ((sign != 0) | (spare == 0))
        fits &= n - removed + spare >= 1  # an empty data set has no median
        if fits.any():
            left = pad - 1 + starts[fits]
            largest = max(largest, float(np.max(padded[left + removed[fits] + 1] - padded[left])))
    return 0.5 * largest


def _mean_at(records: Array, low: float, high: float, k: int, relation: str, least: int) -> float:
    """Largest local sensitivity of the mean just k steps from the sorted records; callers take all smaller k too."""
    n = len(records)
    if relation == "replace-one":
        return (high - low) / n if k else max(high - records[0], records[-1] - low) / n
    # By reflection it is enough to pull the mean down: a record far above it joins, or leaves.
    below = _pulled_down(records - low, high - low, k, least)
    above = _pulled_down((high - records)[::-1], high - low, k, least)
    return max(below, above)


def _pulled_down(records: Array, top: float, k: int, least: int) -> float:
    """Largest change of the mean of records in [0, top] when a record far above it joins or leaves, just k steps away.

    The k steps pull the mean down.
    """
    n = len(records)
    sums = np.concatenate([[0.0], np.cumsum(records)])  # sums[j]: the j smallest
    removed = np.arange(min(k, n) + 1)
    added = k - removed
    size = n - removed + added

    def largest(change: Array, smaller: Array, usable: Any = True) -> float:
        return float(np.max(np.where((smaller >= max(least, 1)) & usable, change, 0.0)))

    # The largest records are removed and zeros are added; then a record at `top` joins.
    joins = (top - sums[n - removed] / np.maximum(size, 1)) / (size + 1)
    # A record leaves: one at `top` that was added; or the largest, which stayed while the next largest were removed.
    remaining = np.maximum(size - 1, 1)
    leaves = (top - sums[n - removed] / remaining) / np.maximum(size, 1)
    stayed = (records[-1] - sums[np.maximum(n - removed - 1, 0)] / remaining) / np.maximum(size, 1)
    return max(largest(joins, size), largest(leaves, size - 1, added > 0), largest(stayed, size - 1, removed < n))


# Checks -----------------------------------------------------------------------------------------------------------


def _relation(who: str, neighbours: str) -> str:
    return checks.choice(who, "neighbours", neighbours, NEIGHBOURS)


def _norm(who: str, norm: str) -> Callable[[Any], float]:
    order = {"l1": 1, "l2": 2, "linf": np.inf}[checks.choice(who, "norm", norm, NORMS)]
    return lambda values: float(np.linalg.norm(np.ravel(values), order))


def _box(who: str, low: Any, high: Any, *, vector: bool = False) -> tuple[Array, Array]:
    advice = "Records are clamped to [low, high]."
    ends = [np.asarray(checks.numeric(who, name, end, advice)) for name, end in (("low", low), ("high", high))]
    try:
        low_array, high_array = np.broadcast_arrays(*ends)
    except ValueError:
        raise refusal(who, "high", f"must have the shape {ends[0].shape} of 'low'", high, advice) from None
    if not (np.all(np.isfinite(low_array)) and np.all(np.isfinite(high_array)) and np.all(low_array <= high_array)):
        raise refusal(who, "low", f"must be finite and at most high={high!r}", low, advice)
    if vector and low_array.ndim != 1:
        raise refusal(who, "low", "must be a list, one number per variable", low, "Give [low] for one variable.")
    return low_array, high_array


def _ends(who: str, low: Any, high: Any) -> tuple[float, float]:
    low_array, high_array = _box(who, low, high)
    if low_array.ndim:
        raise refusal(who, "low", "must be a single number", low, "Give one interval.")
    return float(low_array), float(high_array)


def _records(who: str, data: Any, low: Any, high: Any) -> Array:
    low, high = _ends(who, low, high)
    records = np.asarray(checks.numeric(who, "data", data, "Give the records, a list of numbers."))
    if records.ndim != 1 or not len(records) or np.isnan(records).any():
        raise refusal(who, "data", "must be a non-empty list of numbers", data, "Give the records.")
    return np.sort(np.clip(records, low, high))


def _size(who: str, neighbours: str, n: Any, least: Any, *, at_least: int) -> int:
    """The number of records in the formulas: n under replace-one, `least` under add-remove."""
    if _relation(who, neighbours) == "replace-one":
        if least is not None:
            raise refusal(
                who, "least", "must be left out under replace-one", least, "Give n, which all data sets share."
            )
        return checks.integer(who, "n", n, least=at_least, advice="Under replace-one the number of records is known.")
    if n is not None:
        rule = "must be left out under add-remove, where the number of records is confidential"
        advice = "Use replace-one, or release a noisy sum and a noisy count, or give least, a public lower limit of n."
        raise refusal(who, "n", rule, n, advice)
    if least is None:
        rule = "must be given under add-remove: with few records one more moves the result by nearly its range"
        advice = "Give a public lower limit of n, or release a noisy sum and a noisy count."
        raise refusal(who, "least", rule, least, advice)
    return checks.integer(who, "least", least, least=at_least, advice="It is a public lower limit of n.")


def _least(who: str, neighbours: str, least: Any, n: int) -> int:
    if _relation(who, neighbours) == "replace-one":
        if least is not None:
            raise refusal(who, "least", "must be left out under replace-one", least, "All data sets have n records.")
        return n
    least = _size(who, neighbours, None, least, at_least=1)
    if least > n:
        raise refusal(who, "least", f"must be at most the number of records, {n}", least, "Check the data.")
    return least


def _entries(who: str, matrix: Array, entries: str) -> Array:
    match checks.choice(who, "entries", entries, ["triangle", "full", "pairs"]):
        case "triangle":
            return matrix[np.triu_indices(len(matrix))]
        case "pairs":
            pairs = matrix[np.triu_indices(len(matrix), 1)]
            if not pairs.size:
                raise refusal(who, "entries", "must not be 'pairs' for one variable", entries, "Use 'triangle'.")
            return pairs
        case _:
            return matrix


__all__ = [
    "by_enumeration",
    "clamped_mean",
    "clamped_sum",
    "contingency_tables",
    "count",
    "covariance",
    "cross_products",
    "histogram",
    "local_by_enumeration",
    "mean_local",
    "mean_smooth",
    "median_local",
    "median_smooth",
    "smooth_by_enumeration",
    "variance",
]
