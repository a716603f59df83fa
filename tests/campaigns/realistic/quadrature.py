"""Answers by quadrature and enumeration: plain NumPy, and nothing of the library under test."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from realistic.problem import Truth, probability

DROP = 32.0
"""Log units below the top that are kept: exp(-32) is 1e-14."""
FIRST = {1: 4001, 2: 161, 3: 41}
"""Points of an axis while the box is sought."""
START = {1: 129, 2: 49, 3: 25}
"""Points of an axis at first, once it has been found."""
MOST = {1: 2**20, 2: 2**22, 3: 2**24}
"""Points in all, at most."""

At = Callable[..., tuple[Any, dict[str, Any]]]


def integrate(
    at: At,
    box: Sequence[tuple[float, float]],
    *,
    tolerance: float = 1e-6,
    first: int | None = None,
    at_once: int = 2**13,
) -> Truth:
    """Mean, standard deviation and log evidence by the trapezoidal rule on a grid of one to three coordinates.

    `at(*coordinates)` takes flat arrays and returns the log of the joint density of coordinates and release, the
    Jacobian included, and for each label an array of values or a pair: mean and variance given the coordinates.
    Coordinates run over the whole line, so that the density falls off at every end of `box`. The box is narrowed to
    what lies within DROP of the top; then the mesh is halved until nothing moves by more than `tolerance` (in
    standard deviations; in log units for the evidence). `first` is the number of points of an axis while the box is
    sought, `at_once` the number of points that `at` is given at a time.
    """
    ends = [tuple(map(float, pair)) for pair in box]
    for _ in range(12):
        axes = [np.linspace(low, high, first or FIRST[len(ends)]) for low, high in ends]
        height, _moments = _evaluated(at, axes, at_once)
        narrowed = _within(height.reshape([len(axis) for axis in axes]), axes)
        widths = [(b - a) / (d - c) for (a, b), (c, d) in zip(narrowed, ends, strict=True)]
        ends = narrowed
        if min(widths) > 0.8:
            break
    number, found = START[len(ends)], None
    while number ** len(ends) <= MOST[len(ends)]:
        axes = [np.linspace(low, high, number) for low, high in ends]
        latest = _summed(*_evaluated(at, axes, at_once), axes)
        if found is not None and _apart(found, latest) < tolerance:
            return latest
        found, number = latest, 2 * number - 1
    raise AssertionError(f"not stable to {tolerance} with {number} points an axis: {found}, {latest}")


def stretched(w: Any) -> tuple[Any, Any]:
    """u = w - exp(-w) and log du/dw: a coordinate in which the long left tail of a log spread is short."""
    return w - np.exp(-w), np.log1p(np.exp(-w))


SPREAD = (-3.55, 5.0)
"""The box of w: a spread from exp(-38) to exp(5) times its unit."""


def _evaluated(at: At, axes: list[Any], at_once: int) -> tuple[Any, dict[str, Any]]:
    points = [mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")]
    heights, moments = [], []
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        for first in range(0, len(points[0]), at_once):
            height, values = at(*(point[first : first + at_once] for point in points))
            assert not np.isnan(height).any()
            heights.append(height)
            pairs = {label: value if isinstance(value, tuple) else (value, 0.0) for label, value in values.items()}
            moments.append({label: np.stack(np.broadcast_arrays(*pair, height)[:2]) for label, pair in pairs.items()})
    joined = {label: np.concatenate([piece[label] for piece in moments], axis=-1) for label in moments[0]}
    return np.concatenate(heights), joined


def _within(height: Any, axes: list[Any]) -> list[tuple[float, float]]:
    """The smallest box of what lies within DROP of the top, a cell to spare; four where the mesh is too coarse."""
    kept = height > height.max() - DROP
    narrowed = []
    for number, axis in enumerate(axes):
        others = tuple(other for other in range(len(axes)) if other != number)
        index = np.flatnonzero(kept.any(axis=others))
        spare = 1 if index[-1] - index[0] >= 8 else 4
        narrowed.append((axis[max(index[0] - spare, 0)], axis[min(index[-1] + spare, len(axis) - 1)]))
    return narrowed


def _summed(height: Any, moments: dict[str, Any], axes: list[Any]) -> Truth:
    cube = height.reshape([len(axis) for axis in axes])
    for number in range(len(axes)):
        for end in (0, -1):
            edge = cube.take(end, axis=number).max()
            assert edge < cube.max() - 25, f"the density has not fallen off at an end of axis {number}"
    evidence = logsumexp(height) + sum(np.log(axis[1] - axis[0]) for axis in axes)
    weight = np.exp(height - logsumexp(height))
    kept = weight > 0
    weight, found = weight[kept], {}
    for label, (first, variance) in moments.items():
        first = first[kept]
        centre = first[np.argmax(weight)]
        mean = weight @ (first - centre)
        spread = weight @ (first - centre - mean) ** 2 + weight @ variance[kept]
        found[label] = (float(centre + mean), float(np.sqrt(spread)))
        if label.startswith("P("):
            found[label] = probability(found[label][0])
    return Truth(found, float(evidence))


def _apart(one: Truth, other: Truth) -> float:
    worst = abs(one.log_evidence - other.log_evidence)
    for label, (mean, sd) in other.moments.items():
        scale = max(sd, 1e-300)
        worst = max(worst, abs(one.moments[label][0] - mean) / scale, abs(one.moments[label][1] - sd) / scale)
    return worst


def enumerated(log_joint: Any, values: dict[str, Any]) -> Truth:
    """The same where the unknown takes countably many values: one log weight for each, with `values` as above."""
    log_joint = np.asarray(log_joint, dtype=float).ravel()
    evidence = logsumexp(log_joint)
    weight, found = np.exp(log_joint - evidence), {}
    for label, value in values.items():
        first, variance = value if isinstance(value, tuple) else (value, 0.0)
        first, variance = np.ravel(first), np.broadcast_to(np.ravel(variance), np.size(first))
        centre = first[np.argmax(weight)]
        mean = weight @ (first - centre)
        found[label] = (
            float(centre + mean),
            float(np.sqrt(weight @ (first - centre - mean) ** 2 + weight @ variance)),
        )
    return Truth(found, float(evidence))


def summed_out(log_law: Any, log_noise: Any, values: Any) -> tuple[Any, tuple[Any, Any]]:
    """Log marginal density of a release, and mean and variance of the count behind it.

    `log_law` is parameters by counts, `log_noise` the log density of the release at each count of `values`.
    """
    joint = log_law + log_noise
    top = joint.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    weight = np.exp(joint - top)
    total = weight.sum(axis=-1)
    safe = np.where(total > 0, total, 1.0)
    centre = values[len(values) // 2]
    mean = weight @ (values - centre) / safe
    variance = np.maximum(weight @ (values - centre) ** 2.0 / safe - mean**2, 0.0)
    return np.log(total) + top[..., 0], (centre + mean, variance)


class Curve:
    """A log likelihood of one coordinate, tabulated finely and interpolated by cubic splines; several units at once."""

    def __init__(self, log_likelihood: Callable[[Any], Any], low: float, high: float, points: int = 1601) -> None:
        self.low, self.high = low, high
        grid = np.linspace(low, high, points)
        table = log_likelihood(grid)
        assert np.isfinite(table).all()
        self.spline = CubicSpline(grid, table, axis=0)

    def __call__(self, coordinate: Any) -> Any:
        """Values at `coordinate`, with an axis of units added at the end."""
        assert np.min(coordinate) >= self.low, (np.min(coordinate), self.low)
        assert np.max(coordinate) <= self.high, (np.max(coordinate), self.high)
        return self.spline(coordinate)

    def own(self, coordinates: Any) -> Any:
        """Each unit at a coordinate of its own: the last axis is the unit."""
        kept = np.clip(coordinates, self.low, self.high)
        parts = [CubicSpline(self.spline.x, self.spline(self.spline.x)[:, unit]) for unit in range(kept.shape[-1])]
        return np.stack([part(kept[..., unit]) for unit, part in enumerate(parts)], axis=-1)


def pooled(
    curve: Curve,
    location: Any,
    spread: Any,
    watched: dict[str, int],
    transform: Callable[[Any], Any],
    times: Any = 1.0,
    nodes: int = 181,
) -> tuple[Any, dict[str, tuple[Any, Any]]]:
    """Units whose coordinate is Normal(location, spread), integrated out unit by unit.

    Returns the log marginal density of all units, column j of the curve counting `times[j]`, at each value of the
    hyperparameters; and for each watched column the mean and variance of `transform(coordinate)`. Trapezoidal rule in
    the standardised coordinate over +-9: its error is exp(-2 pi^2 w^2) where a node's distance is 1/w of a width.
    """
    z = np.linspace(-9.0, 9.0, nodes)
    weight = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    coordinate = location[:, None] + spread[:, None] * z
    log_likelihood = curve(np.clip(coordinate, curve.low, curve.high))  # hyperparameters, nodes, units
    top = log_likelihood.max(axis=1, keepdims=True)
    terms = np.exp(log_likelihood - top) * weight[:, None]
    total = terms.sum(axis=1)
    value, moments = transform(coordinate), {}
    for label, column in watched.items():
        share = terms[:, :, column] / total[:, column, None]
        mean = (share * value).sum(axis=1)
        moments[label] = (mean, (share * (value - mean[:, None]) ** 2).sum(axis=1))
    return ((np.log(total) + top[:, 0]) * times).sum(axis=-1), moments
