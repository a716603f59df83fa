"""A continuous statistic given its release, by quadrature: any law and noise whose landmarks are known.

    log m(r) = log int pi(s) eta(r | s) ds,  an estimate of what the rule misses, and draws of s given r.

The line is cut at landmarks: where the law or the noise has its top, a kink, a jump or an end, and where their
product is largest. From each of them panels grow geometrically, from its own scale to half the way to the next one. Of
these the ones that matter are integrated by Gauss and Kronrod. Derivation: docs/derivations/conditional.md.
"""

import copy
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from noisewise.inference.conditional.landmarks import (
    LOCATED,
    MIXTURE,
    is_heavy_noise,
    landmarks,
)
from noisewise.inference.conditional.marginal import Marginal
from noisewise.mechanisms import Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.model.families import facts_of
from noisewise.model.supports import support_ends
from noisewise.numerics.gamma import log_beta
from noisewise.numerics.kronrod import antiderivative, rule

PANELS = 40
"""Panels from a landmark half the way to the next one, or outwards."""
REACH, FAR = 1e4, 1e10
"""How far the outermost panels go, in units of all distances and scales together: FAR where law and noise are heavy."""
KEPT, MORE = 48, 120
"""Panels that are integrated, besides two for every landmark; more where the noise has a heavy tail, or the law a pole,
so that many scales count. The others are only looked at."""
POWER = 12.0
"""Beside a pole s^(a - 1) the variable is s^(a / POWER): there the integrand is smooth."""
NEAR, FARTHER = 1e-30, 2.0**20
"""Distance from a pole below which the law is taken as a power in 32 bits, and the factor over which it is measured."""
ZOOMS = 12
"""Steps of the search for the largest value, each of which leaves a quarter of the interval."""
HALVINGS = 54
"""Steps by which a draw's place within its panel is found."""


class Panel(NamedTuple):
    """Intervals of the line: from `start` to `start + width`, both measured from `base`; a negative width goes down.

    A place in one is start + width * u^power for u from 0 to 1. `span` is how far the panels on that side go in all.
    """

    base: Any
    start: Any
    width: Any
    power: Any
    span: Any

    def at(self, u: Any) -> tuple[Any, Any]:
        """Places from the base, and how fast they move with u."""
        base = u ** (self.power - 1.0)
        return self.start + self.width * u * base, jnp.abs(self.width) * self.power * base


class LawTimesNoise:
    """pi(s) eta(r | s) of every entry, at points given as distances from others: near these no digits are lost."""

    def __init__(self, law: Distribution, kind: str, mechanism: Mechanism, released: Any) -> None:
        self.law, self.kind, self.mechanism, self.released = law, kind, mechanism, released

    def log(self, base: Any, offset: Any) -> Any:
        """log of the product at base + offset."""
        return self.log_law(base, offset) + self.log_noise(base, offset)

    def log_law(self, base: Any, offset: Any) -> Any:
        """log density of the law at base + offset."""
        law = self.law
        if self.kind == "Beta":
            first, second = law.concentration1, law.concentration0
            inside = (first - 1.0) * jnp.log(base + offset) + (second - 1.0) * jnp.log((1.0 - base) - offset)
            return inside - log_beta(first, second)
        if self.kind in LOCATED:
            moved = copy.copy(law)
            moved.loc = law.loc - base
            return moved.log_prob(offset)
        if self.kind == MIXTURE:
            parts = copy.copy(law.component_distribution)
            parts.loc = parts.loc - jnp.asarray(base)[..., None]
            shares = jax.nn.log_softmax(law.mixing_distribution.logits)
            return jax.nn.logsumexp(shares + parts.log_prob(jnp.asarray(offset)[..., None]), axis=-1)
        return law.log_prob(base + offset)

    def log_noise(self, base: Any, offset: Any) -> Any:
        """log density of the noise at the distance from base + offset to the release."""
        if isinstance(self.mechanism, Additive):
            return self.mechanism.noise_log_prob((self.released - base) - offset)
        return self.mechanism.log_prob(self.released, base + offset)


