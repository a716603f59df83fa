"""Regressions by formula: noisy counts, answers or numbers with exact covariates, or lines from noisy sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.entries import bounds_of, entry
from noisewise.everyday.formula import WHO, Formula, columns, design
from noisewise.everyday.priors import with_given
from noisewise.everyday.products import from_products
from noisewise.everyday.rows import in_order_of, table
from noisewise.everyday.written import Written, array, named_array, number
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release

FAMILIES = {
    "poisson": "dist.Poisson(jnp.exp({}))",
    "binomial": "dist.Binomial(n, logits={})",
    "bernoulli": "dist.Bernoulli(logits={})",
    "gaussian": "dist.Normal({}, sigma)",
}


@dataclass(frozen=True)
class Scale:
    """What default priors go by, on the scale of the linear predictor."""

    centre: float
    intercept: float
    """Standard deviation of the intercept."""
    slope: float
    """Standard deviation of the coefficient of a column whose own is one."""
    spread: float
    """Of the half-normal law of standard deviations."""


LOG_RATES, LOG_ODDS = Scale(0.0, 5.0, 1.0, 1.0), Scale(0.0, 2.5, 2.5, 1.0)
SCALES = {"poisson": LOG_RATES, "binomial": LOG_ODDS, "bernoulli": LOG_ODDS}
FAR = 3.0
"""A covariate's mean in its standard deviations beyond which the default priors are not weak."""


def regression(
    formula: str,
    release: Release,
    *,
    family: str = "gaussian",
    data: Any = None,
    n: Any = None,
    most: int | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    products: Mapping[str, Any] | None = None,
    covariates: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
) -> Model:
    """A regression of a confidential outcome, by formula.

    **Noisy outcomes by row, exact covariates**: `nw.regression("cases ~ x + offset(log(people)) + (1 | region)",
    release, family="poisson", data=table)`. The outcome names a released vector; `data` is a pandas table or a dict of
    columns with one row for each of its entries, in their order, or with a column of their labels. Families: "poisson"
    (counts; log link), "binomial" (counts of `n` each, a number or a column; logit link), "bernoulli" (answers 0 and 1,
    such as randomised ones; logit link), "gaussian" (numbers; each clamped to `bounds={"y": (0, 80)}` before its noise,
    or as they were where there are none). Terms are those of formulaic; `offset(...)` is added as it is; `(1 | region)`
    gives each region an intercept of its own about the common one, `region_effect`.

    Assumed: rows are independent given the coefficients `beta` (axis `term`), and covariates have no noise; numbers are
    Normal(line, `sigma`) before clamping, `y_unclamped`. Rows that were clamped are simulated, which goes for a handful
    of them only; where bounds lay beyond all values, leave them out: the rows are then integrated out.
    Priors: the intercept ~ Normal(0, 5) for log rates and Normal(0, 2.5) for log odds; the coefficient of a column x ~
    Normal(0, 1 / sd(x)), or Normal(0, 2.5 / sd(x)) for log odds; region_effect ~ Normal(0, region_sd), region_sd ~
    HalfNormal(1). For numbers with bounds of width w, the intercept ~ Normal(their middle, w), the coefficient of x ~
    Normal(0, w / 2 / sd(x)), sigma and region_sd ~ HalfNormal(w / 2); without bounds there are no default priors. All
    mean little where a column lies far from zero, which is refused: write center(x).

    **A line from noisy sums** (family "gaussian", no `data`): `nw.regression("y ~ x", release, n=150, bounds={"x": (0,
    1), "y": (0, 1.5)})`. Entries of the release hold sums over people of x, y, x*x, x*y, y*y, of values clamped to
    `bounds`; which ones, their labels say, or `products={"sums": ["x", "y", "x*x", "x*y", "y*y"]}`. All released are
    used. `n` is the number of people, or the name of its noisy count, at most `most`.

    Assumed: people are independent; y ~ Normal(line, sigma) given covariates, before clamping; covariates are
    independent of each other, each with the law that `covariates={"x": dist.Beta(2.0, 2.0)}` gives, or a family by name
    as for `nw.mean_of`, "Normal" where nothing is said, with unknown parameters. Priors, from the bounds (widths w):
    slopes ~ Normal(0, w_y / w_x), the intercept ~ Normal(middle of y, w_y) widened by what the slopes do between zero
    and the middle of x, sigma ~ HalfNormal(w_y / 2); parameters of a covariate as for `nw.mean_of`.

    Change priors by `prior={"beta": dist.Normal(0.0, 1.0)}`, or change `model.code`, the Python that makes the model.
    """
    parts = Formula.read(formula)
    checks.choice(WHO, "family", family, FAMILIES)
    if family == "gaussian" and data is None:
        return from_products(parts, release, n, most, bounds, products, covariates, prior)
    if family != "gaussian":
        _refuse(f"with the family '{family}'", bounds=bounds)
    _refuse("where rows are given", most=most, products=products, covariates=covariates)
    limits = None if bounds is None else _limits(parts, bounds)
    return _by_row(parts, release, family, data, n, limits, prior)


