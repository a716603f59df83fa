"""Starts where none are given: many candidates, scored by the observed likelihood, and the best few of them.

Derivation: docs/derivations/likelihood.md, "Starts".
"""

import math

import numpy as np

from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import exact_cloud, nodes_of
from noisewise.likelihood.e_step.entries_in_pieces import exact_parts, first_pieces
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.numerics import Array

Point = dict[str, Array]

FIRST, ROUND = 64, 32
"""Candidates of the first round, which come from the prior, and of every further round."""
ROUNDS = 6
"""Rounds at most."""
BEYOND = (3.0, 10.0)
"""How many times as far from their median as the prior's draws those beyond it are."""
HIGHER, MOST_FAR = 1.0, 2
"""How much higher these must be than all others, in log likelihood, to be climbed from; how many are, at most."""
CELLS = 2**21
"""Numbers that all scores together may handle; yet `FEWEST` candidates may always be scored."""
FEWEST = 8
STREAMED = 64
"""Nodes of an entry, about, where only their sums are kept."""
NARROW = 2**16
"""Half the width, times the entries, of the widest sum for a score: where the law is farther off, the score is -inf."""
RESOLVED = 10.0
"""Once so many (`KEPT`) candidates are within this of the highest, in log likelihood, no further round is needed."""
KEPT = 8
CLIMBED, LEAST = 4, 3
"""Candidates to climb from: at most, at least."""


class Score:
    """The log likelihood of the release, or of a share of its entries where they are very many."""

    def __init__(self, problem: Problem) -> None:
        try:
            self.whole = parts_of(problem)
        except InputError:  # a sum over records: its density is not known
            self.whole = []
        self.known = bool(self.whole) and all(p.exact or (p.by_entry and not p.atomic) for p in self.whole)
        """Whether every part has no noise, or is a sum or an integral for every entry by itself."""
        self.most = max(FEWEST, CELLS // self._numbers()) if self.known else 0
        """Points that may be scored."""
        self._parts: list[Part] = []

    def _numbers(self) -> int:
        return sum(part.entries * (1 if part.exact else max(STREAMED, nodes_of(part))) for part in self.whole)

    def at(self, point: Point) -> float:
        """The score; -inf where it cannot be computed, or not cheaply."""
        try:
            self._parts = self._parts or first_pieces(exact_parts(self.whole, point))
            with np.errstate(all="ignore"):
                height = sum(exact_cloud(part, point, NARROW).log_likelihood for part in self._parts)
        except InputError:
            return -math.inf
        return height if math.isfinite(height) else -math.inf


def best_candidates(
    points: list[Point], coordinates: Coordinates, score: Score, rng: np.random.Generator
) -> list[Point]:
    """The candidates to climb from, the highest first, given draws of the prior.

    Rounds go on, each in the box of the best so far, until the region of the top is resolved. Then some far beyond the
    prior's draws are looked at, for a fit takes only its support: those that are higher come first.
    """
    points = points[: min(FIRST, score.most)]
    heights = np.array([score.at(point) for point in points])
    if not np.isfinite(heights).any():  # the prior's draws are all far out: climb from them nevertheless
        return points[:CLIMBED]
    free = np.array([coordinates.free_from(point) for point in points])
    far = beyond(free)
    for _ in range(ROUNDS - 1):
        if len(free) + ROUND > score.most or is_resolved(heights):
            break
        new = within(free[np.argsort(-heights)[:KEPT]], rng)
        rise = [score.at(coordinates.values(one)) for one in new]
        free, heights = np.concatenate([free, new]), np.concatenate([heights, rise])
    climbed = free[to_climb(free, heights)]
    if len(free) + len(far) <= score.most:
        above = np.array([score.at(coordinates.values(one)) for one in far])
        higher = np.argsort(-above, kind="stable")[: np.sum(above > heights.max() + HIGHER)]
        climbed = np.concatenate([far[higher[:MOST_FAR]], climbed])
    return [coordinates.values(one) for one in climbed]


def beyond(free: Array) -> Array:
    """The first candidates, moved away from their median: as many times as far as `BEYOND` says."""
    centre = np.median(free, axis=0)
    return np.concatenate([centre + times * (free - centre) for times in BEYOND])


def is_resolved(heights: Array) -> bool:
    """Whether several candidates are about as high as the highest."""
    return bool(np.sort(heights)[-min(KEPT, len(heights))] >= heights.max() - RESOLVED)


def within(best: Array, rng: np.random.Generator) -> Array:
    """New candidates in the box of the best, a quarter wider on every side."""
    low, high = best.min(axis=0), best.max(axis=0)
    return low + (high - low) * (1.5 * rng.random((ROUND, best.shape[1])) - 0.25)


def to_climb(free: Array, heights: Array) -> list[int]:
    """Indices of the highest candidates that no neighbour exceeds: each may lie below a maximum of its own.

    The next highest fill up to `LEAST`. Neighbours are by ranks, coordinate by coordinate, so that units do not matter.
    """
    ranks = np.argsort(np.argsort(free, axis=0), axis=0).astype(float)
    near = min(2 * free.shape[1] + 1, len(free) - 1)
    distance = np.max(np.abs(ranks[:, None] - ranks[None]), axis=2)
    neighbours = np.argsort(distance, axis=1, kind="stable")[:, : near + 1]
    is_top = (heights >= heights[neighbours].max(axis=1)) & np.isfinite(heights)
    tops = [i for i in np.argsort(-heights, kind="stable") if is_top[i]][:CLIMBED]
    others = [i for i in np.argsort(-heights, kind="stable") if i not in tops]
    return [*tops, *others[: max(0, LEAST - len(tops))]]