def log_marginal(law: Distribution, kind: str, mechanism: Mechanism, released: Any) -> Marginal:
    """log m(r), entry by entry, and log of the estimated error of the rule; traceable, and so are gradients.

    Panels are placed without gradients: the rule is applied to the derivative of the integrand.
    """
    panels, log_rest = _chosen(*jax.lax.stop_gradient((law, mechanism, released)), kind)
    log_values = _at_nodes(LawTimesNoise(law, kind, mechanism, released), panels)
    top = jax.lax.stop_gradient(jnp.max(log_values, axis=(0, 1)))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    values = 0.5 * jnp.exp(log_values - top)
    _, weights, gauss = (_column(part, values.ndim) for part in rule())
    total = jnp.sum(weights * values, axis=(0, 1))
    some = total > 0.0
    log_kept = jnp.where(some, top + jnp.log(jnp.where(some, total, 1.0)), -jnp.inf)
    masses, differences = (
        jnp.abs(jnp.sum(part * jax.lax.stop_gradient(values), axis=1)) for part in (weights, weights - gauss)
    )
    error = jnp.sum(_misses(masses, differences), axis=0)
    log_error = jnp.where(error > 0.0, top + jnp.log(jnp.where(error > 0.0, error, 1.0)), -jnp.inf)
    return Marginal(log_kept, jnp.logaddexp(log_error, log_rest))


def _misses(mass: Any, difference: Any) -> Any:
    """Estimated error of Kronrod's rule, by its difference from Gauss's; as in QUADPACK (Piessens et al. 1983)."""
    ratio = difference / jnp.where(mass > 0.0, mass, 1.0)
    return mass * jnp.minimum(ratio, (200.0 * ratio) ** 1.5)


def draw(uniform: Any, law: Distribution, kind: str, mechanism: Mechanism, released: Any) -> Any:
    """The statistic given its release, for one uniform variate per entry: its quantile.

    A panel is found by its mass, from left to right; within it the integral of the polynomial through the nodes is
    inverted.
    """
    panels, _ = _chosen(law, mechanism, released, kind)
    order = jnp.argsort(panels.base + (panels.start + 0.5 * panels.width), axis=0)
    panels = Panel(*(jnp.take_along_axis(part, order, axis=0) for part in panels))
    log_values = _at_nodes(LawTimesNoise(law, kind, mechanism, released), panels)
    top = jnp.max(log_values, axis=(0, 1))
    values = jnp.exp(log_values - jnp.where(jnp.isfinite(top), top, 0.0))
    passed = jnp.cumsum(jnp.maximum(jnp.sum(_column(rule()[1], values.ndim) * values, axis=1), 0.0), axis=0)
    wanted = uniform * passed[-1]
    index = jnp.minimum(jnp.sum(passed <= wanted, axis=0), len(passed) - 1)[None]
    before = jnp.where(index[0] > 0, jnp.take_along_axis(passed, jnp.maximum(index - 1, 0), axis=0)[0], 0.0)
    panel = Panel(*(jnp.take_along_axis(part, index, axis=0)[0] for part in panels))
    at_nodes = jnp.take_along_axis(values, index[:, None], axis=0)[0]
    coefficients = jnp.tensordot(_constant(antiderivative().T), at_nodes, axes=1)

    mass = jnp.take_along_axis(passed, index, axis=0)[0] - before
    inside = jnp.where(panel.width < 0.0, mass - (wanted - before), wanted - before)

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = 0.5 * (low + high)
        below = _legendre(coefficients, middle) < inside
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (-jnp.ones_like(wanted), jnp.ones_like(wanted)))
    return panel.base + panel.at(0.5 * (1.0 + 0.5 * (low + high)))[0]


def _legendre(coefficients: Any, t: Any) -> Any:
    """The sum of Legendre polynomials at t, by their recurrence."""
    last, now = jnp.ones_like(t), t
    total = coefficients[0] + coefficients[1] * t
    for n in range(1, len(coefficients) - 1):
        last, now = now, ((2 * n + 1) * t * now - n * last) / (n + 1)
        total = total + coefficients[n + 1] * now
    return total


def _at_nodes(product: LawTimesNoise, panels: Panel) -> Any:
    """log of the product at every node of every panel, per unit of u: (panels, nodes, entries)."""
    wide = Panel(*(part[:, None] for part in panels))
    offsets, speed = wide.at(0.5 * (1.0 + _column(rule()[0], wide.start.ndim)))
    some = speed > 0.0
    if facts_of(product.kind).moving_end:
        for end in support_ends(product.law):
            offsets, speed = _carried(wide, offsets, speed, end)
    if facts_of(product.kind).pole and offsets.dtype == jnp.float32:
        return _through_poles(product, wide, offsets, speed)
    return jnp.where(some, product.log(wide.base, offsets) + jnp.log(jnp.where(some, speed, 1.0)), -jnp.inf)


