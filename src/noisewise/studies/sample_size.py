"""How many people a question needs, at given budgets."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, refusal
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.plots.design import plot_sizes
from noisewise.results.goal import Goal
from noisewise.studies.designs.counts import Mechanisms
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.run import PER_BATCH, Effort, StudyRun
from noisewise.studies.designs.search import Curve, Solution, least
from noisewise.studies.designs.setting import Setting

WHO = "sample_size"
PLACES = 8
"""Numbers of people on the curve."""
MOST_TIMES = 4
"""The search may take this many times the replicates asked for, to bring the error down."""


@dataclass(frozen=True, eq=False, repr=False)
class SampleSize:
    """The least number of people by budget that meets a target, and the curves behind it."""

    n: Mapping[float, int]
    """By budget, the least number found; budgets at which no number looked at meets the target are left out."""
    error: Mapping[float, float]
    """By budget, the Monte Carlo standard error of that number; 0 where closed forms gave it."""
    curves: Mapping[float, Mapping[int, tuple[float, float]]]
    """By budget and number of people, the target and its standard error."""
    bands: Mapping[float, Mapping[int, tuple[float, float]]]
    """By budget and number of people, a 95% interval of the target; of a chance, Wilson's."""
    kind: str
    target: Goal
    closed: bool
    seed: int
    seconds: float = field(default=0.0)

    def table(self) -> Any:
        """A pandas table of the target: a row for each number of people, a column for each budget."""
        import pandas as pd

        frame = pd.DataFrame(
            {budget: {n: value for n, (value, _) in curve.items()} for budget, curve in self.curves.items()}
        ).sort_index()
        frame.index.name = "n"
        frame.columns.name = self.kind
        return frame

    def plot(self) -> Any:
        """A matplotlib figure: the target against the number of people, a line for each budget, and the goal."""
        assert self.target.goal is not None
        values = {budget: {n: value for n, (value, _) in curve.items()} for budget, curve in self.curves.items()}
        return plot_sizes(values, self.bands, self.kind, self.target.words, self.target.goal, self.n)

    def headline(self) -> str:
        """The numbers of people, in one sentence."""
        bound = "at most" if self.target.falls else "at least"
        parts = []
        for budget in self.curves:
            number = f"more than {max(self.curves[budget]):,}"
            if budget in self.n:
                error = "" if self.closed else f" (standard error {self.error[budget]:.2g})"
                number = f"{self.n[budget]:,}{error}"
            parts.append(f"{number} at {self.kind} = {budget:g}")
        return f"People for a {self.target.words} {bound} {self.target.goal:g}: {'; '.join(parts)}."

    def __repr__(self) -> str:
        return f"{self.headline()}\n{self.table().to_string(float_format=lambda x: f'{x:.4g}')}"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.headline())}</p>{self.table().to_html(float_format=lambda x: f'{x:.4g}')}</div>"


