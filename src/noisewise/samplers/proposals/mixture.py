"""A mixture of multivariate Student laws fitted to weighted points: what adapted proposals draw from.

Its tails are heavy: a proposal with lighter tails than its target has weights that a pilot does not show. Fitted by the
expectation-maximisation algorithm of Peel and McLachlan (2000); the number of components by a penalised likelihood.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.numerics import Array

DEGREES = 5.0
"""Degrees of freedom of every component."""
INFLATION, IN_FULL = 2.0, 16
"""Factor on the fitted scale matrices: a proposal should be wider than what it is fitted to. Up to so many coordinates;
in more, its determinant stays what it is there, for a row's chance to be of use falls with that."""
MOST_COMPONENTS = 4
POINTS = 4000
"""Equally weighted points that a fit looks at."""
STEPS = 40
LEAST = 1e-3
"""Least variance of a component, beside that of all points."""
WORTHWHILE = 0.1
"""Gain in mean log likelihood that one more component must bring: each costs time in every draw."""
FINE: dict[str, Any] = {"most": 8, "worthwhile": 0.01, "least": 1e-6}
"""For rows whose weights cost far more than the proposal's density does: a closer fit pays."""


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """Shares, centres and lower Cholesky factors of the scale matrices, one per component."""

    shares: Array
    centres: Array
    factors: Array

    @property
    def size(self) -> int:
        """Dimensions."""
        return int(self.centres.shape[1])

    def draw(self, rng: np.random.Generator, rows: int) -> Array:
        """Independent draws: (rows, size)."""
        normal = rng.standard_normal((rows, self.size))
        normal *= np.sqrt(0.5 * DEGREES / rng.standard_gamma(0.5 * DEGREES, rows))[:, None]
        if len(self.shares) == 1:
            return self.centres[0] + _product(normal, self.factors[0])
        uniform = rng.random(rows)
        component = np.searchsorted(np.cumsum(self.shares)[:-1], uniform, side="right")
        drawn = np.empty_like(normal)
        for number in range(len(self.shares)):
            members = component == number
            drawn[members] = self.centres[number] + _product(normal[members], self.factors[number])
        return drawn

    def log_density(self, points: Array) -> Array:
        """log density of each row; -inf where a coordinate is not finite."""
        parts = self.log_parts(points)
        total = parts[0] if len(parts) == 1 else np.logaddexp.reduce(parts, axis=0)
        return np.where(np.isnan(total), -np.inf, total)

    def log_parts(self, points: Array) -> Array:
        """log of share times density, component by component: (components, rows)."""
        return self.log_parts_at(self.distances(points))

    def distances(self, points: Array) -> list[Array]:
        """Squared Mahalanobis distance of each row, component by component."""
        pairs = zip(self.centres, self.factors, strict=True)
        return [_distance(points, centre, factor) for centre, factor in pairs]

    def log_parts_at(self, distances: list[Array]) -> Array:
        """`log_parts` of rows at these distances."""
        of_each = zip(self.shares, distances, self.factors, strict=True)
        return np.stack([math.log(share) + _log_student(distance, factor) for share, distance, factor in of_each])

    def inflated(self) -> "StudentMixture":
        """The same with larger scale matrices, by `INFLATION`."""
        factor = INFLATION ** min(1.0, IN_FULL / self.size)
        return StudentMixture(self.shares, self.centres, self.factors * math.sqrt(factor))


def _product(normal: Array, factor: Array) -> Array:
    """normal @ factor.T, column by column: BLAS would start threads of its own and sum in an order it chooses."""
    if len(factor) > 16:
        return np.einsum("rj,ij->ri", normal, factor)
    columns = [sum(normal[:, j] * factor[i, j] for j in range(i + 1)) for i in range(len(factor))]
    return np.stack(columns, axis=1)


def _distance(points: Array, centre: Array, factor: Array) -> Array:
    """Squared Mahalanobis distance of each row, column by column as in `_product`."""
    inverse, size = np.linalg.inv(factor), len(factor)
    with np.errstate(invalid="ignore", over="ignore"):
        if size > 16:
            return np.square(_product(points - centre, inverse)).sum(axis=1)
        away = [points[:, j] - centre[j] for j in range(size)]
        return sum(np.square(sum(away[j] * inverse[i, j] for j in range(i + 1))) for i in range(size))


def _log_student(distance: Array, factor: Array) -> Array:
    """log density of a Student law at squared distance `distance`."""
    size = len(factor)
    constant = math.lgamma(0.5 * (DEGREES + size)) - math.lgamma(0.5 * DEGREES)
    constant -= 0.5 * size * math.log(math.pi * DEGREES) + float(np.log(np.diag(factor)).sum())
    return constant - 0.5 * (DEGREES + size) * np.log1p(distance / DEGREES)


