"""Numerical privacy loss between the laws of a release at two confidential values.

Whatever a mechanism claims is recomputed from its density alone: the largest log ratio (pure epsilon), the
hockey-stick divergence (epsilon and delta), Rényi divergences (rho), and the hockey-stick divergences of a shifted
normal (mu). Sums and integrals that leave out some mass count it against the mechanism.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr, roots_legendre

NODES, WEIGHTS = roots_legendre(20)
ORDERS = (1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Pair:
    """Two laws on one space of outcomes: `points` that can be listed, or `edges` between which densities are smooth.

    With `edges` the outcomes are numbers. `grid` is a list of outcomes with quadrature weights, for vectors.
    """

    log_p: Callable[[Any], Any]
    log_q: Callable[[Any], Any]
    points: Any = None
    edges: Any = None
    grid: Any = None
    panels: int = 40
    """How many panels between two edges."""
    orders: tuple[float, ...] = ORDERS
    """Of Rényi divergences; high orders need outcomes far out."""

    @cached_property
    def flipped(self):
        """The same pair the other way round."""
        other = replace(self, log_p=self.log_q, log_q=self.log_p)
        outcomes, log_weight, p, q = self.plain
        vars(other)["plain"] = outcomes, log_weight, q, p
        return other

    @cached_property
    def plain(self):
        """What is weighed without cuts: once for all orders and budgets."""
        return self.weighed()

    def weighed(self, cuts=()):
        """Outcomes, log weights, and both log densities."""
        if self.points is not None:
            outcomes, log_weight = np.asarray(self.points), 0.0
        elif self.grid is not None:
            outcomes, log_weight = self.grid[0], np.log(self.grid[1])
        else:
            edges = np.unique(np.concatenate([_refined(self.edges, self.panels), cuts]))
            edges = edges[np.append(True, np.diff(edges) > 1e-12 * np.ptp(edges))]  # no slivers made by rounding
            half = np.diff(edges)[:, None] / 2
            outcomes = (edges[:-1, None] + half * (1 + NODES)).ravel()
            log_weight = np.log((half * WEIGHTS).ravel())
        return outcomes, log_weight, np.asarray(self.log_p(outcomes)), np.asarray(self.log_q(outcomes))


def _refined(edges, panels):
    edges = np.unique(np.asarray(edges, dtype=float))
    return np.concatenate([np.linspace(a, b, panels + 1) for a, b in pairwise(edges)])


def largest_loss(pair):
    """The largest |log p - log q| over the outcomes that either law can give."""
    _, _, p, q = pair.plain
    possible = (p > -np.inf) | (q > -np.inf)
    return float(np.max(np.abs(p[possible] - q[possible])))


def hockey_stick(pair, epsilon):
    """The smallest delta for which the pair is (epsilon, delta)-indistinguishable, both ways."""
    return max(_one_way(pair, epsilon), _one_way(pair.flipped, epsilon))


def _one_way(pair, epsilon):
    cuts = [] if pair.edges is None else _crossings(pair, epsilon)
    _, log_weight, p, q = pair.weighed(cuts) if cuts else pair.plain
    mass = np.exp(p + log_weight)
    with np.errstate(invalid="ignore"):
        gap = q - p + epsilon
    inside = (p > -np.inf) & (gap < 0)
    excess = np.sum(-np.expm1(gap[inside]) * mass[inside])
    return float(excess + max(1.0 - mass.sum() - 1e-12, 0.0))


def _crossings(pair, epsilon):
    """Where log p - log q = epsilon: kinks of the integrand."""
    outcomes, _, p, q = pair.plain

    def gap(y):
        return float(np.asarray(pair.log_p(np.array([y])) - pair.log_q(np.array([y])))[0]) - epsilon

    with np.errstate(invalid="ignore"):
        signs = np.sign(np.where(np.abs(p - q - epsilon) < 1e-11, 0.0, p - q - epsilon))
        finite = np.isfinite(p - q)
    where = np.flatnonzero((signs[:-1] * signs[1:] < 0) & finite[:-1] & finite[1:])
    return [brentq(gap, outcomes[at], outcomes[at + 1], xtol=1e-13) for at in where]


def renyi(pair, order):
    """Rényi divergence of the given order, the larger of both ways."""
    found = []
    for one in (pair, pair.flipped):
        _, log_weight, p, q = one.plain
        possible = p > -np.inf
        assert np.all(q[possible] > -np.inf)
        terms = (order * p + (1.0 - order) * q + log_weight)[possible]
        found.append(float(logsumexp(terms)) / (order - 1.0))
    return max(found)


def gaussian_delta(mu, epsilon):
    """The hockey-stick divergence of N(mu, 1) from N(0, 1)."""
    return float(ndtr(0.5 * mu - epsilon / mu) - np.exp(epsilon) * ndtr(-0.5 * mu - epsilon / mu))


def spent(guarantee, pair):
    """The share of the claimed budget that the pair uses: at most 1 if the claim holds, 1 if it is attained."""
    match guarantee.kind:
        case "pure":
            return largest_loss(pair) / guarantee.epsilon
        case "approximate":
            return hockey_stick(pair, guarantee.epsilon) / guarantee.delta
        case "rho":
            return max(renyi(pair, order) / (order * guarantee.rho) for order in pair.orders)
        case "mu":
            grid = guarantee.mu * np.array([0.0, 0.3, 1.0, 2.0, 3.0])
            return max(hockey_stick(pair, epsilon) / gaussian_delta(guarantee.mu, epsilon) for epsilon in grid)
        case _:
            raise ValueError(f"no budget in {guarantee}")


def pair_of(mechanism, first, second, *, inputs=({}, {}), **outcomes):
    """The laws of a release at two confidential values."""

    def law(confidential, extra):
        def log_prob(released):
            found = np.asarray(mechanism.log_prob(released, np.asarray(confidential), **extra))
            return found.reshape(len(released), -1).sum(axis=1)

        return log_prob

    return Pair(law(first, inputs[0]), law(second, inputs[1]), **outcomes)


def plane(*edges, panels=12):
    """Quadrature over a plane: outcomes (rows of two numbers) and weights, from the edges along each axis."""
    axes = []
    for one in edges:
        cuts = np.unique(_refined(one, panels))
        half = np.diff(cuts)[:, None] / 2
        axes.append(((cuts[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()))
    first, second = np.meshgrid(axes[0][0], axes[1][0], indexing="ij")
    return np.stack([first.ravel(), second.ravel()], axis=1), np.outer(axes[0][1], axes[1][1]).ravel()


@dataclass(frozen=True)
class Audit:
    """A mechanism made from a budget, and the worst neighbours for it.

    `tight`: the claim must be attained, up to `slack`; None where the theory leaves room.
    """

    name: str
    mechanism: Any
    pairs: list[Pair]
    tight: bool = True
    slack: float = 1e-6

    def spent(self):
        return max(spent(self.mechanism.guarantee, pair) for pair in self.pairs)


PLANE = 2e-3  # quadrature over a plane has the kinks of the integrand inside its panels
CLOUD = np.concatenate(
    [5.0 * np.random.default_rng(1).standard_cauchy((4000, 2)), [[0.0, 0.0]], np.zeros((1, 2)) - 9.0]
)


def cloud(mechanism, *differences):
    """Outcomes on all sides, both confidential values included."""
    return [pair_of(mechanism, np.zeros(2), d, points=np.vstack([CLOUD, d, 2 * d])) for d in map(np.array, differences)]
