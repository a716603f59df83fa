"""The gamma and beta functions, in NumPy and JAX: to all digits, and made of vector operations."""

import math
from typing import Any

from noisewise.numerics.namespaces import namespace


def log_beta(a: Any, b: Any) -> Any:
    """log of the beta function. JAX's own has seven digits only, in 64 bits too."""
    xp = namespace(a, b)
    less = xp.minimum(a, b)
    return log_gamma(less) - log_rising(xp.maximum(a, b), less)


def log_gamma(z: Any) -> Any:
    """log of the gamma function for z > 0: Stirling's series from 9 on, and eight factors to get there.

    Faster than JAX's own, which is not made of vector operations; at 9 the term left out is below 3e-15.
    """
    y, log_factors = _lifted(z)
    return (y - 0.5) * namespace(z).log(y) - y + 0.5 * math.log(2.0 * math.pi) + _series(y) - log_factors


def log_rising(c: Any, k: Any) -> Any:
    """log(Gamma(c + k) / Gamma(c)) for c > 0 and k >= 0.

    Where c is large, a difference of log gammas would lose as many digits as c log c has before the point.
    """
    xp = namespace(c, k)
    near = k < c
    growth = xp.where(near, xp.log1p(xp.where(near, k, 0.0) / c), xp.log(c + k) - xp.log(c))
    return (c - 0.5) * growth + k * (xp.log(c + k) - 1.0) + _after_stirling(c + k) - _after_stirling(c)


def _after_stirling(z: Any) -> Any:
    """log Gamma(z) less (z - 1/2) log z - z + log(2 pi) / 2."""
    y, log_factors = _lifted(z)
    xp = namespace(z)
    lifted = xp.where(y > z, (y - 0.5) * xp.log(y) - (z - 0.5) * xp.log(z) - (y - z) - log_factors, 0.0)
    return lifted + _series(y)


def _lifted(z: Any) -> tuple[Any, Any]:
    """A number y from 9 on, and log(Gamma(y) / Gamma(z))."""
    xp, small = namespace(z), z < 9.0
    factors = xp.prod(xp.stack([xp.where(small, z + i, 1.0) for i in range(8)]), axis=0)
    return xp.where(small, z + 8.0, z), xp.log(factors)


def _series(y: Any) -> Any:
    """What Stirling's formula lacks, for y from 9 on."""
    inverse = 1.0 / (y * y)
    series: Any = 0.0
    for coefficient in (-691.0 / 360360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0):
        series = series * inverse + coefficient
    return series / y
