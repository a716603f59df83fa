"""A normal statistic given its release, in closed form: under Gaussian or Laplace noise, clamped before it or not.

    s ~ Normal(mu, sigma),  r = s + noise:  log m(r | mu, sigma) = log int pi(s) eta(r | s) ds,  and draws of s given r.

Derivation, with what keeps the formulas accurate far out: docs/derivations/conditional.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from noisewise.mechanisms import Clamped, Gaussian, Laplace, Mechanism
from noisewise.mechanisms.additive import log_difference
from noisewise.model.coordinates import Space
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Values, double, log_mills, log_ndtr, log_ndtr_near, namespace

CLOSED = (Gaussian, Laplace)
"""Kinds of noise with a closed form."""
SETTLED = 1e-10
"""Relative size of a step at which Newton's method stops: the error left is of the order of its square."""


def is_closed(mechanism: Mechanism) -> bool:
    """Whether a normal statistic has a closed form under this mechanism."""
    return type(mechanism.base if isinstance(mechanism, Clamped) else mechanism) in CLOSED


def log_marginal(mechanism: Mechanism, released: Any, mu: Any, sigma: Any) -> Any:
    """log density of the release given the law's mean and standard deviation, entry by entry; NumPy or JAX."""
    if isinstance(mechanism, Clamped):
        below, left, right, above = _log_pieces(mechanism, released, mu, sigma)
        xp = namespace(below, above)
        return xp.logaddexp(xp.logaddexp(below, left), xp.logaddexp(right, above))
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
    xp = namespace(distance, sigma, scale)
    distance, sigma, scale = xp.broadcast_arrays(distance, sigma, scale)
    both = _log_side(xp.stack([distance, -distance]), sigma, scale)  # at once: half the program
    return both[0], both[1]


def _log_side(d: Any, sigma: Any, b: Any) -> Any:
    """log of exp(sigma^2 / (2 b^2) - d / b) Phi(x), with x = d / sigma - sigma / b.

    It is also exp(-d^2 / (2 sigma^2)) times the scaled tail exp(x^2 / 2) Phi(x). The first form is used where x > 0,
    the second elsewhere, where the first one's exponents would cancel.
    """
    xp = namespace(d, sigma, b)
    ratio = sigma / b
    x = d / sigma - ratio
    near = x > 0.0
    scaled = xp.where(near, 0.0, -0.5 * (d / sigma) ** 2)
    plain = xp.where(near, 0.5 * ratio**2 - d / b, 0.0)
    return scaled + plain + _log_tail(x, scaled=~near)


def _log_scaled_tail(x: Any) -> Any:
    """log(exp(x^2 / 2) Phi(x)) for x <= 0."""
    return _log_tail(x, scaled=True)


def _log_tail(x: Any, scaled: Any) -> Any:
    """log Phi(x) for x > 0, and where `scaled` log(exp(x^2 / 2) Phi(x)) for x <= 0.

    From -14 down it is taken from the asymptotic series, since x^2 / 2 would cancel.
    """
    xp = namespace(x)
    far = x < -14.0
    series = log_mills(xp.where(far, x, -14.0))
    close = xp.where(far, -14.0, x)
    log_phi = log_ndtr(close) if xp is np else log_ndtr_near(close)
    return xp.where(far, series, log_phi + xp.where(scaled, 0.5 * close**2, 0.0))


def draw(rng: np.random.Generator, mechanism: Mechanism, released: Any, mu: Array, sigma: Array) -> Array:
    """Exact draws of the statistic given its release, one for each entry of `mu`."""
    mu, sigma = np.broadcast_arrays(np.asarray(mu, float), np.asarray(sigma, float))
    if isinstance(mechanism, Clamped):
        with double():
            return np.asarray(invert(rng.random(mu.shape), mechanism, released, mu, sigma))
    value = np.broadcast_to(np.asarray(released, float), mu.shape)
    scale = np.broadcast_to(np.asarray(_scale_of(mechanism), float), mu.shape)
    if isinstance(mechanism, Gaussian):
        spread = np.hypot(sigma, scale)
        share = np.divide(sigma, spread, out=np.ones_like(sigma), where=np.isfinite(spread))  # a flat law has none
        return mu + share**2 * (value - mu) + share * scale * rng.standard_normal(mu.shape)
    below, above = log_sides(value - mu, sigma, scale)
    side = np.where(rng.random(mu.shape) < 1.0 / (1.0 + np.exp(np.minimum(above - below, 700.0))), -1.0, 1.0)
    # On its side, the distance |s - r| is that of a normal beyond a point: in units of sigma, from alpha on.
    alpha = sigma / scale + side * (value - mu) / sigma
    return value + side * sigma * _excess(rng, alpha)


