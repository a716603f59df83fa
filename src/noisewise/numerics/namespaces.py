"""One namespace for NumPy and JAX: which of the two a computation's arguments call for."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special

Array = np.ndarray[Any, Any]


def namespace(*arguments: Any) -> Any:
    """`jax.numpy` if any argument (or any leaf of one) is a JAX array or tracer, else `numpy`."""
    return jnp if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arguments)) else np


def special(*arguments: Any) -> Any:
    """The special functions (`log_ndtr`, `gammaln`, `betainc` ...) that go with `namespace`."""
    return jax.scipy.special if namespace(*arguments) is jnp else scipy.special


def log_ndtr(z: Any) -> Any:
    """log of the standard normal distribution function, to full precision in NumPy and JAX alike.

    JAX's own drops to eight digits twenty standard deviations out. Below -14 the asymptotic series takes its place,
    -z^2/2 - log(-z sqrt(2 pi)) + log(1 - 1/z^2 + 3/z^4 - ...): at z = -14 its twelfth term is below 1e-14.
    """
    if namespace(z) is np:
        return scipy.special.log_ndtr(z)
    far = z < -14.0
    x = jnp.where(far, z, -14.0)
    inverse = 1.0 / (x * x)
    term = total = jnp.ones_like(x)
    for n in range(1, 13):
        term = -term * (2 * n - 1) * inverse
        total = total + term
    series = -0.5 * x * x - jnp.log(-x) - 0.9189385332046727 + jnp.log(total)
    return jnp.where(far, series, jax.scipy.special.log_ndtr(jnp.where(far, -14.0, z)))
