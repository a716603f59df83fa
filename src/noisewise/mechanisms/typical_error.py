"""The typical sizes of noise: the median and the 95% quantile of its absolute value."""

import numpy as np

from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.numerics import Array

SIMULATED = 20_000
"""Draws of noise where its quantiles must be simulated."""


def typical_error(noise: Additive, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The median and the 95% quantile of |noise|, entry by entry."""
    if noise.event_dim or not noise.has_intervals:
        drawn = np.abs(noise.noise_sample(np.random.default_rng(0), (SIMULATED, *shape)))
        half, most = (_levelled(sizes) for sizes in np.quantile(drawn, [0.5, 0.95], axis=0))
        return half, most
    return _within(noise, 0.5), _within(noise, 0.95)


def _levelled(sizes: Array) -> Array:
    """Simulated sizes; where all are within 5% of their mean, as by chance alone, that mean for all."""
    middle = np.mean(sizes)
    return np.full_like(sizes, middle) if np.all(np.abs(sizes - middle) < 0.05 * middle) else sizes


def _within(noise: Additive, share: float) -> Array:
    """The least m with P(|noise| <= m) >= share, by bisection, entry by entry."""
    lattice = isinstance(noise, Lattice)

    def reached(m: Array) -> Array:
        k = np.floor(m)
        low, high = (-k, k + 1.0) if lattice else (-m, m)
        return np.exp(np.asarray(noise.log_interval(low, high, 0.0))) >= share

    shapes = np.broadcast_shapes(*(np.shape(getattr(noise, name)) for name in noise.fields))
    low, high = np.zeros(shapes), np.ones(shapes)
    while not np.all(reached(high)) and np.max(high) < 1e300:
        high = np.where(reached(high), high, 2.0 * high)
    for _ in range(80):
        middle = 0.5 * (low + high)
        inside = reached(middle)
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    return np.floor(high + 1e-6) if lattice else high