def invert(uniform: Any, mechanism: Mechanism, released: Any, mu: Any, sigma: Any) -> Any:
    """The statistic given its release, for one uniform variate per entry: its quantile; traceable."""
    if isinstance(mechanism, Clamped):
        return _invert_clamped(jnp.asarray(uniform), mechanism, released, mu, sigma)
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
    """z - alpha at the point z that a given share of a standard normal law beyond alpha exceeds.

    For alpha > 0 by Newton's method for log P(z > alpha + e) = log share + log P(z > alpha), concave in e: after the
    first step it converges from one side only. Differences of squares are expanded, so that nothing cancels.
    """
    inside = alpha <= 0.0
    start = jnp.where(inside, alpha, 0.0)
    near = jnp.maximum(-jax.scipy.special.ndtri(jax.scipy.special.ndtr(-start) * share) - start, 0.0)
    a = jnp.where(inside, 1.0, alpha)
    log_share, tail = jnp.log(share), _log_scaled_tail(-a)

    def step(state: Any) -> Any:
        e, _, count = state
        here = _log_scaled_tail(-(a + e))
        gap = -a * e - 0.5 * e * e + (here - tail) - log_share
        moved = jnp.maximum(e + gap * jnp.exp(here) * math.sqrt(2.0 * math.pi), 0.0)
        return moved, jnp.any(~inside & (jnp.abs(moved - e) > SETTLED * moved)), count + 1

    def goes_on(state: Any) -> Any:
        return state[1] & (state[2] < 60)

    beyond, _, _ = jax.lax.while_loop(goes_on, step, (jnp.zeros_like(a + share), jnp.any(~inside), 0))
    return jnp.where(inside, near, beyond)


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


# Clamped before the noise -------------------------------------------------------------------------------------------


def _log_pieces(mechanism: Clamped, released: Any, mu: Any, sigma: Any) -> tuple[Any, Any, Any, Any]:
    """log of the integral over s below the bounds, between them up to the release and from it on, and above them.

    Under Gaussian noise the two inner pieces are one, in the place of the first. No difference here loses digits that
    count beside the sum of all four: what is taken away is at most one of the outer pieces.
    """
    scale, low, high = _scale_of(mechanism.base), mechanism.low, mechanism.high
    xp = namespace(released, mu, sigma, mechanism)
    below = mechanism.base.log_prob(released, low) + log_ndtr((low - mu) / sigma)
    above = mechanism.base.log_prob(released, high) + log_ndtr((mu - high) / sigma)
    if isinstance(mechanism.base, Gaussian):
        centre, spread = _given_gaussian(released, mu, sigma, scale)
        start, end = (low - centre) / spread, (high - centre) / spread
        flip = released < low  # the side on which nothing larger than the other outer piece is taken away
        larger, smaller = xp.where(flip, -start, end), xp.where(flip, -end, start)
        inside = log_difference(xp, log_ndtr(larger), log_ndtr(smaller))
        left = inside + log_marginal(mechanism.base, released, mu, sigma)
        return below, left, xp.full_like(left, -xp.inf), above
    cut = xp.clip(released, low, high)
    at_low, at_cut, at_high = (log_sides(place - mu, sigma, scale) for place in (low, cut, high))
    left = log_difference(xp, (cut - released) / scale + at_cut[0], (low - released) / scale + at_low[0])
    right = log_difference(xp, (released - cut) / scale + at_cut[1], (released - high) / scale + at_high[1])
    return below, left - xp.log(2.0 * scale), right - xp.log(2.0 * scale), above


