"""A normal statistic given its release, in closed form: under Gaussian noise, and under Laplace noise.

    s ~ Normal(mu, sigma),  r = s + noise:  log m(r | mu, sigma) = log int pi(s) eta(r | s) ds,  and draws of s given r.

Derivation, with what keeps the formulas accurate far out: docs/derivations/conditional.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from noisewise.mechanisms import Gaussian, Laplace, Mechanism
from noisewise.model.coordinates import Space
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, log_ndtr, namespace

Values = Mapping[str, Any]

CLOSED = (Gaussian, Laplace)
"""Kinds of noise with a closed form."""


def log_marginal(mechanism: Mechanism, released: Any, mu: Any, sigma: Any) -> Any:
    """log density of the release given the law's mean and standard deviation, entry by entry; NumPy or JAX."""
    scale = _scale_of(mechanism)
    xp = namespace(released, mu, sigma, scale)
    if isinstance(mechanism, Gaussian):
        spread = xp.hypot(sigma, scale)
        return -0.5 * ((released - mu) / spread) ** 2 - xp.log(math.sqrt(2.0 * math.pi) * spread)
    below, above = log_sides(released - mu, sigma, scale)
    return xp.logaddexp(below, above) - xp.log(2.0 * scale)


def _scale_of(mechanism: Mechanism) -> Any:
    assert isinstance(mechanism, CLOSED)
    return mechanism.scale


def log_sides(distance: Any, sigma: Any, scale: Any) -> tuple[Any, Any]:
    """log of the integral of normal density times exp(-|r - s| / b) over s < r, and over s > r; distance = r - mu."""
    return _log_side(distance, sigma, scale), _log_side(-distance, sigma, scale)


def _log_side(d: Any, sigma: Any, b: Any) -> Any:
    """log of exp(sigma^2 / (2 b^2) - d / b) Phi(x), x = d / sigma - sigma / b: which is also exp(-d^2 / (2 sigma^2))
    times the scaled tail exp(x^2 / 2) Phi(x). The first form where x > 0, the second where its exponents would cancel.
    """
    xp = namespace(d, sigma, b)
    ratio = sigma / b
    x = d / sigma - ratio
    near = x > 0.0
    inner = 0.5 * ratio**2 - d / b + log_ndtr(xp.where(near, x, 1.0))
    outer = -0.5 * (d / sigma) ** 2 + _log_scaled_tail(xp.where(near, -1.0, x))
    return xp.where(near, inner, outer)


def _log_scaled_tail(x: Any) -> Any:
    """log(exp(x^2 / 2) Phi(x)) for x <= 0: by the asymptotic series from -14 down, where x^2 / 2 would cancel."""
    xp = namespace(x)
    far = x < -14.0
    z = xp.where(far, x, -14.0)
    inverse = 1.0 / (z * z)
    term = total = xp.ones_like(z)
    for n in range(1, 13):  # at -14 the term left out is below 1e-14
        term = -term * (2 * n - 1) * inverse
        total = total + term
    series = xp.log(total) - xp.log(-z) - 0.5 * math.log(2.0 * math.pi)
    close = xp.where(far, -14.0, x)
    return xp.where(far, series, log_ndtr(close) + 0.5 * close**2)


def draw(rng: np.random.Generator, mechanism: Mechanism, released: Any, mu: Array, sigma: Array) -> Array:
    """Exact draws of the statistic given its release, one for each entry of `mu`."""
    mu, sigma = np.broadcast_arrays(np.asarray(mu, float), np.asarray(sigma, float))
    value = np.broadcast_to(np.asarray(released, float), mu.shape)
    scale = np.broadcast_to(np.asarray(_scale_of(mechanism), float), mu.shape)
    if isinstance(mechanism, Gaussian):
        spread = np.hypot(sigma, scale)
        return mu + (sigma / spread) ** 2 * (value - mu) + (sigma / spread) * scale * rng.standard_normal(mu.shape)
    below, above = log_sides(value - mu, sigma, scale)
    side = np.where(rng.random(mu.shape) < 1.0 / (1.0 + np.exp(np.minimum(above - below, 700.0))), -1.0, 1.0)
    # On its side, the distance |s - r| is that of a normal beyond a point: in units of sigma, from alpha on.
    alpha = sigma / scale + side * (value - mu) / sigma
    return value + side * sigma * _excess(rng, alpha)


