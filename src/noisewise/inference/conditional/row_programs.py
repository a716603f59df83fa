"""Programs for one block of very many rows: sums over the nodes of their panels; traceable.

Derivation: docs/likelihood-scale.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_legendre

from noisewise.inference.conditional.charts import law_of, to_s
from noisewise.inference.conditional.normal import log_marginal
from noisewise.inference.conditional.row_panels import log_noise
from noisewise.numerics import Array

ORDERS = (8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
"""Nodes of a panel."""
GROUP = 2
"""Nodes of a row evaluated at once."""


def pairs_of(size: int) -> list[tuple[int, int]]:
    """Attributes two by two, in the order of second derivatives."""
    return [(a, b) for a in range(size) for b in range(a, size)]


def rule(order: int) -> tuple[Array, Array, Any]:
    """Nodes and weights, filled up to one length for all orders, and how many groups of them count."""
    nodes, weights = roots_legendre(order)
    room = np.zeros((2, ORDERS[-1]))
    room[:, :order] = nodes, weights
    return room[0].reshape(-1, GROUP), room[1].reshape(-1, GROUP), np.int64(order // GROUP)


def _summed(term: Callable[[Any, Any], Any], start: Any, edges: Any, nodes: Any, weights: Any, groups: Any) -> Any:
    """Sums over all nodes of `term(t, weight)`, beginning with the zeros of `start`."""

    def panel(sums: Any, ends: Any) -> Any:
        low, half = ends[0], 0.5 * (ends[1] - ends[0])

        def group(number: Any, sums: Any) -> Any:
            t = low + half * (1.0 + nodes[number][:, None])
            terms = term(t, weights[number][:, None] * half)
            return [old + jnp.sum(new, axis=0) for old, new in zip(sums, terms, strict=True)]

        return jax.lax.fori_loop(0, groups, group, sums), None

    return jax.lax.scan(panel, start, (edges[:-1], edges[1:]))[0]


def value(kind: str, chart: str, careful: bool) -> Callable[..., Any]:
    """(block, edges, top, nodes, weights, groups) -> log likelihood of every row."""

    def run(block: Any, edges: Any, top: Any, *rule: Any) -> Any:
        attributes, mechanism, released = block

        def term(t: Any, weight: Any) -> list[Any]:
            both = law_of(kind, attributes).log_prob(to_s(chart, t)) + log_noise(chart, mechanism, released, t)
            return [_mass(both - top, weight, careful)]

        return [top + jnp.log(_summed(term, [jnp.zeros_like(top)], edges, *rule)[0])]

    return run


def _mass(log_integrand: Any, weight: Any, careful: bool) -> Any:
    """The integrand times its weight; with care, nothing where the formula is beyond its range.

    The choice (`where`) takes as long as the exponential itself.
    """
    if not careful:
        return weight * jnp.exp(log_integrand)
    known = (log_integrand < jnp.inf) & (weight > 0.0)
    return jnp.where(known, weight * jnp.exp(jnp.where(known, log_integrand, 0.0)), 0.0)


def moments(kind: str, chart: str, moving: tuple[str, ...], careful: bool) -> Callable[..., Any]:
    """As `value`, with E lambda, E lambda' and Var lambda of every row, lambda the score in `moving` attributes."""
    pairs, size = pairs_of(len(moving)), len(moving)

    def run(block: Any, edges: Any, top: Any, *rule: Any) -> Any:
        attributes, mechanism, released = block
        own = {name: attributes[name] for name in moving}
        units = [{n: jnp.full_like(own[n], 1.0 if n == name else 0.0) for n in moving} for name in moving]

        def term(t: Any, weight: Any) -> list[Any]:
            def log_law(own: Any) -> Any:
                return law_of(kind, {**attributes, **own}).log_prob(to_s(chart, t))

            log_pi, first, second = _derivatives(log_law, own, units)
            mass = _mass(log_pi + log_noise(chart, mechanism, released, t) - top, weight, careful)
            terms = [*first, *second, *(first[a] * first[b] for a, b in pairs)]
            if careful:  # derivatives where there is no mass may be no numbers
                terms = [jnp.where(mass > 0.0, one, 0.0) for one in terms]
            return [mass, *(mass * one for one in terms)]

        zero = jnp.zeros_like(top)
        total, *sums = _summed(term, [zero] * (1 + size + 2 * len(pairs)), edges, *rule)
        means = [one / total for one in sums]
        first, second = means[:size], means[size : size + len(pairs)]
        squares = means[size + len(pairs) :]
        spread = [square - first[a] * first[b] for square, (a, b) in zip(squares, pairs, strict=True)]
        return top + jnp.log(total), jnp.stack(first), jnp.stack(second), jnp.stack(spread)

    return run


def _derivatives(function: Callable[[Any], Any], at: Any, units: list[Any]) -> tuple[Any, list[Any], list[Any]]:
    """A function of every row's own attributes, its first derivatives in them, and its second ones pair by pair."""

    def slope(at: Any, a: int) -> Any:
        return jax.jvp(function, (at,), (units[a],))[1]

    first = [slope(at, a) for a in range(len(units))]
    second = [jax.jvp(partial(slope, a=a), (at,), (units[b],))[1] for a, b in pairs_of(len(units))]
    return function(at), first, second


def closed_value(block: Any) -> list[Any]:
    """log likelihood of every normal row, in closed form."""
    attributes, mechanism, released = block
    return [log_marginal(mechanism, released, attributes["loc"], attributes["scale"])]


def closed_moments(moving: tuple[str, ...], block: Any) -> tuple[Any, ...]:
    """Value, first and second derivatives of every row; and zeros in place of the score's variance."""
    attributes, mechanism, released = block
    own = {name: attributes[name] for name in moving}
    units = [{n: jnp.full_like(own[n], 1.0 if n == name else 0.0) for n in moving} for name in moving]

    def of_attributes(own: Any) -> Any:
        both = {**attributes, **own}
        return log_marginal(mechanism, released, both["loc"], both["scale"])

    value, first, second = _derivatives(of_attributes, own, units)
    return value, jnp.stack(first), jnp.stack(second), jnp.zeros((len(second), *value.shape))
