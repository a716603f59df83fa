"""Where chains start: at likely points far from each other, so that chains which agree have come from different places.

R-hat compares chains. If all of them began on one of two hills, it would see nothing.
"""

import numpy as np

from noisewise.diagnostics import weights
from noisewise.numerics import Array


def spread_out(points: Array, log_weights: Array, count: int) -> Array:
    """Indices of `count` points: the likeliest, then again and again the one farthest from those before it.

    Only heavy points compete. Weights are raised to the largest power, up to 1, that leaves 2 `count` effective points,
    and the heaviest points with 95% of this weight are taken. Distances are in units of their spread. Points are
    repeated where there are too few.
    """
    possible = np.flatnonzero(log_weights > -np.inf)
    log_weights = log_weights[possible]
    power = weights.flattening(log_weights, min(2.0 * count, 0.5 * len(possible)))
    heaviest = np.argsort(-log_weights, kind="stable")
    shares = np.cumsum(weights.normalised(power * log_weights)[heaviest])
    pool = possible[heaviest[: max(1, int(np.searchsorted(shares, 0.95)) + 1)]]
    scaled = points[pool] - points[pool].mean(axis=0)
    spread = np.sqrt(np.mean(np.square(scaled), axis=0))
    scaled /= np.where(spread > 0.0, spread, 1.0)
    chosen = [0]
    for _ in range(count - 1):
        nearest = np.min([np.square(scaled - scaled[other]).sum(axis=1) for other in chosen], axis=0)
        chosen.append(int(np.argmax(nearest)) if nearest.max() > 0.0 else len(chosen) % len(pool))
    return pool[chosen]