def _refuse(where: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            raise refusal(WHO, argument, f"has no place {where}", value, "Leave it out, or name another family.")


def _limits(parts: Formula, bounds: Any) -> tuple[float, float]:
    """What the outcome was clamped to."""
    if not isinstance(bounds, Mapping) or set(bounds) != {parts.outcome}:
        advice = f"Give bounds={{'{parts.outcome}': (0, 80)}}, what the curator clamped each value to."
        raise refusal(WHO, "bounds", "must be those of the outcome, where rows are given", bounds, advice)
    return bounds_of(WHO, f"bounds['{parts.outcome}']", bounds[parts.outcome])


def _by_row(
    parts: Formula, release: Release, family: str, data: Any, n: Any, limits: tuple[float, float] | None, prior: Any
) -> Model:
    outcome = parts.outcome
    own = ["beta", *(f"{group}_{ending}" for group in parts.groups for ending in ("effect", "sd"))]
    own += ["sigma", f"{outcome}_unclamped"] if family == "gaussian" else []
    item = entry(WHO, "formula", release, parts.outcome, own)
    if len(item.shape) != 1:
        advice = "Give a vector, one entry for each row of data."
        raise refusal(
            WHO, "formula", "must name an entry with one axis", f"'{parts.outcome}' of shape {item.shape}", advice
        )
    frame = in_order_of(item, table(data, item.shape[0]))
    names, matrix = design(parts.fixed, frame)
    before, added, needs = [named_array("design", matrix)], ["design @ beta"], ["beta"]
    scale = SCALES.get(family) or _scale(limits, prior, parts)
    default = {"beta": _coefficients(scale, names, matrix, prior)}
    if family == "gaussian":
        default["sigma"] = f"dist.HalfNormal({number(scale.spread)})"
        needs.append("sigma")
    shapes: dict[str, tuple[int, ...]] = {"beta": (len(names),)}
    dims, coords = {"beta": ("term",)}, {"term": names}
    if parts.offset is not None:
        before.append(named_array("offset", _offset(parts.offset, frame)))
        added.insert(0, "offset")
    for group in parts.groups:
        levels, places = _levels(group, frame)
        before.append(named_array(f"{group}_of_row", places))
        effect, spread = f"{group}_effect", f"{group}_sd"
        default[spread] = f"dist.HalfNormal({number(scale.spread)})"
        default[effect] = f"lambda {spread}: dist.Normal(0.0, {spread}).expand([{len(levels)}])"
        added.append(f"{effect}[{group}_of_row]")
        needs.append(effect)
        shapes[effect], dims[effect] = (len(levels),), (group,)
        if group not in item.coords:
            coords[group] = levels
    if family == "binomial":
        before.append(named_array("n", _trials(n, frame)))
    elif n is not None:
        raise refusal(WHO, "n", f"has no place with the family '{family}'", n, "It belongs to the family 'binomial'.")
    law = FAMILIES[family].format(" + ".join(added))
    statistics = {outcome: f"lambda {', '.join(needs)}: {law}"}
    if limits is not None:
        before_noise = f"lambda {own[-1]}: dist.Delta(jnp.clip({own[-1]}, {limits[0]}, {limits[1]}))"
        statistics = {own[-1]: statistics[outcome], outcome: before_noise}
    return Written(
        with_given(WHO, default, prior, shapes), statistics, before=tuple(before), dims=dims, coords=coords
    ).model()


def _scale(limits: tuple[float, float] | None, prior: Any, parts: Formula) -> Scale:
    """Of numbers: by the bounds they were clamped to."""
    if limits is not None:
        low, high = limits
        return Scale((low + high) / 2, high - low, (high - low) / 2, (high - low) / 2)
    needed = ["beta", "sigma", *(f"{group}_sd" for group in parts.groups)]
    if not isinstance(prior, Mapping) or not set(needed) <= set(prior):
        advice = f"Give bounds={{'{parts.outcome}': (0, 80)}}, or a prior for each of {', '.join(needed)}."
        raise refusal(WHO, "bounds", "must be given for default priors of numbers", None, advice)
    return Scale(0.0, 1.0, 1.0, 1.0)  # none of them is used


def _coefficients(scale: Scale, names: list[str], matrix: Array, prior: Any) -> str:
    """The default priors of coefficients, as text."""
    centres, scales = [], []
    for name, column in zip(names, matrix.T, strict=True):
        spread, centre = column.std(), column.mean()
        centres.append(float(number(scale.centre)) if spread == 0.0 else 0.0)
        if spread == 0.0:
            scales.append(float(number(scale.intercept)))
            continue
        if abs(centre) > FAR * spread and not (isinstance(prior, Mapping) and "beta" in prior):
            advice = f"Write center({name}) in the formula, or give a prior for beta."
            rule = f"must have columns whose mean lies within {FAR:g} standard deviations of zero for default priors"
            raise refusal(WHO, "formula", rule, name, advice)
        scales.append(float(number(scale.slope / spread)))
    return f"lambda: dist.Normal({array(centres) if any(centres) else 0.0}, {array(scales)})"


def _offset(expression: str, frame: Any) -> Array:
    names, values = columns(f"0 + {expression}", frame)
    if len(names) != 1:
        raise refusal(WHO, "formula", "must have an offset of one column", expression, "Write offset(log(people)).")
    return values[:, 0]


def _levels(group: str, frame: Any) -> tuple[list[Any], Array]:
    """The levels of a column in order of appearance, and the place of each row's among them."""
    if group not in frame.columns:
        raise refusal(
            WHO, "formula", "must name groups by columns of data", group, checks.nearest(group, frame.columns)
        )
    column = frame[group]
    if column.isna().any():
        raise refusal(WHO, "data", "must not have missing values", group, "Mend or drop these rows everywhere.")
    places, levels = (column if column.dtype.kind in "iu" else column.astype(str)).factorize()
    if len(levels) < 2:
        advice = "Leave the group out: its spread cannot be told from the intercept."
        raise refusal(WHO, "formula", "must have groups of two levels or more", group, advice)
    return levels.tolist(), places


def _trials(n: Any, frame: Any) -> Any:
    """Numbers of trials, one for each row."""
    advice = "Give n=..., the number that each count is out of: a whole number, a list, or the name of a column."
    if n is None:
        raise refusal(WHO, "n", "must be given with the family 'binomial'", n, advice)
    if isinstance(n, str):
        if n not in frame.columns:
            raise refusal(WHO, "n", "must name a column of data", n, checks.nearest(n, frame.columns))
        n = frame[n]
    values = np.asarray(n)
    whole = values.dtype.kind in "iuf" and np.all(values == np.floor(values)) and np.all(values >= 1)
    if not whole or values.shape not in ((), (len(frame),)):
        raise refusal(WHO, "n", "must be a whole number from 1 on for each row", n, advice)
    return np.broadcast_to(values, len(frame)).astype(int)