def _through_poles(product: LawTimesNoise, panels: Panel, offsets: Any, speed: Any) -> Any:
    """`_at_nodes` in 32 bits, where places beside a pole are smaller than any number: there the law is a power.

    Closer than `NEAR` the law is c s^(a - 1) to all digits, and log s is known where s is not.
    """
    u = 0.5 * (1.0 + _column(rule()[0], panels.start.ndim))
    beside, some = panels.power != 1.0, jnp.abs(panels.width) > 0.0
    log_width = jnp.log(jnp.where(some, jnp.abs(panels.width), 1.0))
    near = jnp.where(beside, jnp.sign(panels.width) * jnp.maximum(jnp.abs(offsets), NEAR), offsets)
    steeper = product.log_law(panels.base, near * FARTHER) - product.log_law(panels.base, near)
    fall = jnp.minimum(log_width + panels.power * jnp.log(u) - math.log(NEAR), 0.0)
    slow = beside & (jnp.abs(offsets) < NEAR)
    log_law = product.log_law(panels.base, near) + jnp.where(slow, steeper / math.log(FARTHER) * fall, 0.0)
    known = jnp.log(jnp.where(speed > 0.0, speed, 1.0))
    log_speed = jnp.where(beside, log_width + jnp.log(panels.power) + (panels.power - 1.0) * jnp.log(u), known)
    log_integrand = log_law + product.log_noise(panels.base, near) + log_speed
    return jnp.where(some & (beside | (speed > 0.0)), log_integrand, -jnp.inf)


def _carried(panels: Panel, offsets: Any, speed: Any, end: Any) -> tuple[Any, Any]:
    """Let places beside an end of the support move with it, less the farther they are; only gradients are affected."""
    fixed = jax.lax.stop_gradient(end)
    beside = (panels.base == fixed) & (panels.span > 0.0)
    moved = jnp.where(beside, end - fixed, 0.0) / jnp.where(panels.span > 0.0, panels.span, 1.0)
    share = panels.span - jnp.abs(offsets)
    return offsets + moved * share, speed * (1.0 - jnp.sign(panels.width) * moved)


def _column(values: Any, dimensions: int) -> Any:
    """One number per node, along the second axis."""
    return _constant(values).reshape(1, -1, *(1,) * (dimensions - 2))


def _constant(values: Any) -> Any:
    """An array in JAX's precision at present: JAX would keep one made in the other precision."""
    return jnp.asarray(np.asarray(values, dtype=jnp.result_type(float)))


# Where the panels are: nothing here has a gradient -----------------------------------------------------------


def _chosen(law: Distribution, mechanism: Mechanism, released: Any, kind: str) -> tuple[Panel, Any]:
    """The panels that matter, and log of what the others hold, roughly."""
    product = LawTimesNoise(law, kind, mechanism, released)
    own, noise = landmarks(law, kind), [(*mark, 1.0) for mark in mechanism.landmarks(released) or ()]
    shapes = [jnp.shape(part) for mark in (*own, *noise) for part in mark]
    shape = jnp.broadcast_shapes(law.batch_shape, jnp.shape(released), *shapes)
    low, high = (jnp.broadcast_to(end, shape) for end in support_ends(law))
    points, scales, poles = (
        jnp.stack([jnp.broadcast_to(mark[i], shape) * 1.0 for mark in (*own, *noise)]) for i in range(3)
    )
    points = jnp.clip(jnp.where(jnp.isfinite(points), points, points[0]), low, high)
    top, scale = _top(product, points, scales, low, high)
    points, scales = jnp.append(points, top[None], axis=0), jnp.append(scales, scale[None], axis=0)
    wide = is_heavy_noise(mechanism)
    heavy = facts_of(kind).heavy and wide
    poles = jnp.append(poles, jnp.ones_like(top)[None], axis=0)
    panels = _layout(points, scales, poles, low, high, FAR if heavy else REACH)
    steps = _column(np.array([0.05, 0.95]), panels.start.ndim + 1)
    seen = product.log(panels.base[:, None], panels.start[:, None] + panels.width[:, None] * steps)
    some = jnp.abs(panels.width) > 0.0
    rough = jnp.max(jnp.where(jnp.isnan(seen), -jnp.inf, seen), axis=1)
    rough = jnp.where(some, rough + jnp.log(jnp.where(some, jnp.abs(panels.width), 1.0)), -jnp.inf)
    order = jnp.argsort(-rough, axis=0)
    kept = (MORE if wide or facts_of(kind).pole else KEPT) + 2 * len(points)
    panels = Panel(*(jnp.take_along_axis(part, order[:kept], axis=0) for part in panels))
    # An empty panel is moved to a place where nothing is infinite, and has no mass there.
    some = jnp.abs(panels.width) > 0.0
    place = Panel(panels.base[:1], panels.start[:1] + 0.5 * panels.width[:1], 0.0, 1.0, 0.0)
    panels = Panel(*(jnp.where(some, part, other) for part, other in zip(panels, place, strict=True)))
    return panels, jax.scipy.special.logsumexp(jnp.take_along_axis(rough, order[kept:], axis=0), axis=0)


