"""Sums of terms whose logs are a table plus an affine function of their number: by powers of one ratio.

    sum_j w_j exp(first + j u) = exp(first) sum_j w_j x^j,    x = exp(u)

Terms of a law of an exponential family times its noise have this form, and only `first` and u move with the parameters:
a sum over them takes a product and an addition for each, no logarithm and no exponential. Terms count from the end
where the powers are largest, so none is above one. The table is cut into runs, each as a share of its own largest term,
so that terms are lost only where they are below 1e-308 of the largest. Derivation: docs/derivations/conditional.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.numerics import Array

RUN = 32
"""Terms that share a unit, at most."""
SMALLEST = 1e-280
"""A sum of shares below this has lost its digits: it may be anything from nothing to this."""


class Powers(NamedTuple):
    """The table, counted from its low end and from its high end: arguments of compiled programs."""

    weights: tuple[Any, Any]
    """Terms as shares of the largest of their run: (terms of a run, runs, entries) from either end."""
    log_top: tuple[Any, Any]
    """log of that largest one; -inf where a run has none: (runs, entries)."""
    length: Any
    """Steps from the first term to the last: (entries,)."""


class Tilt(NamedTuple):
    """The affine part of every entry's terms at the parameters at hand."""

    down: Any
    """Whether terms are counted from the high end."""
    steep: Any
    """|u|."""
    log_end: Any
    """The affine part at the end from which terms are counted."""


def powers_of(log_table: Array, skipped: Array, length: Array) -> Powers:
    """`Powers` of a table (terms, entries) whose terms begin at number `skipped` and end `length` steps later."""
    steps = np.arange(len(log_table))[:, None]
    ends = [_in_runs(log_table, steps, numbers, length) for numbers in (skipped + steps, skipped + length - steps)]
    return Powers((ends[0][0], ends[1][0]), (ends[0][1], ends[1][1]), length * 1.0)


def _in_runs(log_table: Array, steps: Array, numbers: Array, length: Array) -> tuple[Array, Array]:
    """Weights and tops, in runs, of the terms with these numbers; terms after step `length` count as absent."""
    there = (steps <= length) & (numbers >= 0) & (numbers < len(log_table))
    logs = np.where(there, np.take_along_axis(log_table, np.clip(numbers, 0, len(log_table) - 1), axis=0), -np.inf)
    run = min(RUN, len(logs))
    logs = np.pad(logs, ((0, -len(logs) % run), (0, 0)), constant_values=-np.inf)
    logs = np.swapaxes(logs.reshape(-1, run, logs.shape[1]), 0, 1)
    log_top = logs.max(axis=0)
    return np.exp(logs - np.where(np.isfinite(log_top), log_top, 0.0)), log_top


def tilted(powers: Powers, first: Any, last: Any) -> Tilt:
    """The affine part by its values at the first term and at the last; an infinite slope leaves one term."""
    slope = jnp.clip((last - first) / jnp.maximum(powers.length, 1.0), -1e8, 1e8)
    down = slope > 0.0
    return Tilt(down, jnp.abs(slope), jnp.where(down, last, first))


def _of_the_end(tilt: Tilt, pair: tuple[Any, Any]) -> Any:
    return jnp.where(tilt.down, pair[1], pair[0])


def _runs(powers: Powers, tilt: Tilt) -> tuple[Any, Any]:
    """Every run's sum, and the log of the unit of all: (runs, entries), (entries,)."""
    ratio, start = jnp.exp(-tilt.steep), RUN * jnp.arange(len(powers.log_top[0]))[:, None]
    log_unit = _of_the_end(tilt, powers.log_top) - start * tilt.steep
    top = jnp.max(log_unit, axis=0)
    top = jnp.where(jnp.isfinite(top), top, 0.0)

    def inwards(total: Any, weights: Any) -> Any:
        return _of_the_end(tilt, weights) + ratio * total, None

    shares, _ = jax.lax.scan(inwards, jnp.zeros_like(log_unit), powers.weights, reverse=True)
    return shares * jnp.exp(log_unit - top), top


