"""A whole-numbered statistic given its release, by enumeration in a window that follows release and parameters.

    log m(r) = log sum_k pi(k) eta(r | k),  a bound of what lies beyond the window, and draws of k given r.

The window has a fixed size, as far as the noise reaches, and lies about the largest term.
Derivation: docs/derivations/conditional.md.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from noisewise.inference.conditional.marginal import Marginal, log_sum
from noisewise.inference.conditional.neighbours import FACTORS, FAMILIES, Katz
from noisewise.inference.conditional.windows import FALL
from noisewise.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.model.masses import log_mass
from noisewise.model.supports import support_ends

LEAST, MOST = 128, 1024
"""Values in a window, unless the caller sets them: at least, and where the noise's reach is unknown or longer."""
LARGEST = 2.0**53
"""Whole numbers beyond are not exact."""
FARTHEST = 2.0**40
"""Greatest distance of a window from a release with additive noise, whose density keeps three digits of its fall there.

Nothing is lost: what lies beyond has at most the noise's density there, which the bound takes.
"""
LOG_CONCAVE_NOISE = (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)


def reach(mechanism: Mechanism) -> int | None:
    """Distance from the release at which additive noise has fallen by FALL; None where it is not known or too long."""
    if not isinstance(mechanism, Additive) or any(
        isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(mechanism)
    ):
        return None

    def far(distance: float) -> bool:
        with np.errstate(over="ignore", divide="ignore"):
            drop = np.asarray(mechanism.noise_log_prob(np.zeros(1))) - np.asarray(
                mechanism.noise_log_prob(np.full(1, distance))
            )
        return bool(np.all(drop >= FALL))

    high = 1.0
    while not far(high):
        high *= 2.0
        if high > MOST:
            return None
    low = high / 2.0
    while high - low > 1.0:
        middle = math.floor(0.5 * (low + high))
        low, high = (low, middle) if far(middle) else (middle, high)
    return int(high) + 1  # a released value may lie between two whole numbers


def window_size(law: Distribution, mechanism: Mechanism) -> tuple[int, bool]:
    """How many values to sum over, and whether these are the whole support."""
    low, high = support_ends(law)
    most = math.inf
    if not any(isinstance(end, jax.core.Tracer) for end in (low, high)):
        most = float(jnp.max(high - low)) + 1.0
    distance = reach(mechanism)
    size = MOST if distance is None else max(2 * distance + 1, LEAST)
    return (int(most), True) if most <= max(size, MOST) else (size, False)


def log_marginal(law: Distribution, kind: str, mechanism: Mechanism, released: Any, size: int, whole: bool) -> Marginal:
    """log m(r), entry by entry, and log of a bound of what the window leaves out; traceable."""
    law, kind, log_zero = _apart(law, kind)
    terms = _Terms(law, kind, mechanism, released, size, whole)
    log_kept, log_beyond = log_sum(terms.log_law + terms.log_noise), jax.lax.stop_gradient(terms.log_beyond())
    if log_zero is None:
        return Marginal(log_kept, log_beyond)
    log_rest = jnp.log1p(-jnp.exp(log_zero))
    at_zero = log_zero + mechanism.log_prob(released, jnp.zeros_like(log_kept))
    return Marginal(jnp.logaddexp(at_zero, log_rest + log_kept), log_rest + log_beyond)


def draw(
    uniform: Any, law: Distribution, kind: str, mechanism: Mechanism, released: Any, size: int, whole: bool
) -> Any:
    """The statistic given its release, by inversion: one uniform variate per entry."""
    law, kind, log_zero = _apart(law, kind)
    terms = _Terms(law, kind, mechanism, released, size, whole)
    values, logs = terms.values, terms.log_law + terms.log_noise
    if log_zero is not None:
        at_zero = log_zero + mechanism.log_prob(released, jnp.zeros_like(logs[0]))
        logs = jnp.concatenate([at_zero[None], jnp.log1p(-jnp.exp(log_zero)) + logs])
        values = jnp.concatenate([jnp.zeros_like(values[:1]), values])
    top = jnp.max(logs, axis=0)
    passed = jnp.cumsum(jnp.exp(logs - jnp.where(jnp.isfinite(top), top, 0.0)), axis=0)
    index = jnp.minimum(jnp.sum(passed <= uniform * passed[-1], axis=0), len(passed) - 1)
    return jnp.take_along_axis(values, index[None], axis=0)[0].astype(int)


def _apart(law: Any, kind: str) -> tuple[Any, str, Any]:
    """The law to enumerate, its kind, and log of the probability of further zeros, which a window need not reach."""
    return (law.base_dist, "Poisson", jnp.log(law.gate)) if kind == "ZeroInflatedPoisson" else (law, kind, None)


