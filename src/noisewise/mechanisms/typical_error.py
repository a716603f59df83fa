"""How far off noise puts a value: within which size it stays, half of the time and 19 times out of 20."""

import numpy as np

from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.numerics import Array

SIMULATED = 20_000
"""Draws of noise where its size has no formula."""


def typical_error(noise: Additive, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Sizes that the noise of each entry stays within half of the time, and 95% of the time."""
    if noise.event_dim or not noise.has_intervals:
        drawn = np.abs(noise.noise_sample(np.random.default_rng(0), (SIMULATED, *shape)))
        half, most = (_levelled(sizes) for sizes in np.quantile(drawn, [0.5, 0.95], axis=0))
        return half, most
    return _within(noise, 0.5), _within(noise, 0.95)


def _levelled(sizes: Array) -> Array:
    """Simulated sizes that differ by chance alone are one size."""
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
