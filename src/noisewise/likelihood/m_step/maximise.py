"""The M-step, and derivatives of the observed log likelihood, from weighted clouds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional.rows import RowMoments
from noisewise.likelihood.e_step.by_rows import RowClouds
from noisewise.likelihood.e_step.cloud import Cloud, Clouds
from noisewise.likelihood.e_step.measured import NormalMeasured
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.units import unit_free
from noisewise.numerics import Array, Compiled, double

CHUNK = 2**22
"""Numbers given to a program at once."""
GROUP = 2**13
"""Numbers that a program works on at once: its intermediate results stay in a processor's cache."""


class Objective:
    """Q(theta) = sum_k w_k log pi(s_k | theta) over all parts, with derivatives in the free coordinates."""

    def __init__(self, parts: list[Part], coordinates: Coordinates) -> None:
        self.parts, self.coordinates = parts, coordinates
        self._q = [self._compiled(part) for part in parts]
        self._moments = [self._louis(part) for part in parts]
        self._affine = [self._louis_of_points(part) for part in parts]

    def _compiled(self, part: Part) -> Compiled:
        def all_of(free: Any, s: Any, weight: Any, place: Any) -> Any:
            def of_group(s: Any, weight: Any) -> Any:
                def q(free: Any) -> Any:
                    values = self.coordinates.constrained(free)
                    each = jax.vmap(lambda one: part.log_prob(values, one, place))(s)
                    return jnp.sum(jnp.where(weight != 0, weight * each, 0.0))

                return q(free), jax.grad(q)(free), jax.hessian(q)(free)

            return _over_groups(of_group, s, weight)

        return part.compiled("q", lambda: all_of)

    def _louis(self, part: Part) -> Compiled:
        """Sums over values, by entry, of the complete score lambda and of lambda' + lambda lambda^T, by w and w^2."""

        def moments(x: Any, s: Any, weight: Any, squared: Any, place: Any) -> Any:
            def log_prob(x: Any, one: Any) -> Any:
                return part.log_prob(self._values(x), one, place)

            def of_group(s: Any, weight: Any, squared: Any) -> Any:
                score = jax.vmap(lambda one: jax.jacfwd(log_prob)(x, one))(s)  # (K, entries, d)
                curve = jax.vmap(lambda one: jax.jacfwd(jax.jacfwd(log_prob))(x, one))(s)
                score = jnp.where(weight[..., None] > 0, score, 0.0)
                curve = jnp.where(weight[..., None, None] > 0, curve, 0.0)
                outer = score[..., :, None] * score[..., None, :]
                both = curve + outer
                return {
                    "first": jnp.einsum("ke,ked->ed", weight, score),
                    "second": jnp.einsum("ke,kedf->edf", weight, both),
                    "complete": jnp.einsum("ke,kedf->edf", weight, curve),
                    "squared": jnp.sum(squared, 0),
                    "squared score": jnp.einsum("ke,ked->ed", squared, score),
                    "squared outer": jnp.einsum("ke,kedf->edf", squared, outer),
                    "squared both": jnp.einsum("ke,kedf->edf", squared, both),
                    "squared both score": jnp.einsum("ke,kedf,ked->edf", squared, both, score),
                    "squared both both": jnp.einsum("ke,kedf->edf", squared, both**2),
                    "both and score": jnp.einsum("ke,kedf,keg->dfg", squared, both, score),
                }

            return _over_groups(of_group, s, weight, squared)

        return part.compiled("louis", lambda: moments)

    def _louis_of_points(self, part: Part) -> Compiled:
        """Score, complete information and the score's variance, summed over entries, from a streamed cloud.

        lambda is affine in b(s), so its mean and variance follow from its values at the points.
        """

        def moments(x: Any, s: Any, weight: Any, spread: Any, place: Any) -> Any:
            def log_prob(x: Any, one: Any) -> Any:
                return part.log_prob(self._values(x), one, place)

            def at_point(point: Any) -> Any:
                one, w = point
                curve = jax.hessian(lambda y: jnp.sum(w * log_prob(y, one)))(x)
                return jax.jacfwd(log_prob)(x, one), curve

            score, curve = jax.lax.map(at_point, (s, weight))  # point by point: half the memory
            ahead = [one - score[0] for one in score[1:]]
            variance = sum((one.T * spread[a, b]) @ two for a, one in enumerate(ahead) for b, two in enumerate(ahead))
            mean = sum(weight[k] @ score[k] for k in range(len(score)))
            return mean, -jnp.sum(curve, axis=0), variance

        return part.compiled("louis of points", lambda: moments)

    def _values(self, x: Any) -> Any:
        """Parameters from the coordinates in which information is reported."""
        return self.coordinates.split(x) if self.coordinates.is_square else self.coordinates.constrained(x)

    def _in_double(self, x: Array) -> Any:
        with double():
            return jax.tree.map(np.asarray, self._values(jax.device_put(x)))

    def q(self, free: Array, clouds: Iterable[Cloud]) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian of Q."""
        size = self.coordinates.size
        total, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
        for number, cloud in enumerate(clouds):
            place = self.parts[number].place
            for s, weight, _ in _chunks(cloud.values, cloud.weights, None):
                with double():
                    parts = [np.asarray(piece) for piece in self._q[number](free, s, weight, place)]
                total, gradient, hessian = total + float(parts[0]), gradient + parts[1], hessian + parts[2]
        return total, gradient, hessian

    def maximise(self, free: Array, clouds: Iterable[Cloud], iterations: int = 100) -> tuple[Array, Array]:
        """Damped Newton ascent of Q from `free`, along which Q never falls: its end, and the coordinates' units there.

        Where Q is costly it ends once a step is a small share of the first: a rise of Q is all that EM needs, and its
        steps shrink with EM's own.
        """
        value, gradient, hessian = self.q(free, clouds)
        share, enough = _share(clouds), 1e-12
        for _ in range(iterations):
            unit = self.coordinates.unit(-np.diag(hessian))
            step = _ascent_direction(gradient, hessian, unit, self.coordinates.reach(free, unit))
            scale = 1.0
            while True:
                trial = free + scale * step
                new = self.q(trial, clouds)
                if np.isfinite(new[0]) and new[0] >= value - 1e-13 * abs(value):
                    break
                scale *= 0.5
                if scale < 1e-12:
                    return free, unit
            moved = np.max(np.abs(trial - free) / (unit + np.abs(free)))
            free, (value, gradient, hessian) = trial, new
            if moved < enough:
                break
            enough = max(enough, share * moved)
        return free, unit

    def stepped(self, free: Array, step: Array) -> Array:
        """`free` after a step in the coordinates in which information is reported, shortened to stay inside."""
        if not self.coordinates.is_square:
            return free + step
        with double():
            x = np.asarray(self.coordinates.flat(self.coordinates.constrained(jax.device_put(free))))
        for _ in range(60):
            new = self.coordinates.free_from(self.coordinates.split(x + step))
            if np.all(np.isfinite(new)):
                return new
            step = 0.5 * step
        return free

    def score_and_information(self, free: Array, clouds: Iterable[Cloud]) -> "Louis":
        """Observed score and information (Louis 1982) of these clouds."""
        x = free
        if self.coordinates.is_square:
            with double():
                x = np.asarray(self.coordinates.flat(self.coordinates.constrained(jax.device_put(free))))
        nothing = Louis.nothing(len(x))
        if isinstance(clouds, RowClouds):
            purpose = "square" if self.coordinates.is_square else "free"
            by_rows = [_of_rows(nothing, one) for one in clouds.moments(x, self._values, purpose)]
            return sum((self._of_part(number, x, clouds[number]) for number in clouds.by.others), sum(by_rows, nothing))
        return sum((self._of_part(number, x, cloud) for number, cloud in enumerate(clouds)), nothing)

    def information_of_some(self, free: Array, clouds: Clouds) -> Array:
        """About the observed information: that of every part's first piece, times the number of pieces."""
        with double():
            x = np.asarray(self.coordinates.flat(self.coordinates.constrained(jax.device_put(free))))
        first = [(number, part) for number, part in enumerate(self.parts) if part.place == 0]
        return sum((part.step * self._of_part(n, x, clouds[n]).information for n, part in first), np.zeros(()))

    def slope(self, free: Array, louis: "Louis", steps: float, clouds_at: Callable[[Array], Iterable[Cloud]]) -> Array:
        """Minus the slope of the observed score: the information where the score jumps, as for a law with a kink.

        Central differences; each free coordinate moves by `steps` standard errors, reckoned from the complete
        information plus the complete score's variance given the release. The score itself needs no second derivative,
        so it is right for such laws too.
        """
        square = self.coordinates.is_square
        jacobian = self.coordinates.jacobian(free) if square else np.eye(len(free))
        scale = np.diag(jacobian.T @ (np.abs(louis.complete) + np.abs(louis.complete - louis.information)) @ jacobian)
        moves = np.diag(steps / np.sqrt(np.maximum(np.abs(scale), 1e-300)))
        ends = [[self.score_and_information(u, clouds_at(u)).score for u in (free - h, free + h)] for h in moves]
        slopes = [(high - low) / (2.0 * h.max()) for (low, high), h in zip(ends, moves, strict=True)]
        slope = -np.linalg.solve(jacobian.T, np.array(slopes))
        return np.asarray(0.5 * (slope + slope.T))

    def _of_part(self, number: int, x: Array, cloud: Cloud) -> "Louis":
        part = self.parts[number]
        if isinstance(part, NormalMeasured):
            behind = Objective([part.statistic], self.coordinates)._of_part(0, x, part.behind(self._in_double(x)))
            return replace(_louis(self._sums(number, x, cloud.values, cloud.weights, None)), complete=behind.complete)
        if cloud.spread is not None:
            with double():
                moments = self._affine[number](x, cloud.values, cloud.weights, cloud.spread, self.parts[number].place)
                score, complete, variance = (np.asarray(one) for one in moments)
            return replace(Louis.nothing(len(x)), score=score, information=complete - variance, complete=complete)
        if cloud.groups:
            lanes = [(cloud.values[g :: cloud.groups], cloud.weights[g :: cloud.groups]) for g in range(cloud.groups)]
            return _louis_of_groups([self._sums(number, x, *lane, None) for lane in lanes], [w.sum() for _, w in lanes])
        return _louis(self._sums(number, x, *_by_level(self.parts[number], cloud)))

    def _sums(self, number: int, x: Array, values: Array, weights: Array, squared: Array | None) -> dict[str, Array]:
        sums: dict[str, Array] = {}
        for s, weight, square in _chunks(values, weights, squared):
            with double():
                piece = self._moments[number](x, s, weight, square, self.parts[number].place)
                sums = {name: np.asarray(one) + sums.get(name, 0.0) for name, one in piece.items()}
        return sums


