"""Log-weights: the only place where weights are normalised, summarised or resampled."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def normalised(log_weights: Array) -> Array:
    """Weights that sum to one, computed without overflow; NaN where all are zero."""
    if not np.any(log_weights > -np.inf):
        return np.full(len(log_weights), np.nan)
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / weights.sum()


def log_mean(log_weights: Array) -> float:
    """log of the average weight."""
    top = np.max(log_weights, initial=-np.inf)
    if not np.isfinite(top):
        return float(top)
    return float(top + np.log(np.mean(np.exp(log_weights - top))))


def log_mean_se(log_weights: Array) -> float:
    """Standard error of `log_mean`, by the delta method: sd(w) / (mean(w) sqrt(N))."""
    size = len(log_weights)
    if size < 2 or not np.any(log_weights > -np.inf):
        return float("inf")
    relative = normalised(log_weights) * size
    return float(np.std(relative, ddof=1) / np.sqrt(size))


def effective_size(log_weights: Array) -> float:
    """Kish's effective sample size, (sum w)^2 / sum w^2; 0 where all weights are zero."""
    if not np.any(log_weights > -np.inf):
        return 0.0
    return float(1.0 / np.sum(normalised(log_weights) ** 2))


def mean_and_sd(values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation over the first axis."""
    if len(values) == 0:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    if weights is None:
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
        return values.mean(axis=0), spread
    mean = np.tensordot(weights, values, axes=1)
    return mean, np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1))


def standard_error(values: Array, weights: Array | None) -> Array:
    """Monte Carlo standard error of the (weighted) mean of independent draws.

    Self-normalised weights: the delta method's sqrt(sum w_i^2 (x_i - mean)^2).
    """
    mean, spread = mean_and_sd(values, weights)
    if weights is None:
        return spread / np.sqrt(max(len(values), 1))
    return np.sqrt(np.tensordot(weights**2, (values - mean) ** 2, axes=1))


def quantiles(values: Array, weights: Array | None, levels: list[float]) -> Array:
    """Quantiles over the first axis; shape (levels, *rest). Weighted: the inverse of the weighted CDF."""
    if weights is None:
        return np.quantile(values, levels, axis=0)
    flat = values.reshape(len(values), -1)
    result = np.empty((len(levels), flat.shape[1]))
    for column in range(flat.shape[1]):
        order = np.argsort(flat[:, column], kind="stable")
        cumulative = np.cumsum(weights[order])
        index = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1])
        result[:, column] = flat[order[np.minimum(index, len(order) - 1)], column]
    return result.reshape((len(levels), *values.shape[1:]))


def systematic(rng: np.random.Generator, log_weights: Array, size: int) -> Array:
    """Indices of a systematic resample, in random order: unbiased counts, low variance."""
    points = (rng.random() + np.arange(size)) / size
    index = np.searchsorted(np.cumsum(normalised(log_weights)), points)
    return rng.permutation(np.minimum(index, len(log_weights) - 1))
