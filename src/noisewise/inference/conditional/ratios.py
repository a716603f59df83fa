"""A whole-numbered statistic summed out by the ratios of neighbouring probabilities, where only parameters vary.

    pi(k + 1) / pi(k) = x (c + d k) / (k + 1),    sum_j pi(a + j) eta_j = pi(a) (eta_0 + rho_0 (eta_1 + rho_1 (...)))

holds for Katz's laws. With release and mechanism known, the noise is a table; a sum and its derivatives are products
and additions, without a logarithm or an exponential per term. The window lies about the release. Entries that have one
law share one window: their sums are one product of the table with the law, and a value that was released more than once
is summed once. Where the parameters at hand take the largest terms of an entry out of its window, that entry's sum is
done again by `enumeration`, whose windows follow the parameters. Derivation: docs/derivations/conditional.md.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional import enumeration
from noisewise.inference.conditional.neighbours import FAMILIES
from noisewise.mechanisms import Mechanism
from noisewise.model.masses import log_mass
from noisewise.model.wrappers import unchecked

NEGLIGIBLE = 1e-12
"""What may lie beyond the window, as a share of the sum; where it may be more, the sum is done again."""
UNROLLED = 8
"""Terms of one turn of the loop; windows are multiples of it."""
FOLLOWED = (256, enumeration.MOST)
"""The least number of values in windows that follow the parameters: at first, and where law and noise need more."""
MOST = 2**22
"""Values of the noise in a table, at most."""
TOGETHER = 32
"""Entries summed at a time in windows that follow the parameters: only those that need them are."""
ALIKE, LONGER = 4, 4
"""Entries of one law from which on they share a window, and how many times as long as their own it may be."""


def width(kind: str, mechanism: Mechanism) -> int:
    """How many values a table has for each release; 0 where no table can be used."""
    distance = enumeration.reach(mechanism) if type(mechanism) in enumeration.LOG_CONCAVE_NOISE else None
    if kind not in FAMILIES or distance is None:
        return 0
    return UNROLLED * -(-(2 * distance + 1) // UNROLLED)


def applies(law: Any, kind: str, mechanism: Mechanism, released: Any, width: int) -> bool:
    """Whether only the law's parameters are being traced: then the table is computed once, while a program is made."""
    if not width or width * max(np.size(released), 1) > MOST:
        return False
    return _traced(law) and not _traced((mechanism, released, _total(law, kind)))


def has_total(kind: str) -> bool:
    """Whether it is a binomial law, which has a largest value."""
    return kind in FAMILIES and FAMILIES[kind].d < 0


def _total(law: Any, kind: str) -> Any:
    return law.total_count if has_total(kind) else 0