def mixed(shares: Array, laws: Sequence[StudentMixture]) -> StudentMixture:
    """The mixture of these laws by their shares."""
    return StudentMixture(
        np.concatenate([share * law.shares for share, law in zip(shares, laws, strict=True)]),
        np.concatenate([law.centres for law in laws]),
        np.concatenate([law.factors for law in laws]),
    )


def mixed_evenly(*laws: StudentMixture) -> StudentMixture:
    """The mixture of these laws in equal parts."""
    return mixed(np.full(len(laws), 1.0 / len(laws)), laws)


def fitted_mixture(
    rng: np.random.Generator,
    points: Array,
    effective: float,
    most: int = MOST_COMPONENTS,
    worthwhile: float = WORTHWHILE,
    least: float = LEAST,
) -> StudentMixture:
    """The mixture of at most `most` components that equally weighted `points`, worth `effective` draws, support.

    Components are added one at a time, until one more is not worth its cost. No variance of theirs is below `least`
    times that of all points.
    """
    size, points = points.shape[1], np.asfortranarray(points)
    spread = np.cov(points, rowvar=False).reshape(size, size)
    best, best_score = None, -math.inf
    for components in range(1, most + 1):
        free = components * (1 + size + size * (size + 1) / 2)
        if components > 1 and effective < 10.0 * free:
            break
        candidate, log_likelihood = _maximise(rng, points, components, spread, effective, least)
        score = log_likelihood - max(0.5 * free * math.log(effective) / effective, components * worthwhile)
        if score <= best_score:
            break
        best, best_score = candidate, score
    assert best is not None
    return best


def _maximise(
    rng: np.random.Generator, points: Array, components: int, spread: Array, effective: float, relative: float
) -> tuple[StudentMixture, float]:
    """The fit with so many components, and its mean log likelihood."""
    size = points.shape[1]
    centres = _spread_out(rng, points, components, spread)
    # Scales are kept from collapsing onto repeated points, and are drawn to the diagonal when draws are few.
    variances = np.diag(spread)
    least = np.where(
        variances > 0.0, np.minimum(1e-12, 1e-3 * variances), 1e-12
    )  # in any unit: coordinates may be of 1e-9
    ridge = np.diag(variances) * relative + np.diag(least)
    toward = size / (size + effective / components)
    factor = np.linalg.cholesky(_shrunk(spread, toward) + ridge)
    mixture = StudentMixture(np.full(components, 1 / components), centres, np.stack([factor] * components))
    log_likelihood = -math.inf
    for _ in range(STEPS):
        distances = mixture.distances(points)
        parts = mixture.log_parts_at(distances)
        total = np.logaddexp.reduce(parts, axis=0)
        before, log_likelihood = log_likelihood, float(total.mean())
        if log_likelihood - before < 1e-5:
            break
        mixture = _step(points, distances, np.exp(parts - total), ridge, toward)
    return mixture, log_likelihood


def _step(points: Array, distances: list[Array], owned: Array, ridge: Array, toward: float) -> StudentMixture:
    """One step of expectation and maximisation, given the components' distances to the rows and shares of them."""
    size = points.shape[1]
    shares = np.maximum(owned.mean(axis=1), 1e-6)
    centres, factors = [], []
    for distance, membership in zip(distances, owned, strict=True):
        weight = membership * (DEGREES + size) / (DEGREES + distance)
        centre = np.einsum("r,ri->i", weight, points) / max(float(weight.sum()), 1e-300)
        away = points - centre
        scale = np.einsum("ri,rj->ij", weight[:, None] * away, away) / max(float(membership.sum()), 1e-300)
        centres.append(centre)
        factors.append(np.linalg.cholesky(_shrunk(scale, toward) + ridge))
    return StudentMixture(shares / shares.sum(), np.stack(centres), np.stack(factors))


def _shrunk(scale: Array, toward: float) -> Array:
    return (1.0 - toward) * scale + toward * np.diag(np.diag(scale))


def _spread_out(rng: np.random.Generator, points: Array, count: int, spread: Array) -> Array:
    """Starting centres among the points, each far from those before it (Arthur and Vassilvitskii 2007)."""
    scaled = points / np.sqrt(np.diag(spread) + 1e-300)
    chosen = [int(rng.integers(len(points)))]
    for _ in range(count - 1):
        near = np.min([np.square(scaled - scaled[centre]).sum(axis=1) for centre in chosen], axis=0)
        total = np.cumsum(near)
        chosen.append(min(int(np.searchsorted(total, rng.random() * total[-1])), len(points) - 1))
    return points[chosen]
