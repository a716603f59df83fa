"""Quantities computed from the draws of a posterior, or from a likelihood estimate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.axes import Axes
from noisewise.errors import InputError, refusal
from noisewise.model import Model, derived
from noisewise.numerics import Array, double
from noisewise.results.drawn import where_they_are
from noisewise.results.estimated import Estimated, alike
from noisewise.results.labels import labels_of

if TYPE_CHECKING:
    from noisewise.results.fit import Fit
    from noisewise.results.posterior import Posterior

NO_CHANCE = "must be a number: an estimate is no chance"
NO_SLOPE = "at the estimate it does not change with the parameters, and the delta method sees slopes only"


def derive(posterior: "Posterior", functions: Mapping[str, Callable[..., Any]], dims: Any) -> "Posterior":
    """The posterior with a function of its draws under each name."""
    who = "Posterior.derive"
    if len(posterior) == 0:
        raise refusal(who, "posterior", "must hold draws", 0, posterior.message or "Draw first.")
    columns = derived.evaluated(who, functions, posterior.draws)
    draws: Any = posterior.draws
    draws = draws | columns
    takes = derived.arguments(who, functions, posterior.draws)
    shapes = {name: values.shape[1:] for name, values in where_they_are(draws).items()}
    axes = derived.axes_of(who, takes, shapes, posterior.axes, dims)
    return replace(posterior, draws=draws, derived=(*posterior.derived, *columns), axes=axes)


@dataclass(frozen=True, eq=False, repr=False)
class FitDerived(Estimated):
    """Functions of a maximum likelihood estimate, with standard errors by the delta method."""

    estimate: Mapping[str, Array]
    labels: tuple[str, ...]
    covariance: Array
    monte_carlo_error: Mapping[str, Array] = field(default_factory=dict)
    """A bound on the standard error of the estimate over repeated simulation; empty for `EM`."""
    axes: Axes = field(default_factory=Axes)
    message: str = ""
    """Which entries of arrays have no standard error, and why; empty where all have one."""

    def __repr__(self) -> str:
        note = f"\n{self.message}" if self.message else ""
        return f"FitDerived\n{self.summary().to_string(float_format=lambda x: f'{x:.4g}')}{note}"


def of_fit(fit: "Fit", functions: Mapping[str, Callable[..., Any]], dims: Any) -> FitDerived:
    """The delta method: g(theta_hat) with covariance J C J'."""
    who = "Fit.derive"
    if fit.status != "converged":
        raise refusal(who, "fit", "must have converged", fit.status, fit.message or "Fit again.")
    point = {name: np.asarray(value, float) for name, value in fit.estimate.items()}
    takes = derived.arguments(who, functions, point)
    values, jacobian = _linearised(who, functions, takes, point)
    shapes = {name: np.shape(value) for name, value in (point | values).items()}
    axes = derived.axes_of(who, takes, shapes, fit.axes, dims).only(values)
    labels = tuple(label for name in values for label in labels_of(name, shapes[name], axes))
    bound: dict[str, Array] = {}
    if fit.monte_carlo_error:  # errors of correlated estimates at most add up
        errors = np.concatenate([np.ravel(fit.monte_carlo_error[name]) for name in point])
        bound = alike(values, np.abs(jacobian) @ errors)
    silent = [label for label, row in zip(labels, jacobian, strict=True) if np.isnan(row).any()]
    message = f"No standard error for {', '.join(silent)}: {NO_SLOPE}." if silent else ""
    return FitDerived(values, labels, jacobian @ fit.covariance @ jacobian.T, bound, axes, message)


def answers(fit: "Fit", model: Model) -> tuple[FitDerived | None, dict[str, str]]:
    """The model's derived quantities that an estimate gives; and for each of the others, why it does not."""
    taken: dict[str, Callable[..., Any]] = {}
    missing: dict[str, str] = {}
    estimates = None
    for name, needed in model.derived_from.items():
        hidden = next((one for one in needed if one not in fit.estimate and one not in taken), None)
        if hidden is not None:
            what = "is itself not estimated" if hidden in missing else "is confidential"
            missing[name] = f"'{hidden}' {what}"
            continue
        try:
            functions = {**taken, name: model.derived[name]}
            dims = {one: axes for one, axes in model.axes.dims.items() if one in functions}
            estimates, taken = of_fit(fit, functions, dims), functions
        except InputError as error:
            known = "it asks for a probability, and an estimate has none"
            missing[name] = known if error.rule == NO_CHANCE else error.cause
    return estimates, missing


def _linearised(
    who: str, functions: Mapping[str, Callable[..., Any]], takes: Mapping[str, tuple[str, ...]], point: dict[str, Array]
) -> tuple[dict[str, Array], Array]:
    """Values at a point, and the Jacobian: a row for each scalar, a column for each scalar of the point."""

    def all_of(known: Mapping[str, Any]) -> dict[str, Any]:
        computed = dict(known)
        for name, needed in takes.items():
            computed[name] = jnp.asarray(functions[name](**{one: computed[one] for one in needed}))
        return {name: computed[name] for name in functions}

    known: dict[str, Any] = dict(point)
    for name, needed in takes.items():
        known[name] = derived.value_at(who, name, functions[name], {one: known[one] for one in needed})
        if known[name].dtype.kind == "b":
            advice = "Truth values have probabilities under a posterior: nw.sample(...).derive(...)."
            raise refusal(who, name, NO_CHANCE, known[name].tolist(), advice)
    try:
        with double():
            values = jax.tree.map(np.asarray, all_of(jax.tree.map(jnp.asarray, point)))
            slopes = jax.jacobian(lambda p: jax.tree.map(lambda v: v.astype(float), all_of(p)))(point)
    except derived.UNTRACEABLE:
        advice = "Write it in jax.numpy, without if on values."
        raise refusal(who, "functions", "must be functions that JAX can differentiate", list(takes), advice) from None
    rows = []
    for name in functions:
        parts = [np.asarray(slopes[name][one]).reshape(values[name].size, -1) for one in point]
        rows.append(_usable(who, name, values[name], np.concatenate(parts, axis=1)))
    return {name: values[name][()] for name in functions}, np.concatenate(rows, axis=0)


def _usable(who: str, name: str, value: Array, slopes: Array) -> Array:
    """Slopes of one function's entries, a row each: NaN for an entry that does not change, refused where none does."""
    if not np.all(np.isfinite(value)) or not np.all(np.isfinite(slopes)):
        rule = "must be finite and have a finite slope at the estimate"
        raise refusal(who, name, rule, value.tolist(), "Ask for it on another scale.")
    moving = np.any(slopes != 0.0, axis=1)
    if value.size and not moving.any():
        rule = "must change with the parameters at the estimate: the delta method sees slopes only"
        raise refusal(who, name, rule, value.tolist(), "Use nw.sample, or bootstrap.")
    return np.where(moving[:, None], slopes, np.nan)
