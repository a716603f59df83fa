"""The law of reported category counts: a sum of independent multinomials, one per true category.

With n_i records of true category i, each reported as j with probability C_ij, the reported counts are
sum_i Multinomial(n_i, C_i.). Two exact routes, both sums of positive terms in logs:

- `separable`: C_ij = b_j + a_i [j = s(i)] with s one to one, as in k-ary randomised response. A record reports
  s(i) outright with probability a_i, or else draws from b. Summing over the numbers K_i that report outright,
      P(r | n) = sum_K (n - sum K)! prod_i binom(n_i, K_i) a_i^K_i prod_j b_j^(r_j - K_j) / (r_j - K_j)!,
  which ties the categories together only through sum K: one convolution per category, O(n^2) each.
- any channel: multinomials in closed form for the two largest categories; the other records are added one by one,
  over all partial counts (a grid over all reported categories but one).
"""

import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from noisewise.errors import refusal
from noisewise.mechanisms.discrete import by_rows, log, log_sum, repeat, times
from noisewise.numerics import namespace

GRID = 2**21
"""Most cells of a grid of partial counts."""


def outright(channel: Any) -> Any:
    """s(i), the category that each row reports outright, where the channel is separable; else None."""
    common = channel.min(axis=0)
    own = np.where(channel > common * (1.0 + 1e-15), channel - common, 0.0)  # differences by rounding do not count
    target = own.argmax(axis=1)
    single = np.all(np.count_nonzero(own, axis=1) <= 1)
    return target if single and len(set(target.tolist())) == len(target) else None


