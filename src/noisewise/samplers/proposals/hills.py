"""Hills (modes) of the posterior that a search has hardly met, climbed to from rows on their slopes.

A hill far narrower than the search is met by a row or two, or by none; a fit to the search's weights would leave it to
chance. But the likelihood is known, and rises towards the hill. So climbs start from rows higher than their neighbours,
and the next round's law has a component about every top found. Weights are exact, whatever the climbs find.
Derivation: docs/derivations/importance.md.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.model.coordinates import Space
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.samplers.proposals.adapted import points_given_whole
from noisewise.samplers.proposals.collapsed import Collapse, Widened
from noisewise.samplers.proposals.memory import Round
from noisewise.samplers.proposals.mixture import StudentMixture
from noisewise.samplers.walking.starts import spread_out

LIKELIEST, ANYWHERE = 48, 16
"""How many climbs begin among rows of high weight, far from each other, and how many likewise among all rows."""
BATCHES = 3
"""Batches of climbs, one after the other, so that climbs of later batches end where hills are known already."""
LEAST_POINTS, POINTS_EACH = 48, 12
"""Points about each climber at every step: at least, and for each coordinate."""
SELECTED = 0.25
"""Share of the points, the highest, that a climber follows."""
LASTING = 0.3
"""Share of the old spread in a climber's new one, so that on the way it cannot fall by more than half at a step."""
THIN = 1e-12
"""Least squared width of a ridge beside its squared length: any thinner, its covariance could not be factored."""
LEAST_CLIMBED, MOST_CLIMBED, SUMMED = 2**13, 2**17, 2**27
"""Rows that all climbs may look at, at least and at most; values that their sums may run over between these."""
STEPS = 40
"""Most steps of a climb."""
NEAR = 1.5
"""Mean fall of points below the highest, for each coordinate, up to which a climber counts as wide as its hill.

The fall is one half for points spread as a normal hill is, and one where their variances are twice as large.
"""
WIDER = 2.0
"""Variances that a climber is to arrive at, in units of those of its hill."""
STILL = 0.3
"""Most that the last step of a climber may change, for each coordinate.

It bounds the centre's move in standard deviations, and half the change in the logarithm of the variance.
"""
LOWER = 12.0
"""How much less than the largest, in logs, the mass of a hill may be and still be part of the law."""
HIGHER = 1.0
"""How much higher than the top of a wide hill, in logs, a point near it must be to count as a hill of its own."""
MOST_HILLS = 64
"""Most components of the law."""
APART = 9.0
"""Squared distance from a top, in units of its hill's spread, beyond which a point may be on another hill."""


@dataclass(frozen=True, eq=False)
class Climbers:
    """Where the climbs are: centres (climbers, coordinates), Cholesky factors of their spread, greatest heights seen.

    `whole` are the whole-numbered parameters of each climber, which stay as they are.
    """

    centres: Array
    factors: Array
    heights: Array
    whole: Columns

    @property
    def log_masses(self) -> Array:
        """log of the integral of a normal hill so high and wide, up to a constant."""
        return self.heights + _log_volume(self.factors)

    def have(self, point: Array, height: float) -> bool:
        """Whether a point is on a climber's hill: near it and hardly higher. A higher one is on a hill of its own."""
        away = np.linalg.solve(self.factors, (point - self.centres)[:, :, None])
        near = np.square(away).sum(axis=(1, 2)) <= APART
        return bool(np.any(near & (height <= self.heights + HIGHER)))