class _Terms:
    """The terms of the sums: log law and log noise at the values of every window."""

    def __init__(
        self, law: Distribution, kind: str, mechanism: Mechanism, released: Any, size: int, whole: bool
    ) -> None:
        self.law, self.mechanism, self.released = law, mechanism, released
        self.factors, family = FACTORS.get(kind), FAMILIES.get(kind)
        shape = jnp.broadcast_shapes(law.batch_shape, jnp.shape(released))
        self.low, self.high = (jnp.broadcast_to(end, shape) for end in jax.lax.stop_gradient(support_ends(law)))
        start = self.low
        if not whole:
            fixed = jax.lax.stop_gradient((law, mechanism, released))
            if family is not None and family.d <= 0 and type(mechanism) in LOG_CONCAVE_NOISE:
                centre = _top(family, *fixed, self.low, self.high, max(size / 16.0, 1.0))
            else:
                centre = _largest(*fixed, self.low, self.high)
            if isinstance(mechanism, Additive):
                near = jnp.clip(centre, fixed[2] - FARTHEST, fixed[2] + FARTHEST)
                centre = jnp.clip(jnp.round(near), self.low, self.high)
            start = jnp.maximum(jnp.minimum(centre - size // 2, self.high - size + 1), self.low)
        self.values = start + jnp.arange(size, dtype=start.dtype).reshape(-1, *(1,) * len(shape))
        self.log_law = _log_law(law, self.values, self.low, self.high)
        self.log_noise = mechanism.log_prob(released, self.values)

    def log_beyond(self) -> Any:
        """log of what the sum beyond the window is at most.

        The law's mass that is left on either side, times the largest density that the noise has there. Or, under
        log-concave noise, for a law with known ratios and if that is less, a geometric series from the last term on
        either side.
        """
        first, last = self.values[0], self.values[-1]
        more = jnp.stack([first > self.low, last < self.high])
        size = jnp.abs(last)
        rounding = jnp.finfo(self.log_law.dtype).eps * (8.0 + size * jnp.log(size + 2.0))
        left = jnp.log(jnp.maximum(1.0 - jnp.exp(log_sum(self.log_law)), rounding))
        ends = jnp.stack([first, last])
        tails = jnp.minimum(left, self._log_tails(ends))
        sup = jnp.broadcast_to(self.mechanism.log_sup(self.released), ends.shape)
        if isinstance(self.mechanism, Additive):
            sides = self._split(ends, tails, sup)
            sup = jnp.where(self._released_off(ends), sup, self._end_noise())
        else:
            sides = tails + sup
        both = jnp.logaddexp(*jnp.where(more, sides, -jnp.inf))
        bound = jnp.minimum(both, left + jnp.max(jnp.where(more, sup, -jnp.inf), axis=0))
        if self.factors is not None and type(self.mechanism) in LOG_CONCAVE_NOISE and len(self.values) > 1:
            noise = jnp.stack([self.log_noise[0] - self.log_noise[1], self.log_noise[-1] - self.log_noise[-2]])
            terms = jnp.stack([self.log_law[0], self.log_law[-1]]) + self._end_noise()
            series = geometric(terms, self._log_ratios(ends, self._end_noise()) + noise)
            bound = jnp.minimum(bound, jnp.logaddexp(*jnp.where(more, series, -jnp.inf)))
        return bound

    def _released_off(self, ends: Any) -> Any:
        """Whether the release lies below the window's first value, and whether it lies above its last."""
        return jnp.stack([self.released < ends[0], self.released > ends[1]])

    def _end_noise(self) -> Any:
        """log noise at the first value and at the last."""
        return jnp.stack([self.log_noise[0], self.log_noise[-1]])

    def _split(self, ends: Any, tails: Any, sup: Any) -> Any:
        """log of what lies on either side under additive noise, which falls on either side of the release.

        Where the release lies out there itself, the side is cut half-way to it: up to there the noise is less than at
        the cut, and beyond it the law has less mass.
        """
        off = self._released_off(ends)
        half_way = 0.5 * (ends + self.released)
        half_way = jnp.clip(jnp.stack([jnp.ceil(half_way[0]), jnp.floor(half_way[1])]), self.low, self.high)
        cut = jnp.where(off, half_way, ends)
        at_cut = jnp.stack([self.mechanism.log_prob(self.released, one) for one in cut])
        farther = jnp.minimum(tails, self._log_tails(cut))
        return jnp.where(off, jnp.logaddexp(tails + at_cut, farther + sup), tails + at_cut)

    def _log_tails(self, ends: Any) -> Any:
        """log of the law's own mass below the first and above the second of two values, at most; +inf: unknown.

        These bounds are of use where one minus the mass inside the window is only rounding.
        """
        if self.factors is None:
            return jnp.full_like(ends, jnp.inf)
        logs = _log_law(self.law, ends, self.low, self.high)
        return geometric(logs, self._log_ratios(ends, jnp.zeros(2)))

    def _log_ratios(self, ends: Any, others: Any) -> Any:
        """log of the most by which the law changes at a step below the first value, and above the second.

        It is a product of factors that move one way only. So none is above both its value at that end and its value at
        the support's end, or in the limit. `others`: logs added to it, whose rounding errors count too.
        """
        assert self.factors is not None
        law, at, last = self.law, self.factors.at, self.factors.last
        below = zip(at(law, jnp.maximum(ends[0] - 1.0, self.low)), at(law, self.low), strict=True)
        above = zip(at(law, ends[1]), last(law), strict=True)
        digits = 64.0 * jnp.finfo(ends.dtype).eps  # a ratio is made of logs up to 40

        def most(near: Any, far: Any, others: Any) -> Any:
            return jnp.maximum(near + digits * (1.0 + jnp.abs(near) + jnp.abs(others)), far)

        down = sum(most(-near, -far, others[0]) for near, far in below)
        return jnp.stack([down, sum(most(near, far, others[1]) for near, far in above)])


def _log_law(law: Distribution, values: Any, low: Any, high: Any) -> Any:
    """log law; -inf off the support, which is checked first, so that no formula is used off it."""
    inside = (values >= low) & (values <= high)
    return jnp.where(inside, log_mass(law, jnp.clip(values, low, high)), -jnp.inf)


def geometric(last: Any, log_ratio: Any) -> Any:
    """log of last * q / (1 - q): what can follow where no term is more than q times the one before; +inf for q >= 1."""
    falls = log_ratio < 0.0
    safe = jnp.where(falls, log_ratio, -1.0)
    return jnp.where(falls, last + safe - jnp.log(-jnp.expm1(safe)), jnp.inf)


def _top(
    family: Katz, law: Distribution, mechanism: Mechanism, released: Any, low: Any, high: Any, slack: float
) -> Any:
    """The largest term of a log-concave sequence, or one within `slack` of it: between mean and release, by halving."""
    ends = [jnp.clip(jnp.broadcast_to(jnp.round(end * 1.0), low.shape), low, high) for end in (law.mean, released)]

    def halve(state: Any) -> Any:
        below, above, step = state
        middle = jnp.floor(0.5 * (below + above))
        noise = mechanism.log_prob(released, middle + 1.0) - mechanism.log_prob(released, middle)
        rises = (middle < low) | (family.log_ratio(law, jnp.clip(middle, low, high)) + noise > 0.0)
        return jnp.where(rises, middle + 1.0, below), jnp.where(rises, above, middle), step + 1

    def goes_on(state: Any) -> Any:
        below, above, step = state
        return jnp.any(above - below > 2.0 * slack) & (step < 54)

    below, above, _ = jax.lax.while_loop(goes_on, halve, (jnp.minimum(*ends) - 1.0, jnp.maximum(*ends) + 1.0, 0))
    return jnp.clip(jnp.round(0.5 * (below + above)), low, high)


def _largest(law: Distribution, mechanism: Mechanism, released: Any, low: Any, high: Any) -> Any:
    """Where the product is largest: looked for about the law's mean and the release, ever closer."""
    marks = [(law.mean, jnp.sqrt(law.variance)), *(mechanism.landmarks(released) or [])]
    if isinstance(mechanism, Additive):
        marks.append((released, 1.0))
    points, scales = (jnp.stack([jnp.broadcast_to(mark[i], low.shape) for mark in marks]) for i in (0, 1))
    scales = jnp.maximum(jnp.where(jnp.isfinite(scales), scales, 1.0), 1.0)
    points = jnp.where(jnp.isfinite(points), points, 0.0)
    powers = 2.0 ** jnp.arange(0.0, 24.0)
    steps = jnp.concatenate([-powers[::-1], jnp.zeros(1), powers]).reshape(-1, *(1,) * points.ndim)
    at = points + steps * 0.25 * scales
    gap = jnp.broadcast_to(0.25 * jnp.maximum(jnp.abs(steps), 1.0) * scales, at.shape)
    at, gap = (part.reshape(-1, *low.shape) for part in (at, gap))

    def best(at: Any) -> Any:
        whole = jnp.clip(jnp.round(jnp.clip(at, -LARGEST, LARGEST)), low, high)
        seen = _log_law(law, whole, low, high) + mechanism.log_prob(released, whole)
        index = jnp.argmax(jnp.where(jnp.isnan(seen), -jnp.inf, seen), axis=0)[None]
        return jnp.take_along_axis(whole, index, axis=0)[0], index

    place, index = best(at)
    around = jnp.linspace(-1.0, 1.0, 9).reshape(-1, *(1,) * low.ndim)

    def zoom(_: Any, state: Any) -> Any:
        place, width = state
        return best(place + around * width)[0], jnp.maximum(0.25 * width, 4.0)

    place, _ = jax.lax.fori_loop(0, 16, zoom, (place, jnp.take_along_axis(gap, index, axis=0)[0]))
    return place
