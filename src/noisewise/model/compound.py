"""Counts whose log rate is normal, and binomial counts whose log odds are: laws without a closed form, by quadrature.

    q(k) = h(k) int N(y; mean, sd) exp(k y - c(y)) dy,     c(y) = exp(y) for counts, n log(1 + exp(y)) for shares of n

The integrand is log-concave and analytic. Its top is found by bisection and Newton's method, the line is cut where
it has fallen by `FALL` in logs, and the trapezoidal rule in a stretched variable is as good as exact. Derivation:
docs/derivations/layers.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import expit, logsumexp
from numpyro.distributions import Binomial, Distribution, Normal, Poisson, constraints

from noisewise.numerics import Array
from noisewise.numerics.gamma import log_beta, log_gamma

NODES = 160
"""Points of the rule."""
FALL = 34.0
"""How far the integrand has fallen, in logs, where the line is cut."""
REACHES = 2.0 ** np.arange(-6.0, 7.5, 0.5)
"""Distances from the top that are tried for it, in widths of the top."""
HALVINGS, POLISHED = 40, 8
"""Steps by which the top is bracketed, and of Newton's method after them."""
FINE = {"counts": 0.6, "shares": 1.2}
"""The most that counts as the scale of the integrand beside its top: c(y) changes over a distance of one."""


class _Shape:
    """log N(y; mean, sd) + k y - c(y), up to a constant, with its derivatives; n is 0 for counts without a limit."""

    def __init__(self, k: Any, n: Any, mean: Any, sd: Any) -> None:
        self.k, self.n, self.mean, self.sd = k, n, mean, sd

    def value(self, y: Any) -> Any:
        """At y."""
        limited = self.n * (jnp.maximum(y, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(y))))
        c = jnp.where(self.n > 0, limited, jnp.exp(jnp.where(self.n > 0, 0.0, y)))
        return self.k * y - c - 0.5 * ((y - self.mean) / self.sd) ** 2

    def _grown(self, y: Any) -> tuple[Any, Any]:
        """c' and c'' at y."""
        share, rate = expit(y), jnp.exp(jnp.where(self.n > 0, 0.0, y))
        return (
            jnp.where(self.n > 0, self.n * share, rate),
            jnp.where(self.n > 0, self.n * share * (1.0 - share), rate),
        )

    def slope(self, y: Any) -> Any:
        """Its derivative."""
        return self.k - self._grown(y)[0] - (y - self.mean) / self.sd**2

    def width(self, y: Any) -> Any:
        """One over the square root of the curvature."""
        return 1.0 / jnp.sqrt(self._grown(y)[1] + 1.0 / self.sd**2)

    def top(self) -> Any:
        """Where it is largest: its slope falls through zero between the mean and the mean moved by sd^2 slope."""
        moved = self.mean + self.sd**2 * (self.k - self._grown(self.mean)[0])
        most = jnp.where(
            self.n > 0,
            jnp.where(self.k < self.n, jnp.log(self.k / jnp.maximum(self.n - self.k, 0.5)), jnp.inf),
            jnp.log(self.k),
        )
        low = jnp.maximum(jnp.minimum(self.mean, moved), jnp.minimum(self.mean, most))
        high = jnp.minimum(jnp.maximum(self.mean, moved), jnp.maximum(self.mean, most))

        def halve(_: Any, ends: Any) -> Any:
            low, high = ends
            middle = 0.5 * (low + high)
            rising = self.slope(middle) > 0.0
            return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

        def newton(_: Any, y: Any) -> Any:
            return jnp.clip(y + self.slope(y) * self.width(y) ** 2, low, high)

        low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
        return jax.lax.fori_loop(0, POLISHED, newton, high)


def log_predictive(k: Any, n: Any, mean: Any, sd: Any) -> Any:
    """log q(k), entry by entry; traceable. The nodes have no gradient: the rule is applied to the derivative."""
    k, n, mean, sd = jnp.broadcast_arrays(*(jnp.asarray(one, float) for one in (k, n, mean, sd)))
    over = (n > 0) & (2.0 * k > n)  # the others are counted: then the long tail is on the left
    k, mean = jnp.where(over, n - k, k), jnp.where(over, -mean, mean)
    still = _Shape(k, n, *jax.lax.stop_gradient((mean, sd)))
    top = still.top()
    width, height = still.width(top), still.value(top)

    def reach(sign: float) -> Any:
        """Distance at which it has fallen: the first of a growing list."""
        tries = REACHES.reshape(-1, *(1,) * width.ndim)
        fallen = height - still.value(top + sign * width * tries) > FALL
        return width * jnp.asarray(REACHES)[jnp.where(jnp.any(fallen, axis=0), jnp.argmax(fallen, axis=0), -1)]

    # y = top + fine (u + 1 - exp(-u / 2)): fine steps to the right of the top, growing ones to the left
    fine = jnp.minimum(width, jnp.where(n > 0, FINE["shares"], FINE["counts"]))
    first, last = -2.0 * jnp.log1p(reach(-1.0) / fine), reach(1.0) / fine
    step = (last - first) / (NODES - 1)
    u = first + step * jnp.arange(NODES).reshape(-1, *(1,) * width.ndim)
    nodes, log_speed = top + fine * (u - jnp.expm1(-0.5 * u)), jnp.log1p(0.5 * jnp.exp(-0.5 * u))
    log_base = jnp.where(n > 0, -jnp.log1p(n) - log_beta(k + 1.0, jnp.maximum(n - k, 0.0) + 1.0), -log_gamma(k + 1.0))
    inside = logsumexp(_Shape(k, n, mean, sd).value(nodes) + log_speed, axis=0)
    return log_base + inside + jnp.log(step * fine) - jnp.log(sd) - 0.5 * jnp.log(2.0 * jnp.pi)