@dataclass(frozen=True, eq=False)
class Ground:
    """The log posterior density of free coordinates given whole numbers, up to a constant, by the exact likelihood."""

    problem: Problem
    space: Space
    engine: Engine
    widened: Widened = ()

    @property
    def rows(self) -> int:
        """Rows that one program takes."""
        return Collapse.of(self.problem, self.widened).rows

    @property
    def allowed(self) -> int:
        """Rows that all climbs together may look at: by the numbers that one row takes."""
        return max(LEAST_CLIMBED, min(MOST_CLIMBED, SUMMED // Collapse.of(self.problem, self.widened).work))

    def heights(self, free: Array, whole: Columns) -> Array:
        """The log density at each row; -inf where there is none."""
        rows, blocks = self.rows, -(-len(free) // self.rows)
        index = np.minimum(np.arange(blocks * rows), len(free) - 1).reshape(blocks, rows)
        works = [
            partial(
                _heights, self.problem, self.space, self.widened, free[one], {n: own[one] for n, own in whole.items()}
            )
            for one in index
        ]
        return np.concatenate(gather(self.engine, works, portable=True))[: len(free)]


def _heights(problem: Problem, space: Space, widened: Widened, free: Array, whole: Columns, poll: Poll) -> Array:
    values, log_prior, _ = points_given_whole(space, free, whole)
    log_likelihood = Collapse.of(problem, widened).log_likelihood({**values, **whole}, len(free))
    with np.errstate(invalid="ignore"):
        heights = log_prior + log_likelihood
    return np.where(np.isfinite(heights), heights, -np.inf)


def hills(rng: np.random.Generator, ground: Ground, searched: Round) -> StudentMixture | None:
    """Student laws about the tops that climbs from a search's rows lead to, by mass; None where rows are too few."""
    heights = searched.heights
    known = np.flatnonzero(np.isfinite(heights))
    free, heights, log_weights = searched.free[known], heights[known], searched.log_weights[known]
    count, size = free.shape
    if count <= _neighbours(size):
        return None
    tops, unit, widths = _local_tops(free, heights)
    whole = {name: own[known] for name, own in searched.whole.items()}
    climbers = Climbers(
        free[:0], np.empty((0, size, size)), heights[:0], {name: own[:0] for name, own in whole.items()}
    )
    left = ground.allowed
    for _ in range(BATCHES):
        if not len(tops) or left <= 0:
            break
        batch = _far_apart(free[tops] / unit, log_weights[tops])
        starts, factors = tops[batch], widths[batch, None, None] * np.diag(unit)
        begun = Climbers(free[starts], factors, heights[starts], {name: own[starts] for name, own in whole.items()})
        climbers, left = _climbed(rng, ground, climbers, begun, left)
        tops, widths = np.delete(tops, batch), np.delete(widths, batch)
    return _law(climbers)


def _local_tops(free: Array, heights: Array) -> tuple[Array, Array, Array]:
    """Rows higher than all their neighbours; the spread of all rows by coordinate; how far neighbours lie, in it."""
    from scipy.spatial import KDTree

    low, high = np.quantile(free, [0.16, 0.84], axis=0)
    unit = np.where(high > low, 0.5 * (high - low), np.maximum(np.abs(low), 1.0) * 1e-12)
    away, near = KDTree(free / unit).query(free / unit, _neighbours(free.shape[1]) + 1)
    tops = np.flatnonzero((heights[:, None] >= heights[near]).all(axis=1))
    return tops, unit, np.maximum(away[tops, -1], 1e-12)


def _far_apart(points: Array, log_weights: Array) -> Array:
    """Which points to climb from: some of high weight, far from each other, and some far from each other among all.

    Unlike its height, the weight of a row takes account of how few others are near it.
    """
    of_weight = spread_out(points, log_weights, LIKELIEST)
    return np.unique(np.concatenate([of_weight, spread_out(points, np.zeros(len(points)), ANYWHERE)]))


def _neighbours(size: int) -> int:
    """How many neighbours a start is to be higher than."""
    return 2 * size + 6


def _climbed(
    rng: np.random.Generator, ground: Ground, known: Climbers, begun: Climbers, left: int
) -> tuple[Climbers, int]:
    """Move climbers that have `begun` to their tops: the `known` climbers with these, and the rows left.

    The climbs end when `left` rows have been evaluated, if not before.

    A step draws points about every climber, and moves it to the mean of the highest of them. Its spread becomes theirs
    about where it was, so that it grows where the way goes on, and falls about a top (Hansen and Ostermeier 2001).
    Where the points are as wide as the hill, they are weighed instead. A climber that comes to a hill where another
    has arrived is dropped.
    """
    size = begun.centres.shape[1]
    points = max(LEAST_POINTS, POINTS_EACH * size)
    followed = int(SELECTED * points)
    centres, factors, heights = (
        np.concatenate(pair)
        for pair in ((known.centres, begun.centres), (known.factors, begun.factors), (known.heights, begun.heights))
    )
    every_whole = {name: np.concatenate([own, begun.whole[name]]) for name, own in known.whole.items()}
    arrived, under_way = np.arange(len(known.centres)), np.arange(len(known.centres), len(centres))
    for _ in range(STEPS):
        if left <= 0:
            break
        left -= len(under_way) * points
        standard = rng.standard_normal((len(under_way), points, size))
        factor, centre = factors[under_way], centres[under_way]
        steps = np.einsum("kij,kpj->kpi", factor, standard)
        whole = {name: np.repeat(own[under_way], points, axis=0) for name, own in every_whole.items()}
        there = ground.heights((centre[:, None] + steps).reshape(-1, size), whole).reshape(-1, points)
        best = np.argsort(-there, axis=1, kind="stable")[:, :followed, None]
        moves = np.take_along_axis(steps, best, axis=1)
        heights[under_way] = np.maximum(heights[under_way], there.max(axis=1))
        fall = (heights[under_way] - there.mean(axis=1)) / size
        old, new = (np.einsum("kpi,kpj->kij", one, one) for one in (np.swapaxes(factor, 1, 2), moves))
        move, spread = moves.mean(axis=1), LASTING * old + (1.0 - LASTING) / followed * new
        for one in np.flatnonzero(fall <= NEAR):
            move[one], spread[one] = _by_weight(steps[one], there[one], standard[one], followed)
        following = np.linalg.cholesky(spread + THIN * spread * np.eye(size))
        gone = np.square(np.linalg.solve(factor, move[:, :, None])).sum(axis=(1, 2))
        grown = np.abs(_log_volume(following) - _log_volume(factor))
        settled = (fall <= NEAR) & (gone <= STILL**2 * size) & (grown <= STILL * size)
        centres[under_way], factors[under_way] = centre + move, following
        arrived = np.concatenate([arrived, under_way[settled]])
        under_way = under_way[~settled]
        there_already = Climbers(centres[arrived], factors[arrived], heights[arrived], {})
        under_way = under_way[[not there_already.have(centres[one], heights[one]) for one in under_way]]
        if not len(under_way):
            break
    last = np.concatenate([arrived, under_way])
    whole = {name: own[last] for name, own in every_whole.items()}
    return Climbers(centres[last], factors[last], heights[last], whole), left


def _by_weight(steps: Array, heights: Array, standard: Array, least: int) -> tuple[Array, Array]:
    """The move and the next spread of a climber that is about as wide as its hill: towards the hill's own mass.

    Points are weighed by the hill over the normal law that they came from, so that a ridge is followed along its
    length: where the hill is wider than the points are, their weights widen the spread.
    """
    log_weights = heights + 0.5 * np.square(standard).sum(axis=1)
    power = weights.flattening(log_weights, float(least))
    weight = weights.normalised(weights.flattened(log_weights, power))
    return weight @ steps, WIDER * np.einsum("p,pi,pj->ij", weight, steps, steps)


def _log_volume(factors: Array) -> Array:
    """log of the determinant of each Cholesky factor."""
    volumes: Array = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return volumes


def _law(climbers: Climbers) -> StudentMixture:
    """A component for each hill, by its mass, but none so light that it would hardly be drawn from."""
    log_masses = climbers.log_masses
    chosen: list[int] = []
    for one in np.argsort(-log_masses, kind="stable"):
        if len(chosen) == MOST_HILLS:
            break
        hills_so_far = Climbers(climbers.centres[chosen], climbers.factors[chosen], climbers.heights[chosen], {})
        if log_masses[one] > log_masses.max() - LOWER and not hills_so_far.have(
            climbers.centres[one], climbers.heights[one]
        ):
            chosen.append(int(one))
    shares = np.maximum(np.exp(log_masses[chosen] - log_masses.max()), 0.5 / len(chosen))
    return StudentMixture(shares / shares.sum(), climbers.centres[chosen], climbers.factors[chosen])
