"""How far a posterior moves when prior or likelihood count a little more or less: power-scaling, by weights alone.

Kallioinen, Paananen, Buerkner and Vehtari (2024). The distance of two laws is the cumulative Jensen-Shannon distance of
their distribution functions (Nguyen and Vreeken 2015).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.diagnostics import weights
from noisewise.inference.problem import Problem
from noisewise.numerics import Array
from noisewise.results import groups
from noisewise.results.labels import labels_of

if TYPE_CHECKING:
    from noisewise.results.posterior import Posterior

POWERS = (0.99, 1.01)
"""Prior and likelihood are raised to these powers, one at a time."""
NEGLIGIBLE = 100.0
"""Draws whose log weight lies this far below the largest count for nothing: exp(-100) is 4e-44. Where a sum over counts
is numerically zero, the weight is only an upper bound, which is no density to be raised to a power."""
SENSITIVE = 0.05
"""From here on a quantity is called sensitive: the paper's threshold."""


def sensitivity_table(posterior: "Posterior", problem: Problem) -> Any:
    """A row for each scalar parameter and derived quantity: its sensitivity to prior and likelihood, and what it means.

    Draws are weighed again by the prior's and by the likelihood's density to a small power; nothing is sampled. The
    prior is that of parameters that depend on no others: laws of groups given their spread are part of the model.
    """
    import pandas as pd

    base = np.zeros(len(posterior)) if posterior.log_weights is None else posterior.log_weights
    counted = base > np.max(base) - NEGLIGIBLE  # a likelihood of zero has no power, nor has one that is only bounded
    base, size = base[counted], int(counted.sum())
    draws = {name: values[counted] for name, values in posterior.draws.items()}
    model = problem.model
    parts = {name: part for name, part in groups.log_prior(model, draws).items() if not model.parents(name)}
    densities, without = groups.log_likelihood(problem, draws)
    shared = any(set(model.parents(name)) - set(model.parameters) for name in problem.release)  # one depends on another
    scaled = {"prior": _total(parts, size), "likelihood": None if without or shared else _total(densities, size)}
    labels: list[str] = []
    rows: list[dict[str, Any]] = []
    for name in (*posterior.parameters, *posterior.derived):
        values = draws[name].astype(float)
        labels += labels_of(name, values.shape[1:], posterior.axes)
        for column in values.reshape(size, -1).T:
            row: dict[str, Any] = {
                kind: np.nan if log_density is None else sensitivity(column, base, log_density)
                for kind, log_density in scaled.items()
            }
            rows.append(row | {"diagnosis": diagnosis(row["prior"], row["likelihood"])})
    return pd.DataFrame(rows, index=labels)


def diagnosis(prior: float, likelihood: float) -> str:
    """What the two sensitivities say together."""
    if prior < SENSITIVE:
        return ""
    if np.isnan(likelihood):
        return "prior matters"
    return "prior and release disagree" if likelihood >= SENSITIVE else "prior decides, release says little"


def sensitivity(values: Array, base: Array, log_density: Array) -> float:
    """Change of the law of `values` for each doubling of the power of the density, at the power one."""
    first, is_within = weights.normalised(base), _within(values, base)
    sensitivities = []
    for power in POWERS:
        moved = weights.normalised(base + (power - 1.0) * (log_density - np.max(log_density)))
        distance = max(_distance(side * values[is_within], first[is_within], moved[is_within]) for side in (1.0, -1.0))
        sensitivities.append(distance / abs(np.log2(power)))
    return float(np.mean(sensitivities))


def _within(values: Array, base: Array) -> Array:
    """Indices of the draws within the range that unweighted draws of their effective number would have.

    The distance is relative to that range. Unweighted draws are all within it; of weighted ones, those beyond the
    outermost half of an effective draw are not.
    """
    order = np.argsort(values, kind="stable")
    weight = weights.normalised(base)[order]
    above = np.cumsum(weight)
    half = 0.5 / weights.effective_size(base)
    return np.sort(order[(above > half) & (above - weight < 1.0 - half)])


def _distance(values: Array, first: Array, second: Array) -> float:
    """Cumulative Jensen-Shannon distance of two weightings of the same values: 0 where equal, at most 1."""
    order = np.argsort(values, kind="stable")
    width = np.diff(values[order])
    p, q = (np.cumsum(weight[order])[:-1] / weight.sum() for weight in (first, second))
    bound = float(width @ (p + q))
    if bound == 0.0:
        return 0.0
    middle = 0.5 * (p + q)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [np.where(one > 0.0, one * np.log2(one / middle), 0.0) for one in (p, q)]
    # The two halves' corrections, (q - p) / (2 log 2) and (p - q) / (2 log 2), cancel in the sum.
    return float(np.sqrt(max(float(width @ (terms[0] + terms[1])), 0.0) / bound))


def _total(parts: dict[str, Array], size: int) -> Array:
    return np.sum([part.reshape(size, -1).sum(axis=1) for part in parts.values()], axis=0)