def _log(total: Any, top: Any, powers: Powers, tilt: Tilt, lost: float = SMALLEST) -> Any:
    """log of a sum of shares, or of `lost` where its digits are lost; -inf where there is no term at all."""
    possible = jnp.any(powers.log_top[0] > -jnp.inf, axis=0)
    log_lost = math.log(lost) if lost else -jnp.inf
    kept = jnp.where(total > SMALLEST, jnp.log(jnp.maximum(total, SMALLEST)), log_lost)
    return jnp.where(possible, kept + top + tilt.log_end, -jnp.inf)


def log_total(powers: Powers, tilt: Tilt, lost: float = SMALLEST) -> Any:
    """log of the sum, entry by entry.

    A sum that is below 1e-280 in its unit counts as 1e-280, which is an upper bound; with `lost` 0 it counts as
    nothing, a lower one.
    """
    runs, top = _runs(powers, tilt)
    return _log(jnp.sum(runs, axis=0), top, powers, tilt, lost)


def drawn_number(powers: Powers, tilt: Tilt, uniform: Any) -> tuple[Any, Any, Any]:
    """`log_total`; the number of the term at which the sum passes `uniform` times the whole; whether digits are left.

    Counted from the end where the powers are largest.
    """
    runs, top = _runs(powers, tilt)
    ratio = jnp.exp(-tilt.steep)

    def term(power: Any, weights: Any, at_run: Any) -> tuple[Any, Any]:
        return power * ratio, power * at_run(_of_the_end(tilt, weights))

    whole, steps = passed_at(runs, uniform, jnp.ones_like(top), term, powers.weights)
    number = jnp.where(tilt.down, powers.length.astype(int) - steps, steps)
    return _log(whole, top, powers, tilt), number, whole > SMALLEST


Term = Callable[[Any, Any, Callable[[Any], Any]], tuple[Any, Any]]
"""(state, piece, what takes every entry's own run of an array) -> (state, the next term of that run)."""


def passed_at(runs: Any, uniform: Any, begin: Any, term: Term, pieces: Any) -> tuple[Any, Any]:
    """The sum of (runs, entries); and the number of the term at which it passes `uniform` times the whole, by entry.

    First the run is found, then the term in it: `term` gives them one after the other, from `begin` and the `pieces` of
    all runs. Prefixes of the sum are added up as the whole is, so the last of them is the whole to the bit.
    """
    zero = jnp.zeros_like(runs[0])

    def add(total: Any, run: Any) -> Any:
        return total + run, total + run

    whole, passed = jax.lax.scan(add, zero, runs)
    run = jnp.minimum(jnp.sum(passed <= uniform * whole, axis=0), len(runs) - 1)

    def at_run(array: Any) -> Any:
        return jnp.take_along_axis(jnp.broadcast_to(array, runs.shape), run[None], axis=0)[0]

    own = at_run(runs)
    left = (uniform * whole - (at_run(passed) - own)) / jnp.where(own > 0.0, own, 1.0)
    left = jnp.clip(left, 0.0, 1.0 - 2.0**-53)

    def outwards(state: Any, piece: Any) -> Any:
        following, one = term(state[0], piece, at_run)
        return (following, state[1] + one), state[1] + one

    (_, in_run), totals = jax.lax.scan(outwards, (begin, zero), pieces)
    place = jnp.minimum(jnp.sum(totals <= left * in_run, axis=0), len(totals) - 1)
    return whole, len(totals) * run + place


def looked_up(shares: Any, columns: Any, which: Any, uniform: Any) -> tuple[Any, Any]:
    """`passed_at` where many entries share few columns: entry e has the terms shares * columns[:, which[e]].

    Every column is added up once, and every entry's number found among its prefixes by halving. The sums are those of
    the columns.
    """
    zero = jnp.zeros(columns.shape[1])

    def add(total: Any, term: Any) -> Any:
        share, noise = term
        total = total + share * noise
        return total, total

    whole, passed = jax.lax.scan(add, zero, (shares, columns))
    passed, target = passed.ravel(), uniform * whole[which]
    place = jnp.zeros(which.shape, jnp.int32)
    for step in (2**power for power in reversed(range((len(shares) - 1).bit_length()))):
        at = jnp.minimum(place + step, len(shares)) - 1
        place = jnp.where(passed[at * len(zero) + which] <= target, place + step, place)
    return whole, place
