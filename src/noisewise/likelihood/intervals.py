"""Inference around a fit: profile-likelihood and exact intervals, likelihood-ratio tests, a parametric bootstrap.

The observed log likelihood and its gradient come from exact clouds, so nothing here is simulated except the bootstrap.
Notation: docs/derivations/likelihood.md. Which interval to use, and what each one covers: docs/likelihood-intervals.md.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, roots_legendre
from scipy.stats import chi2

from noisewise import checks
from noisewise.engine import Engine, Threads
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.fit import Fit
from noisewise.likelihood.cloud import POWERS, exact_cloud
from noisewise.likelihood.coordinates import Coordinates
from noisewise.likelihood.em import EM
from noisewise.likelihood.maximise import Objective
from noisewise.likelihood.parts import Part, parts_of
from noisewise.likelihood.sufficient import condensed
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.model import Model
from noisewise.numerics import double
from noisewise.release import Release
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator

Array = np.ndarray[Any, Any]
Values = dict[str, Any]

BOOTSTRAP = 900
"""Purpose number of the bootstrap's random streams; replicate r has the key (BOOTSTRAP, r)."""
NEAR = 1e-9
"""Share of the way from the estimate to the boundary at which the boundary counts as reached."""


@dataclass(frozen=True)
class Interval:
    """Confidence interval of one scalar parameter; unpacks as `low, high`.

    `low_end` and `high_end` say what ended it: "crossing" (the criterion is met there), "boundary" (the parameter
    space ends first) or "unbounded" (the criterion is never met, however far one goes).
    """

    parameter: str
    method: str
    level: float
    low: float
    high: float
    low_end: str = "crossing"
    high_end: str = "crossing"
    message: str = ""

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))


@dataclass(frozen=True)
class LikelihoodRatioTest:
    """2 (l_max - l_restricted) and its chi-square p-value; `estimate` maximises under the hypothesis."""

    statistic: float
    degrees_of_freedom: int
    p_value: float
    estimate: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Refits to simulated releases. Failed refits are in no summary; `failures` counts them by reason."""

    estimates: Mapping[str, Array]
    """By name; the first axis is the replicate."""
    draws: int
    seed: int
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many of the draws gave no estimate."""
        return sum(self.failures.values())

    @property
    def standard_error(self) -> dict[str, Any]:
        """Standard deviation over the replicates."""
        return {name: np.std(value, axis=0, ddof=1)[()] for name, value in self.estimates.items()}

    def interval(self, level: float = 0.95) -> dict[str, tuple[Any, Any]]:
        """Percentile intervals."""
        _check_level("Bootstrap", level)
        tails = [(1 - level) / 2, (1 + level) / 2]
        ends = {name: np.quantile(value, tails, axis=0) for name, value in self.estimates.items()}
        return {name: (pair[0], pair[1]) for name, pair in ends.items()}


# The exact observed log likelihood ------------------------------------------------------------------------------------