def _layout(points: Any, scales: Any, poles: Any, low: Any, high: Any, reach: float) -> Panel:
    """Panels that cover the support: from each landmark upwards and downwards, half the way to the next one.

    The first is as wide as half the scale; each further one ends at least twice as far out as the one before.
    """
    order = jnp.argsort(points, axis=0)
    points, scales, poles = (jnp.take_along_axis(part, order, axis=0) for part in (points, scales, poles))
    apart = jnp.abs(points[:, None] - points)
    far = reach * (points[-1] - points[0] + jnp.max(scales, axis=0))
    scales = jnp.min(jnp.maximum(scales, apart), axis=1)  # a neighbour's smaller scale counts, too
    poles = jnp.min(jnp.where(apart > 0.0, 1.0, poles), axis=1)
    gaps = 0.5 * (points[1:] - points[:-1])
    down = jnp.concatenate([jnp.minimum(far, points[0] - low)[None], gaps])
    up = jnp.concatenate([gaps, jnp.minimum(far, high - points[-1])[None]])
    sizes = jnp.stack([down, up])
    first = 0.5 * jnp.maximum(scales, jnp.finfo(scales.dtype).tiny)
    ratio = jnp.maximum((sizes / first) ** (1.0 / (PANELS - 1)), 2.0)
    powers = jnp.arange(-1.0, PANELS).reshape(-1, *(1,) * sizes.ndim)
    ends = jnp.where(powers < 0.0, 0.0, jnp.minimum(first * ratio**powers, sizes))
    ends = jnp.where(powers == PANELS - 1, sizes, ends)
    sign = jnp.array([-1.0, 1.0]).reshape(-1, *(1,) * points.ndim)
    power = jnp.where(powers[:-1] < 0.0, jnp.maximum(POWER * (1.0 / poles), 1.0), 1.0)
    power = jnp.where(jnp.isfinite(poles) & (poles != 1.0), power, 1.0)
    parts = points, sign * ends[:-1], sign * jnp.diff(ends, axis=0), power, sizes
    shape = (PANELS, 2, *points.shape)
    return Panel(*(jnp.broadcast_to(part, shape).reshape(-1, *points.shape[1:]) for part in parts))


def _top(product: LawTimesNoise, points: Any, scales: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Where the product is largest, looked for about the landmarks, and the distance over which it falls from there."""
    powers = 4.0 ** jnp.arange(-1.0, 22.0)
    steps = jnp.concatenate([-powers, powers]).reshape(-1, *(1,) * points.ndim)

    def best(at: Any) -> tuple[Any, Any]:
        inside = jnp.clip(at, low, high)
        seen = product.log(inside, jnp.zeros_like(inside))
        index = jnp.argmax(jnp.where(jnp.isnan(seen), -jnp.inf, seen), axis=0)[None]
        return jnp.take_along_axis(inside, index, axis=0)[0], index

    place, index = best((points + steps * scales).reshape(-1, *points.shape[1:]))
    first = jnp.abs(jnp.take_along_axis((steps * scales).reshape(-1, *points.shape[1:]), index, axis=0)[0])
    around = jnp.linspace(-1.0, 1.0, 9).reshape(-1, *(1,) * place.ndim)

    def zoom(_: Any, state: Any) -> Any:
        place, reach = state
        return best(place + around * reach)[0], 0.25 * reach

    place, _ = jax.lax.fori_loop(0, ZOOMS, zoom, (place, 4.0 * first))
    tries = first * 4.0 ** jnp.arange(-22.0, 3.0).reshape(-1, *(1,) * place.ndim)
    fallen = _fallen(product, place, -tries, low, high) & _fallen(product, place, tries, low, high)
    index = jnp.argmax(fallen, axis=0)[None]
    return place, jnp.where(jnp.any(fallen, axis=0), jnp.take_along_axis(tries, index, axis=0)[0], first)


def _fallen(product: LawTimesNoise, place: Any, steps: Any, low: Any, high: Any) -> Any:
    """Whether the product has fallen by half, or the support has ended, at these steps from `place`."""
    at = place + steps
    drop = product.log(place, jnp.zeros_like(place)) - product.log(jnp.broadcast_to(place, steps.shape), steps)
    return (at <= low) | (at >= high) | (drop > math.log(2.0)) | jnp.isnan(drop)
