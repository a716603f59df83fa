"""A starter analysis file for a release that was just drawn: models that fit its statistics, with weak priors.

From the plan alone, and from the number of records where that is public: published values decide nothing in it.
"""

import json
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
    people = _people(plan)
    for name in sorted(plan.queries, key=lambda name: name != people):  # others may refer to the number of people
        whole = bool(released[name].mechanism.integers)
        own, law = _law(name, plan, people, whole, size)
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


def _people(plan: Plan) -> str | None:
    """The statistic that counts all records, if there is one."""
    return next((name for name, query in plan.queries.items() if query.kind == "count" and query.column is None), None)


def _law(name: str, plan: Plan, people: str | None, whole: bool, size: int) -> tuple[Laws, str]:
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
    return _added(name, query, str(size) if public else people, whole)


def _added(name: str, query: Query, number: str | None, whole: bool) -> tuple[Laws, str]:
    """A sum or a mean of clamped values: nearly normal; of whole numbers from zero on, a count.

    One sum says nothing of the spread of the values: a quarter of the bounds' width stands for it.
    """
    assert query.bounds is not None
    low, high = query.bounds
    if whole and low < 0:
        return {}, f"DiscreteUniform({low * MOST:.0f}, {high * MOST:.0f})"
    parameters = {f"{name}_mean": f"Uniform({low:g}, {high:g})"}
    if number is None:
        number = f"{name}_people"
        parameters |= {number: "LogNormal(5, 3)"}
    if whole:
        return parameters, f"Poisson({number} * {name}_mean)"
    spread = f"{(high - low) / 4:g}"
    if query.kind == "mean":
        return parameters, f"Normal({name}_mean, {spread} / sqrt({number}))"
    return parameters, f"Normal({number} * {name}_mean, {spread} * sqrt({number} + 1))"
