"""A line from noisy sums of clamped products: of x, y, x*x, x*y, y*y over people. See `regression`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.entries import RESERVED, bounds_of, released_entry, size
from noisewise.everyday.formula import AXIS, WHO, Formula, formulaic
from noisewise.everyday.priors import law, with_given
from noisewise.everyday.records import LAWS, record
from noisewise.everyday.written import Written, array, in_three_digits, quoted
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release

Product = tuple[str, ...]
"""The fields of a record whose product is summed; none where records are counted."""
Limits = Mapping[str, tuple[float, float]]
OWN = ("beta", "sigma", "totals", "how_many")


def from_products(
    parts: Formula, release: Release, n: Any, most: Any, bounds: Any, products: Any, covariates: Any, prior: Any
) -> Model:
    """The model of a line whose cross-products were released."""
    terms = _terms(parts)
    fields = [*dict.fromkeys(factor for term in terms for factor in term), parts.outcome]
    limits = _limits(fields, bounds)
    entries = _entries(release, products, fields, n)
    people, counted = _number(release, n, most, entries)
    laws, default = _covariates(fields[:-1], covariates, limits)
    default = {"beta": _beta(terms, limits, parts.outcome), "sigma": _sigma(limits[parts.outcome]), **default}
    given = with_given(WHO, {**default, **counted}, prior, {"beta": (len(terms),)})
    line = " + ".join(" * ".join([f"beta[{place}]", *term]) for place, term in enumerate(terms))
    laws[parts.outcome] = f"lambda {', '.join([*fields[:-1], 'beta', 'sigma'])}: dist.Normal({line}, sigma)"
    record_text = "".join(f'        "{name}": {text},\n' for name, text in laws.items())
    total = f"nw.Total(\n    record={{\n{record_text}    }},\n    contribution=products,\n    n={quoted(people)},\n)"
    sums, statistics = _statistics(entries, total)
    return Written(
        {name: given[name] for name in default},
        {name: given[name] for name in counted} | statistics,
        before=(_contribution(fields, limits, sums),),
        dims={"beta": (AXIS,)},
        coords={AXIS: [":".join(term) or "Intercept" for term in terms]},
    ).model()


def _terms(parts: Formula) -> list[Product]:
    """The terms of the line, each a product of fields; the intercept is the empty product."""
    if parts.offset is not None or parts.groups:
        advice = "Offsets and groups need rows, and a family of counts or answers."
        raise refusal(
            WHO, "formula", "must have covariates only, where sums were released", parts.groups or "offset", advice
        )
    try:
        terms = [[str(factor) for factor in term.factors] for term in formulaic().Formula(parts.fixed)]
    except formulaic().errors.FormulaicError as error:
        raise refusal(WHO, "formula", "must be terms that formulaic reads", parts.fixed, f"{error}.") from None
    factors = [() if term == ["1"] else tuple(term) for term in terms]
    if not factors:
        advice = "Leave '0' out, or name a covariate."
        raise refusal(WHO, "formula", "must have an intercept or a covariate", parts.fixed, advice)
    for name in (parts.outcome, *(factor for term in factors for factor in term)):
        if name in (*OWN, *RESERVED):
            rule = "must not use a name that this model has another use for"
            raise refusal(WHO, "formula", rule, name, "Call it otherwise, here, in bounds and in products.")
    for factor in (factor for term in factors for factor in term):
        if not factor.isidentifier() or factor == parts.outcome:
            advice = "Write names of covariates, and a:b for their products."
            raise refusal(WHO, "formula", "must be made of covariates' names", factor, advice)
    return factors


def _limits(fields: list[str], bounds: Any) -> Limits:
    example = "Give bounds={'x': (0, 1), 'y': (0, 1.5)}, what the curator clamped each to."
    if not isinstance(bounds, Mapping):
        raise refusal(WHO, "bounds", "must be a dict of bounds by name", bounds, example)
    for name in bounds:
        checks.known_name(WHO, "bounds", name, fields, "must be of variables in the formula")
    for name in fields:
        if name not in bounds:
            raise refusal(WHO, "bounds", "must hold every variable of the formula; one is missing", name, example)
    return {name: bounds_of(WHO, f"bounds['{name}']", bounds[name]) for name in fields}


def _entries(release: Release, products: Any, fields: list[str], n: Any) -> dict[str, Array]:
    """Entries of the release by name, each as an array of the products that it holds sums of."""
    example = "Label the entry, or give products={'sums': ['x', 'y', 'x*x', 'x*y', 'y*y']}."
    stated = products if products is not None else _labelled(release, n)
    if not isinstance(stated, Mapping) or not stated:
        raise refusal(WHO, "products", "must say which products each entry holds the sums of", products, example)
    positions: dict[str, Array] = {}
    for name, texts in stated.items():
        item = released_entry(WHO, "products", release, name, (*OWN, *fields))
        written = np.asarray(texts, dtype=object)
        if written.shape != item.shape:
            rule = f"must have the shape of the entry '{name}', {item.shape}"
            raise refusal(WHO, "products", rule, texts, example)
        positions[name] = np.empty(item.shape, dtype=object)
        for place in np.ndindex(item.shape):
            positions[name][place] = _product(written[place], fields)
    return positions


def _labelled(release: Any, n: Any) -> dict[str, Any]:
    """Products by entry, as its labels state them: along two axes, each is that of its row times its column."""
    stated: dict[str, Any] = {}
    for name, item in release.items() if isinstance(release, Release) else ():
        if item.coords and name != n:
            labels = [[str(label) for label in along] for along in item.coords.values()]
            stated[name] = labels[0] if len(labels) == 1 else [[f"{a}*{b}" for b in labels[1]] for a in labels[0]]
    return stated


def _product(text: Any, fields: Iterable[str]) -> Product:
    factors: list[str] = []
    for part in str(text).replace("**2", "^2").split("*"):
        name = part.strip().removesuffix("^2")
        if name not in (*fields, "1"):
            raise refusal(
                WHO, "products", "must be products of variables in the formula", text, checks.nearest(name, fields)
            )
        factors += [name] * (2 if part.strip() != name else 1)
    return tuple(sorted(factor for factor in factors if factor != "1"))


def _number(release: Release, n: Any, most: Any, entries: Mapping[str, Array]) -> tuple[int | str, dict[str, str]]:
    """The number of people, or the name of the statistic that is this number; and that statistic's law."""
    counted = [name for name, products in entries.items() if () in products.ravel().tolist()]
    if n is None and counted:
        most = checks.integer(WHO, "most", most, least=1, advice="Give a number that there cannot be more people than.")
        return "how_many", {"how_many": f"dist.DiscreteUniform(1, {most})"}
    if n is None:
        raise refusal(WHO, "n", "must be given", n, "Give the public number of people, or the name of its noisy count.")
    if counted and not isinstance(n, str):
        advice = f"Leave n out and give most=..., or leave the product '1' out of '{counted[0]}'."
        raise refusal(WHO, "n", "must not be both public and released with noise", n, advice)
    return size(WHO, release, n, most, (*OWN, *entries))


