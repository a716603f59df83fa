"""The least budget at which a release would answer a question: what analysts would conclude, computed beforehand."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.status import DESIGN, check_status
from noisewise.mechanisms import Guarantee, Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.plots.design import plot_curve
from noisewise.results.goal import Goal
from noisewise.studies.designs.counts import Mechanisms
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.run import PER_BATCH, Effort
from noisewise.studies.designs.search import Curve, least
from noisewise.studies.designs.setting import Setting, is_model
from noisewise.studies.designs.simulation import floor_of

WHO = "design"
RANGE = {"epsilon": (0.01, 10.0), "rho": (5e-5, 50.0)}
"""Budgets that are looked at where none are given."""
PLACES = 20
"""Budgets on the curve."""
MOST_TIMES = 16
"""The search may take this many times the replicates asked for, to bring the error down."""
CLOSED = 1e-12
"""Relative accuracy of a root of a closed form."""


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """The least budget that meets a target, and the curve behind it."""

    budget: float
    """The least budget found; infinite where none of those looked at meets the target."""
    error: float
    """Its Monte Carlo error, a standard error; 0 where closed forms gave it."""
    kind: str
    """What the budget is: "epsilon" or "rho"."""
    curve: Mapping[float, tuple[float, float]]
    """By budget, the target and its standard error."""
    band: Mapping[float, tuple[float, float]]
    """By budget, a 95% interval of the target; of a chance, Wilson's."""
    floor: float | None
    """The target if the confidential statistics were published without noise; None where that cannot be computed."""
    floor_error: float | None
    target: Goal
    status: str
    """"complete"; "noisy" where the error is larger than asked for; "everywhere" where every budget looked at meets the
    target, "nowhere" where none does."""
    mechanisms: Mapping[str, Mechanism]
    """The plan at the budget found, or at the largest one looked at."""
    shares: Mapping[str, float]
    closed: bool
    """Whether closed forms gave it, without simulation."""
    replicates: int
    """Simulated releases at the budget that took most of them, near the one found; 0 where closed forms gave it."""
    sampled: int
    """Posteriors that could not be represented by weighted rows, and were sampled."""
    seed: int
    seconds: float = field(default=0.0)

    def __post_init__(self) -> None:
        check_status("nw.design", self.status, DESIGN)

    @property
    def guarantee(self) -> Guarantee | None:
        """What the plan at that budget guarantees, where every mechanism states it."""
        parts = [mechanism.guarantee for mechanism in self.mechanisms.values()]
        stated = [part for part in parts if part is not None and part.kind != "none"]
        return Guarantee.compose(stated) if stated and len(stated) == len(parts) else None

    def table(self) -> Any:
        """A pandas table by budget: the target, its standard error and 95% band, and how many times the floor it is."""
        import pandas as pd

        rows = {
            budget: {
                "target": value,
                "error": error,
                "low": self.band[budget][0],
                "high": self.band[budget][1],
                "times_floor": value / self.floor if self.floor else float("nan"),
            }
            for budget, (value, error) in sorted(self.curve.items())
        }
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index.name = self.kind
        return frame

    def plot(self) -> Any:
        """A matplotlib figure: the target against the budget, the goal, the budget found and the floor."""
        assert self.target.goal is not None
        values = {budget: value for budget, (value, _) in self.curve.items()}
        return plot_curve(values, self.band, self.kind, self.target.words, self.target.goal, self._found, self.floor)

    @property
    def _found(self) -> tuple[float, float] | None:
        return (self.budget, self.error) if self.status in ("complete", "noisy") else None

    def headline(self) -> str:
        """The budget and what it rests on, in one sentence or two."""
        bound = "at most" if self.target.falls else "at least"
        wanted = f"{self.target.words} {bound} {self.target.goal:g}"
        basis = "by closed forms" if self.closed else f"by {self.replicates} simulated releases, seed {self.seed}"
        lowest, highest = min(self.curve), max(self.curve)
        floor = "" if self.floor is None else f" Without noise it would be {self.floor:.4g}."
        match self.status:
            case "nowhere":
                return f"No {self.kind} up to {highest:g} gives a {wanted} ({basis}).{floor}"
            case "everywhere":
                return f"Every {self.kind} from {lowest:g} on gives a {wanted} ({basis}).{floor}"
        error = "" if self.closed else f" (standard error {self.error:.2g})"
        noisy = " The error is larger than asked for: give more replicates." if self.status == "noisy" else ""
        return f"{self.kind} = {self.budget:.3g}{error} gives a {wanted} ({basis}).{floor}{noisy}"

    def __repr__(self) -> str:
        return f"{self.headline()}\n{self.table().to_string(float_format=lambda x: f'{x:.4g}')}"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.headline())}</p>{self.table().to_html(float_format=lambda x: f'{x:.4g}')}</div>"