def _given_gaussian(released: Any, mu: Any, sigma: Any, scale: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of s given s plus Gaussian noise."""
    total = namespace(released, mu, sigma, scale).hypot(sigma, scale)
    return mu + (sigma / total) ** 2 * (released - mu), sigma / total * scale


@jax.jit
def _invert_clamped(uniform: Any, mechanism: Clamped, released: Any, mu: Any, sigma: Any) -> Any:
    """The quantile: one of the pieces by its share, from left to right, and the place within it."""
    low, high, scale = mechanism.low, mechanism.high, _scale_of(mechanism.base)
    released, mu, sigma = (jnp.broadcast_to(one, uniform.shape) for one in (released, mu, sigma))
    logs = jnp.stack(_log_pieces(mechanism, released, mu, sigma))
    passed = jnp.cumsum(jax.nn.softmax(logs, axis=0), axis=0)
    wanted = uniform * passed[-1]
    index = jnp.minimum(jnp.sum(passed <= wanted, axis=0), 3)[None]
    end = jnp.take_along_axis(passed, index, axis=0)[0]
    start = jnp.where(index[0] > 0, jnp.take_along_axis(passed, jnp.maximum(index - 1, 0), axis=0)[0], 0.0)
    width = jnp.where(end > start, end - start, 1.0)
    within, rest = (wanted - start) / width, (end - wanted) / width  # the two add up to one
    if isinstance(mechanism.base, Gaussian):
        centre, spread = _given_gaussian(released, mu, sigma, scale)
        left = right = _between(within, rest, low, high, (low - centre) / spread, (centre - high) / spread, spread)
    else:
        cut, ratio = jnp.clip(released, low, high), sigma / scale
        to_low, to_cut, to_high = ((place - mu) / sigma for place in (low, cut, high))
        left = _between(within, rest, low, cut, to_low - ratio, ratio - to_cut, sigma)
        right = _between(within, rest, cut, high, to_cut + ratio, -to_high - ratio, sigma)
    below = low, -sigma, (mu - low) / sigma, within
    above = high, sigma, (high - mu) / sigma, rest
    parts = zip(below, left, right, above, strict=True)
    stacked = [jnp.stack([jnp.broadcast_to(one, uniform.shape) for one in part]) for part in parts]
    origin, step, alpha, share = (jnp.take_along_axis(part, index, axis=0)[0] for part in stacked)
    return origin + step * _excess_at(jnp.clip(share, jnp.finfo(share.dtype).tiny, 1.0), alpha)


def _between(
    within: Any, rest: Any, low: Any, high: Any, from_low: Any, from_high: Any, spread: Any
) -> tuple[Any, Any, Any, Any]:
    """(origin, step, alpha, share): the quantile of a normal law between two bounds, `within` below it, `rest` above.

    The quantile is origin + step * `_excess_at(share, alpha)`; the origin is the bound that lies farther out.
    `from_low` and `from_high` are how far the bounds lie beyond the mean, each to its own side, in units of `spread`.
    """
    down = from_high > from_low
    alpha = jnp.where(down, from_high, from_low)
    least = jnp.exp(_log_left(alpha, (high - low) / spread))
    share = least + jnp.where(down, within, rest) * (1.0 - least)
    return jnp.where(down, high, low), jnp.where(down, -spread, spread), alpha, share


def _log_left(alpha: Any, width: Any) -> Any:
    """log of P(z > alpha + width) / P(z > alpha), z standard normal."""
    inside = alpha <= 0.0
    a = jnp.where(inside, 1.0, alpha)
    far = -a * width - 0.5 * width**2 + _log_scaled_tail(-(a + width)) - _log_scaled_tail(-a)
    return jnp.where(inside, log_ndtr(-(alpha + width)) - log_ndtr(-alpha), far)


@dataclass(frozen=True)
class Folded:
    """A normal statistic under noise with a closed form: integrated out, and drawn after the parameters."""

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
