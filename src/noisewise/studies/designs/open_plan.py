"""A plan of a release whose budget is left open: a mechanism for each statistic as a function of its budget."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from noisewise import checks
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.mechanisms import Mechanism
from noisewise.model import Model

KINDS = ("epsilon", "rho")
"""Budgets that add up over statistics."""
ADVICE = "Give {'count': lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=1.0)}, or a mechanism that is fixed."


@dataclass(frozen=True)
class OpenPlan:
    """Mechanisms as functions of budgets that add up to a whole."""

    kind: str
    """"epsilon" or "rho", as the functions name their argument."""
    makers: Mapping[str, Callable[[float], Mechanism]]
    fixed: Mapping[str, Mechanism]

    @classmethod
    def read(cls, who: str, plan: Any, model: Model) -> Self:
        """The plan from a dict of functions of `epsilon`, or all of `rho`, and of mechanisms that stay as they are."""
        if not isinstance(plan, Mapping) or not plan:
            raise refusal(who, "plan", "must be a dict of statistics with functions of a budget", plan, ADVICE)
        makers, fixed, kinds = {}, {}, set()
        for name, entry in plan.items():
            checks.known_name(who, "plan", name, model.statistics, "must name statistics")
            if isinstance(entry, Mechanism):
                fixed[name] = entry
                continue
            kinds.add(_argument(who, name, entry))
            makers[name] = entry
        if len(kinds) != 1:
            rule = "must have functions of one kind of budget, epsilon or rho"
            raise refusal(who, "plan", rule, sorted(kinds), ADVICE)
        for name, make in makers.items():
            if not isinstance(make(1.0), Mechanism):
                raise refusal(who, f"plan['{name}']", "must return a mechanism", make(1.0), ADVICE)
        return cls(kinds.pop(), FrozenDict(makers), FrozenDict(fixed))

    def shares(self, who: str, given: Any) -> dict[str, float]:
        """Shares of the whole by statistic, which add up to one; equal where none are given."""
        if given is None:
            return dict.fromkeys(self.makers, 1.0 / len(self.makers))
        advice = f"Give a positive share for each of {', '.join(self.makers)}."
        if not isinstance(given, Mapping) or set(given) != set(self.makers):
            raise refusal(who, "shares", "must name the statistics whose budget is open", given, advice)
        shares = {name: checks.positive_number(who, "shares", given[name], advice) for name in self.makers}
        total = sum(shares.values())
        if abs(total - 1.0) > 1e-6:
            raise refusal(who, "shares", "must add up to 1", total, advice)
        return {name: share / total for name, share in shares.items()}

    def at(self, budget: float, shares: Mapping[str, float]) -> dict[str, Mechanism]:
        """The mechanisms where all together spend `budget`."""
        return {**{name: make(budget * shares[name]) for name, make in self.makers.items()}, **self.fixed}


def _argument(who: str, name: str, function: Any) -> str:
    """The name of a function's one required argument, which says what kind of budget it takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise refusal(
            who, f"plan['{name}']", "must be a function of a budget or a mechanism", function, ADVICE
        ) from None
    needed = [each.name for each in parameters if each.default is each.empty]
    if len(needed) != 1 or needed[0] not in KINDS:
        rule = "must be a function of one budget, named epsilon or rho"
        raise refusal(who, f"plan['{name}']", rule, needed, ADVICE)
    return needed[0]
