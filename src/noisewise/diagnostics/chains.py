"""Diagnostics of dependent draws: how many independent ones they are worth, and whether chains agree.

Draws come chain by chain along the first axis. R-hat and effective sizes follow Vehtari, Gelman, Simpson, Carpenter and
Buerkner (2021); above 16 chains, the nested R-hat of Margossian et al. (2024), which asks whether groups of
chains that share a starting point agree. Populations that were run independently of each other ("islands", as a
sequential sampler makes) are judged by how much their means differ.

The tests compare these numbers with those of ArviZ. They are computed here because ArviZ is an optional dependency
that is slow to import, and goes through the scalars one by one.
"""

import numpy as np
from scipy.special import ndtri

from noisewise.numerics import Array

MANY = 16
"""Where there are more chains than this, each of them is too short for the usual R-hat."""
LIMIT = 1.01
"""R-hat above this: the chains have not mixed."""


def by_chain(draws: Array, chains: int) -> Array:
    """(chains, length, scalars) from draws that come chain by chain."""
    return np.asarray(draws, dtype=np.float64).reshape(chains, len(draws) // chains, -1)


def rank_normalised(x: Array) -> Array:
    """Normal scores of each scalar's ranks over all chains: heavy tails and outliers cannot hide or dominate."""
    flat = x.reshape(-1, x.shape[-1])
    ranks = np.stack([average_ranks(column) for column in flat.T], axis=1) if flat.size else flat
    return ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(x.shape)


def average_ranks(values: Array) -> Array:
    """Ranks from 1 on, where equal values share their mean rank; all are NaN where a value is."""
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - 0.5 * (counts - 1.0))[group]


def halves(x: Array) -> Array:
    """Each chain cut into two: a chain that drifts disagrees with itself. A middle draw is dropped."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, x.shape[1] - half :]]) if half else x


def effective_size(x: Array) -> Array:
    """Independent draws that (chains, length, scalars) are worth for a mean, by Geyer's initial monotone sequence."""
    chains, length, _ = x.shape
    if length < 4:
        return np.full(x.shape[2], np.nan)
    centred = x - x.mean(axis=1, keepdims=True)
    padded = 1 << (2 * length - 1).bit_length()
    transform = np.fft.rfft(centred, padded, axis=1)
    covariance = np.fft.irfft(np.abs(transform) ** 2, padded, axis=1)[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1.0)
    total = within * (length - 1.0) / length
    if chains > 1:
        total = total + x.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance * length / (length - 1.0)) / total
    correlation[0] = 1.0
    pairs = correlation[: length - length % 2].reshape(-1, 2, x.shape[2]).sum(axis=1)
    positive = np.cumprod(pairs > 0.0, axis=0)
    pairs = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    time = np.maximum(-1.0 + 2.0 * pairs.sum(axis=0), 1.0 / np.log10(max(chains * length, 10)))
    return np.where(total > 0.0, chains * length / time, np.nan)


def bulk_size(x: Array) -> Array:
    """Effective size for the centre of the distribution."""
    return effective_size(rank_normalised(halves(x)))


def tail_size(x: Array) -> Array:
    """The smaller effective size of the 5% and 95% quantiles."""
    flat = x.reshape(-1, x.shape[-1])
    sizes = [effective_size(halves((x <= np.quantile(flat, level, axis=0)) * 1.0)) for level in (0.05, 0.95)]
    return np.fmin(*sizes)


def r_hat(x: Array, superchains: int | None = None) -> Array:
    """Rank-normalised R-hat, the larger of location and spread; nested where chains share starts in superchains."""
    folded = np.abs(x - np.median(x.reshape(-1, x.shape[-1]), axis=0))
    return np.fmax(*[_r_hat(rank_normalised(values), superchains) for values in (x, folded)])


def _r_hat(x: Array, superchains: int | None) -> Array:
    if superchains is None:
        x = halves(x)
        length = x.shape[1]
        if length < 2:
            return np.full(x.shape[2], np.nan)
        between = length * x.mean(axis=1).var(axis=0, ddof=1)
        within = x.var(axis=1, ddof=1).mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt((between / within + length - 1.0) / length)
    means = x.mean(axis=1).reshape(superchains, -1, x.shape[2])
    within = np.zeros(x.shape[2])
    if means.shape[1] > 1:
        within = within + means.var(axis=1, ddof=1).mean(axis=0)
    if x.shape[1] > 1:
        within = within + x.var(axis=1, ddof=1).mean(axis=0)
    between = means.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(1.0 + between / within)


def island_size(x: Array) -> Array:
    """Independent draws that (islands, size, scalars) are worth for a mean, by the spread of the islands' means."""
    islands, size, _ = x.shape
    between = x.mean(axis=1).var(axis=0, ddof=1) if islands > 1 else np.full(x.shape[2], np.nan)
    total = x.reshape(-1, x.shape[2]).var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(total > 0.0, islands * total / between, np.nan)
    return np.fmin(worth, float(islands * size))


def stuck(x: Array) -> Array:
    """Which chains never moved, in any scalar."""
    return np.all(x == x[:, :1], axis=(1, 2)) if x.shape[1] > 1 else np.zeros(len(x), bool)
