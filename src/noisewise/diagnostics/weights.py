"""Log-weights: the only place where weights are normalised, summarised, judged or resampled.

The tests compare k-hat with that of ArviZ. It is computed here because tied weights, which are common in ours, need a
tail of their own (`pareto_k`), and because ArviZ is an optional dependency that is slow to import.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from noisewise.numerics import Array

CHUNK = 2**16
"""Weights handled at a time, so that sums over very many need no second copy of them."""
LARGEST_K = 0.7
"""Pareto k-hat above which averages of weighted draws are not to be trusted (Vehtari et al. 2024)."""
LARGEST_SHARE = 0.01
"""Share of the sum that the largest possible weight may have where no tail is left to extrapolate."""
TIED = 1e-9
"""Log weights nearer than this are the same number, but for rounding."""
FEWEST = 5
"""Fewest weights above the cut to which a tail can be fitted."""


def normalised(log_weights: Array) -> Array:
    """Weights that sum to one, computed without overflow; NaN where all are zero."""
    if not np.any(log_weights > -np.inf):
        return np.full(len(log_weights), np.nan)
    weights = relative(log_weights)
    return weights / weights.sum()


def relative(log_weights: Array) -> Array:
    """Weights in units of the largest, one of which must be positive."""
    return np.exp(log_weights - np.max(log_weights))


def sums(log_weights: Array) -> tuple[float, float, float]:
    """(log of the largest weight, sum of w, sum of w^2), sums in units of the largest; 0 where all weights are 0."""
    top = float(np.max(log_weights, initial=-np.inf))
    if not np.isfinite(top):
        return top, 0.0, 0.0
    total = squares = 0.0
    for start in range(0, len(log_weights), CHUNK):
        weights = np.exp(log_weights[start : start + CHUNK] - top)
        total += float(weights.sum())
        squares += float(np.square(weights, out=weights).sum())  # BLAS would start threads of its own
    return top, total, squares


def log_mean(log_weights: Array) -> float:
    """log of the average weight."""
    top, total, _ = sums(log_weights)
    return top + math.log(total / len(log_weights)) if total else top


def log_mean_se(log_weights: Array) -> float:
    """Standard error of `log_mean`, by the delta method: sd(w) / (mean(w) sqrt(N))."""
    size = len(log_weights)
    _, total, squares = sums(log_weights)
    if size < 2 or not total:
        return float("inf")
    # Relative to the mean: (1/(N-1)) (N^2 sum w^2 / (sum w)^2 - N), divided by N.
    return math.sqrt(max(size * squares / total**2 - 1.0, 0.0) / (size - 1))


def effective_size(log_weights: Array) -> float:
    """Kish's effective sample size, (sum w)^2 / sum w^2; 0 where all weights are zero."""
    _, total, squares = sums(log_weights)
    return total**2 / squares if total else 0.0


# Weights to a power -------------------------------------------------------------------------------------------------


def flattened(log_weights: Array, power: float) -> Array:
    """The log weights of weights to a power; weights of zero stay zero."""
    return np.where(log_weights > -np.inf, power * log_weights, -np.inf)


def flattening(log_weights: Array, least: float) -> float:
    """The largest power up to 1 whose flattened weights have an effective size of `least`, by bisection."""
    if effective_size(log_weights) >= least:
        return 1.0
    positive = log_weights[log_weights > -np.inf]
    return largest_power(lambda power: effective_size(power * positive) >= least, 0.0, 1.0, halvings=40)