def design(
    model: Model,
    plan: Mapping[str, Any],
    *,
    target: Mapping[str, Any],
    level: float = 0.95,
    budgets: tuple[float, float] | None = None,
    shares: Mapping[str, float] | None = None,
    replicates: int = 128,
    tolerance: float = 0.05,
    seed: int = 1,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Design:
    """The least budget at which releases by `plan` meet `target`, for analysts whose model this is.

    `plan` names statistics with their mechanisms, as functions of a budget: `{"count": lambda epsilon:
    nw.Laplace(epsilon=epsilon, sensitivity=1.0)}`, all of `epsilon` or all of `rho`. Several statistics have `shares`
    of it, equal ones if none are given. A mechanism in place of a function stays as it is.

    `target` is one of `{"width": "theta", "at_most": 4.0}` (of the central interval at `level`), `{"sd": ...}`,
    `{"power": "effect", "excludes": 0.0, "at_least": 0.8, "truth": {...}}`, or `{"error": "theta", "above": 30.0,
    "at_most": 0.05}` (the chance of a wrong decision whether it is above, made for the more probable side). Each is an
    average over releases whose true values come from the prior, or are simulated at the parameters in `truth`.

    The curve has 20 budgets between the two of `budgets`. The search doubles the `replicates`, up to 16 times as many,
    while the error exceeds `tolerance` times the budget. Where all laws are normal and all noise is Gaussian, closed
    forms take the place of simulation. An `InferenceError` says that no budget in the range does; its `result` has the
    curve. `checkpoint` is a file in which simulated releases are kept: called again after an interruption, the search
    goes on from there, to the same result.
    """
    effort = Effort.read(WHO, replicates, seed, engine, checkpoint, progress)
    tolerance = checks.positive_number(WHO, "tolerance", tolerance, "Give 0.05 for a standard error of 5%.")
    opened = OpenPlan.read(WHO, plan, is_model(WHO, model))
    goal = Goal.read(WHO, target, model, checks.level(WHO, level))
    split, grid = opened.shares(WHO, shares), grid_of(budgets, opened.kind)
    start = time.monotonic()
    setting = Setting.of(effort, model, opened, goal, grid[-1], split)

    def plan_at(budget: float) -> Mechanisms:
        return opened.at(budget, split)

    with effort.running(setting.problem, goal, PLACES * effort.batches * PER_BATCH) as run:
        setting.keep(run)
        closed = setting.joint is not None
        parts = (
            _by_closed_form(setting, plan_at, grid) if closed else _simulated(setting, plan_at, grid, effort, tolerance)
        )
    place = parts.pop("place")
    study = Design(
        budget=math.inf if parts["status"] == "nowhere" else place,
        kind=opened.kind,
        target=goal,
        mechanisms=FrozenDict(plan_at(place)),
        shares=FrozenDict(split),
        closed=closed,
        seed=effort.seed,
        seconds=time.monotonic() - start,
        **parts,
    )
    if study.status == "nowhere":
        raise InferenceError(study.headline(), study, who="design")
    return study


def grid_of(budgets: Any, kind: str) -> list[float]:
    """The budgets on the curve, between the two that are given."""
    advice = f"Give the least and the largest {kind} to look at, as (0.01, 10.0)."
    if budgets is None:
        budgets = RANGE[kind]
    if not isinstance(budgets, (tuple, list)) or len(budgets) != 2:
        raise refusal(WHO, "budgets", "must be two numbers, the lower first", budgets, advice)
    low, high = (checks.positive_number(WHO, "budgets", budget, advice) for budget in budgets)
    if not low < high:
        raise refusal(WHO, "budgets", "must be two numbers, the lower first", budgets, advice)
    return [float(budget) for budget in np.geomspace(low, high, PLACES)]


PlanAt = Callable[[float], Mechanisms]


def _simulated(
    setting: Setting, plan_at: PlanAt, grid: list[float], effort: Effort, tolerance: float
) -> dict[str, Any]:
    """The fields of a `Design` that simulation gives, with the `place` of the budget found."""
    simulation, goal = setting.simulation, setting.target

    def evaluate(places: list[float], first: int, last: int) -> Array:
        return simulation.curve([plan_at(place) for place in places], first, last)

    curve = Curve(evaluate, goal)
    assert goal.goal is not None
    most = MOST_TIMES * effort.batches
    root = least(curve, grid, goal.goal, goal.falls, batches=effort.batches, most=most, tolerance=tolerance)
    floor = _floor(setting, list(plan_at(grid[0])), effort.batches)
    return {
        "place": root.place,
        "error": root.error,
        "status": root.status,
        "curve": {place: (curve.mean(place), curve.error(place)) for place in curve.seen},
        "band": {place: curve.band(place) for place in curve.seen},
        "floor": None if floor is None else floor.mean(math.inf),
        "floor_error": None if floor is None else floor.error(math.inf),
        "replicates": max(map(curve.releases, curve.seen)),
        "sampled": simulation.sampled,
    }


def _floor(setting: Setting, names: list[str], batches: int) -> Curve | None:
    """The target without noise, as if at an infinite budget; None where that cannot be computed."""
    exact = floor_of(setting.model, names, setting.target)
    if exact is None:
        return None
    floor = Curve(lambda _, first, last: setting.simulation.curve([exact], first, last), setting.target)
    floor.look([math.inf], batches)
    return floor


def _by_closed_form(setting: Setting, plan_at: PlanAt, grid: list[float]) -> dict[str, Any]:
    """As `_simulated`, where closed forms give the target: it is monotone, since noise only takes information away."""
    from scipy.optimize import brentq

    joint, goal, sign = setting.joint, setting.target.goal, 1.0 if setting.target.falls else -1.0
    assert joint is not None
    assert goal is not None

    def excess(place: float) -> float:
        return sign * (joint.value(plan_at(place)) - goal)

    root, status = grid[0], "everywhere"
    if excess(grid[-1]) > 0.0:
        root, status = grid[-1], "nowhere"
    elif excess(grid[0]) > 0.0:
        log_root = brentq(lambda x: excess(math.exp(x)), math.log(grid[0]), math.log(grid[-1]), xtol=CLOSED)
        root, status = math.exp(log_root), "complete"
    values = {place: joint.value(plan_at(place)) for place in grid}
    exact = floor_of(setting.model, list(plan_at(grid[0])), setting.target)
    return {
        "place": root,
        "error": 0.0,
        "status": status,
        "curve": {place: (value, 0.0) for place, value in values.items()},
        "band": {place: (value, value) for place, value in values.items()},
        "floor": None if exact is None else joint.value(exact),
        "floor_error": None if exact is None else 0.0,
        "replicates": 0,
        "sampled": 0,
    }