@dataclass(frozen=True)
class Louis:
    """Observed score and information, their Monte Carlo variances and biases, and the complete information.

    The complete information is what the confidential statistic itself would have given, on average given the release.
    """

    score: Array
    information: Array
    noise: Array
    """Covariance of the score."""
    complete: Array
    information_noise: Array
    """Variance of every entry of the information, at these parameters."""
    bias: Array
    """Bias of the score, by the delta method: normalised weights pull each entry's mean towards the model's."""
    information_bias: Array
    """Bias of the information, likewise: a sample shows too little of the variance of lambda, so it is too large."""
    cross: Array
    """Covariance of every entry of the information with the score."""

    @classmethod
    def nothing(cls, size: int) -> "Louis":
        """The moments of no parts: all zero."""
        vector, square = np.zeros(size), np.zeros((size, size))
        return cls(vector, square, square, square, square, vector, square, np.zeros((size, size, size)))

    @property
    def has_top(self) -> bool:
        """Whether the information is positive definite, so that Newton's step goes up."""
        return bool(
            np.all(np.isfinite(self.information)) and np.linalg.eigvalsh(unit_free(self.information)[0]).min() > 0
        )

    def spread(self, tilt: Array) -> Array:
        """Variance of every entry of the information where the score's root is taken for the maximum.

        The root is off by I^-1 times the score's error. This error of the root, times the information's slope, adds to
        the information's own error: `tilt`, (d, d, d), is slope times I^-1.
        """
        moved = np.einsum("abc,cd,abd->ab", tilt, self.noise, tilt)
        return np.maximum(self.information_noise + 2.0 * np.einsum("abc,abc->ab", tilt, self.cross) + moved, 0.0)

    def newton(self) -> tuple[Array, Array]:
        """Newton's step to the root of the simulated score less its bias, and the root's Monte Carlo error.

        The error is at least 1e-8 standard errors: below that rounding decides.
        """
        inverse = np.linalg.inv(self.information)
        variance = np.maximum(np.diag(inverse @ self.noise @ inverse.T), 1e-16 * np.diag(inverse))
        return inverse @ (self.score - self.bias), np.sqrt(variance)

    def __add__(self, other: "Louis") -> "Louis":
        return Louis(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def _of_rows(nothing: Louis, one: RowMoments) -> Louis:
    """The moments from a pass over all rows, which is exact."""
    return replace(nothing, score=one.score, information=one.information, complete=one.complete)


def _louis(sums: dict[str, Array]) -> Louis:
    """Equation (1) of the derivation from sums entry by entry, and its variance by the delta method.

    With G = lambda' + lambda lambda^T, the information moves with one value by w (H - mean H), where
    H = -G + lambda m^T + m lambda^T and m is the mean of lambda.
    """
    mean, second = sums["first"], sums["second"]
    cross, square, total = sums["squared score"], sums["squared outer"], sums["squared"][:, None, None]
    outer = mean[:, :, None] * mean[:, None, :]
    mixed = cross[:, :, None] * mean[:, None, :]
    noise = square - mixed - mixed.transpose(0, 2, 1) + total * outer
    by_score = sums["squared both score"] * mean[:, None, :]
    own = np.einsum("edd->ed", square)[:, :, None] * (mean**2)[:, None, :]
    h = 2.0 * outer - second
    h_first = mixed + mixed.transpose(0, 2, 1) - sums["squared both"]
    h_second = sums["squared both both"] + own + own.transpose(0, 2, 1) + 2.0 * square * outer
    h_second = h_second - 2.0 * (by_score + by_score.transpose(0, 2, 1))
    spread = h_second - 2.0 * h * h_first + h**2 * total
    information = np.sum(outer - second, axis=0)
    of_score = sums["squared"][:, None] * mean - cross  # minus the sum of w^2 (lambda - m)
    of_information = np.sum(h * total - h_first + noise, axis=0)
    summed = (np.sum(noise, axis=0), -np.sum(sums["complete"], axis=0), np.maximum(np.sum(spread, axis=0), 0.0))
    return Louis(
        mean.sum(axis=0), information, *summed, of_score.sum(axis=0), of_information, _crossed(sums, h, h_first)
    )


def _crossed(sums: dict[str, Array], h: Array, h_first: Array) -> Array:
    """The sum over entries of w^2 (H - mean H) (lambda - m)."""
    mean, square = sums["first"], sums["squared outer"]
    own = np.einsum("eac,eb->abc", square, mean)
    centred = np.einsum("eab,ec->abc", h_first - h * sums["squared"][:, None, None], mean)
    far = np.einsum("eab,ec->abc", h, sums["squared score"])
    return np.asarray(own + own.transpose(1, 0, 2) - sums["both and score"] - far - centred)


def _louis_of_groups(groups: list[dict[str, Array]], weights: list[float]) -> Louis:
    """As `_louis`, of one entry whose values are independent from group to group only: groups in place of values."""
    names = ("first", "second", "complete")
    first, second, complete = (np.concatenate([one[name] for one in groups]) for name in names)
    weight, factor = np.asarray(weights), len(groups) / (len(groups) - 1)
    mean, both = first.sum(axis=0), second.sum(axis=0)
    outer = np.outer(mean, mean)
    moves = first - weight[:, None] * mean
    mixed = first[:, :, None] * mean
    turns = mixed + mixed.transpose(0, 2, 1) - second - weight[:, None, None] * (2.0 * outer - both)
    noise = factor * moves.T @ moves
    biases = -factor * weight @ moves, noise - factor * np.einsum("g,gab->ab", weight, turns)
    cross = factor * np.einsum("gab,gc->abc", turns, moves)
    spread = factor * np.sum(turns**2, axis=0)
    return Louis(mean, outer - both, noise, -complete.sum(axis=0), spread, *biases, cross)


def _share(clouds: Iterable[Cloud]) -> float:
    """Share of the first step at which an M-step may end: a tenth where clouds are made anew for every look at Q."""
    if isinstance(clouds, Clouds) and not clouds.held:
        return 0.1
    return 1e-3 if any(cloud.spread is not None for cloud in clouds) else 0.0


def _ascent_direction(gradient: Array, hessian: Array, unit: Array, reach: Array) -> Array:
    """Newton's direction where Q is concave, else along its eigenvectors with their curvature made positive.

    The eigenvectors, and which curvature counts as zero, depend on units, so units are divided out first.
    """
    matrix, scale = unit_free(-hessian, 1.0 / unit)
    curvature, vectors = np.linalg.eigh(matrix)
    safe = np.maximum(np.abs(curvature), 1e-8)
    step = vectors @ ((vectors.T @ (gradient / scale)) / safe) / scale
    with np.errstate(over="ignore"):
        return step * min(1.0, float(np.min(reach / np.maximum(np.abs(step), 1e-300))))


def _by_level(part: Part, cloud: Cloud) -> tuple[Array, Array, Array | None]:
    """Values, weights and their squares (None where the caller may square), each level of a whole number once."""
    levels = part.levels(cloud.values) if part.discrete else None
    if levels is None:
        return cloud.values, cloud.weights, None
    index, weight = cloud.values - levels[0], cloud.weights[:, 0]
    sums = [np.bincount(index, one, levels[1] - levels[0] + 1)[:, None] for one in (weight, weight**2)]
    return np.arange(levels[0], levels[1] + 1.0), sums[0], sums[1]


def _group(s: Any, weights: Any) -> int:
    """Values of s that make up a group."""
    return min(_power_of_two(len(s)), _power_of_two(GROUP // max(weights.shape[1], int(np.prod(s.shape[1:])))))


def _power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`; at least one."""
    return 1 << max(number, 1).bit_length() - 1


def _over_groups(work: Callable[..., Any], s: Any, *weights: Any) -> Any:
    """The sum of `work` over groups of values; traceable."""
    size = _group(s, weights[0])
    groups = [one.reshape(-1, size, *one.shape[1:]) for one in (s, *weights)]
    nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), jax.eval_shape(work, *(g[0] for g in groups)))

    def add(sums: Any, group: Any) -> Any:
        return jax.tree.map(jnp.add, sums, work(*group)), None

    return jax.lax.scan(add, nothing, groups)[0]


def _chunks(values: Array, weights: Array, squared: Array | None) -> Any:
    """A cloud in pieces of one length, the last filled up with weightless copies; powers of two, for few programs."""
    entries = weights.shape[1]
    most = _power_of_two(CHUNK // max(entries, int(np.prod(values.shape[1:]))))
    rows = min(_power_of_two(2 * len(values) - 1 if len(values) < 64 else len(values)), most)
    for start in range(0, len(values), rows):
        s, weight = values[start : start + rows], weights[start : start + rows]
        square = weight**2 if squared is None else squared[start : start + rows]
        missing = rows - len(s)
        if missing:
            s = np.concatenate([s, np.repeat(s[:1], missing, axis=0)])
            weight, square = (np.concatenate([one, np.zeros((missing, entries))]) for one in (weight, square))
        yield s.astype(float), weight, square