def largest_power(enough: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """The largest power at which `enough` holds, by bisection: it holds at `low`, and not at `high`."""
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def draw_flattened(rng: np.random.Generator, log_weights: Array, size: int, least: float) -> Array:
    """Indices drawn by finite weights to a power: the first of 1, 0.7, 0.49, ... with an effective size of `least`."""
    power = 1.0
    while power > 1e-12 and effective_size(power * log_weights) < least:
        power *= 0.7
    return rng.choice(len(log_weights), size, p=normalised(power * log_weights))


# The tail of the weights ------------------------------------------------------------------------------------


def pareto_k(log_weights: Array) -> float:
    """Shape of the generalised Pareto law fitted to the largest weights: k-hat of Vehtari et al. (2024).

    The tail holds the min(N/5, 3 sqrt(N)) largest weights. Weights that tie with the cut are no tail: where fewer than
    five lie above it, the cut moves down to the next smaller weight that leaves five. Equal weights have no tail: -inf.
    Infinite where there are too few weights to tell.
    """
    size = len(log_weights)
    tail_size = math.ceil(min(0.2 * size, 3.0 * math.sqrt(size)))
    if tail_size < FEWEST:
        return float("inf")
    largest = _largest(log_weights, tail_size + 1)  # ascending
    tail = _above_cut(largest)
    if tail is None:  # ties reach below these: look at all
        tail = _above_cut(np.sort(log_weights), tail_size)
    if tail is None:
        return float("-inf") if np.max(log_weights) - TIED <= np.min(log_weights) else float("inf")
    return fit_pareto(tail)


def _above_cut(ordered: Array, tail_size: int | None = None) -> Array | None:
    """Excesses over the cut, ascending, relative to the largest weight; None where the cut cannot move down far enough.

    `ordered` is ascending; the cut is its first entry, or the one below the `tail_size` largest.
    """
    cut = 0 if tail_size is None else len(ordered) - tail_size - 1
    above = int(np.searchsorted(ordered, ordered[cut] + TIED, side="right"))
    if len(ordered) - above < FEWEST:
        at = len(ordered) - FEWEST
        if ordered[at] - TIED <= ordered[0]:
            return None
        below = int(np.searchsorted(ordered, ordered[at] - TIED, side="left"))
        cut, above = below - 1, below
    weights = np.exp(ordered[above:] - ordered[-1])
    return weights - np.exp(ordered[cut] - ordered[-1])


def _largest(log_weights: Array, count: int) -> Array:
    """The `count` largest, ascending. Of very many, only those above a strided sample's quantile are sorted."""
    chosen = log_weights
    stride = len(log_weights) // CHUNK
    if stride > 1:
        sample = log_weights[::stride]
        position = len(sample) - 1 - min(len(sample) - 1, math.ceil(1.5 * count * len(sample) / len(log_weights)) + 64)
        low = np.partition(sample, position)[position]
        chosen = log_weights[log_weights >= low]
        if len(chosen) < count:
            chosen = log_weights
    return np.sort(np.partition(chosen, len(chosen) - count)[len(chosen) - count :])


def fit_pareto(excess: Array) -> float:
    """Shape k of a generalised Pareto law for ascending excesses over 0 (Zhang and Stephens 2009).

    The empirical Bayes estimate, with the weak prior of Vehtari et al. (2024): k is drawn towards 1/2 as by ten draws.
    """
    size = len(excess)
    if excess[int(size / 4 + 0.5) - 1] <= 0.0:  # a quarter or more are lost beside the largest: no tail is heavier
        return math.inf
    points = 30 + int(math.sqrt(size))
    grid = 1.0 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    grid = grid / (3.0 * excess[int(size / 4 + 0.5) - 1]) + 1.0 / excess[-1]
    grid[np.abs(grid) < 1e-12 / excess[-1]] = 1e-12 / excess[-1]  # at 0, grid and shape vanish; their ratio does not
    shape = np.log1p(-grid[:, None] * excess).mean(axis=1)
    log_likelihood = size * (np.log(-(grid / shape)) - shape - 1.0)
    weight = np.exp(log_likelihood - log_likelihood.max())
    weight /= weight.sum()
    keep = weight >= 10.0 * np.finfo(float).eps
    rate = float(np.sum(grid[keep] * weight[keep]) / np.sum(weight[keep]))
    k = float(np.log1p(-rate * excess).mean())
    return (size * k + 5.0) / (size + 10.0)


def judge_weights(log_weights: Array, min_ess: float, log_bound: float = math.inf) -> tuple[str, str, dict[str, float]]:
    """(status, message, diagnostics) of weighted draws: no weight, worth too few, dominated by a few, or complete.

    `log_bound` bounds every log weight there could be. Where one as large would be at most `LARGEST_SHARE` of the sum,
    no tail is left to extrapolate, and k-hat, which a few tied weights can deceive, decides nothing.
    """
    size = effective_size(log_weights)
    k = pareto_k(log_weights) if size else float("inf")
    share = math.exp(min(0.0, log_bound - log_mean(log_weights) - math.log(len(log_weights)))) if size else 1.0
    numbers = {"ess": size, "pareto_k": k, "largest_share": share}
    if size == 0.0:
        message = (
            f"all {len(log_weights)} weights are zero: no draw of the proposal could have given the release. Check "
            "the model's support against the released values (a negative count, say, has no naive analysis), or "
            "ask for more draws."
        )
        return "no_weight", message, numbers
    if size < min_ess:
        message = (
            f"the {len(log_weights)} weighted draws are worth {size:.0f} independent ones, fewer than "
            f"min_ess={min_ess:g}. Ask for more draws, or use a sampler that adapts to the release."
        )
        return "low_ess", message, numbers
    if k > LARGEST_K and share > LARGEST_SHARE:
        message = (
            f"a few of the {len(log_weights)} weights dominate: Pareto k-hat {k:.2f} is above {LARGEST_K}, so averages "
            "and their errors cannot be trusted. Ask for more draws, let the proposal adapt, or use another sampler."
        )
        return "high_k", message, numbers
    return "complete", "", numbers


# Weighted draws -------------------------------------------------------------------------------------------------


def mean_and_sd(values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation over the first axis."""
    if len(values) == 0:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    if weights is None:
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
        return values.mean(axis=0), spread
    values, weights = _with_weight(values, weights)
    mean = np.tensordot(weights, values, axes=1)
    return mean, np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1))


def _with_weight(values: Array, weights: Array) -> tuple[Array, Array]:
    """Without values that have no weight, where some are infinite: zero times infinity is not a number."""
    if np.isfinite(values.sum()):
        return values, weights
    return values[weights > 0.0], weights[weights > 0.0]


def standard_error(values: Array, weights: Array | None) -> Array:
    """Monte Carlo standard error of the (weighted) mean of independent draws.

    Self-normalised weights: the delta method's sqrt(sum w_i^2 (x_i - mean)^2).
    """
    mean, spread = mean_and_sd(values, weights)
    if weights is None:
        return spread / np.sqrt(max(len(values), 1))
    values, weights = _with_weight(values, weights)
    return np.sqrt(np.tensordot(weights**2, (values - mean) ** 2, axes=1))


def effective_for_means(columns: Iterable[Array], log_weights: Array) -> float:
    """Independent draws that weighted ones are worth for the mean of the worst scalar: variance over squared error.

    Unlike Kish's number it sees where the weights lie: large weights in a tail cost a mean more than their share.
    """
    if not np.any(log_weights > -np.inf):
        return 0.0
    weights, least = normalised(log_weights), np.inf
    for values in columns:
        _, spread = mean_and_sd(values.astype(float), weights)
        error = standard_error(values.astype(float), weights)
        worth = np.where(error > 0.0, spread / np.where(error > 0.0, error, 1.0), np.inf) ** 2
        least = min(least, float(np.min(worth, initial=np.inf)))
    return min(least, float(len(log_weights)))


def quantiles(values: Array, weights: Array | None, levels: list[float]) -> Array:
    """Quantiles over the first axis, shape (levels, *rest). Weighted: the inverse of the weighted CDF."""
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