def _traced(tree: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def log_marginal(law: Any, kind: str, mechanism: Mechanism, released: Any, size: int, width: int) -> Any:
    """log of a bound of m(r), entry by entry; `width` is that of the table, `size` the least of windows that follow."""
    # the parameters' shape, not the law's: of a law that came out of a loop, the latter leaves out the axis of steps
    own = jnp.broadcast_shapes(*(jnp.shape(getattr(law, name)) for name in FAMILIES[kind].parameters))
    released = np.broadcast_to(released, jnp.broadcast_shapes(law.batch_shape, own, np.shape(released)))
    total, is_one = _total(law, kind), all(np.ndim(leaf) == 0 for leaf in jax.tree.leaves(mechanism))
    if released.size == 1 and is_one:
        # twice: XLA's loops over single numbers take thirty times as long as those over two
        table = noise_table(kind, mechanism, np.repeat(released, 2), np.reshape(total, ()), width)
        return jnp.reshape(by_table(law, kind, table, size)[0], released.shape)
    alike = math.prod(own) == 1 and released.size >= ALIKE
    if alike and is_one and np.size(total) == 1:  # each value that was released, once
        values, place = np.unique(released, return_inverse=True)
        table = noise_table(kind, mechanism, values, total, width, alike)
        return by_table(law, kind, table, size)[place.reshape(released.shape)]
    return by_table(law, kind, noise_table(kind, mechanism, released, total, width, alike), size)


def noise_table(kind: str, mechanism: Mechanism, released: Any, total: Any, width: int, alike: bool = False) -> Any:
    """The noise about the released values, and the mechanism: plain data, which a compiled program may be given.

    With `alike`, where all entries have one law, the table is one for all, unless that would be too long.
    """
    dtype = jnp.result_type(float)
    return _Table.of(mechanism, released, np.asarray(total), has_total(kind), width, alike, dtype), mechanism


def by_table(law: Any, kind: str, table: Any, size: int) -> Any:
    """As `log_marginal`, from a table that is there already."""
    shape, dtype = jnp.shape(table[0].start), jnp.result_type(float)
    parameters = (jnp.asarray(getattr(law, name), dtype) for name in FAMILIES[kind].parameters)
    parts = tuple(jnp.broadcast_to(jnp.reshape(one, ()) if one.size == 1 else one, shape) for one in parameters)
    return _value((kind, size), parts, table)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Table:
    """The noise over the values start, start + 1, ... of every entry; `start` is one number where all have one law."""

    released: Any
    total: Any
    start: Any
    high: Any
    log_top: Any
    """log of the largest noise density in the window."""
    noise: Any
    """The noise as a share of it: (values, *entries)."""
    steps: Any
    """The part of pi(k + 1) / pi(k) without parameters: 1 / (k + 1), and for binomial laws (n - k) / (k + 1)."""
    log_fall: Any
    """log of how the noise changes with the last step to the left, and to the right."""

    @staticmethod
    def of(
        mechanism: Mechanism, released: Any, total: Any, bounded: bool, width: int, alike: bool, dtype: Any
    ) -> "_Table":
        high = np.broadcast_to(total * 1.0 if bounded else np.inf, released.shape)
        start = np.maximum(np.minimum(np.round(released * 1.0) - width // 2, high - width + 1), 0.0)
        span = float(np.max(start) - np.min(start)) + width if alike else np.inf
        if np.size(total) == 1 and span <= LONGER * width and span * released.size <= MOST:
            width, high, start, total = int(span), np.max(high), np.min(start), np.reshape(total, ())
        values = start + np.arange(width).reshape(-1, *(1,) * released.ndim)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            log_noise = np.asarray(mechanism.log_prob(released, values))
            log_top = np.max(log_noise, axis=0)
            noise = np.exp(log_noise - log_top)
            steps = (np.maximum(high - values, 0.0) if bounded else 1.0) / (values + 1.0)
            log_fall = np.stack([log_noise[0] - log_noise[1], log_noise[-1] - log_noise[-2]])
        parts = (one.astype(dtype) for one in (start, high, log_top, noise, steps, log_fall))
        return _Table(released, total, *parts)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(how: tuple[str, int], parameters: Any, fixed: Any) -> Any:
    return _both(how, parameters, fixed)[0]


@_value.defjvp
def _value_jvp(how: tuple[str, int], primals: Any, tangents: Any) -> Any:
    value, slopes = _with_slopes(how, *primals)
    return value, _along(slopes, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_slopes(how: tuple[str, int], parameters: Any, fixed: Any) -> Any:
    """Every entry's value, and its derivatives in its own parameters."""
    return _both(how, parameters, fixed)


@_with_slopes.defjvp
def _with_slopes_jvp(how: tuple[str, int], primals: Any, tangents: Any) -> Any:
    """Higher derivatives, rarely asked for, are those of the windows that follow."""
    parameters, fixed = primals
    value, slopes = _with_slopes(how, parameters, fixed)
    longest = how[0], max(how[1], *FOLLOWED)
    turns = jax.jvp(lambda at: _enumerated(longest, _by_entry(at, fixed[0]), fixed)[1], (parameters,), (tangents[0],))[
        1
    ]
    return (value, slopes), (_along(slopes, tangents), turns)


def _along(slopes: Any, tangents: Any) -> Any:
    return sum(slope * move for slope, move in zip(slopes, tangents[0], strict=True))


def _by_entry(parameters: Any, table: "_Table") -> Any:
    return jax.tree.map(lambda one: jnp.broadcast_to(one, jnp.shape(table.released)), parameters)


def _both(how: tuple[str, int], parameters: Any, fixed: Any) -> tuple[Any, tuple[Any, ...]]:
    """Value and slopes: from the table, and where that does not reach far enough, from windows that follow."""
    sums = _tabulated(how[0], parameters, fixed[0])
    for least in FOLLOWED:
        sums = _followed((how[0], max(how[1], least)), parameters, fixed, *sums)
    return sums[:2]


def _followed(how: tuple[str, int], parameters: Any, fixed: Any, value: Any, slopes: Any, fits: Any) -> Any:
    """(value, slopes, fits) with the entries that do not fit done again, some at a time."""
    table, mechanism = fixed
    shape, number = jnp.shape(value), max(jnp.size(value), 1)
    parameters = _by_entry(parameters, table)

    def flat(one: Any) -> Any:
        return jnp.reshape(one, number)

    def again(state: Any) -> Any:
        left, value, slopes, fits = state
        index = jnp.nonzero(left, size=min(TOGETHER, number), fill_value=number)[0]

        def picked(one: Any) -> Any:
            return flat(jnp.broadcast_to(one, shape)).at[index].get(mode="clip") if jnp.ndim(one) else one

        def put(old: Any, new: Any) -> Any:
            return old.at[index].set(new, mode="drop")

        some = replace(table, released=picked(jnp.broadcast_to(table.released, shape)), total=picked(table.total))
        sums = _enumerated(how, jax.tree.map(picked, parameters), (some, jax.tree.map(picked, mechanism)))
        return put(left, False), *jax.tree.map(put, (value, slopes, fits), sums)

    state = jax.tree.map(flat, (~fits, value, slopes, fits))
    _, *sums = jax.lax.while_loop(lambda state: jnp.any(state[0]), again, state)
    return jax.tree.map(lambda one: jnp.reshape(one, shape), tuple(sums))


def _enumerated(how: tuple[str, int], parameters: Any, fixed: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """Value, slopes, and whether what lies beyond the window is negligible."""
    (kind, size), (table, mechanism) = how, fixed

    def value(parameters: Any) -> Any:
        law = unchecked(FAMILIES[kind].law(*parameters, table.total))
        marginal = enumeration.log_marginal(law, kind, mechanism, table.released, size, False)
        return marginal.log_bound, marginal.share

    log_sum, pull, share = jax.vjp(value, parameters, has_aux=True)
    return log_sum, pull(jnp.ones_like(log_sum))[0], share < NEGLIGIBLE


def _tabulated(kind: str, parameters: Any, table: _Table) -> tuple[Any, tuple[Any, ...], Any]:
    """Value, slopes, and whether what lies beyond the window is negligible and nothing has overflowed."""
    family, last = FAMILIES[kind], table.start + len(table.noise) - 1.0
    summed = _nested if jnp.shape(table.start) == jnp.shape(table.released) else _product
    value, slopes, log_first, fits = summed(kind, parameters, table)
    log_x, c = family.log_x(*parameters, table.total), family.c(*parameters, table.total)
    inside = jnp.minimum(last, table.high)
    log_last = log_mass(unchecked(family.law(*parameters, table.total)), inside)
    ends = [log_first + table.log_top + jnp.log(table.noise[0]), log_last + table.log_top + jnp.log(table.noise[-1])]
    # what the ratios can be beyond either end: they are monotone in k, so the larger of those at both ends of that side
    left = jnp.log(jnp.maximum(table.start / (c + family.d * (table.start - 1.0)), 1.0 / c)) - log_x
    right = jnp.log(jnp.maximum((c + family.d * inside) / (inside + 1.0), 1.0 * max(family.d, 0))) + log_x
    sides = [
        enumeration.geometric(end, ratio + fall)
        for end, ratio, fall in zip(ends, (left, right), table.log_fall, strict=True)
    ]
    more = table.start > 0.0, last < table.high
    beyond = jnp.logaddexp(*(jnp.where(goes_on, side, -jnp.inf) for goes_on, side in zip(more, sides, strict=True)))
    fits &= jnp.isfinite(value) & (beyond - value < np.log(NEGLIGIBLE))
    for slope in slopes:
        fits &= jnp.isfinite(slope)
    return value, slopes, fits


def _product(kind: str, parameters: Any, table: _Table) -> tuple[Any, tuple[Any, ...], Any, Any]:
    """Where all entries have one law: value and slopes, log law at the first value, and whether enough digits are left.

    sum_j pi(a + j) eta_j and its derivatives are rows of one product of the law with the table.
    """
    values = table.start + np.arange(len(table.noise), dtype=table.noise.dtype)

    def log_law(*parameters: Any) -> Any:
        return log_mass(unchecked(FAMILIES[kind].law(*parameters, table.total)), jnp.minimum(values, table.high))

    log_pi = log_law(*parameters)
    top = jnp.max(log_pi)
    pi = jnp.where(values <= table.high, jnp.exp(log_pi - top), 0.0)
    rates = np.eye(len(parameters), dtype=table.noise.dtype)
    changes = [jax.jvp(log_law, parameters, tuple(rate))[1] for rate in rates]
    total, *by = jnp.tensordot(jnp.stack([pi, *(pi * change for change in changes)]), table.noise, axes=1)
    kinds = jnp.finfo(total.dtype)
    value = top + table.log_top + jnp.log(total)
    return value, tuple(one / total for one in by), log_pi[0], total > kinds.tiny / kinds.eps


def _nested(kind: str, parameters: Any, table: _Table) -> tuple[Any, tuple[Any, ...], Any, Any]:
    """Value, slopes and log law at the first value of every entry's own window: see `_horner`."""
    family = FAMILIES[kind]

    def pieces(parameters: Any) -> Any:
        law = unchecked(family.law(*parameters, table.total))
        return log_mass(law, table.start), family.log_x(*parameters, table.total), family.c(*parameters, table.total)

    (log_first, log_x, c), pull = jax.vjp(pieces, parameters)
    total, by_x, by_c = _horner(table, jnp.exp(log_x), c, family.d)
    value = log_first + table.log_top + jnp.log(total)
    (slopes,) = pull((jnp.ones_like(value), by_x / total, by_c / total))
    return value, slopes, log_first, jnp.isfinite(total)


def _horner(table: _Table, x: Any, c: Any, d: int) -> tuple[Any, Any, Any]:
    """T = eta_0 + rho_0 (eta_1 + rho_1 (...)), dT / d log x and dT / dc: from the last term inwards."""

    def step(carried: Any, term: Any) -> Any:
        total, by_x, by_c = carried
        noise, step, offset = term
        share = x * step
        ratio = share * (c + table.start + offset) if d > 0 else share
        by_c = share * total + ratio * by_c if d > 0 else by_c
        return (noise + ratio * total, ratio * (total + by_x), by_c), None

    zero = jnp.zeros_like(x)
    offsets = np.arange(len(table.noise), dtype=x.dtype)
    (total, by_x, by_c), _ = jax.lax.scan(
        step, (zero, zero, zero), (table.noise, table.steps, offsets), reverse=True, unroll=UNROLLED
    )
    return total, by_x, by_c
