"""The gamma and beta functions in JAX, to all digits and made of vector operations."""

import math
from typing import Any

import jax.numpy as jnp


def log_beta(a: Any, b: Any) -> Any:
    """log of the beta function. JAX's own has seven digits only, in 64 bits too."""
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def log_gamma(z: Any) -> Any:
    """log of the gamma function for z > 0: Stirling's series from 9 on, and eight factors to get there.

    Faster than JAX's own, which is not made of vector operations; at 9 the term left out is below 3e-15.
    """
    small = z < 9.0
    factors = jnp.prod(jnp.stack([jnp.where(small, z + i, 1.0) for i in range(8)]), axis=0)
    y = jnp.where(small, z + 8.0, z)
    inverse = 1.0 / (y * y)
    series: Any = 0.0
    for coefficient in (-691.0 / 360360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0):
        series = series * inverse + coefficient
    return (y - 0.5) * jnp.log(y) - y + 0.5 * math.log(2.0 * math.pi) + series / y - jnp.log(factors)
