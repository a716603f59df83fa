"""Many standard normal numbers at once, in pairs (Box and Muller 1958). docs/derivations/totals.md, "Normal records".

NumPy's own generator takes a branch for each normal number, on a sign that no processor can predict. The exponential
number for a radius and the uniform one for an angle need no such branch. Everything else is sums, products, quotients
and square roots of whole arrays, with no transcendental function of the processor's or the system's.
"""

import math

import numpy as np

from noisewise.numerics.namespaces import Array
from noisewise.numerics.scratch import Scratch

PAIRS = 2**15
"""Pairs made at a time: few enough to stay in a core's cache, enough to be worth the steps in Python."""
FEW = 2**12
"""Numbers below which NumPy's own take less time."""
LEAST = 1e-280
"""Scales below this or above its inverse are left to NumPy: here the scaled radius is divided by up to 1e11."""

# tan(x) = x N(x^2) / D(x^2) for |x| <= pi/4, with the least relative error of any such quotient of cubics, 1.9e-17
N = (1.0, -0.12828347005816965, 0.0028059182020293262, -7.483634588258985e-06)
D = (1.0, -0.46161680339150016, 0.023344852665793155, -0.0002084480386041521)

SCRATCH = Scratch()


def _in_turns(coefficients: tuple[float, ...]) -> list[float]:
    """Coefficients in u^2 of a polynomial in x^2, x = pi u / 2, divided by the denominator's last one."""
    return [one * (math.pi / 2) ** (2 * power - 6) / D[-1] for power, one in enumerate(coefficients)]


_N, _D = [math.pi / 2 * one for one in _in_turns(N)], _in_turns(D)


def fill_with_normals(rng: np.random.Generator, out: Array, scale: float = 1.0) -> Array:
    """Independent normal numbers of mean zero in `out`, which is returned."""
    if out.size < FEW or not out.flags.c_contiguous or out.dtype != np.float64 or not LEAST < abs(scale) < 1.0 / LEAST:
        return np.multiply(rng.standard_normal(out.shape), scale, out=out)
    flat = out.reshape(-1)
    for start in range(0, flat.size - 1, 2 * PAIRS):
        part = flat[start : start + 2 * PAIRS]
        half = len(part) // 2
        _fill(rng, part[:half], part[half : 2 * half], scale)
    if flat.size % 2:
        flat[-1] = scale * rng.standard_normal()
    return out


def _fill(rng: np.random.Generator, x: Array, y: Array, scale: float) -> None:
    """Pairs (r cos phi, r sin phi), with (r / scale)^2 / 2 exponential and phi uniform between -pi and pi."""
    add, multiply, subtract = np.add, np.multiply, np.subtract
    r, b, z = (SCRATCH.array(name, x.shape, np.float64) for name in ("r", "b", "z"))
    rng.standard_exponential(out=r)
    np.sqrt(r, out=r)
    multiply(r, math.sqrt(2.0) * scale, out=r)
    rng.random(out=b)
    subtract(b, 0.5, out=b)  # phi / (2 pi)
    multiply(b, b, out=z)
    # n / d = tan(phi / 4), by Horner's rule
    n, d = x, y
    multiply(z, _N[3], out=n)
    for coefficient, factor in ((_N[2], z), (_N[1], z), (_N[0], b)):
        add(n, coefficient, out=n)
        multiply(n, factor, out=n)
    add(z, _D[2], out=d)
    for coefficient in (_D[1], _D[0]):
        multiply(d, z, out=d)
        add(d, coefficient, out=d)
    # a / s and b / s are cosine and sine of phi / 2
    multiply(n, d, out=b)
    add(b, b, out=b)
    multiply(n, n, out=n)
    multiply(d, d, out=d)
    s, a = z, d
    add(n, d, out=s)
    subtract(d, n, out=a)
    # cos phi = 1 - 2 (b / s)^2, sin phi = 2 (a / s) (b / s)
    multiply(s, s, out=s)
    np.divide(r, s, out=s)
    multiply(s, b, out=s)
    add(s, s, out=s)
    multiply(a, s, out=y)
    multiply(b, s, out=s)
    subtract(r, s, out=x)
