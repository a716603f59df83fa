"""Inference around a fit: profile-likelihood intervals and likelihood-ratio tests.

Exact intervals are in exact_tails.py, the bootstrap in parametric_bootstrap.py; both can be imported from here.
Notation: docs/derivations/likelihood.md. Which interval to use, and what each one covers: docs/likelihood-intervals.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import chdtrc, gammaincinv

from noisewise import checks
from noisewise.errors import refusal
from noisewise.likelihood.intervals.exact_tails import exact_interval
from noisewise.likelihood.intervals.function_profile import function_interval
from noisewise.likelihood.intervals.parametric_bootstrap import Bootstrap, bootstrap
from noisewise.likelihood.intervals.scalar_interval import Interval, Line, first_of, scalar_of
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.observed import Observed
from noisewise.model import Model
from noisewise.numerics import Array, double
from noisewise.release import Release
from noisewise.results.fit import Fit
from noisewise.results.labels import owner_of


@dataclass(frozen=True)
class LikelihoodRatioTest:
    """2 (l_max - l_restricted) and its chi-square p-value; `estimate` maximises under the hypothesis."""

    statistic: float
    degrees_of_freedom: int
    p_value: float
    estimate: Mapping[str, Array]


def profile_interval(
    model: Model, release: Release, fit: Fit, name: str | Callable[..., Any], level: float = 0.95
) -> Interval:
    """{x: 2 (l_max - l_profile(x)) <= chi-square quantile}, the other parameters maximised out at each x.

    `name` is a scalar parameter, an entry such as "beta[1]", or a function of parameters by name, `lambda p1, p2: p1 -
    p2`; then l_profile(x) is the largest log likelihood where the function is x. It needs a likelihood that `EM()` can
    compute. The ends are the first crossings on either side of the estimate.
    """
    who = "profile_interval"
    checks.level(who, level)
    observed = Observed(who, model, release, fit)
    quantile = 2.0 * float(gammaincinv(0.5, level))  # of chi-squared, one degree of freedom
    if callable(name):
        return function_interval(who, observed, name, float(level), quantile)
    line = Line(observed, scalar_of(who, "name", observed, name))
    moving = np.ones(observed.coordinates.size, bool)
    moving[line.scalar.column] = False
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
    return line.interval("profile likelihood", level, ends)


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
            scalar = scalar_of(who, "values", observed, name)
            owner, columns = owner_of(scalar.label), np.array([scalar.column])
            entry = scalar.row - first_of(coordinates, owner)
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
    return LikelihoodRatioTest(statistic, degrees, float(chdtrc(degrees, statistic)), coordinates.values(best))


def _before(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names[: names.index(name)]


def _value(who: str, name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = np.array(checks.numeric(who, f"values['{name}']", value, "Give a number or an array."))
    if array.shape != shape:
        raise refusal(who, f"values['{name}']", f"must have the shape {shape}", value, "See the model's prior.")
    return array


def _check_inside(who: str, coordinates: Coordinates, name: str, value: Array) -> None:
    transform = coordinates.transforms[name]
    with double():
        inside = bool(np.all(np.asarray(transform.codomain(jnp.asarray(value)))))
        inside = inside and bool(np.all(np.isfinite(np.asarray(transform.inv(jnp.asarray(value))))))
    if not inside:
        rule = "must lie inside the prior's support"
        raise refusal(who, f"values['{name}']", rule, value.tolist(), "Test a value away from the boundary.")


__all__ = [
    "Bootstrap",
    "Interval",
    "LikelihoodRatioTest",
    "bootstrap",
    "exact_interval",
    "likelihood_ratio_test",
    "profile_interval",
]
