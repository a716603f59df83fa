"""The units in which a climb reckons, so that a fit does not depend on those of data and parameters.

Derivation: docs/derivations/likelihood.md, "Units".
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from noisewise.model import Model
from noisewise.numerics import Array

LOOKED_AT = 64
"""Draws of the prior by which its place and spread are known, roughly."""
VAGUE = 10.0
"""A prior of a positive parameter whose quartiles are further apart, in logs, does not say what its unit is."""


def quartiles(model: Model, name: str) -> Array:
    """Draws of a parameter's prior at its quartiles, entry by entry: (3, *shape). The same for every seed."""
    drawn = model.draw(np.random.default_rng(0), [name], LOOKED_AT)[name]
    return np.sort(drawn, axis=0)[[LOOKED_AT // 4, LOOKED_AT // 2, 3 * LOOKED_AT // 4]]


def is_exponential(transform: Any, shape: tuple[int, ...]) -> bool:
    """Whether a chart is that of a half line, an end plus or minus exp(u): equal steps of u stretch it alike."""
    zero, one, two = (np.asarray(transform(jnp.full(shape, u))) for u in (0.0, 1.0, 2.0))
    return zero.shape == shape and bool(np.allclose(two - one, math.e * (one - zero), rtol=1e-9, atol=0.0))


def half_line_start(transform: Any, at: Array) -> Array:
    """Where the coordinates of half lines begin: at the prior's median, so that they do not change with the unit."""
    logs = np.asarray(transform.inv(jnp.asarray(at)))
    known = np.isfinite(logs).all(axis=0) & (np.abs(logs[2] - logs[0]) < VAGUE)
    return np.where(known, logs[1], 0.0)


def quartile_spread(at: Array) -> Array:
    """Half the distance between the prior's quartiles; one where that is zero or not finite."""
    width = 0.5 * (at[2] - at[0])
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)


def unit_free(matrix: Array, otherwise: Array | float = 1.0) -> tuple[Array, Array]:
    """A symmetric matrix scaled to have 1 or -1 on its diagonal, and the scales: one per coordinate.

    Rows and columns are both divided by the scales. `otherwise` are the scales where the diagonal is zero.
    """
    diagonal = np.abs(np.diag(matrix))
    scale = np.where(diagonal > 0, np.sqrt(diagonal), otherwise)
    return matrix / np.outer(scale, scale), scale
