"""In which coordinates chains walk through a hierarchy: chosen from a pilot's draws, entry by entry.

A group's value x with location m and scale t that are themselves unknown is stiff beside them in one coordinate or in
another: x itself where the release tells much of the group, (x - m)/t where it tells little. Between the two lies
u = c m + (x - m)/t^(1-c), and c is chosen to make the pilot's draws of (m, log t, u) most nearly normal. Any c leaves
the law of the draws as it is. Derivation: docs/derivations/nuts.md.
"""

import numpy as np

from noisewise.numerics import Array

PARTS = np.linspace(0.0, 1.0, 9)
"""Values of c that are compared."""
LEAST = 1e-12
"""Residual variance of a coordinate, relative to its own, below which it is rounding."""


def best_centring(own: Array, loc: Array, scale: Array) -> Array:
    """c for each entry, from draws (rows, entries) of its own free coordinate, its location and its scale.

    Of all normal laws, the one with the draws' own means and covariances is nearest to the law of (m, log t, u) in
    Kullback and Leibler's sense, at a distance of log det(covariance) / 2 + (1 - c) E[log t], up to what c does not
    change. The determinant is, again up to that, the variance of u that a regression on m and log t leaves.
    """
    log_scale = np.log(scale)
    divergence = [
        0.5 * np.log(_left_over(part * loc + (own - loc) * np.exp((part - 1.0) * log_scale), loc, log_scale))
        + (1.0 - part) * log_scale.mean(axis=0)
        for part in PARTS
    ]
    return PARTS[np.argmin(divergence, axis=0)]


def _left_over(response: Array, *regressors: Array) -> Array:
    """For each entry, the variance of the response that a linear regression leaves."""
    response = response - response.mean(axis=0)
    total = np.mean(np.square(response), axis=0)
    basis: list[Array] = []
    for regressor in regressors:
        centred = regressor - regressor.mean(axis=0)
        for other in basis:
            centred = centred - other * np.mean(centred * other, axis=0)
        size = np.sqrt(np.mean(np.square(centred), axis=0))
        moves = size > np.sqrt(LEAST) * (np.abs(regressor).mean(axis=0) + 1e-300)
        basis.append(np.where(moves, centred / np.where(moves, size, 1.0), 0.0))
    for other in basis:
        response = response - other * np.mean(response * other, axis=0)
    return np.maximum(np.mean(np.square(response), axis=0), LEAST * total + 1e-300)
