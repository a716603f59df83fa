"""The tables of a design's report: what to publish, what it was chosen from, how many people, and the curve."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noisewise.model import Model
from noisewise.report.design import DesignTable
from noisewise.report.markup import NONE, number, whole
from noisewise.report.noise import described
from noisewise.results.goal import Goal
from noisewise.results.naming import Naming

if TYPE_CHECKING:  # a report is given the results of studies, and runs none
    from noisewise.studies.allocate import Allocation
    from noisewise.studies.design import Design
    from noisewise.studies.sample_size import SampleSize

ERROR = "standard error"


def tables_of_size(found: "SampleSize", naming: Naming) -> list[DesignTable]:
    """How many people, and the curves; without columns of errors where the design has a closed form."""
    return [people(found), sizes(found, measured(found.target, naming))]


def tables_of_budget(found: "Design", split: "Allocation | None", model: Model, naming: Naming) -> list[DesignTable]:
    """All tables of a design, the curve last; without columns of errors where the design has a closed form."""
    words = measured(found.target, naming)
    tables = [] if found.status == "nowhere" else [plan(found, model)]
    if split is not None and split.candidates:
        tables.append(candidates(split, words))
    if split is not None and len(split.shares) > 1:
        tables.append(shares(split))
    return [*tables, curve(found, words)]


def measured(target: Goal, naming: Naming) -> str:
    """What is measured, with its unit; a chance has none."""
    unit = naming.unit(target.name).strip()
    return f"{target.words} ({unit})" if unit and not target.is_chance else target.words


def plan(found: "Design", model: Model) -> DesignTable:
    """Each statistic with its part of the budget, and the noise that comes with it."""
    rows = [
        {
            "statistic": name,
            found.kind: number(found.shares[name] * found.budget) if name in found.shares else "as stated",
            "in such a release, it": described(mechanism, model.shape(name)),
        }
        for name, mechanism in found.mechanisms.items()
    ]
    return _table("plan", "What to publish", f"The plan at {found.kind} = {found.budget:.3g}", rows)


def candidates(split: "Allocation", words: str) -> DesignTable:
    """The ways to publish that were compared, in the order given."""
    rows = [
        {name: whole(value) if isinstance(value, (int, float)) else str(value) for name, value in one.choice.items()}
        | {words: number(one.value)}
        | _error(split.closed, one.error)
        | {"worse than the best by": "the best" if one.is_best else number(one.worse)}
        | _error(split.closed, one.worse_error, "standard error of that")
        | {f"share of {name}": _percent(share) for name, share in one.shares.items() if len(one.shares) > 1}
        for one in split.candidates
    ]
    return _table("candidates", "What was compared", f"Compared at {split.kind} = {split.budget:g}", rows)


def shares(split: "Allocation") -> DesignTable:
    """The best split, and the gradients that show that moving a little of it gains nothing."""
    rows = [
        {"statistic": name, "share": _percent(share), split.kind: number(share * split.budget)}
        | {"change of the target with the log of its share": number(split.gradient[name][0])}
        | _error(split.closed, split.gradient[name][1])
        for name, share in split.shares.items()
    ]
    return _table("split", "How it is split", f"The best split of {split.kind} = {split.budget:g}", rows)


def people(found: "SampleSize") -> DesignTable:
    """The least number of people for each budget."""
    rows = [
        {found.kind: f"{budget:g}"}
        | {"people": whole(found.n[budget]) if budget in found.n else f"more than {whole(max(curve))}"}
        | _error(found.closed, found.error.get(budget))
        for budget, curve in found.curves.items()
    ]
    bound = "at most" if found.target.falls else "at least"
    return _table("people", "How many people", f"For a {found.target.words} {bound} {found.target.goal:g}", rows)


def sizes(found: "SampleSize", words: str) -> DesignTable:
    """The target by number of people and budget."""
    rows = [
        {"people": whole(n)} | {f"{found.kind} = {budget:g}": number(value) for budget, value in row.items()}
        for n, row in found.table().iterrows()
    ]
    return _table("numbers", "The same in numbers", f"{words} by number of people", rows)


def curve(found: "Design", words: str) -> DesignTable:
    """The target by budget."""
    rows = [
        {found.kind: number(budget), words: number(value)}
        | _error(found.closed, error)
        | ({} if found.closed else dict(zip(("95% from", "to"), map(number, found.band[budget]), strict=True)))
        | ({"times what no noise gives": number(value / found.floor)} if found.floor else {})
        for budget, (value, error) in sorted(found.curve.items())
    ]
    return _table("numbers", "The same in numbers", f"{words} by {found.kind}", rows)


def _table(key: str, heading: str, caption: str, rows: Sequence[Mapping[str, str]]) -> DesignTable:
    """A table from rows that all have the same columns."""
    return DesignTable(
        key, heading, caption[0].upper() + caption[1:], list(rows[0]), [list(row.values()) for row in rows]
    )


def _error(is_closed: bool, error: Any, column: str = ERROR) -> dict[str, str]:
    return {} if is_closed else {column: NONE if error is None else number(error)}


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f}%"
