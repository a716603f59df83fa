"""The table [design] of an analysis file: a plan whose budget is left open, and the target that it is to meet."""

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisewise import checks
from noisewise.analysis.expressions import CONSTANTS, Constants, ExpressionError, parse_number
from noisewise.analysis.mistakes import cause_in_words
from noisewise.analysis.settings import argument_below, table_at
from noisewise.analysis.toml import Document, FileError
from noisewise.analysis.vocabulary import FUNCTIONS, LAWS
from noisewise.errors import InputError, Path, refusal
from noisewise.mechanisms import CATALOGUE, Mechanism
from noisewise.model import Model
from noisewise.results.goal import Goal
from noisewise.studies.design import WHO, grid_of
from noisewise.studies.designs.candidates import MOST
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.run import PER_BATCH, Effort

OPTIONS = ("budgets", "shares", "replicates", "tolerance")
"""Keys that `nw.design` takes as they are."""
KEYS = ("target", "plan", "split", "over", "people", *OPTIONS)
PEOPLE = "n"
"""What the number of people is called in the laws and the plan of a file that leaves it open."""
BUDGETS = ("epsilon", "rho")


@dataclass(frozen=True)
class DesignSettings:
    """What [design] says, as `nw.design` and `nw.allocate` take it."""

    plan: Mapping[str, Any]
    target: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, float] | None = None
    """The budget to be split over the statistics first, and at which candidates are compared, as {"rho": 0.5}."""
    over: Mapping[str, list[Any]] | None = None
    """Candidates, as {"bound": [1.0, 2.0]}."""
    people: Mapping[str, Any] | None = None
    """Where a number of people is looked for: the range to look in, and the budgets."""


def over_of(document: Document) -> dict[str, list[Any]]:
    """The table [design.over]: names that stand for numbers, each with the values to compare."""
    stated = table_at(document, ("design", "over"), None) if _is_in(document, "over") else {}
    for name, values in stated.items():
        path: Path = ("design", "over", name)
        if not isinstance(values, list) or not values or not all(map(_is_number, values)):
            raise document.error(path, f"'{name}' must be a list of numbers, as [1, 2, 4].")
        if name in LAWS or name in FUNCTIONS or name in CONSTANTS or not name.isidentifier():
            raise document.error(path, f"'{name}' cannot be a name here. Choose another, as bound.", key=True)
    return stated


def people_of(document: Document) -> dict[str, Any] | None:
    """The table [design.people]: the range of n, and the budgets."""
    stated = table_at(document, ("design", "people"), (PEOPLE, "budgets")) if _is_in(document, "people") else None
    if stated is None:
        return None
    sizes: Any = stated.get(PEOPLE)
    whole = isinstance(sizes, list) and len(sizes) == 2 and all(type(each) is int for each in sizes)
    if not whole or not 1 <= sizes[0] < sizes[1] < 2**40:
        cause = f"'{PEOPLE}' must be the least and the largest number of people to look at, as [50, 5000]."
        raise document.error(("design", "people", PEOPLE), cause)
    budgets = stated.get("budgets")
    if not isinstance(budgets, list) or not budgets or not all(_is_number(each) and each > 0 for each in budgets):
        raise document.error(("design", "people", "budgets"), "'budgets' must be a list of positive numbers.")
    for other in ("over", "split", "budgets", "shares"):
        if _is_in(document, other):
            raise document.error(
                ("design", other), f"'{other}' must be left out where 'people' asks how many.", key=True
            )
    return {"sizes": tuple(sizes), "budgets": budgets}


def choices_of(document: Document) -> list[dict[str, Any]]:
    """All combinations of the values of [design.over]; a single empty choice where there is no such table.

    Where the number of people is left open, the only choice is the least number.
    """
    people = people_of(document)
    if people is not None:
        return [{PEOPLE: people["sizes"][0]}]
    over = over_of(document)
    number = math.prod(map(len, over.values()))
    if number > MOST:
        raise document.error(("design", "over"), f"there must be at most {MOST} candidates; there are {number:,}.")
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def single_choice(document: Document) -> dict[str, Any]:
    """The only choice of [design.over], for fitting; refused where there are several, or where n is left open."""
    if people_of(document) is not None:
        cause = f"'{PEOPLE}' is left open. To fit, put the number of people in its place, and take [design.people] out."
        raise document.error(("design", "people"), cause, key=True)
    over = over_of(document)
    for name, values in over.items():
        if len(values) > 1:
            cause = f"'{name}' has several values. Keep the one that was chosen, as {name} = [{values[0]}], to fit."
            raise document.error(("design", "over", name), cause)
    return {name: values[0] for name, values in over.items()}


