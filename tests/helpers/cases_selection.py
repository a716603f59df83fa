"""Cases of private selection: exponential mechanism, noisy max, permute-and-flip, top lists, quantiles."""

from itertools import pairwise, permutations

import numpy as np
from mechanism_case import Case

from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip, ReportNoisyMax
from noisewise.mechanisms.quantile import PrivateQuantile
from noisewise.mechanisms.top_selection import TopSelection

SCORES = np.array([0.0, 1.5, -2.0, 1.0])


def scattered(rng, size):
    """Scores near and far apart, equal ones, and one that rules a candidate out."""
    rows = rng.standard_normal((size, 4)) * np.exp(rng.uniform(-5, 8, (size, 1)))
    rows[0], rows[1], rows[2] = 0.0, [1e300, 0.0, 0.0, -1e300], [0.0, -np.inf, 1.0, 1.0]
    return rows


def raised(released):
    return np.where(np.arange(4) == released, 0.0, -50.0)


def selecting(name, make, scale=1.5, off=1.53):
    return Case(
        name, make(scale), SCORES, scattered, attains=raised, points=np.arange(4), wrong=make(off), draws=400_000
    )


def spread(released):
    return np.select([np.arange(4) == released[0], np.arange(4) == released[1]], [0.0, -50.0], -100.0)


RECORDS = np.array([2.5, -3.0, 0.5, 0.5, 4.0])
EDGES = (-1.0, 0.5, 2.5, 3.0)  # after clamping to [-1, 3]


def squeezed(released):
    """One record just below the release, four just above: the rank next to 0.3 * 5."""
    return np.array([np.nextafter(released, -np.inf), *[np.nextafter(released, np.inf)] * 4])


CASES = [
    selecting("exponential-mechanism", lambda scale: ExponentialMechanism(scale=scale)),
    selecting("noisy-max-laplace", lambda scale: ReportNoisyMax(scale=scale)),
    selecting("noisy-max-gumbel", lambda scale: ReportNoisyMax(scale=scale, noise="gumbel")),
    selecting("noisy-max-exponential", lambda scale: ReportNoisyMax(scale=scale, noise="exponential")),
    selecting("permute-and-flip", lambda scale: PermuteAndFlip(scale=scale)),
    Case(
        "top-selection",
        TopSelection(PermuteAndFlip(epsilon=1.5, sensitivity=1.0), top=2),
        SCORES,
        scattered,
        attains=spread,
        points=np.array(list(permutations(range(4), 2))),
        wrong=TopSelection(PermuteAndFlip(epsilon=1.55, sensitivity=1.0), top=2),
    ),
    Case(
        "private-quantile",
        PrivateQuantile(0.3, -1.0, 3.0, 5, scale=2.0),
        RECORDS,
        lambda rng, size: np.concatenate([rng.normal(1.0, 2.0, (size - 2, 5)), [[1e300] * 5], [[0.5] * 5]]),
        attains=squeezed,
        pieces=tuple(pairwise(EDGES)),
        wrong=PrivateQuantile(0.3, -1.0, 3.0, 5, scale=2.3),
    ),
]
