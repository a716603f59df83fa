"""Regressions by formula: noisy counts, answers or numbers with exact covariates, or lines from noisy sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.entries import released_entry
from noisewise.everyday.formula import AXIS, WHO, DesignMatrix, Formula, columns, design_columns
from noisewise.everyday.priors import with_given
from noisewise.everyday.products import from_products
from noisewise.everyday.rows import frame_of, in_order_of
from noisewise.everyday.written import Written, array, in_three_digits, named_array
from noisewise.mechanisms import Clamped, Mechanism
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
    """Centre and spreads of the default priors, on the scale of the linear predictor."""

    centre: float
    intercept: float
    """Standard deviation of the intercept."""
    slope: float
    """Standard deviation of the coefficient of a column whose own standard deviation is one."""
    spread: float
    """Scale of the half-normal law of standard deviations."""


LOG_RATES, LOG_ODDS = Scale(0.0, 5.0, 1.0, 1.0), Scale(0.0, 2.5, 2.5, 1.0)
SCALES = {"poisson": LOG_RATES, "binomial": LOG_ODDS, "bernoulli": LOG_ODDS}
FAR = 3.0
"""Distance of a covariate's mean from zero, in its standard deviations, up to which the default priors are weak."""


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
    columns with one row for each of its entries, in their order, or with a column or index of their labels. Families:
    "poisson" (counts; log link), "binomial" (counts of `n` each, a number, a column or a list in the order of `data`;
    logit link), "bernoulli" (answers 0 and 1, such as randomised ones; logit link), "gaussian" (numbers; where each was
    clamped before its noise, its mechanism is `nw.mechanisms.Clamped(nw.Laplace(scale=8.0), 0, 80)`). Terms are those
    of formulaic; `offset(...)` is arithmetic, and added as it is; `(1 | region)` gives each region an intercept of its
    own about the common one, `region_effect`.

    Assumed: rows are independent given the coefficients `beta` (axis `term`), and covariates have no noise; numbers are
    Normal(line, `sigma`) before clamping.
    Priors: the intercept ~ Normal(0, 5) for log rates and Normal(0, 2.5) for log odds, and so each level of a category
    in a formula without an intercept; the coefficient of a column x ~ Normal(0, 1 / sd(x)), or Normal(0, 2.5 / sd(x))
    for log odds; region_effect ~ Normal(0, region_sd), region_sd ~ HalfNormal(1). For numbers clamped to bounds of
    width w, the intercept ~ Normal(their middle, w), the coefficient of x ~ Normal(0, w / 2 / sd(x)), sigma and
    region_sd ~ HalfNormal(w / 2); for others there are no default priors. None suits a column far from zero, which
    is refused: write center(x).

    **A line from noisy sums** (family "gaussian", no `data`): `nw.regression("y ~ x", release, n=150, bounds={"x": (0,
    1), "y": (0, 1.5)})`. Entries of the release hold sums over people of x, y, x*x, x*y, y*y, of values clamped to
    `bounds`. Which sums they are is said by their labels, or by `products={"sums": ["x", "y", "x*x", "x*y", "y*y"]}`.
    All released sums are used. `n` is the number of people, or the name of its noisy count, at most `most`.

    Assumed: people are independent; y ~ Normal(line, sigma) given covariates, before clamping; covariates are
    independent of each other, each with the law that `covariates={"x": dist.Beta(2.0, 2.0)}` gives, or a family by name
    as for `nw.mean_of`, "Normal" where nothing is said, with unknown parameters. Priors, from the bounds (widths w):
    slopes ~ Normal(0, w_y / w_x), the intercept ~ Normal(middle of y, w_y), each widened by what the terms that hold it
    do between zero and the middles of the other covariates; sigma ~ HalfNormal(w_y / 2); parameters of a covariate as
    for `nw.mean_of`.

    Change priors by `prior={"beta": dist.Normal(0.0, 1.0)}`, or change `model.code`, the Python that makes the model.
    """
    parts = Formula.read(formula)
    checks.choice(WHO, "family", family, FAMILIES)
    if family == "gaussian" and data is None:
        return from_products(parts, release, n, most, bounds, products, covariates, prior)
    if family != "gaussian":
        _refuse(f"with the family '{family}'", bounds=bounds)
    _refuse("where rows are given", most=most, products=products, covariates=covariates)
    if bounds is not None:
        rule = "must be said by the release, where rows are given"
        raise refusal(WHO, "bounds", rule, bounds, _stated(parts.outcome))
    return _by_row(parts, release, family, data, n, prior)


def _refuse(where: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            raise refusal(WHO, argument, f"has no place {where}", value, "Leave it out, or name another family.")


def _stated(outcome: str) -> str:
    """Advice: how to make a release that says what rows were clamped to."""
    made = f"nw.mechanisms.Clamped(release['{outcome}'].mechanism, 0, 80)"
    return f"Make it anew with {outcome}={made}.released(release['{outcome}'].value)."


def _by_row(parts: Formula, release: Release, family: str, data: Any, n: Any, prior: Any) -> Model:
    outcome = parts.outcome
    own = ["beta", *(f"{group}_{ending}" for group in parts.groups for ending in ("effect", "sd"))]
    own += ["sigma"] if family == "gaussian" else []
    item = released_entry(WHO, "formula", release, parts.outcome, own)
    if len(item.shape) != 1:
        advice = "Give a vector, one entry for each row of data."
        raise refusal(
            WHO, "formula", "must name an entry with one axis", f"'{parts.outcome}' of shape {item.shape}", advice
        )
    frame = frame_of(data, item)
    order = in_order_of(item, frame)
    trials = _trials(n, frame)[order] if family == "binomial" else None
    frame = frame.iloc[order].reset_index(drop=True)
    made = design_columns(parts.fixed, frame)
    before, added, needs = [named_array("design", made.values)], ["design @ beta"], ["beta"]
    scale = SCALES.get(family) or _scale(item.mechanism, prior, parts)
    default = {"beta": _coefficients(scale, made, prior)}
    if family == "gaussian":
        default["sigma"] = f"dist.HalfNormal({in_three_digits(scale.spread)})"
        needs.append("sigma")
    shapes: dict[str, tuple[int, ...]] = {"beta": (len(made.names),)}
    dims, coords = {"beta": (AXIS,)}, {AXIS: made.names}
    if parts.offset is not None:
        before.append(named_array("offset", _offset(parts.offset, frame)))
        added.insert(0, "offset")
    for group in parts.groups:
        levels, places = _levels(group, frame)
        before.append(named_array(f"{group}_of_row", places))
        effect, spread = f"{group}_effect", f"{group}_sd"
        default[spread] = f"dist.HalfNormal({in_three_digits(scale.spread)})"
        default[effect] = f"lambda {spread}: dist.Normal(0.0, {spread}).expand([{len(levels)}])"
        added.append(f"{effect}[{group}_of_row]")
        needs.append(effect)
        shapes[effect], dims[effect] = (len(levels),), (group,)
        if group not in item.coords:
            coords[group] = levels
    if trials is not None:
        before.append(named_array("n", trials))
    elif n is not None:
        raise refusal(WHO, "n", f"has no place with the family '{family}'", n, "It belongs to the family 'binomial'.")
    law = FAMILIES[family].format(" + ".join(added))
    return Written(
        with_given(WHO, default, prior, shapes),
        {outcome: f"lambda {', '.join(needs)}: {law}"},
        before=tuple(before),
        dims=dims,
        coords=coords,
    ).model()


def _scale(mechanism: Mechanism, prior: Any, parts: Formula) -> Scale:
    """The scale of default priors for numbers, by the bounds that these were clamped to."""
    if isinstance(mechanism, Clamped):
        low, high = float(np.min(mechanism.low)), float(np.max(mechanism.high))
        return Scale((low + high) / 2, high - low, (high - low) / 2, (high - low) / 2)
    needed = ["beta", "sigma", *(f"{group}_sd" for group in parts.groups)]
    if not isinstance(prior, Mapping) or not set(needed) <= set(prior):
        rule = "must be given for numbers that were not clamped, which have no default ones"
        advice = f"Give one for each of {', '.join(needed)}. If each was clamped, say so: {_stated(parts.outcome)}"
        raise refusal(WHO, "prior", rule, prior, advice)
    return Scale(0.0, 1.0, 1.0, 1.0)  # none of them is used


def _coefficients(scale: Scale, made: DesignMatrix, prior: Any) -> str:
    """The default priors of coefficients, as text."""
    centres, scales = [], []
    for name, column, level in zip(made.names, made.values.T, made.levels, strict=True):
        spread = column.std()
        centres.append(float(in_three_digits(scale.centre)) if level else 0.0)
        scales.append(float(in_three_digits(scale.intercept if level else scale.slope / spread)))
        far = not np.isin(column, (0.0, 1.0)).all() and abs(column.mean()) > FAR * spread and not level
        if far and not (isinstance(prior, Mapping) and "beta" in prior):
            whose = "its covariates, center(x)," if ":" in name else f"it, center({name}),"
            rule = f"must have columns whose mean lies within {FAR:g} standard deviations of zero for default priors"
            raise refusal(WHO, "formula", rule, name, f"Center {whose} in the formula, or give a prior for beta.")
    return f"lambda: dist.Normal({array(centres) if any(centres) else 0.0}, {array(scales)})"


def _offset(expression: str, frame: Any) -> Array:
    """What is added to the linear predictor. Within I(...) signs are arithmetic; outside, a minus leaves out a term."""
    made = columns(f"0 + I({expression})", frame)
    if len(made.names) != 1 or made.names[0].endswith("]"):  # words, even where all are the same
        raise refusal(WHO, "formula", "must have an offset of one column", expression, "Write offset(log(people)).")
    return made.values[:, 0]


def _levels(group: str, frame: Any) -> tuple[list[Any], Array]:
    """The levels of a column in order of appearance, and the place of each row's among them."""
    checks.known_name(WHO, "formula", group, frame.columns, "must name groups by columns of data")
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
        checks.known_name(WHO, "n", n, frame.columns, "must name a column of data")
        n = frame[n]
    values = np.asarray(n)
    whole = values.dtype.kind in "iuf" and np.all(values == np.floor(values)) and np.all(values >= 1)
    if not whole or values.shape not in ((), (len(frame),)):
        raise refusal(WHO, "n", "must be a whole number from 1 on for each row", n, advice)
    return np.broadcast_to(values, len(frame)).astype(int)