class Observed:
    """l(theta) and its gradient in the free coordinates, by sums and integrals; and its maximum near a fit."""

    def __init__(self, who: str, model: Model, release: Release, fit: Fit) -> None:
        problem = Problem(model, release)
        _check_fit(who, release, fit)
        self.parts, self.coordinates = parts_of(problem), Coordinates(model)
        if tuple(self.coordinates.labels) != fit.labels:
            raise refusal(who, "fit", "must be a fit of this model", fit.labels, "Give the model that was fitted.")
        self.objective = Objective(self.parts, self.coordinates)
        free = self.coordinates.free_from(dict(fit.estimate))
        start = np.where(np.isfinite(free), free, np.sign(free) * 50.0)  # an estimate on the boundary, as good as
        self._clouds(start)  # what has no exact cloud is refused here
        self.free, self.top = self.maximise(start, np.ones(self.coordinates.size, bool))

    def _clouds(self, free: Array) -> Any:
        values = self.coordinates.values(free)
        return [exact_cloud(part, values) for part in self.parts]

    def at(self, free: Array) -> tuple[float, Array]:
        """Log likelihood and gradient; -inf where it is too small to be computed.

        The gradient is that of Q at its own parameters (Fisher's identity; see the derivation's score).
        """
        nothing = -math.inf, np.zeros(len(free))
        with np.errstate(all="ignore"):
            try:
                clouds = self._clouds(free)
            except InputError:  # a window that would have to be too wide
                return nothing
            small = [condensed(part, cloud) for part, cloud in zip(self.parts, clouds, strict=True)]
            value, gradient = sum(cloud.log_likelihood for cloud in clouds), self.objective.q(free, small)[1]
        return (value, gradient) if np.isfinite(value) and np.all(np.isfinite(gradient)) else nothing

    def curvature(self, free: Array) -> Array:
        """Observed information in the free coordinates, less the term that vanishes with the score."""
        information = self.objective.score_and_information(free, self._clouds(free))[1]
        if not self.coordinates.is_square:
            return information
        jacobian = self.coordinates.jacobian(free)
        return jacobian.T @ information @ jacobian

    def maximise(self, free: Array, moving: Array) -> tuple[Array, float]:
        """BFGS over the `moving` free coordinates, started with Louis's information; returns the top and its height."""
        value, gradient = self.at(free)
        if not np.isfinite(value) or not moving.any():
            return free, value
        inverse = _positive_inverse(self.curvature(free)[np.ix_(moving, moving)])
        gradient = gradient[moving]
        for _ in range(500):
            step = inverse @ gradient
            rise = float(gradient @ step)
            if rise < 1e-11:
                return free, value
            step *= min(1.0, 5.0 / np.max(np.abs(step)))
            while True:
                trial = free.copy()
                trial[moving] += step
                new, new_gradient = self.at(trial)
                if new > value + 1e-4 * float(gradient @ step):
                    break
                step *= 0.5
                if float(gradient @ step) < 1e-11:  # no rise left that the arithmetic could show
                    return free, value
            inverse = _updated(inverse, step, gradient - new_gradient[moving])
            free, value, gradient = trial, new, new_gradient[moving]
        raise InferenceError("intervals: the log likelihood has no maximum within 500 steps. Is the model identified?")

    def restricted(self, free: Array, moving: Array) -> tuple[Array, float]:
        """The maximum with some coordinates held; higher than the fit's own maximum is an error, never hidden."""
        free, value = self.maximise(free, moving)
        if value > self.top + 1e-6:
            raise InferenceError(
                f"intervals: the likelihood is higher by {value - self.top:.3g} at {self.coordinates.values(free)} "
                "than at the fit: it has several tops. Fit again with this start.",
                self.coordinates.values(free),
            )
        return free, value


def _positive_inverse(matrix: Array) -> Array:
    """Inverse of a symmetric matrix, its eigenvalues made positive."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    safe = np.maximum(np.abs(values), 1e-8 * max(float(np.max(np.abs(values))), 1e-300))
    return (vectors / safe) @ vectors.T


def _updated(inverse: Array, step: Array, fall: Array) -> Array:
    """The BFGS update of the inverse information from a step and the fall of the gradient along it."""
    curve = float(step @ fall)
    if curve <= 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(fall)):
        return inverse
    shear = np.eye(len(step)) - np.outer(step, fall) / curve
    return shear @ inverse @ shear.T + np.outer(step, step) / curve


# One scalar parameter -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scalar:
    """A scalar parameter that moves by itself: its place among the parameters and among the free coordinates."""

    label: str
    row: int
    column: int
    low: float
    high: float


def _scalar(who: str, argument: str, observed: Observed, name: Any) -> _Scalar:
    coordinates = observed.coordinates
    label = name.replace(" ", "") if isinstance(name, str) else name
    if label not in coordinates.labels:
        rule = "must be one scalar parameter, or one entry"
        raise refusal(who, argument, rule, name, checks.nearest(name, coordinates.labels))
    row = coordinates.labels.index(label)
    jacobian = coordinates.jacobian(observed.free)
    (columns,) = np.nonzero(jacobian[row])
    if len(columns) != 1 or np.count_nonzero(jacobian[:, columns[0]]) != 1:
        advice = "Test the whole parameter with likelihood_ratio_test."
        raise refusal(who, argument, "must move by itself, not tied to other entries", name, advice)
    owner = label.split("[")[0]
    low, high = _bounds(coordinates.transforms[owner].codomain)
    shape, start = coordinates.shapes[owner], coordinates.labels.index(label) - _first(coordinates, owner)
    ends = [float(np.broadcast_to(end, shape).reshape(-1)[start]) for end in (low, high)]
    return _Scalar(label, row, int(columns[0]), ends[0], ends[1])


def _first(coordinates: Coordinates, owner: str) -> int:
    return [label.split("[")[0] for label in coordinates.labels].index(owner)


def _bounds(support: Any) -> tuple[Any, Any]:
    """Ends of an interval-like support; infinite where it has none."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return np.asarray(getattr(support, "lower_bound", -np.inf)), np.asarray(getattr(support, "upper_bound", np.inf))