class Compound(Distribution):
    """A count with a normal log rate, or a binomial count of `total_count` with normal log odds."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    pytree_data_fields = ("loc", "scale", "total_count")
    pytree_aux_fields = ("limited",)
    nodes = NODES
    """Numbers handled for one probability."""

    def __init__(self, loc: Any, scale: Any, total_count: Any = None) -> None:
        self.limited = total_count is not None
        self.total_count = 0 if total_count is None else total_count
        self.loc, self.scale = loc, scale
        shape = jax.lax.broadcast_shapes(*(jnp.shape(one) for one in (loc, scale, self.total_count)))
        super().__init__(shape, validate_args=False)

    @property
    def support(self) -> Any:
        """Whole numbers, up to `total_count` where there is one."""
        return constraints.integer_interval(0, self.total_count) if self.limited else constraints.nonnegative_integer

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """The log rate or log odds, and then the count."""
        first, second = jax.random.split(key)
        y = Normal(self.loc, self.scale).expand(self.batch_shape).sample(first, sample_shape)
        law = Binomial(self.total_count, logits=y) if self.limited else Poisson(jnp.exp(y))
        return law.sample(second)

    def log_prob(self, value: Any) -> Any:
        """log q, entry by entry."""
        return log_predictive(value, self.total_count, self.loc, self.scale)


def top_of(k: Any, n: Any, mean: Any, sd: Any) -> Any:
    """Where the density of y given the count is largest; traceable."""
    return _Shape(*jnp.broadcast_arrays(*(jnp.asarray(one, float) for one in (k, n, mean, sd)))).top()


def draw_given(rng: np.random.Generator, k: Array, n: Array, mean: Array, sd: Array, top: Array) -> Array:
    """y given the count: independent draws of a log-concave density whose top is known, by rejection.

    Beneath an envelope of its tangents at one width to either side of the top, and of the top's height between them
    (Gilks and Wild 1992 start from such a one); a draw is accepted four times in five.
    """
    drawn = np.empty(top.shape)
    left = np.ones(top.shape, dtype=bool)
    while left.any():
        picked = [one[left] for one in (k, n, mean, sd, top)]
        proposed, accepted = _proposed(rng, *picked)
        where = np.flatnonzero(left.ravel())[accepted]
        drawn.ravel()[where] = proposed[accepted]
        left.ravel()[where] = False
    return drawn


def _proposed(rng: np.random.Generator, k: Array, n: Array, mean: Array, sd: Array, top: Array) -> tuple[Array, Array]:
    """One proposal for each, and whether it is accepted."""

    def value(y: Array) -> Array:
        c = np.where(n > 0, n * np.logaddexp(0.0, y), np.exp(np.where(n > 0, 0.0, np.minimum(y, 700.0))))
        return k * y - c - 0.5 * ((y - mean) / sd) ** 2

    def slope(y: Array) -> Array:
        grown = np.where(n > 0, n / (1.0 + np.exp(-np.clip(y, -700.0, 700.0))), np.exp(np.where(n > 0, 0.0, y)))
        return k - grown - (y - mean) / sd**2

    share = 1.0 / (1.0 + np.exp(-np.clip(top, -700.0, 700.0)))
    curvature = np.where(n > 0, n * share * (1.0 - share), np.exp(np.where(n > 0, 0.0, top))) + 1.0 / sd**2
    height, width = value(top), 1.0 / np.sqrt(curvature)
    places, slopes = [top - width, top + width], [slope(top - width), slope(top + width)]
    ends = [place - (value(place) - height) / at for place, at in zip(places, slopes, strict=True)]
    areas = [1.0 / slopes[0], ends[1] - ends[0], -1.0 / slopes[1]]
    which, depth = rng.random(top.shape) * sum(areas), np.log1p(-rng.random(top.shape))
    in_left, in_right = which < areas[0], which >= areas[0] + areas[1]
    y = ends[0] + (which - areas[0])
    y = np.where(in_left, ends[0] + depth / slopes[0], np.where(in_right, ends[1] + depth / slopes[1], y))
    envelope = np.where(in_left | in_right, depth, 0.0)
    return y, np.log1p(-rng.random(top.shape)) < value(y) - height - envelope
