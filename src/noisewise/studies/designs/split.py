"""The best split of a budget over statistics: searched for on some releases, and judged on others.

docs/derivations/design.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisewise.numerics import Array

SMALLEST = 0.01
"""The smallest share that is considered: a split with a share near it lies at the edge of the search."""
STEP = 0.2
"""Step in a log share, in the central differences that tell whether the target is stationary."""
TELLING = 3.0
"""Standard errors by which the best split must differ from lopsided ones, and the best candidate from another."""
STANDING = 4.0
"""Standard errors within which a derivative counts as zero."""
EVALUATIONS = 40
"""Most evaluations of the target in a search, for each statistic but one."""
FLAT = 1e-3
"""Relative change of the target that counts as zero where there is no Monte Carlo error."""


@dataclass(frozen=True)
class Split:
    """How good a split is, measured on releases that the search has not seen."""

    value: float
    error: float
    equal: float
    gain: float
    gain_error: float
    gradient: list[tuple[float, float]]
    tells: bool
    status: str


def searched(batch_means: Callable[[Array], Array], size: int, sign: float) -> Array:
    """The shares at which the average of `batch_means` is least (`sign` 1) or largest (-1)."""
    if size == 1:
        return np.ones(1)

    def shares_of(free: Array) -> Array:
        u = np.append(free, 0.0)
        shares = np.exp(u - u.max())
        shares = shares / shares.sum()
        return np.asarray(SMALLEST + (1.0 - size * SMALLEST) * shares)

    def objective(free: Array) -> float:
        return sign * float(np.mean(batch_means(shares_of(free))))

    from scipy.optimize import minimize  # slow to import

    options = {"maxfev": EVALUATIONS * (size - 1), "xatol": 1e-4, "fatol": 1e-12, "initial_simplex": _simplex(size)}
    return shares_of(minimize(objective, np.zeros(size - 1), method="Nelder-Mead", options=options).x)


def judged(measure: Callable[[Array], Array], shares: Array, sign: float) -> Split:
    """How good a split is, and how sure that is.

    `measure` gives averages by batch on releases that the search has not seen: on the search's own releases, the best
    split looks better than it is.
    """
    size = len(shares)
    best = measure(shares)
    if size == 1:
        value = float(np.mean(best))
        return Split(value, error_of(best), value, 0.0, 0.0, [(0.0, 0.0)], True, "complete")
    even = measure(np.full(size, 1.0 / size))
    lopsided = [sign * (measure(_towards(place, size)) - best) for place in range(size)]
    gradient = [_derivative(measure, shares, place) for place in range(size)]
    scale = abs(float(np.mean(best)))
    edge = bool(np.any(shares < 2.0 * SMALLEST))
    # the slope at the place that was found has the error of the search too, which is as large as that of `measure`
    still = all(abs(slope) <= STANDING * math.sqrt(2.0) * error + FLAT * scale for slope, error in gradient)
    return Split(
        value=float(np.mean(best)),
        error=error_of(best),
        equal=float(np.mean(even)),
        gain=sign * float(np.mean(even - best)),
        gain_error=error_of(even - best),
        gradient=gradient,
        tells=any(bool(np.mean(more) > TELLING * error_of(more) + FLAT * scale) for more in lopsided),
        status="edge" if edge else "complete" if still else "noisy",
    )


def _simplex(size: int) -> Array:
    """Where the search begins: the equal split, and splits with one share some three times as large as the others."""
    return np.vstack([np.zeros(size - 1), np.eye(size - 1)])


def _towards(place: int, size: int) -> Array:
    """A split that gives nine tenths to one statistic."""
    shares = np.full(size, 0.1 / (size - 1))
    shares[place] = 0.9
    return shares


def _derivative(batch_means: Callable[[Array], Array], shares: Array, place: int) -> tuple[float, float]:
    """How the average changes with the logarithm of one share, the others in proportion; and its standard error."""
    moved = []
    for step in (STEP, -STEP):
        changed = shares.copy()
        changed[place] *= math.exp(step)
        moved.append(batch_means(changed / changed.sum()))
    slopes = (moved[0] - moved[1]) / (2.0 * STEP)
    return float(np.mean(slopes)), error_of(slopes)


def error_of(values: Array) -> float:
    """The standard error of an average of batches; 0 of a single number, which a closed form gave."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