@dataclass
class _Line:
    """The parameter's value along its free coordinate, and the walk outwards to where a criterion turns positive."""

    observed: Observed
    scalar: _Scalar

    def value(self, u: float) -> float:
        free = self.observed.free.copy()
        free[self.scalar.column] = u
        with double():
            flat = self.observed.coordinates.flat(self.observed.coordinates.constrained(jnp.asarray(free)))
            return float(flat[self.scalar.row])

    @property
    def start(self) -> float:
        return float(self.observed.free[self.scalar.column])

    @property
    def step(self) -> float:
        """About one standard error, others maximised out; half a unit where there is no such thing."""
        variance = _positive_inverse(self.observed.curvature(self.observed.free))
        length = math.sqrt(max(float(variance[self.scalar.column, self.scalar.column]), 0.0))
        return length if 0 < length < 10.0 else 0.5

    def walk(self, criterion: Callable[[float], float], start: float, step: float) -> tuple[float, str]:
        """From `start`, where the criterion is negative, to its first change of sign; steps double."""
        begin, inside = self.value(start), start
        rising = self.value(start + step) > begin
        bound = self.scalar.high if rising else self.scalar.low
        for doubling in range(40):
            outside = start + step * 2.0**doubling
            before, after = self.value(inside), self.value(outside)
            gone = not np.isfinite(after) or after == before
            if not gone and criterion(outside) > 0:
                root = float(brentq(criterion, inside, outside, xtol=1e-11, rtol=1e-13))
                self._refuse_a_cliff(criterion, root)
                return self.value(root), "crossing"
            if np.isfinite(bound) and (gone or abs(after - bound) <= NEAR * abs(begin - bound)):
                return bound, "boundary"
            if gone:
                break
            inside = outside
        return bound, "boundary" if np.isfinite(bound) else "unbounded"

    def _refuse_a_cliff(self, criterion: Callable[[float], float], root: float) -> None:
        """The likelihood could not be computed beyond: that is no crossing."""
        if abs(criterion(root)) > 1e-3:
            raise InferenceError(
                f"intervals: the likelihood cannot be computed beyond {self.scalar.label} = {self.value(root):.6g}, "
                "before the interval's end. Use the bootstrap, or a narrower prior's support."
            )


# Profile likelihood ---------------------------------------------------------------------------------------------------


def profile_interval(model: Model, release: Release, fit: Fit, name: str, level: float = 0.95) -> Interval:
    """{x: 2 (l_max - l_profile(x)) <= chi-square quantile}, the other parameters maximised out at each x.

    `name` is a scalar parameter or an entry such as "beta[1]". It needs a likelihood that `EM()` can compute. The ends
    are the first crossings on either side of the estimate.
    """
    who = "profile_interval"
    _check_level(who, level)
    observed = Observed(who, model, release, fit)
    line = _Line(observed, _scalar(who, "name", observed, name))
    moving = np.ones(observed.coordinates.size, bool)
    moving[line.scalar.column] = False
    quantile = float(chi2.ppf(level, 1))
    latest = observed.free.copy()  # the other parameters' last maximiser: a warm start for the next

    def criterion(u: float) -> float:
        trial = latest.copy()
        trial[line.scalar.column] = u
        best, value = observed.restricted(trial, moving)
        if np.isfinite(value):
            latest[:] = best
        return min(2.0 * (observed.top - value) - quantile, 1e6)

    step = line.step
    ends = []
    for side in (-1.0, 1.0):
        latest[:] = observed.free
        ends.append(line.walk(criterion, line.start, side * step))
    return _interval(line, "profile likelihood", level, ends)


