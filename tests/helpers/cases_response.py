"""Cases of randomised response: records, counts, unary encoding."""

from itertools import product

import numpy as np
from mechanism_case import Case

from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.unary_encoding import UnaryEncoding

WIDE = [[0.5, 0.2, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1], [0.0, 0.3, 0.3, 0.4]]
UNEVEN = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]


def tables(n, k):
    """All vectors of k counts that sum to n."""
    if k == 1:
        return np.array([[n]])
    parts = [np.insert(tables(n - first, k - 1), 0, first, axis=1) for first in range(n + 1)]
    return np.concatenate(parts)


def some_tables(n, k):
    """Random tables, and two that are none."""

    def search(rng, size):
        rows = tables(n, k)
        none = np.array([[-1, n + 1, *[0] * (k - 2)], [1] * k])
        return np.concatenate([none, rows[rng.integers(0, len(rows), size - 2)]])

    return search


def best(mechanism, candidates):
    """The candidate with the largest density."""
    return lambda released: candidates[np.argmax(mechanism.log_prob(released, candidates))]


COUNTS = RandomizedResponse([[0.8, 0.2], [0.3, 0.7]], on="counts", n=12)
UNARY = UnaryEncoding(3, keep=0.7, add=0.2)

CASES = [
    Case(
        "randomised-response-bit",
        RandomizedResponse(keep=0.75),
        1,
        lambda rng, size: rng.integers(-1, 3, size),
        attains=lambda released: released,
        points=np.arange(2),
        wrong=RandomizedResponse(keep=0.74),
    ),
    Case(
        "randomised-response-channel",
        RandomizedResponse(WIDE),
        np.array([2, 0]),
        lambda rng, size: rng.integers(-1, 4, (size, 2)),
        attains=lambda released: np.argmax(np.array(WIDE)[:, released], axis=0),
        points=np.array(list(product(range(4), repeat=2))),
        wrong=RandomizedResponse([[0.49, 0.21, 0.2, 0.1], WIDE[1], WIDE[2]]),
    ),
    Case(
        "randomised-response-counts-binary",
        COUNTS,
        np.array([5, 7]),
        some_tables(12, 2),
        attains=best(COUNTS, tables(12, 2)),
        points=tables(12, 2),
        wrong=RandomizedResponse([[0.8, 0.2], [0.31, 0.69]], on="counts", n=12),
    ),
    Case(
        "randomised-response-counts-k-ary",
        RandomizedResponse(epsilon=1.2, categories=3, on="counts", n=7),
        np.array([4, 1, 2]),
        some_tables(7, 3),
        points=tables(7, 3),
        wrong=RandomizedResponse(epsilon=1.25, categories=3, on="counts", n=7),
    ),
    Case(
        "randomised-response-counts-channel",
        RandomizedResponse(UNEVEN, on="counts", n=6),
        np.array([1, 3, 2]),
        some_tables(6, 3),
        points=tables(6, 3),
        wrong=RandomizedResponse([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.24, 0.26, 0.5]], on="counts", n=6),
    ),
    Case(
        "unary-encoding",
        UNARY,
        1,
        lambda rng, size: rng.integers(-1, 4, size),
        attains=best(UNARY, np.arange(3)),
        points=np.array(list(product(range(2), repeat=3))),
        wrong=UnaryEncoding(3, keep=0.7, add=0.21),
    ),
]