def _covariates(fields: list[str], covariates: Any, limits: Limits) -> tuple[dict[str, str], dict[str, str]]:
    """Laws of the covariates by name, and priors of their parameters."""
    given = {} if covariates is None else covariates
    if not isinstance(given, Mapping):
        advice = "Give covariates={'x': dist.Beta(2.0, 2.0)}, or the name of a family."
        raise refusal(WHO, "covariates", "must be a dict of laws", given, advice)
    for name in given:
        checks.known_name(WHO, "covariates", name, fields, "must be in the formula")
    laws: dict[str, str] = {}
    prior: dict[str, str] = {}
    for name in fields:
        stated = given.get(name, "Normal")
        if not isinstance(stated, str):
            laws[name] = law(f"{WHO}.covariates['{name}']", stated)
            continue
        one = record(WHO, stated, name, limits[name], f"{name}_")
        if LAWS[stated].inside and limits[name] != (0.0, 1.0):
            advice = "Name another family, or give the law itself."
            raise refusal(WHO, "covariates", f"must not be '{stated}' for bounds other than (0, 1)", name, advice)
        laws[name], prior = one.law, prior | one.prior
    return laws, prior


def _beta(terms: list[Product], limits: Limits, outcome: str) -> str:
    """Priors of the coefficients: a slope of one standard deviation crosses the bounds of y between those of x.

    That holds about the middles of the covariates. A coefficient is the slope where the other covariates are zero,
    which differs by what the terms that contain its own do between zero and the middles.
    """
    low, high = limits[outcome]
    slopes = {term: (high - low) / math.prod(limits[name][1] - limits[name][0] for name in term) for term in terms}

    def spread(term: Product) -> float:
        moved = [
            slope * math.prod(sum(limits[name]) / 2 for name in other if name not in term)
            for other, slope in slopes.items()
            if set(term) <= set(other)
        ]
        return float(in_three_digits(math.hypot(*moved)))

    centres = [0.0 if term else float(in_three_digits((low + high) / 2)) for term in terms]
    return f"lambda: dist.Normal({array(centres)}, {array([spread(term) for term in terms])})"


def _sigma(limits: tuple[float, float]) -> str:
    return f"dist.HalfNormal({in_three_digits((limits[1] - limits[0]) / 2)})"


def _statistics(entries: Mapping[str, Array], total: str) -> tuple[Array, dict[str, str]]:
    """The products to be summed, in the shape of their sums; and the statistics, entries being parts of the total."""
    if len(entries) == 1:
        ((name, products),) = entries.items()
        return products, {name: total}
    every = dict.fromkeys(product for products in entries.values() for product in products.ravel())
    place = {product: number for number, product in enumerate(every)}
    sums = np.empty(len(place), dtype=object)
    sums[:] = list(place)
    parts = {"totals": total}
    for name, products in entries.items():
        places = np.array([place[product] for product in products.ravel()]).reshape(products.shape)
        parts[name] = f"lambda totals: dist.Delta(totals[{array(places) if places.ndim else int(places)}])"
    return sums, parts


def _contribution(fields: list[str], limits: Limits, sums: Array) -> str:
    """The function of one record that is summed, with the curator's clamping."""
    products = list(sums.ravel())
    used = [name for name in fields if any(name in product for product in products)]
    clamped = "".join(f"    {name} = jnp.clip({name}, {limits[name][0]}, {limits[name][1]})\n" for name in used)
    texts = [" * ".join(product) or "1.0" for product in products]
    returned = texts[0] if sums.ndim == 0 else f"jnp.stack([{', '.join(texts)}])"
    returned += f".reshape({sums.shape})" if sums.ndim > 1 else ""
    return f"\ndef products({', '.join(used)}):\n{clamped}    return {returned}\n\n"
