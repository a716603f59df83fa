"""Hills of the posterior that a search has hardly met, climbed to from rows on their slopes.

A hill far narrower than the search is met by a row or two, or by none; a fit to the search's weights would leave it to
chance. But the likelihood is known, and rises towards the hill. So rows higher than their neighbours are climbed from,
and the law of what follows has a component about every top. Weights are exact, whatever the climbs find.
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
"""How many climbs begin far from each other among rows of weight, and how many far from each other among all."""
BATCHES = 3
"""Of climbs: one after the other, so that those of the later ones end where hills are known already."""
LEAST_POINTS, POINTS_EACH = 48, 12
"""Points about each climber at every step: at least, and for each coordinate."""
SELECTED = 0.25
"""Share of the points, the highest, that a climber follows."""
LASTING = 0.3
"""Share that a climber's old spread has in the new one: on the way, it cannot fall by more than half at a step."""
THIN = 1e-12
"""Least width of a ridge, squared, beside its length: as thin as its covariance can be factored."""
LEAST_CLIMBED, MOST_CLIMBED, SUMMED = 2**13, 2**17, 2**27
"""Rows that all climbs may look at, at least and at most; values that their sums may run over between these."""
STEPS = 40
"""Of a climb, at most."""
NEAR = 1.5
"""How far below the highest, for each coordinate, points are on average about a climber that has come to the width of
its hill: half where they are spread as a normal hill is, one where their variances are twice as large."""
WIDER = 2.0
"""How many times as large as those of the hill the variances are that a climber is to arrive at."""
STILL = 0.3
"""Standard deviations, for each coordinate, and half the change in the logarithm of its variance, that the last step of
a climber may have moved it by."""
LOWER = 12.0
"""How much less, in logs, the mass of another hill may be to be part of the law."""
HIGHER = 1.0
"""How much higher than the top of a wide hill, in logs, a point on it must be to be on a narrow one of its own."""
MOST_HILLS = 64
"""Components of the law at most."""
APART = 9.0
"""Squared distance from a top, in units of its hill's spread, beyond which another hill may be."""


@dataclass(frozen=True, eq=False)
class Climbers:
    """Where the climbs are: centres (climbers, coordinates), Cholesky factors of their spread, the highest points seen.

    `whole` are the whole-numbered parameters of each, which stay as they are.
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
        """Whether a point is on the hill of one of them: near it and hardly higher, or it is on one of its own."""
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
        """At each row; -inf where there is no density."""
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
    """Student laws about the tops that climbs from rows of a search lead to, by the mass of each; None without rows."""
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
    """Rows higher than all their neighbours; the spread of all in each coordinate; in its units, how far they are."""
    from scipy.spatial import KDTree

    low, high = np.quantile(free, [0.16, 0.84], axis=0)
    unit = np.where(high > low, 0.5 * (high - low), np.maximum(np.abs(low), 1.0) * 1e-12)
    away, near = KDTree(free / unit).query(free / unit, _neighbours(free.shape[1]) + 1)
    tops = np.flatnonzero((heights[:, None] >= heights[near]).all(axis=1))
    return tops, unit, np.maximum(away[tops, -1], 1e-12)


def _far_apart(points: Array, log_weights: Array) -> Array:
    """Which points to climb from: those of weight that are far from each other, and some that are, whatever they weigh.

    A row's weight counts how few others are near it.
    """
    of_weight = spread_out(points, log_weights, LIKELIEST)
    return np.unique(np.concatenate([of_weight, spread_out(points, np.zeros(len(points)), ANYWHERE)]))


def _neighbours(size: int) -> int:
    """How many rows a start is to be higher than."""
    return 2 * size + 6


def _climbed(
    rng: np.random.Generator, ground: Ground, known: Climbers, begun: Climbers, left: int
) -> tuple[Climbers, int]:
    """Those that are at their tops already, and those that have begun, each spread as the points about it that matter.

    Ends when `left` rows have been looked at; how many are left then.

    A step draws points about every climber, and moves it to the mean of the highest of them. Its spread becomes theirs
    about where it was, so that it grows where the way goes on, and falls about a top (Hansen and Ostermeier 2001).
    About a top as wide as they are, points are weighed instead. Who comes to a hill where another is goes no further.
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
    """Where the hill's own mass is by points about a climber that is as wide, or nearly; and how wide it is to be next.

    Points are weighed against the normal law that they came from, so that a ridge is followed along its length: where
    the hill is wider than the points are, their weights widen them.
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


def mixed_evenly(*laws: StudentMixture) -> StudentMixture:
    """The mixture that has as much of each."""
    shares = np.concatenate([law.shares for law in laws]) / len(laws)
    return StudentMixture(
        shares, np.concatenate([law.centres for law in laws]), np.concatenate([law.factors for law in laws])
    )
