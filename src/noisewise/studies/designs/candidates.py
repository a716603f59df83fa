"""Ways to publish that are compared at one budget: clamping bounds, bins, or how often to measure.

Each has its own model and plan. Its best split is searched for on some releases, and it is judged on others.
docs/derivations/design.md.
"""

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.results.goal import Goal
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.run import Effort, StudyRun
from noisewise.studies.designs.setting import Setting, is_model
from noisewise.studies.designs.split import EVALUATIONS, FLAT, TELLING, error_of, searched

MOST = 64
"""Candidates that are compared at most."""


@dataclass(frozen=True)
class Candidate:
    """One of several ways to publish, at the split of the budget that is best for it."""

    choice: Mapping[str, Any]
    """What was chosen, as {"bound": 2.0}."""
    shares: Mapping[str, float]
    value: float
    """The target, on releases that no search has seen."""
    error: float
    worse: float
    """By how much it is worse than the candidate that was found best; below 0 where it came out better."""
    worse_error: float
    is_best: bool = False

    @property
    def is_worse(self) -> bool:
        """Whether it is seen to be worse than the best."""
        return self.worse > TELLING * self.worse_error + FLAT * abs(self.value)


def choices(who: str, over: Any, model: Any, plan: Any) -> list[dict[str, Any]]:
    """All combinations of the values in `over`, as dicts by name; one empty dict where `over` is None."""
    if over is None:
        return [{}]
    advice = 'Give {"bound": [1.0, 2.0, 4.0]}, and model and plan as functions of bound.'
    if not isinstance(over, Mapping) or not over or not all(isinstance(name, str) for name in over):
        raise refusal(who, "over", "must be a dict of names with the values to compare", over, advice)
    lists = {n: list(each) if isinstance(each, (list, tuple, range, np.ndarray)) else [] for n, each in over.items()}
    if not 2 <= math.prod(map(len, lists.values())) <= MOST:
        rule = f"must leave between 2 and {MOST} candidates, each name with a list of values"
        raise refusal(who, "over", rule, over, advice)
    if isinstance(model, Model) and isinstance(plan, Mapping):
        rule = f"must be a function of {', '.join(over)}, or the plan must"
        raise refusal(who, "model", rule, model, f"Give lambda {', '.join(over)}: nw.Model(...).")
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def common_budget(who: str, ways: "Sequence[Way]", given: Mapping[str, Any]) -> tuple[str, float]:
    """The kind of the budget and its amount; refused where candidates differ in kind, or another kind is given."""
    kinds = {way.plan.kind for way in ways}
    if len(kinds) > 1:
        advice = "Candidates can be compared at one budget only: write all of epsilon, or all of rho."
        raise refusal(who, "plan", "must have the same kind of budget for every candidate", sorted(kinds), advice)
    kind = kinds.pop()
    other = "rho" if kind == "epsilon" else "epsilon"
    if given[kind] is None or given[other] is not None:
        rule = f"must be given, and no other budget, as the plan is in {kind}"
        raise refusal(who, kind, rule, dict(given), f"Give {kind}=1.0.")
    return kind, checks.positive_number(who, kind, given[kind], "Give one positive number.")


@dataclass
class Way:
    """One candidate: a model and a plan, the split that suits it best, and what it is then worth."""

    choice: dict[str, Any]
    model: Model
    plan: OpenPlan
    target: Goal
    budget: float = 0.0
    batches: int = 0
    shares: Array = field(default_factory=lambda: np.ones(1))
    seen: float = math.nan
    """The target at these shares, on the releases of the search."""

    @classmethod
    def read(cls, who: str, choice: dict[str, Any], model: Any, plan: Any, target: Any, level: float) -> Self:
        """The candidate of a choice: its model, plan and target."""
        made = is_model(who, _made(who, "model", model, choice))
        opened = OpenPlan.read(who, _made(who, "plan", plan, choice), made)
        return cls(choice, made, opened, Goal.read(who, target, made, level, needs_goal=False))

    def settle(self, effort: Effort, budget: float) -> None:
        """Set the budget, and make sure that the mechanisms fit the model at it."""
        self.budget, self.batches = budget, effort.batches
        self.setting = Setting.of(effort, self.model, self.plan, self.target, budget)

    @property
    def is_closed(self) -> bool:
        """Whether closed forms serve it."""
        return self.setting.joint is not None

    @property
    def work(self) -> int:
        """Evaluations of the target that are expected."""
        return EVALUATIONS * len(self.plan.makers) if len(self.plan.makers) > 1 else 2

    @property
    def named(self) -> dict[str, float]:
        """Shares by statistic."""
        return dict(zip(self.plan.makers, map(float, self.shares), strict=True))

    def search(self, run: StudyRun, scope: int, sign: float) -> None:
        """Find the best split, on the first half of the releases."""
        size = len(self.plan.makers)
        self.setting.keep(run, scope, batches=32 if size > 1 else 1)
        means = partial(self._means, first=0)
        self.shares = searched(means, size, sign)
        self.seen = float(np.mean(means(self.shares)))
        self.setting.simulation.forget()

    def measure(self, shares: Array) -> Array:
        """Averages by batch on the other half of the releases."""
        return self._means(shares, first=self.batches)

    @cached_property
    def measured(self) -> Array:
        """Averages by batch on the other half of the releases, at the shares that the search found."""
        value = self.measure(self.shares)
        self.setting.simulation.forget()
        return value

    def _means(self, shares: Array, first: int) -> Array:
        mechanisms = self.plan.at(self.budget, dict(zip(self.plan.makers, map(float, shares), strict=True)))
        return self.setting.means(mechanisms, first, first + self.batches)

    def beside(self, best: "Way", sign: float) -> Candidate:
        """The target, and by how much it is worse than the best: batch by batch, since batches share random numbers."""
        worse = sign * (self.measured - best.measured)
        return Candidate(
            choice=FrozenDict(self.choice),
            shares=FrozenDict(self.named),
            value=float(np.mean(self.measured)),
            error=error_of(self.measured),
            worse=float(np.mean(worse)),
            worse_error=error_of(worse),
            is_best=self is best,
        )


def _made(who: str, argument: str, given: Any, choice: dict[str, Any]) -> Any:
    """A model or a plan, made for a choice where it is a function."""
    if not choice or isinstance(given, (Model, Mapping)):
        return given
    names = ", ".join(choice)
    try:
        inspect.signature(given).bind(**choice)
    except (TypeError, ValueError):
        raise refusal(who, argument, f"must be a function of {names}", given, f"Give lambda {names}: ....") from None
    return given(**choice)