def _is_in(document: Document, key: str) -> bool:
    return isinstance(document.content.get("design"), dict) and key in document.content["design"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def read_design(document: Document, model: Model, level: float, constants: Constants) -> DesignSettings:
    """The tables [design] and [design.plan.NAME]; refuses what `nw.design` and `nw.allocate` would refuse."""
    stated = table_at(document, ("design",), KEYS)
    for key in ("target", "plan"):
        if not isinstance(stated.get(key), dict) or not stated[key]:
            example = {
                "target": 'Write target = { width = "theta", at_most = 4.0 }.',
                "plan": 'Add [design.plan.NAME] with mechanism, sensitivity and budget = "epsilon".',
            }[key]
            raise document.error(("design", key), f"'{key}' must be a table. {example}")
    plan = {name: _maker(document, name, entry, model, constants) for name, entry in stated["plan"].items()}
    if len({entry["budget"] for entry in stated["plan"].values() if "budget" in entry}) != 1:
        cause = (
            'the plan must leave a budget open, of one kind: write budget = "epsilon", or "rho", in [design.plan.NAME].'
        )
        raise document.error(("design", "plan"), cause, key=True)
    options = {key: stated[key] for key in OPTIONS if key in stated}
    if isinstance(options.get("budgets"), list):
        options["budgets"] = tuple(options["budgets"])
    split = stated.get("split")
    if split is not None and (not isinstance(split, dict) or len(split) != 1 or not set(split) <= set(BUDGETS)):
        raise document.error(("design", "split"), "'split' must state a budget, as { rho = 0.5 } or { epsilon = 1.0 }.")
    several = len(choices_of(document)) > 1
    over = over_of(document) if several else None
    settings = DesignSettings(plan, stated["target"], options, split, over, people_of(document))
    try:
        _check(settings, model, level)
    except FileError:
        raise
    except InputError as error:
        raise document.error(("design", *(error.path or (str(error.argument),))), error.cause) from None
    return settings


def _check(stated: DesignSettings, model: Model, level: float) -> None:
    """Refuse what `nw.design` and `nw.allocate` would refuse before they begin."""
    options = stated.options
    Goal.read(WHO, stated.target, model, level)
    opened = OpenPlan.read(WHO, stated.plan, model)
    opened.shares(WHO, options.get("shares"))
    grid_of(options.get("budgets"), opened.kind)
    Effort.read(WHO, options.get("replicates", 4 * PER_BATCH), 0, None, None, None)
    checks.positive_number(WHO, "tolerance", options.get("tolerance", 1.0), "Give 0.05 for a standard error of 5%.")
    if stated.over is not None and stated.split is None:
        advice = f"Write split = {{ {opened.kind} = 1.0 }}."
        raise refusal(WHO, "over", "must come with 'split', the budget at which to compare", list(stated.over), advice)
    if stated.split is not None:
        if opened.kind not in stated.split or (len(opened.makers) < 2 and stated.over is None):
            rule = f"must state a budget in {opened.kind}, as the plan does, for at least two statistics"
            raise refusal(WHO, "split", rule, dict(stated.split), f"Write split = {{ {opened.kind} = 1.0 }}.")
        checks.positive_number(WHO, "split", stated.split[opened.kind], "Give one positive number.")
        if "shares" in options:
            raise refusal(WHO, "shares", "must be left out where 'split' finds them", options["shares"], "Remove one.")


def _maker(
    document: Document, name: str, entry: Any, model: Model, constants: Constants
) -> Callable[[float], Mechanism] | Mechanism:
    """A mechanism as a function of its budget; one without `budget` stays as it is."""
    path: Path = ("design", "plan", name)
    if name not in model.statistics:
        cause = f"'{name}' is not a statistic of the model. {checks.nearest(name, model.statistics)}"
        raise document.error(path, cause, key=True)
    if not isinstance(entry, dict) or not isinstance(entry.get("mechanism"), str):
        raise document.error(path, f"[design.plan.{name}] must name a mechanism.")
    kind = entry["mechanism"]
    if kind not in CATALOGUE:
        cause = f"{kind!r} is not a mechanism. {checks.nearest(kind, CATALOGUE)}"
        raise document.error((*path, "mechanism"), cause)
    for key in entry:
        known = [*CATALOGUE[kind].arguments, "mechanism", "budget"]
        if key not in known:
            cause = f"'{key}' is not an argument of {kind}. {checks.nearest(key, known)}"
            raise document.error((*path, key), cause, key=True)
    budget, budgets = entry.get("budget"), [each for each in BUDGETS if each in CATALOGUE[kind].arguments]
    rest = {
        key: _number(document, (*path, key), value, constants)
        for key, value in entry.items()
        if key not in ("mechanism", "budget")
    }

    def made(**amount: float) -> Mechanism:
        try:
            return CATALOGUE[kind].from_dict({**rest, **amount}, f"design.plan.{name}")
        except InputError as error:
            cause = cause_in_words(error)
            if not amount and budgets:
                cause += " To leave the budget open, add budget = " + " or ".join(f'"{each}"' for each in budgets) + "."
            raise document.error(argument_below(document, path, error), cause) from None

    if budget is None:
        return made()
    if budget not in budgets:
        raise document.error((*path, "budget"), f"'budget' of {kind} must be one of {', '.join(budgets) or 'none'}.")
    made(**{budget: 1.0})
    if budget == "epsilon":
        return lambda epsilon: made(epsilon=epsilon)
    return lambda rho: made(rho=rho)


def _number(document: Document, path: Path, value: Any, constants: Constants) -> Any:
    """An argument; an expression in names of [design.over] is replaced by its value."""
    if not isinstance(value, str) or not set(re.findall(r"\w+", value)) & (set(constants) - set(CONSTANTS)):
        return value
    try:
        return float(parse_number(value, (), path, constants).run({}))
    except ExpressionError as error:
        raise document.error(path, error.cause, at=error.start) from None
