"""The exact interval of one scalar parameter from one scalar release: tests inverted, tail by tail.

Why it covers at least its level, whatever the parameter is: docs/likelihood-intervals.md.
"""

import math

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, roots_legendre

from noisewise import checks
from noisewise.errors import InferenceError, Place, refusal
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import POWERS
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.intervals.scalar_interval import Interval, Line, scalar_of
from noisewise.likelihood.observed import Observed
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.model import Model
from noisewise.model.supports import declared_ends
from noisewise.numerics import Array, double
from noisewise.release import Release
from noisewise.results.fit import Fit


def exact_interval(model: Model, release: Release, fit: Fit, level: float = 0.95) -> Interval:
    """All theta under which neither tail of the released value is smaller than (1 - level) / 2.

    The tails P_theta(S_dp <= observed) and P_theta(S_dp >= observed) are sums or integrals over s of the law times the
    noise's distribution function. The interval covers the truth with probability at least `level`, whatever it is:
    exactly `level` for a continuous release. It needs one scalar parameter that moves one scalar release one way.
    """
    who = "exact_interval"
    checks.level(who, level)
    problem = Problem(model, release)
    part = _one_of_each(who, problem)
    observed = Observed(who, model, release, fit)
    line = Line(observed, scalar_of(who, "model", observed, observed.coordinates.labels[0]))
    tails = _Tails(who, part, model.parameters[0])
    start, step, tail = line.start, line.step, (1.0 - level) / 2
    sign = _direction(who, _upper_tails(line, tails, start, step), model.parameters[0])
    ends, message = [], ""
    for index, side in ((1, -sign), (0, sign)):  # the upper tail rules out parameters that make releases too small

        def criterion(u: float, index: int = index) -> float:
            return tail - tails(line.value(u))[index]

        if criterion(start) <= 0:
            ends.append(line.walk(criterion, start, side * step))
            continue
        back, kind = line.walk(lambda u: -criterion(u), start, -side * step)
        if kind == "unbounded":
            raise InferenceError(
                f"every value of {line.scalar.label} is rejected at level {level}: model failure.",
                who=who,
            )
        if kind == "boundary":
            message = (
                f"Every value of {line.scalar.label} is rejected: the release is further out than any explains. The "
                f"interval is the boundary {back:g} alone."
            )
            return line.interval("exact", level, [(back, kind), (back, kind)], message)
        ends.append((back, kind))
    _recheck(who, tails, sign, [end for end, _ in ends], model.parameters[0])
    return line.interval("exact", level, ends)


def _one_of_each(who: str, problem: Problem) -> Part:
    model, parts, advice = problem.model, parts_of(problem), "Use profile_interval or bootstrap."
    if len(model.parameters) != 1 or model.shape(model.parameters[0]) != ():
        raise refusal(who, "model", "must have one scalar parameter", model.parameters, advice)
    if len(parts) != 1 or parts[0].shape != ():
        raise refusal(who, "release", "must hold one scalar value", [part.name for part in parts], advice)
    (part,) = parts
    if not part.exact and not isinstance(part.mechanism, Additive):
        rule = "must have additive noise, whose tails are known"
        raise refusal(who, Place.of("release", part.name), rule, part.mechanism, advice)
    if not part.exact and not _additive(part).has_intervals:
        rule = "must have noise with a distribution function that can be computed"
        raise refusal(who, Place.of("release", part.name), rule, part.mechanism, advice)
    return part


def _upper_tails(line: Line, tails: "_Tails", start: float, step: float) -> list[float]:
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
    """Refuse a model whose tails do not go one way over the whole interval, as far as a grid of it can show."""
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

    def __call__(self, theta: float) -> tuple[float, float]:
        return self._summed(theta) if self.part.discrete else self._integrated(theta)

    def _given(self, s: Array) -> tuple[Array, Array]:
        """Both tails given each of the values s."""
        if self.part.exact:
            return (s <= self.value).astype(float), (s >= self.value).astype(float)
        mechanism = _additive(self.part)
        beyond = self.value + 1.0 if isinstance(mechanism, Lattice) else self.value  # log_interval leaves out its end
        with np.errstate(divide="ignore", under="ignore"):
            lower = np.exp(mechanism.log_interval(-np.inf, beyond, s))
            return lower, np.exp(mechanism.log_interval(self.value, np.inf, s))

    # Over s ---------------------------------------------------------------------------------------------------------

    def _log_law(self, theta: float, s: Array) -> Array:
        """log density, -inf off the support."""
        log_prob = self.part.law.log_prob(s, {self.parameter: np.full(len(s), theta)})
        return np.where(np.isnan(log_prob), -np.inf, log_prob)

    def _sample(self, theta: float) -> Array:
        """A few values of s, to know where it lies; nothing else rests on them."""
        return self.part.law.draw(np.random.default_rng(0), {self.parameter: np.full(512, theta)}, 512)

    def _finished(self, theta: float, log_mass: Array, s: Array) -> tuple[float, float]:
        """Tails, each with the mass that is missing added: the interval can only get longer by it."""
        mass = np.exp(log_mass)
        missing = 1.0 - float(mass.sum())
        if not abs(missing) < 1e-4:
            raise InferenceError(
                f"the law of '{self.part.name}' at {self.parameter} = {theta:.6g} sums to "
                f"{1.0 - missing:.6g}, not 1: its tails are too heavy for this, or its density is wrong.",
                who=self.who,
            )
        lower, upper = (float(mass @ tail) + max(missing, 0.0) for tail in self._given(s))
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
        """Tails by Gauss-Legendre panels that double in length away from the release and from the law's median."""
        nodes, weights = roots_legendre(order)
        sample = self._sample(theta)
        spread = float(np.quantile(sample, 0.84) - np.quantile(sample, 0.16)) + 1e-300
        scale = float(np.asarray(getattr(self.part.mechanism, "scale", spread)))
        with double():
            low, high = declared_ends(self.part.law.function(**{self.parameter: jnp.asarray(theta)}).support)
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
