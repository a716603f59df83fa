"""The table [design] of an analysis file: a plan whose budget is left open, and what it is to be good for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisewise import checks
from noisewise.analysis.settings import argument_below, table
from noisewise.analysis.toml import Document
from noisewise.errors import InputError, Path
from noisewise.mechanisms import CATALOGUE, Mechanism
from noisewise.model import Model

OPTIONS = ("budgets", "shares", "replicates", "tolerance")
"""Keys that `nw.design` takes as they are."""
KEYS = ("target", "plan", "split", *OPTIONS)
BUDGETS = ("epsilon", "rho")


@dataclass(frozen=True)
class DesignSettings:
    """What [design] says, as `nw.design` and `nw.allocate` take it."""

    plan: Mapping[str, Any]
    target: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, float] | None = None
    """The budget to be split over the statistics first, as {"rho": 0.5}."""


def read_design(document: Document, model: Model) -> DesignSettings:
    """The table [design], and [design.plan.NAME] for each statistic."""
    stated = table(document, ("design",), KEYS)
    for key in ("target", "plan"):
        if not isinstance(stated.get(key), dict) or not stated[key]:
            example = {
                "target": 'Write target = { width = "theta", at_most = 4.0 }.',
                "plan": 'Add [design.plan.NAME] with mechanism, sensitivity and budget = "epsilon".',
            }[key]
            raise document.error(("design", key), f"'{key}' must be a table. {example}")
    plan = {name: _maker(document, name, entry, model) for name, entry in stated["plan"].items()}
    options = {key: stated[key] for key in OPTIONS if key in stated}
    if isinstance(options.get("budgets"), list):
        options["budgets"] = tuple(options["budgets"])
    split = stated.get("split")
    if split is not None and (not isinstance(split, dict) or len(split) != 1 or not set(split) <= set(BUDGETS)):
        raise document.error(("design", "split"), "'split' must state a budget, as { rho = 0.5 } or { epsilon = 1.0 }.")
    return DesignSettings(plan, stated["target"], options, split)


def _maker(document: Document, name: str, entry: Any, model: Model) -> Callable[[float], Mechanism] | Mechanism:
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
    budget = entry.get("budget")
    rest = {key: value for key, value in entry.items() if key not in ("mechanism", "budget")}

    def made(**amount: float) -> Mechanism:
        try:
            return CATALOGUE[kind].from_dict({**rest, **amount}, f"design.plan.{name}")
        except InputError as error:
            raise document.error(argument_below(document, path, error), error.cause) from None

    if budget is None:
        return made()
    if budget not in BUDGETS or budget not in CATALOGUE[kind].arguments:
        known = [each for each in BUDGETS if each in CATALOGUE[kind].arguments]
        raise document.error((*path, "budget"), f"'budget' of {kind} must be one of {', '.join(known) or 'none'}.")
    made(**{budget: 1.0})
    if budget == "epsilon":
        return lambda epsilon: made(epsilon=epsilon)
    return lambda rho: made(rho=rho)