def invert(uniform: Any, mechanism: Mechanism, released: Any, mu: Any, sigma: Any) -> Any:
    """The statistic given its release, for one uniform variate per entry: its quantile; traceable."""
    scale = _scale_of(mechanism)
    if isinstance(mechanism, Gaussian):
        spread = jnp.hypot(sigma, scale)
        return mu + (sigma / spread) ** 2 * (released - mu) + sigma / spread * scale * jax.scipy.special.ndtri(uniform)
    below, above = log_sides(released - mu, sigma, scale)
    share = jax.nn.sigmoid(below - above)
    left = uniform < share
    rest = jnp.where(left, uniform / share, (1.0 - uniform) / (1.0 - share))
    tiny = jnp.finfo(rest.dtype).tiny
    side = jnp.where(left, -1.0, 1.0)
    alpha = sigma / scale + side * (released - mu) / sigma
    return released + side * sigma * _excess_at(jnp.clip(rest, tiny, 1.0), alpha)


def _excess_at(share: Any, alpha: Any) -> Any:
    """z - alpha for standard normal z > alpha, at the point that a given share of it exceeds.

    Beyond zero by Newton's method for log P(z > alpha + e) = log share + log P(z > alpha), concave in e: after the
    first step it comes from one side only. Differences of squares are taken apart.
    """
    inside = alpha <= 0.0
    start = jnp.where(inside, alpha, 0.0)
    near = jnp.maximum(-jax.scipy.special.ndtri(jax.scipy.special.ndtr(-start) * share) - start, 0.0)
    a = jnp.where(inside, 1.0, alpha)
    log_share, tail = jnp.log(share), _log_scaled_tail(-a)

    def step(_: Any, e: Any) -> Any:
        here = _log_scaled_tail(-(a + e))
        gap = -a * e - 0.5 * e * e + (here - tail) - log_share
        return jnp.maximum(e + gap * jnp.exp(here) * math.sqrt(2.0 * math.pi), 0.0)

    return jnp.where(inside, near, jax.lax.fori_loop(0, 60, step, jnp.zeros_like(a + share)))


def _excess(rng: np.random.Generator, alpha: Array) -> Array:
    """z - alpha for standard normal z > alpha. Far out by Robert (1995): exponential proposals of the best rate."""
    excess = np.empty_like(alpha)
    inside = alpha <= 0.0
    start = alpha[inside]
    z = -ndtri(ndtr(-start) * (1.0 - rng.random(start.shape)))  # P(z > alpha) is at least a half
    excess[inside] = np.maximum(z - start, 0.0)
    waiting = np.flatnonzero(~inside.ravel())
    flat, beyond = excess.reshape(-1), alpha.reshape(-1)
    while len(waiting):
        a = beyond[waiting]
        rate = 0.5 * (a + np.sqrt(a * a + 4.0))
        step = rng.standard_exponential(len(a)) / rate
        accepted = rng.standard_exponential(len(a)) >= 0.5 * (a + step - rate) ** 2
        flat[waiting[accepted]] = step[accepted]
        waiting = waiting[~accepted]
    return flat.reshape(alpha.shape)


@dataclass(frozen=True)
class Folded:
    """A normal statistic under noise with a closed form: integrated out, and drawn once the parameters are."""

    space: Space
    name: str

    def log_kept(self, values: Values, items: Any) -> Any:
        """log density of the release."""
        mechanism, value = items[self.name]
        law = self._normal(values)
        return jnp.sum(log_marginal(mechanism, value, law.loc, law.scale))

    def moments(self, values: Values) -> tuple[Any, Any]:
        """Mean and standard deviation of the law, entry by entry; traceable."""
        law, shape = self._normal(values), self.space.model.shape(self.name)
        return jnp.broadcast_to(law.loc, shape), jnp.broadcast_to(law.scale, shape)

    def draw(self, rng: np.random.Generator, item: Any, moments: tuple[Array, Array]) -> Array:
        """Draws of s given the release, for rows of the law's moments."""
        mechanism, value = item
        return draw(rng, mechanism, value, *moments)

    def _normal(self, values: Values) -> Any:
        return peel(self.space.model.law_at(self.name, values))[0]
