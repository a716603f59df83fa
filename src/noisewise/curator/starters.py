"""A starter analysis file for a release that was just drawn: models that fit its statistics, with weak priors.

It is made from the plan, the kind of noise and, where that is public, the number of records. Published values play no
part in it.
"""

import json
import math
from collections.abc import Mapping

from noisewise.curator.plan import Plan, Query
from noisewise.mechanisms import Released

Laws = dict[str, str]
HEAD = """# An analysis of {file}, to begin with. Run:   noisewise check FILE     noisewise fit FILE
#
# Laws and priors are proposals, made from the plan of the release and not from its values. Put what you know in place
# of them: the priors are wide, and the people behind a statistic are taken to be alike and independent.
"""
MOST = 1_000_000
"""Records at most, for a sum of whole numbers of either sign whose number of records is secret."""


def starter(plan: Plan, released: Mapping[str, Released], file: str, size: int) -> str:
    """The text of the analysis file; `size` is the number of records, used only where it is public."""
    parameters: Laws = {}
    statistics: Laws = {}
    for name in plan.queries:
        whole = bool(released[name].mechanism.integers)
        own, law = _law(name, plan, whole, size)
        parameters |= own
        statistics[name] = law
    return "\n".join(
        [
            HEAD.format(file=file),
            "[question]",
            f"title = {json.dumps(f'What {file} says')}",
            "",
            *_table("parameters", parameters),
            *_table("statistics", statistics),
            "[release]",
            f"file = {json.dumps(file)}",
            "",
            "[inference]",
            "draws = 4000",
            "seed = 1",
            "",
        ]
    )


def _table(name: str, entries: Laws) -> list[str]:
    return [f"[{name}]", *(f"{key} = {json.dumps(law)}" for key, law in entries.items()), ""]


def _law(name: str, plan: Plan, whole: bool, size: int) -> tuple[Laws, str]:
    """Priors of a statistic's parameters, and its law."""
    query, public = plan.queries[name], plan.neighbours == "replace-one"
    entries = len(query.categories)
    ones = f"[{', '.join(['1'] * entries)}]"
    if query.kind == "answers":
        return {f"{name}_share": f"Dirichlet({ones})"}, f"Categorical({name}_share, size={size})"
    if query.kind == "histogram" and public and "unlisted" not in query.allow:
        return {f"{name}_share": f"Dirichlet({ones})"}, f"Multinomial({size}, {name}_share)"
    if query.kind == "histogram":
        return {f"{name}_rate": f"LogNormal(5, 3, size={entries})"}, f"Poisson({name}_rate)"
    if query.kind == "count":
        if public:
            return {f"{name}_share": "Beta(1, 1)"}, f"Binomial({size}, {name}_share)"
        return {f"{name}_rate": "LogNormal(5, 3)"}, f"Poisson({name}_rate)"
    return _added(name, query, size if public else None, whole)


def _added(name: str, query: Query, number: int | None, whole: bool) -> tuple[Laws, str]:
    """Priors and law of a sum or a mean of clamped values; `number` is how many, or None where that is secret.

    With a public number, the law is nearly normal; a quarter of the bounds' width stands for the spread of the values,
    of which one sum says nothing. With a secret number and values from zero on, the law is that of a sum over a Poisson
    number of people, whose variance is at most the upper bound times its expectation.
    """
    assert query.bounds is not None
    low, high = query.bounds
    spread = (high - low) / 4
    if whole and low < 0:
        return {}, f"DiscreteUniform({low * MOST:.0f}, {high * MOST:.0f})"
    if number is None and low < 0:
        return {f"{name}_total": f"Normal(0, {1000 * spread:g})"}, f"Normal({name}_total, {10 * spread:g})"
    if number is None:
        total = {f"{name}_total": f"LogNormal({5 + math.log(high / 2):.3g}, 3)"}
        return total, f"Poisson({name}_total)" if whole else f"Normal({name}_total, sqrt({high:g} * {name}_total))"
    mean = {f"{name}_mean": f"Uniform({low:g}, {high:g})"}
    if whole:
        return mean, f"Poisson({number} * {name}_mean)"
    if query.kind == "mean":
        return mean, f"Normal({name}_mean, {spread:g} / sqrt({number}))"
    return mean, f"Normal({number} * {name}_mean, {spread:g} * sqrt({number}))"