def largest_grid(channel: Any, n: int) -> int:
    """Cells of the grid when the reported counts are least favourable; 0 where no grid is needed."""
    categories, reported = channel.shape
    if categories > 2 and outright(channel) is not None:
        return 0
    return int((n // reported + 1) ** (reported - 1))


def work(channel: Any, n: int) -> float:
    """Numbers handled for the probability of one table: the grid for every record beyond two categories, or n^2."""
    categories = channel.shape[0]
    return float(largest_grid(channel, n) * max(1, n * (categories - 2) // categories)) or float(n * n)


def log_prob(channel: Any, n: int, released: Any, confidential: Any) -> Any:
    """log P(released | confidential) over the last axes; -inf unless both are whole, nonnegative and sum to n."""
    xp = namespace(released, confidential)
    released, confidential = xp.asarray(released, dtype=float), xp.asarray(confidential, dtype=float)
    lead = np.broadcast_shapes(released.shape[:-1], confidential.shape[:-1])
    released = xp.broadcast_to(released, (*lead, released.shape[-1])).reshape(-1, released.shape[-1])
    confidential = xp.broadcast_to(confidential, (*lead, confidential.shape[-1])).reshape(-1, confidential.shape[-1])
    valid = _is_table(xp, released, n) & _is_table(xp, confidential, n)
    # Rows that are not tables of n records are replaced by such a table, and masked at the end.
    released = xp.where(valid[:, None], released, _corner(released.shape[1], n))
    confidential = xp.where(valid[:, None], confidential, _corner(confidential.shape[1], n))
    route = _separable if largest_grid(channel, n) == 0 else _any_channel
    if xp is np:  # simulated tables repeat: evaluate each once
        tables, index = np.unique(np.concatenate([released, confidential], axis=1), axis=0, return_inverse=True)
        width = released.shape[1]
        log_probs = route(np, channel, n, tables[:, :width], tables[:, width:])[index.reshape(-1)]
    else:
        log_probs = route(xp, channel, n, released, confidential)
    return xp.where(valid, log_probs, -xp.inf).reshape(lead)


def _is_table(xp: Any, counts: Any, n: int) -> Any:
    return xp.all((counts >= 0) & (counts == xp.floor(counts)), axis=1) & (xp.sum(counts, axis=1) == n)


def _corner(width: int, n: int) -> Any:
    return np.eye(width)[0] * n


# Separable channels -------------------------------------------------------------------------------------------------


def _separable(xp: Any, channel: Any, n: int, released: Any, confidential: Any) -> Any:
    return by_rows(xp, lambda r, c: _separable_block(xp, channel, n, r, c), (released, confidential), n + 1)


def _separable_block(xp: Any, channel: Any, n: int, released: Any, confidential: Any) -> Any:
    log_factorial = _log_factorial(xp, n)
    common, target = channel.min(axis=0), outright(channel)
    log_common = log(np, common)
    log_own = log(np, (channel - common)[np.arange(len(target)), target])
    total = xp.arange(n + 1.0)
    law = xp.where(total == 0, 0.0, -xp.inf) * xp.ones((len(released), 1))  # log weight of sum K so far
    for row, column in enumerate(target):
        true, reported = confidential[:, row, None], released[:, column, None]
        steps = n + 1 if xp is not np else int(min(true.max(), reported.max())) + 1
        direct = xp.arange(float(steps))
        inside = (direct <= true) & (direct <= reported)
        weight = log_factorial(true) - log_factorial(direct) - log_factorial(xp.maximum(true - direct, 0.0))
        drawn = xp.maximum(reported - direct, 0.0)
        weight = weight + times(xp, direct, log_own[row]) + times(xp, drawn, log_common[column]) - log_factorial(drawn)
        law = _convolve(xp, law, xp.where(inside, weight, -xp.inf))
    for column in sorted(set(range(channel.shape[1])) - set(target.tolist())):
        reported = released[:, column, None]
        law = law + times(xp, reported, log_common[column]) - log_factorial(reported)
    return log_sum(xp, law + log_factorial(n - total), axis=1)


def _convolve(xp: Any, law: Any, weight: Any) -> Any:
    """log of the convolution of exp(law) and exp(weight), cut to the length of `law`."""
    places = xp.arange(law.shape[1])

    def add(step: Any, total: Any) -> Any:
        source = places - step
        moved = xp.where(source >= 0, xp.take(law, xp.maximum(source, 0), axis=1), -xp.inf)
        return xp.logaddexp(total, moved + xp.take(weight, xp.asarray([step]), axis=1))

    return repeat(xp, weight.shape[1], add, xp.full_like(law, -xp.inf))


# Any channel --------------------------------------------------------------------------------------------------------


def _any_channel(xp: Any, channel: Any, n: int, released: Any, confidential: Any) -> Any:
    reported = channel.shape[1]
    if xp is np:  # the last, implied, reported category is the largest; the grid ends at the released counts
        largest = released.max(axis=0)
        order = np.argsort(largest, kind="stable")
        channel, released = channel[:, order], released[:, order]
        extents = tuple(int(largest[column]) + 1 for column in order[:-1])
    else:
        extents = (n + 1,) * (reported - 1)
    cells = math.prod(extents)
    if cells > 4 * GRID:
        rule = f"must keep the grid of partial counts within {4 * GRID} cells"
        advice = "Inside JAX the grid cannot be cut at the released counts: evaluate this law with NumPy arrays."
        raise refusal("RandomizedResponse", "n", rule, n, advice)
    return by_rows(xp, lambda r, c: _any_block(xp, channel, n, r, c, extents), (released, confidential), cells)


def _any_block(xp: Any, channel: Any, n: int, released: Any, confidential: Any, extents: tuple[int, ...]) -> Any:
    categories, reported = channel.shape
    order = xp.argsort(-confidential, axis=1)
    count = xp.take_along_axis(confidential, order, axis=1)
    log_channel = xp.asarray(log(np, channel))[order]  # row, category by size, reported
    spread = (slice(None), *(None,) * len(extents))  # a number per row, against the grid
    grid = [_along(xp, extents, axis) for axis in range(len(extents))]
    law = _log_multinomial(xp, n, count[:, 0][spread], grid, [log_channel[:, 0, j][spread] for j in range(reported)])

    # Records beyond the two largest categories number at most n (k - 2) / k.
    ends = xp.cumsum(count[:, 2:], axis=1)
    steps = n * (categories - 2) // categories if xp is not np else int(count[:, 2:].sum(axis=1).max(initial=0))

    def add_record(step: Any, law: Any) -> Any:
        category = xp.minimum(2 + xp.sum(ends <= step, axis=1), categories - 1)
        entry = xp.take_along_axis(log_channel, category[:, None, None], axis=1)[:, 0]
        terms = [_shifted(xp, law, axis + 1) + entry[:, axis][spread] for axis in range(len(extents))]
        grown = _log_sum_of(xp, [*terms, law + entry[:, -1][spread]])
        return xp.where((step < ends[:, -1])[spread], grown, law)

    law = repeat(xp, steps, add_record, law) if steps else law
    remaining = [released[:, axis][spread] - grid[axis] for axis in range(len(extents))]
    log_weights = [log_channel[:, 1, j][spread] for j in range(reported)]
    second = _log_multinomial(xp, n, count[:, 1][spread], remaining, log_weights)
    return log_sum(xp, (law + second).reshape(len(released), -1), axis=1)


def _along(xp: Any, extents: tuple[int, ...], axis: int) -> Any:
    shape = [1] * (len(extents) + 1)
    shape[axis + 1] = extents[axis]
    return xp.arange(float(extents[axis])).reshape(shape)


def _shifted(xp: Any, law: Any, axis: int) -> Any:
    """`law` one record further along an axis of the grid."""
    front, back = [slice(None)] * law.ndim, [slice(None)] * law.ndim
    front[axis], back[axis] = slice(0, 1), slice(0, -1)
    return xp.concatenate([xp.full_like(law[tuple(front)], -xp.inf), law[tuple(back)]], axis=axis)


def _log_sum_of(xp: Any, terms: list[Any]) -> Any:
    top = terms[0]
    for term in terms[1:]:
        top = xp.maximum(top, term)
    top = xp.where(top > -xp.inf, top, 0.0)
    return log(xp, sum(xp.exp(term - top) for term in terms)) + top


def _log_multinomial(xp: Any, n: int, total: Any, counts: list[Any], log_weights: list[Any]) -> Any:
    """log pmf over `counts` with the last count implied by the total, which is at most n."""
    log_factorial = _log_factorial(xp, n)
    last = total - sum(counts)
    inside = last >= 0
    for part in counts:
        inside = inside & (part >= 0)
    log_pmf = log_factorial(total)
    for part, log_weight in zip([*counts, last], log_weights, strict=True):
        count = xp.maximum(part, 0.0)
        log_pmf = log_pmf + times(xp, count, log_weight) - log_factorial(count)
    return xp.where(inside, log_pmf, -xp.inf)


def _log_factorial(xp: Any, n: int) -> Any:
    """log k! of whole numbers k from 0 to n. In JAX from a table: its log-gamma takes seconds to compile."""
    if xp is np:
        return lambda count: gammaln(count + 1.0)
    table = xp.asarray(gammaln(np.arange(n + 1) + 1.0))
    return lambda count: xp.take(table, xp.asarray(count, dtype=int), mode="fill", fill_value=np.nan)


# The bound ----------------------------------------------------------------------------------------------------------


def log_sup(channel: Any, n: int, released: Any) -> Any:
    """A bound of `log_prob` over all tables of n true categories; attained where two categories are reported.

    Chain rule: given the records reported as categories before j, each of the N_j others reports j with probability
    C_ij / sum_{l >= j} C_il, independently. Hence P(r | n) <= prod_j sup P(R_j = r_j), the sup over any N_j independent
    records with such probabilities. P(R_j = r_j) is linear in the probability of each record, so it is largest with
    every record at the smallest or the largest of these: it is enough to look at a records at the largest and N_j - a
    at the smallest.
    """
    xp = namespace(released)
    released = xp.asarray(released, dtype=float)
    tails = np.cumsum(channel[:, ::-1], axis=1)[:, ::-1]
    total: Any = 0.0
    for column in range(channel.shape[1] - 1):
        reachable = tails[:, column] > 0
        yes, tail, after = channel[reachable, column], tails[reachable, column], tails[reachable, column + 1]
        if not reachable.any():  # no record can get this far
            continue
        low, high = (yes / tail).argmin(), (yes / tail).argmax()
        rates = [(log(np, yes[at] / tail[at]), log(np, after[at] / tail[at])) for at in (high, low)]
        total = total + _best_split(xp, n, xp.sum(released[..., column:], axis=-1), released[..., column], rates)
    return xp.minimum(total, 0.0)


def _best_split(xp: Any, n: int, size: Any, reported: Any, rates: list[tuple[Any, Any]]) -> Any:
    """max over a of log P(Binomial(a, high) + Binomial(size - a, low) = reported), by bisection.

    The probability is unimodal in a: its increments are (high - low)(Q(r - 1) - Q(r)), r = `reported` and Q the law of
    the other records, and Q(r) / Q(r - 1) grows when a low rate becomes a high one, because Q is log-concave.
    """

    def at(high: Any) -> Any:
        return _log_two_binomials(xp, n, high, size - high, reported, rates)

    mean_high, mean_low = math.exp(rates[0][0]), math.exp(rates[1][0])

    def halve(step: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        first, last = ends
        middle = xp.floor(0.5 * (first + last))
        at_middle, at_next = at(middle), at(xp.minimum(middle + 1, size))
        too_low = middle * mean_high + (size - middle) * mean_low < reported
        nowhere = (at_middle == -xp.inf) & (at_next == -xp.inf) & too_low
        up = ((at_next > at_middle) | nowhere) & (first < last)
        return xp.where(up, xp.minimum(middle + 1, size), first), xp.where(up | (first >= last), last, middle)

    first, _ = repeat(xp, max(1, math.ceil(math.log2(n + 1)) + 1), halve, (xp.zeros_like(size), size))
    sides = [at(xp.clip(first + step, 0.0, size)) for step in (-1.0, 0.0, 1.0)]
    return xp.maximum(xp.maximum(sides[0], sides[1]), sides[2])


def _log_two_binomials(xp: Any, n: int, first: Any, second: Any, reported: Any, rates: list[tuple[Any, Any]]) -> Any:
    log_factorial = _log_factorial(xp, n)
    part = xp.arange(n + 1.0)  # successes among the first records
    log_terms: Any = 0.0
    inside = xp.ones((*np.shape(reported), n + 1), dtype=bool)
    for total, yes, (log_yes, log_no) in (
        (first[..., None], part, rates[0]),
        (second[..., None], reported[..., None] - part, rates[1]),
    ):
        no = total - yes
        inside = inside & (yes >= 0) & (no >= 0)
        yes, no = xp.maximum(yes, 0.0), xp.maximum(no, 0.0)
        log_terms = log_terms + log_factorial(total) - log_factorial(yes) - log_factorial(no)
        log_terms = log_terms + times(xp, yes, log_yes) + times(xp, no, log_no)
    return log_sum(xp, xp.where(inside, log_terms, -xp.inf), axis=-1)