def sample_size(
    model: Callable[[int], Model],
    plan: Callable[[int], Mapping[str, Any]] | Mapping[str, Any],
    *,
    target: Mapping[str, Any],
    budgets: float | Sequence[float],
    sizes: tuple[int, int] = (10, 100_000),
    level: float = 0.95,
    replicates: int = 128,
    tolerance: float = 0.05,
    seed: int = 1,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> SampleSize:
    """The least number of people n at which releases meet `target`, for each of the `budgets`.

    `model` is a function of n that returns the analyst's model of a release from n people. `plan` is as in `nw.design`,
    or a function of n that returns one, where sensitivities depend on n. `target` is as there. Numbers between the two
    of `sizes` are looked at. An `InferenceError` says that none of them meets the target at any budget. `checkpoint`
    is as in `nw.design`.
    """
    effort = Effort.read(WHO, replicates, seed, engine, checkpoint, progress)
    tolerance = checks.positive_number(WHO, "tolerance", tolerance, "Give 0.05 for a standard error of 5%.")
    if not callable(model):
        advice = "Give lambda n: nw.Model(...)."
        raise refusal(WHO, "model", "must be a function of n that returns a Model", model, advice)
    amounts = _amounts(budgets)
    low, high = _sizes(sizes)
    grid = sorted({round(n) for n in np.geomspace(low, high, PLACES)})
    start = time.monotonic()
    study = _Sizes(model, plan, target, checks.level(WHO, level), effort)
    first = study.at(grid[0])
    with effort.running(first.problem, first.target, len(amounts) * len(grid) * effort.batches * PER_BATCH) as run:
        study.keep(run)
        searches = {budget: study.search(budget, grid, tolerance) for budget in amounts}
    met = {budget: root for budget, (_, root) in searches.items() if root.status != "nowhere"}
    curves = {budget: curve for budget, (curve, _) in searches.items()}
    answer = SampleSize(
        n={budget: study.whole(root.place, budget, low) for budget, root in met.items()},
        error={budget: root.error for budget, root in met.items()},
        curves={b: {round(n): (curve.mean(n), curve.error(n)) for n in curve.seen} for b, curve in curves.items()},
        bands={b: {round(n): curve.band(n) for n in curve.seen} for b, curve in curves.items()},
        kind=first.plan.kind,
        target=first.target,
        closed=study.closed,
        seed=effort.seed,
        seconds=time.monotonic() - start,
    )
    if not met:
        raise InferenceError(answer.headline(), answer, who="sample_size")
    return answer


def _amounts(budgets: Any) -> list[float]:
    spent = list(budgets) if isinstance(budgets, (Sequence, np.ndarray)) and len(budgets) else [budgets]
    return [checks.positive_number(WHO, "budgets", each, "Give positive numbers.") for each in spent]


def _sizes(sizes: Any) -> tuple[int, int]:
    advice = "Give the least and the largest number of people to look at, as (10, 100_000)."
    if not isinstance(sizes, (tuple, list)) or len(sizes) != 2:
        raise refusal(WHO, "sizes", "must be two whole numbers, the lower first", sizes, advice)
    low, high = (checks.integer(WHO, "sizes", each, least=1, advice=advice) for each in sizes)
    if not low < high:
        raise refusal(WHO, "sizes", "must be two whole numbers, the lower first", sizes, advice)
    return low, high


@dataclass
class _Sizes:
    """Models and plans by number of people, and the target at each."""

    model: Callable[[int], Model]
    plan: Any
    stated: Mapping[str, Any]
    level: float
    effort: Effort
    run: StudyRun = field(default_factory=StudyRun)
    closed: bool = False
    _made: dict[int, Setting] = field(default_factory=dict)

    def at(self, n: int) -> Setting:
        """The model, the plan and the target for n people."""
        if n not in self._made:
            model = self.model(n)
            if not isinstance(model, Model):
                raise refusal(WHO, "model", "must return a noisewise Model", model, "Give lambda n: nw.Model(...).")
            plan = OpenPlan.read(WHO, self.plan(n) if callable(self.plan) else self.plan, model)
            target = Goal.read(WHO, self.stated, model, self.level)
            setting = Setting.of(self.effort, model, plan, target, 1.0)
            setting.keep(self.run, n, batches=1)
            self.closed = setting.joint is not None
            self._made[n] = setting
        return self._made[n]

    def keep(self, run: StudyRun) -> None:
        """Make all simulations part of a run from now on."""
        self.run = run
        for n, setting in self._made.items():
            setting.keep(run, n, batches=1)

    def search(self, budget: float, grid: list[int], tolerance: float) -> tuple[Curve, Solution]:
        """The least number of people at one budget, and the curve behind it."""
        target, batches = self.at(grid[0]).target, self.effort.batches
        assert target.goal is not None
        few, most = (2, 2) if self.closed else (batches, MOST_TIMES * batches)
        curve = Curve(self._evaluate(budget), None if self.closed else target)
        places = [float(n) for n in grid]
        return curve, least(curve, places, target.goal, target.falls, batches=few, most=most, tolerance=tolerance)

    def _evaluate(self, budget: float) -> Callable[[list[float], int, int], Array]:
        """A function that gives averages by number of people and batch, at one budget."""

        def averages(places: list[float], first: int, last: int) -> Array:
            if self.closed:
                return np.stack([np.full(last - first, self._between(place, budget)) for place in places])
            settings = [self.at(round(place)) for place in places]
            return np.stack([one.means(_shared(one, budget), first, last) for one in settings])

        return averages

    def whole(self, place: float, budget: float, lowest: int) -> int:
        """The number of people at a root: rounded up, or by closed forms the least whole number that meets the goal."""
        n = math.ceil(place)
        if self.closed:
            while n > lowest and self._meets(n - 1, budget):
                n -= 1
            while not self._meets(n, budget):
                n += 1
        return n

    def _meets(self, n: int, budget: float) -> bool:
        target, value = self.at(n).target, self._between(n, budget)
        assert target.goal is not None
        return value <= target.goal if target.falls else value >= target.goal

    def _between(self, place: float, budget: float) -> float:
        """The closed form at a number that need not be whole: by a line in its logarithm between the two around it."""
        below, above = math.floor(place), math.ceil(place)
        values = []
        for n in (below, above):
            one = self.at(n)
            assert one.joint is not None
            values.append(one.joint.value(_shared(one, budget)))
        share = 0.0 if above == below else math.log(place / below) / math.log(above / below)
        return (1.0 - share) * values[0] + share * values[1]


def _shared(setting: Setting, budget: float) -> Mechanisms:
    """The plan where all statistics have equal shares of the budget."""
    return setting.plan.at(budget, setting.plan.shares(WHO, None))