def _interval(line: _Line, method: str, level: float, ends: list[tuple[float, str]], message: str = "") -> Interval:
    """Ends in order, with a sentence on each that is no crossing."""
    if ends[0][0] > ends[1][0]:
        ends = ends[::-1]
    said = [message] if message else []
    for side, (value, kind) in zip(("low", "high"), ends, strict=True):
        if kind == "boundary" and not message:
            said.append(f"The {side} end is the boundary of {line.scalar.label}'s space, {value:g}.")
        if kind == "unbounded":
            said.append(f"The {side} end is unbounded: the release does not rule out any such value.")
    (low, low_end), (high, high_end) = ends
    return Interval(line.scalar.label, method, float(level), low, high, low_end, high_end, " ".join(said))


def likelihood_ratio_test(model: Model, release: Release, fit: Fit, values: Mapping[str, Any]) -> LikelihoodRatioTest:
    """Test that parameters (or entries such as "beta[1]") have the given values, the others maximised out.

    Degrees of freedom: the free coordinates held fixed (shares that sum to one have one fewer than entries). The
    p-value is chi-square's, an approximation; docs/likelihood-intervals.md says how good it is for one release.
    """
    who = "likelihood_ratio_test"
    if not isinstance(values, Mapping) or not values:
        raise refusal(who, "values", "must be a dict of parameters and values", values, "Give {'theta': 30.0}.")
    observed = Observed(who, model, release, fit)
    coordinates = observed.coordinates
    held = {name: np.array(value, dtype=float) for name, value in coordinates.values(observed.free).items()}
    moving = np.ones(coordinates.size, bool)
    touched: list[str] = []
    for name, value in values.items():
        if name in coordinates.names:
            owner, start = name, sum(int(np.prod(coordinates.free[n])) for n in _before(coordinates.names, name))
            columns = np.arange(start, start + int(np.prod(coordinates.free[name])))
            held[owner] = _value(who, name, value, coordinates.shapes[name])
        else:
            scalar = _scalar(who, "values", observed, name)
            owner, columns = scalar.label.split("[")[0], np.array([scalar.column])
            entry = scalar.row - _first(coordinates, owner)
            held[owner].reshape(-1)[entry] = _value(who, name, value, ())
        if not moving[columns].all():
            raise refusal(who, "values", "must fix a parameter once", name, "Leave one of the two out.")
        moving[columns] = False
        touched.append(owner)
    for owner in touched:
        _check_inside(who, coordinates, owner, held[owner])
    free = np.where(moving, observed.free, coordinates.free_from(held))
    best, value = observed.restricted(free, moving)
    statistic = max(2.0 * (observed.top - value), 0.0)
    degrees = int(np.sum(~moving))
    return LikelihoodRatioTest(statistic, degrees, float(chi2.sf(statistic, degrees)), coordinates.values(best))


