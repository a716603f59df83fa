"""How to split a budget over statistics, and which way to publish them, so that a question is answered best."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.status import DESIGN, check_status
from noisewise.mechanisms import Mechanism
from noisewise.model import Model
from noisewise.results.goal import Goal
from noisewise.studies.designs.candidates import Candidate, Way, choices, common_budget
from noisewise.studies.designs.run import PER_BATCH, Effort
from noisewise.studies.designs.split import Split, judged

WHO = "allocate"
TAILS = {
    "complete": "",
    "edge": " A share is at its smallest: consider leaving that statistic out.",
    "noisy": " The target is not seen to be stationary: give more replicates.",
    "tied": " Others do as well, as far as can be seen: see the candidates.",
}


@dataclass(frozen=True, eq=False, repr=False)
class Allocation:
    """The shares of a budget that make a target best; with candidates, those of the best candidate."""

    shares: Mapping[str, float]
    value: float
    """The target at these shares."""
    error: float
    """Its standard error; 0 where closed forms gave it."""
    equal: float
    """The target at equal shares."""
    gain: float
    """By how much the found split is better than the equal one."""
    gain_error: float
    gradient: Mapping[str, tuple[float, float]]
    """By statistic, how the target changes with the logarithm of its share, and the standard error of that; zero at the
    best split, unless a share is the smallest that is looked for."""
    status: str
    """"complete"; "edge" where a share is the smallest that is looked for; "noisy" where the target is not seen to be
    stationary; "tied" where another candidate cannot be told from the best."""
    kind: str
    budget: float
    target: Goal
    mechanisms: Mapping[str, Mechanism]
    closed: bool
    replicates: int
    seed: int
    choice: Mapping[str, Any] = field(default_factory=FrozenDict)
    """The candidate that does best, as {"bound": 2.0}; empty where there were none."""
    candidates: tuple[Candidate, ...] = ()
    """All candidates, in the order given."""
    seconds: float = field(default=0.0)

    def __post_init__(self) -> None:
        check_status("nw.allocate", self.status, DESIGN)

    def table(self) -> Any:
        """A pandas table by statistic: its share, its budget, and the target's derivative with its error."""
        import pandas as pd

        rows = {
            name: {
                "share": share,
                self.kind: share * self.budget,
                "derivative": self.gradient[name][0],
                "error": self.gradient[name][1],
            }
            for name, share in self.shares.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def candidate_table(self) -> Any:
        """A pandas table by candidate: the target and its error, by how much it is worse than the best, its shares."""
        import pandas as pd

        rows = [
            {
                **one.choice,
                "target": one.value,
                "error": one.error,
                "worse": one.worse,
                "worse_error": one.worse_error,
                **{f"share of {name}": share for name, share in one.shares.items() if len(one.shares) > 1},
            }
            for one in self.candidates
        ]
        return pd.DataFrame(rows)

    def headline(self) -> str:
        """The candidate and the split, and what they gain."""
        basis = "by closed forms" if self.closed else f"by {self.replicates} simulated releases, seed {self.seed}"
        split = ", ".join(f"{name} {100 * share:.0f}%" for name, share in self.shares.items())
        parts = [f"Of {self.kind} = {self.budget:g}: {split}."] if len(self.shares) > 1 else []
        if self.candidates:
            parts.insert(0, f"At {self.kind} = {self.budget:g}, {_named(self.choice)} does best.")
        value = f"The {self.target.words} is {self.value:.4g}"
        beside = [f"with {_named(one.choice)} {self._worse(one.worse, one.worse_error)}" for one in self._others]
        if len(self.shares) > 1:
            beside.append(f"with equal shares it is {self.equal:.4g}, {self._worse(self.gain, self.gain_error)}")
        return f"{' '.join(parts)} {value}; {'; '.join(beside)} ({basis}).{TAILS[self.status]}"

    @property
    def _others(self) -> list[Candidate]:
        """The best three of the candidates that were not chosen, best first."""
        others = [one for one in self.candidates if not one.is_best]
        return sorted(others, key=lambda one: one.worse)[:3]

    def _worse(self, by: float, error: float) -> str:
        return f"worse by {by:.2g}" + ("" if self.closed else f" (standard error {error:.2g})")

    def __repr__(self) -> str:
        tables = [self.candidate_table()] if self.candidates else []
        tables += [self.table()] if len(self.shares) > 1 else []
        return "\n".join([self.headline(), *(each.to_string(float_format=_short) for each in tables)])

    def _repr_html_(self) -> str:
        tables = [self.candidate_table()] if self.candidates else []
        tables += [self.table()] if len(self.shares) > 1 else []
        inside = "".join(each.to_html(float_format=_short) for each in tables)
        return f"<div><p>{escape(self.headline())}</p>{inside}</div>"


def _short(value: float) -> str:
    return f"{value:.3g}"


def _named(choice: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in choice.items())


def allocate(
    model: Model | Callable[..., Model],
    plan: Mapping[str, Any] | Callable[..., Mapping[str, Any]],
    *,
    target: Mapping[str, Any],
    epsilon: float | None = None,
    rho: float | None = None,
    over: Mapping[str, Any] | None = None,
    level: float = 0.95,
    replicates: int = 128,
    seed: int = 1,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Allocation:
    """The shares of `epsilon` or `rho` by statistic that make `target` best, compared with equal ones.

    `plan` is as in `nw.design`: mechanisms as functions of their own budgets. So is `target`, which needs no
    `at_most` or `at_least`. Refused, with an `InferenceError`, where the target does not tell one split from another.

    `over` names what else is to be chosen, with the values to compare: `{"bound": [1.0, 2.0, 4.0]}` for clamping
    bounds, and likewise for bins or for how often to measure. `model` and `plan` are then functions of it, which say
    what would be published and believed: `lambda bound: nw.Model(...)`. Several names are combined in all ways. All
    candidates have the same budget and, as far as they agree, the same random numbers; each is split as suits it best,
    and the best of them is judged on releases that played no part in the choice. Refused where the target tells no
    candidate from another. `checkpoint` is as in `nw.design`.
    """
    effort = Effort.read(WHO, replicates, seed, engine, checkpoint, progress)
    level = checks.level(WHO, level)
    ways = [Way.read(WHO, choice, model, plan, target, level) for choice in choices(WHO, over, model, plan)]
    kind, budget = common_budget(WHO, ways, {"epsilon": epsilon, "rho": rho})
    if over is None and len(ways[0].plan.makers) < 2:
        rule, advice = "must have at least two statistics whose budget is open", "With one, there is nothing to split"
        raise refusal(WHO, "plan", rule, list(ways[0].plan.makers), f"{advice}: see nw.design, or give over=....")
    start = time.monotonic()
    for way in ways:
        way.settle(effort, budget)
    sign = 1.0 if ways[0].target.falls else -1.0
    total = sum(way.work for way in ways) * effort.batches * PER_BATCH
    with effort.running(ways[0].setting.problem, ways[0].target, total) as run:
        for scope, way in enumerate(ways):
            way.search(run, scope, sign)
        best = min(ways, key=lambda way: sign * way.seen)
        candidates = tuple(way.beside(best, sign) for way in ways) if over is not None else ()
        split = judged(best.measure, best.shares, sign)
    _refuse_untold(best, candidates, split)
    closed = all(way.is_closed for way in ways)
    return Allocation(
        shares=FrozenDict(best.named),
        value=split.value,
        error=split.error,
        equal=split.equal,
        gain=split.gain,
        gain_error=split.gain_error,
        gradient=FrozenDict(dict(zip(best.named, split.gradient, strict=True))),
        status=split.status if all(one.is_worse or one.is_best for one in candidates) else "tied",
        kind=kind,
        budget=budget,
        target=best.target,
        mechanisms=FrozenDict(best.plan.at(budget, best.named)),
        closed=closed,
        replicates=0 if closed else effort.batches * PER_BATCH,
        seed=effort.seed,
        choice=FrozenDict(best.choice),
        candidates=candidates,
        seconds=time.monotonic() - start,
    )


def _refuse_untold(best: Way, candidates: tuple[Candidate, ...], split: Split) -> None:
    """Refuse where it does not matter, or is not seen to matter, what is chosen."""
    where = f"{best.plan.kind} = {best.budget:g}"
    message = f"the {best.target.words} does not tell"
    counted = "" if best.is_closed else f", at {best.batches * PER_BATCH} releases"
    advice = "Ask about another quantity" + ("." if best.is_closed else ", or give more replicates.")
    if candidates and not any(one.is_worse for one in candidates):
        names = " and ".join(best.choice)
        raise InferenceError(
            f"{message} one {names} from another at {where}{counted}. {advice}", candidates, who="allocate"
        )
    if len(best.plan.makers) > 1 and not split.tells:
        raise InferenceError(f"{message} one split of {where} from another{counted}. {advice}", who="allocate")
