"""Poisson variates in 64 bits for accelerators: tables for rates below 1,024, rejection above.

A rate is cut into a multiple of 32, a whole number below 32 and a rest below 1. Independent Poisson variates of the
three add up to one of the rate. The first two come from alias tables, the last by inversion: no lane waits for another,
as it would in a loop that ends with the last of millions. Proof and errors: docs/derivations/variates.md.
"""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax, random

from noisewise.numerics import Array

Key = Any

UNIT = 32
"""Rates of the first table are its multiples, those of the second the whole numbers below it."""
TABLED = UNIT * UNIT
"""Rates from here on are drawn by rejection."""
MOST_RATE = 1e15
"""Rates beyond this lose whole numbers to rounding."""
FINE_CELLS, COARSE_CELLS = 256, 1024
"""Values that a table has room for, a power of two; what lies beyond has a probability below 2^-64."""
STEPS = 18
"""A Poisson variate of a rate below 1 exceeds this with probability 3e-18, below the last bit of a uniform."""


class AliasTables(NamedTuple):
    """Alias tables, all of the same number of cells, one after the other.

    A cell gives `lowest` + cell where the lower bits of a random word are below `cut`, else `lowest` + `other`.
    """

    lowest: Array
    cut: Array
    other: Array


@cache
def alias_tables(step: int, cells: int) -> AliasTables:
    """Alias tables of `UNIT` Poisson laws, of rates 0, step, 2 step, ..."""
    rates = step * np.arange(UNIT)
    lowest = np.maximum(0, rates - 12.0 * np.sqrt(rates)).astype(np.int64)
    tables = [_alias(_shares(int(rate), int(low), cells)) for rate, low in zip(rates, lowest, strict=True)]
    cut, other = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return AliasTables(lowest, cut, other)


def _shares(rate: int, low: int, cells: int) -> list[int]:
    """Poisson probabilities of `cells` values from `low` on, in whole 2^-64ths, by ratios to the one at `rate`."""
    weights = {rate: 2**200}
    for k in range(rate + 1, low + cells):
        weights[k] = weights[k - 1] * rate // k
    for k in range(rate, low, -1):
        weights[k - 1] = weights[k] * k // rate
    total = sum(weights.values())
    shares = [(weights[k] << 64) // total for k in range(low, low + cells)]
    shares[rate - low] += 2**64 - sum(shares)
    return shares


def _alias(shares: list[int]) -> tuple[Array, Array]:
    """Walker's table by Vose's method, in whole numbers: its probabilities add up without rounding."""
    room = 2**64 // len(shares)
    cut, other = [room] * len(shares), list(range(len(shares)))
    short = [cell for cell, share in enumerate(shares) if share < room]
    long = [cell for cell, share in enumerate(shares) if share >= room]
    while short:
        cell, giver = short.pop(), long[-1]
        cut[cell], other[cell] = shares[cell], giver
        shares[giver] -= room - shares[cell]
        if shares[giver] < room:
            short.append(long.pop())
    return np.array(cut, np.uint64), np.array(other, np.int32)


def poisson(key: Key, rate: Any, shape: tuple[int, ...]) -> Any:
    """Poisson variates in the precision of `rate`.

    `jax.random.poisson` always computes in 32 bits, where the acceptance test is off by a percent at rates of 10^4.
    """
    rate = jnp.broadcast_to(rate, shape)
    if rate.dtype != jnp.float64:
        return random.poisson(key, rate, shape)
    first, second, third, above = random.split(key, 4)
    tabled = rate < TABLED
    whole = jnp.where(tabled, jnp.floor(rate), 0.0)
    number = whole.astype(jnp.int32)
    coarse = _from_tables(first, alias_tables(UNIT, COARSE_CELLS), COARSE_CELLS, number // UNIT)
    fine = _from_tables(second, alias_tables(1, FINE_CELLS), FINE_CELLS, number % UNIT)
    rest = _by_inversion(third, jnp.where(tabled, rate - whole, 0.0))
    large = _by_rejection(above, rate, (rate >= TABLED) & (rate < MOST_RATE))
    return jnp.where(tabled, coarse + fine + rest, large.astype(jnp.int64))


def _from_tables(key: Key, tables: AliasTables, cells: int, table: Any) -> Any:
    """A random word's upper bits choose a cell of the table, its lower ones between the cell's two values."""
    lower = 64 - (cells.bit_length() - 1)
    word = random.bits(key, table.shape, jnp.uint64)
    cell = (word >> lower).astype(jnp.int32)
    place = table * cells + cell
    own = (word & np.uint64(2**lower - 1)) < jnp.asarray(tables.cut)[place]
    return jnp.asarray(tables.lowest)[table] + jnp.where(own, cell, jnp.asarray(tables.other)[place])


def _by_inversion(key: Key, rate: Any) -> Any:
    """Rates below 1: the number of cumulative probabilities at or below a uniform."""
    u = random.uniform(key, rate.shape, rate.dtype)
    probability = reached = jnp.exp(-rate)
    drawn = jnp.zeros(rate.shape, jnp.int64)
    for k in range(1, STEPS + 1):
        drawn = drawn + (u >= reached)
        probability = probability * rate * (1.0 / k)
        reached = reached + probability
    return drawn


def _by_rejection(key: Key, rate: Any, wanted: Any) -> Any:
    """Hoermann's transformed rejection (1993), which needs rates of 10 and more, for lanes that are `wanted`."""
    rate = jnp.where(wanted, rate, TABLED)
    log_rate = jnp.log(rate)
    b = 0.931 + 2.53 * jnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    surely = 0.9277 - 3.6224 / (b - 2.0)

    def step(state: Any) -> Any:
        key, drawn, done = state
        key, first, second = random.split(key, 3)
        u = random.uniform(first, rate.shape, rate.dtype) - 0.5
        v = random.uniform(second, rate.shape, rate.dtype)
        edge = 0.5 - jnp.abs(u)
        k = jnp.floor((2.0 * a / edge + b) * u + rate + 0.43)
        inside = (edge >= 0.07) & (v <= surely)
        outside = (k < 0.0) | ((edge < 0.013) & (v > edge))
        log_v = jnp.log(v * inverse_alpha / (a / (edge * edge) + b))
        fits = log_v <= k * log_rate - rate - lax.lgamma(jnp.maximum(k, 0.0) + 1.0)
        accepted = ~done & (inside | (~outside & fits))
        return key, jnp.where(accepted, k, drawn), done | accepted

    return lax.while_loop(lambda s: ~jnp.all(s[2]), step, (key, jnp.zeros_like(rate), ~wanted))[1]