def _before(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names[: names.index(name)]


def _value(who: str, name: str, value: Any, shape: tuple[int, ...]) -> Array:
    found = np.array(checks.numeric(who, f"values['{name}']", value, "Give a number or an array."))
    if found.shape != shape:
        raise refusal(who, f"values['{name}']", f"must have the shape {shape}", value, "See the model's prior.")
    return found


def _check_inside(who: str, coordinates: Coordinates, name: str, value: Array) -> None:
    transform = coordinates.transforms[name]
    with double():
        inside = bool(np.all(np.asarray(transform.codomain(jnp.asarray(value)))))
        inside = inside and bool(np.all(np.isfinite(np.asarray(transform.inv(jnp.asarray(value))))))
    if not inside:
        rule = "must lie inside the prior's support"
        raise refusal(who, f"values['{name}']", rule, value.tolist(), "Test a value away from the boundary.")


# Exact interval -------------------------------------------------------------------------------------------------------


def exact_interval(model: Model, release: Release, fit: Fit, level: float = 0.95) -> Interval:
    """All theta under which neither tail of the released value is smaller than (1 - level) / 2.

    The tails P_theta(S_dp <= observed) and P_theta(S_dp >= observed) are sums or integrals over s of the law times the
    noise's distribution function. The interval covers the truth with probability at least `level`, whatever it is:
    exactly `level` for a continuous release. It needs one scalar parameter that moves one scalar release one way.
    """
    who = "exact_interval"
    _check_level(who, level)
    problem = Problem(model, release)
    part = _one_of_each(who, problem)
    observed = Observed(who, model, release, fit)
    line = _Line(observed, _scalar(who, "model", observed, observed.coordinates.labels[0]))
    tails = _Tails(who, part, model.parameters[0])
    start, step, tail = line.start, line.step, (1.0 - level) / 2
    sign = _direction(who, _upper_tails(line, tails, start, step), model.parameters[0])
    ends, message = [], ""
    for index, side in ((1, -sign), (0, sign)):  # the upper tail rules out where the release would be too large

        def criterion(u: float, index: int = index) -> float:
            return tail - tails(line.value(u))[index]

        if criterion(start) <= 0:
            ends.append(line.walk(criterion, start, side * step))
            continue
        back, kind = line.walk(lambda u: -criterion(u), start, -side * step)
        if kind == "unbounded":
            raise InferenceError(
                f"{who}: every value of {line.scalar.label} is rejected at level {level}: model failure."
            )
        if kind == "boundary":
            message = (
                f"Every value of {line.scalar.label} is rejected: the release is further out than any explains. The "
                f"interval is the boundary {back:g} alone."
            )
            return _interval(line, "exact", level, [(back, kind), (back, kind)], message)
        ends.append((back, kind))
    _recheck(who, tails, sign, [end for end, _ in ends], model.parameters[0])
    return _interval(line, "exact", level, ends)


def _one_of_each(who: str, problem: Problem) -> Part:
    model, parts, advice = problem.model, parts_of(problem), "Use profile_interval or bootstrap."
    if len(model.parameters) != 1 or model.shape(model.parameters[0]) != ():
        raise refusal(who, "model", "must have one scalar parameter", model.parameters, advice)
    if len(parts) != 1 or parts[0].shape != ():
        raise refusal(who, "release", "must hold one scalar value", [part.name for part in parts], advice)
    (part,) = parts
    if not part.exact and not isinstance(part.mechanism, Additive):
        rule = "must have additive noise, whose tails are known"
        raise refusal(who, f"release['{part.name}']", rule, part.mechanism, advice)
    if not part.exact and not isinstance(part.mechanism, Lattice) and not _additive(part).has_intervals:
        rule = "must have noise with a distribution function that can be computed"
        raise refusal(who, f"release['{part.name}']", rule, part.mechanism, advice)
    return part


def _upper_tails(line: _Line, tails: "_Tails", start: float, step: float) -> list[float]:
    """P_theta(S_dp >= observed) on a grid about the estimate, wide enough to see it change."""
    upper: list[float] = []
    for widening in 2.0 ** np.arange(7):  # an estimate on the boundary needs more than a few standard errors
        upper = [tails(line.value(start + step * widening * k))[1] for k in range(-3, 4)]
        if max(upper) - min(upper) > 1e-6:
            break
    return upper


def _direction(who: str, upper: list[float], name: str) -> float:
    """+1 where the released value grows with the parameter, -1 where it falls; refused where it does both."""
    changes = np.diff(upper)
    if np.all(changes >= -1e-8) and changes.max() > 1e-8:
        return 1.0
    if np.all(changes <= 1e-8) and changes.min() < -1e-8:
        return -1.0
    rule = "must move the release one way, else the values that pass need not be an interval"
    raise refusal(who, "model", rule, name, "Use profile_interval or bootstrap.")


def _recheck(who: str, tails: "_Tails", sign: float, ends: list[float], name: str) -> None:
    """The tails go one way over the whole interval too, as far as a grid of it can show."""
    low, high = min(ends), max(ends)
    if np.isfinite(low) and np.isfinite(high) and high > low:
        inner = low + (high - low) * np.linspace(0.02, 0.98, 13)
        if _direction(who, [tails(theta)[1] for theta in inner], name) != sign:
            _direction(who, [0.0, 1.0, 0.0], name)


def _additive(part: Part) -> Additive:
    assert isinstance(part.mechanism, Additive)
    return part.mechanism


class _Tails:
    """P_theta(S_dp <= observed) and P_theta(S_dp >= observed)."""

    def __init__(self, who: str, part: Part, parameter: str) -> None:
        self.who, self.part, self.parameter = who, part, parameter
        self.value = float(np.asarray(part.item.value))
        self.given = self._lattice_tails() if self._needs_sum() else self._closed_tails

    def __call__(self, theta: float) -> tuple[float, float]:
        return self._summed(theta) if self.part.discrete else self._integrated(theta)

    # Given s ------------------------------------------------------------------------------------------------------

    def _needs_sum(self) -> bool:
        return not self.part.exact and not _additive(self.part).has_intervals

    def _closed_tails(self, s: Array) -> tuple[Array, Array]:
        if self.part.exact:
            return (s <= self.value).astype(float), (s >= self.value).astype(float)
        mechanism = _additive(self.part)
        beyond = self.value + 1.0 if isinstance(mechanism, Lattice) else self.value  # log_interval leaves out its end
        with np.errstate(divide="ignore", under="ignore"):
            lower = np.exp(mechanism.log_interval(-np.inf, beyond, s))
            return lower, np.exp(mechanism.log_interval(self.value, np.inf, s))

    def _lattice_tails(self) -> Callable[[Array], tuple[Array, Array]]:
        """Running sums of integer noise that has no closed distribution function."""
        reach = 64
        while True:
            probability = np.exp(_additive(self.part).noise_log_prob(np.arange(-reach, reach + 1.0)))
            if probability.sum() > 1.0 - 1e-12 or reach > 2**22:
                break
            reach *= 2
        below = np.minimum(np.cumsum(probability), 1.0)

        def at_most(z: Array) -> Array:
            index = np.clip(z + reach, -1, 2 * reach).astype(int)
            return np.where(index < 0, 0.0, below[np.maximum(index, 0)])

        return lambda s: (at_most(self.value - s), at_most(s - self.value))  # the noise is symmetric

    # Over s ---------------------------------------------------------------------------------------------------------

    def _log_law(self, theta: float, s: Array) -> Array:
        """log density, -inf off the support."""
        found = self.part.law.log_prob(s, {self.parameter: np.full(len(s), theta)})
        return np.where(np.isnan(found), -np.inf, found)

    def _sample(self, theta: float) -> Array:
        """A few values of s, to know where it lies; nothing else rests on them."""
        return self.part.law.draw(np.random.default_rng(0), {self.parameter: np.full(512, theta)}, 512)

    def _finished(self, theta: float, log_mass: Array, s: Array) -> tuple[float, float]:
        """Tails, each with the mass that is missing added: the interval can only get longer by it."""
        mass = np.exp(log_mass)
        missing = 1.0 - float(mass.sum())
        if not abs(missing) < 1e-4:
            raise InferenceError(
                f"{self.who}: the law of '{self.part.name}' at {self.parameter} = {theta:.6g} sums to "
                f"{1.0 - missing:.6g}, not 1: its tails are too heavy for this, or its density is wrong."
            )
        lower, upper = (float(mass @ tail) + max(missing, 0.0) for tail in self.given(s))
        return lower, upper

    def _summed(self, theta: float) -> tuple[float, float]:
        sample = self._sample(theta)
        centre = float(np.round(np.median(sample)))
        reach = 2.0 ** math.ceil(math.log2(32.0 + 8.0 * float(np.std(sample))))
        while True:
            s = centre + np.arange(-reach, reach + 1.0)
            log_mass = self._log_law(theta, s)
            if 1.0 - math.exp(logsumexp(log_mass)) < 1e-11 or reach > 2**20:
                return self._finished(theta, log_mass, s)
            reach *= 2.0

    def _integrated(self, theta: float) -> tuple[float, float]:
        before, order = self._panels(theta, 16), 32
        while True:
            after = self._panels(theta, order)
            if max(abs(after[0] - before[0]), abs(after[1] - before[1])) < 1e-9 or order >= 128:
                return after
            before, order = after, 2 * order

    def _panels(self, theta: float, order: int) -> tuple[float, float]:
        """Gauss-Legendre panels that double in length away from the release and from the law's median."""
        nodes, weights = roots_legendre(order)
        sample = self._sample(theta)
        spread = float(np.quantile(sample, 0.84) - np.quantile(sample, 0.16)) + 1e-300
        scale = float(np.asarray(getattr(self.part.mechanism, "scale", spread)))
        with double():
            low, high = _bounds(self.part.law.function(**{self.parameter: jnp.asarray(theta)}).support)
        centres = ((self.value, scale), (float(np.median(sample)), spread))
        cuts = [c + side * unit * POWERS for c, unit in centres for side in (-1.0, 1.0)]
        edges = np.unique(np.clip(np.concatenate(cuts), float(low), float(high)))
        half = 0.5 * np.diff(edges)
        s = ((edges[:-1] + half)[:, None] + half[:, None] * nodes).ravel()
        log_weights = np.log((half[:, None] * weights).ravel())
        padding = len(POWERS) * 4 * order - len(s)  # one length whatever the support: one program
        s = np.concatenate([s, np.full(padding, s[0])])
        log_weights = np.concatenate([log_weights, np.full(padding, -np.inf)])
        return self._finished(theta, self._log_law(theta, s) + log_weights, s)


# Bootstrap ------------------------------------------------------------------------------------------------------------


def bootstrap(
    model: Model,
    release: Release,
    fit: Fit,
    draws: int,
    seed: int,
    estimator: Estimator | None = None,
    engine: Engine | None = None,
) -> Bootstrap:
    """Parametric bootstrap: releases simulated at the estimate, noise included, each fitted again from there.

    Replicate r depends on (seed, r) alone, so fewer draws are a prefix of more. A refit that does not converge, or
    cannot be made, is counted in `failures` and left out of the summaries.
    """
    who = "bootstrap"
    draws = checks.integer(who, "draws", draws, least=2, advice="Give, for example, 200.")
    seed = checks.integer(who, "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    estimator = EM() if estimator is None else estimator
    if not isinstance(estimator, Estimator):
        raise refusal(who, "estimator", "must be an estimator", estimator, "For example nw.EM() or nw.MCEM().")
    problem = Problem(model, release)
    parts_of(problem)  # refuses a model that is more than laws of parameters
    _check_fit(who, release, fit)
    found: dict[str, list[Any]] = {name: [] for name in fit.estimate}
    failures: Counter[str] = Counter()
    for replicate in range(draws):
        key = np.random.SeedSequence(seed, spawn_key=(BOOTSTRAP, replicate))
        again, reason = _refit(problem, fit, estimator, key, engine or Threads())
        if again is None:
            failures[reason] += 1
            continue
        for name, value in again.estimate.items():
            found[name].append(value)
    if min(len(kept) for kept in found.values()) < 2:
        raise InferenceError(f"{who}: of {draws} refits nearly all failed: {dict(failures)}.", dict(failures))
    return Bootstrap({name: np.stack(kept) for name, kept in found.items()}, draws, seed, dict(failures))


def _refit(
    problem: Problem, fit: Fit, estimator: Estimator, key: np.random.SeedSequence, engine: Engine
) -> tuple[Fit | None, str]:
    """A fit to one simulated release, or the reason why there is none."""
    from noisewise.likelihood import fit as refit  # this module is part of that package

    rng = np.random.default_rng(key)
    try:
        simulated = _simulated(problem, fit, rng)
        start, seed = dict(fit.estimate), int(rng.integers(2**31))
        settings: dict[str, Any] = {"engine": engine, "progress": False, "on_failure": "return"}
        again = refit(problem.model, simulated, estimator, start=start, seed=seed, **settings)
    except (InputError, InferenceError) as error:
        return None, str(error).split(";")[0]
    return (again, "") if again.status == "converged" else (None, again.status)


def _simulated(problem: Problem, fit: Fit, rng: np.random.Generator) -> Release:
    items = {}
    for name, item in problem.release.items():
        law = problem.model.law(name)
        parents = {parent: np.asarray(fit.estimate[parent])[None] for parent in law.parents}
        confidential = law.draw(rng, parents, 1)
        items[name] = item.mechanism.released(np.asarray(item.mechanism.sample(rng, confidential))[0])
    return Release(items)


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_level(who: str, level: Any) -> None:
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise refusal(who, "level", "must lie between 0 and 1", level, "Give 0.95 for a 95% interval.")


def _check_fit(who: str, release: Release, fit: Any) -> None:
    if not isinstance(fit, Fit):
        raise refusal(who, "fit", "must be a Fit", fit, "Give the result of nw.fit(model, release, ...).")
    if fit.release_hash != release.hash:
        raise refusal(
            who, "fit", "must be a fit to this release", fit.release_hash, "Fit this release, or give that one."
        )


__all__ = [
    "Bootstrap",
    "Interval",
    "LikelihoodRatioTest",
    "bootstrap",
    "exact_interval",
    "likelihood_ratio_test",
    "profile_interval",
]
