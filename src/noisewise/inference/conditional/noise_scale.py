"""How wide a mechanism's noise is, roughly: where panels and windows of an integral begin."""

from typing import Any

import numpy as np

from noisewise.mechanisms.additive import Additive
from noisewise.numerics import Array


def noise_scale(mechanism: Any, otherwise: Any) -> Array:
    """Its scale, or that of the mechanism it changes, or the median size of its noise; else `otherwise`."""
    while not hasattr(mechanism, "scale") and hasattr(mechanism, "base"):
        mechanism = mechanism.base
    if hasattr(mechanism, "scale"):
        return np.asarray(mechanism.scale, dtype=np.float64)
    if isinstance(mechanism, Additive):
        noise = mechanism.noise_sample(np.random.default_rng(0), (64, *np.shape(otherwise)))
        return np.maximum(np.median(np.abs(noise), axis=0), 1e-300)
    return np.asarray(otherwise)
