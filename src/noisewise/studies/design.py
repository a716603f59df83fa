"""The least budget at which a release would answer a question: what analysts would conclude, computed beforehand."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.progress import Progress
from noisewise.inference.status import DESIGN, check_status
from noisewise.mechanisms import Guarantee, Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.plots.design import plot_curve
from noisewise.studies.designs.gaussian import JointNormal
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.search import Curve, least
from noisewise.studies.designs.simulation import PER_BATCH, Mechanisms, Simulation, check, floor_of
from noisewise.studies.designs.target import Goal

WHO = "design"
RANGE = {"epsilon": (0.01, 10.0), "rho": (5e-5, 50.0)}
"""Budgets that are looked at where none are given."""
PLACES = 20
"""Budgets on the curve."""
MOST_TIMES = 16
"""Times the replicates asked for, that the search may take to bring the error down."""
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
    floor: float | None
    """What the confidential statistics themselves would give; None where that is not to be had."""
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
    """Simulated releases by budget, where fewest and most were taken near the budget found."""
    sampled: int
    """Posteriors that could not be had by weighing rows and were sampled."""
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
        """A pandas table by budget: the target, its standard error, and how many times what no noise gives."""
        import pandas as pd

        rows = {
            budget: {"target": value, "error": error, "times_floor": value / self.floor if self.floor else float("nan")}
            for budget, (value, error) in sorted(self.curve.items())
        }
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index.name = self.kind
        return frame

    def plot(self) -> Any:
        """A matplotlib figure: the target against the budget, the goal, the budget found and the floor."""
        assert self.target.goal is not None
        return plot_curve(self.curve, self.kind, self.target.words, self.target.goal, self._found, self.floor)

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
    progress: bool | None = None,
) -> Design:
    """The least budget at which releases by `plan` meet `target`, for analysts whose model this is.

    `plan` names statistics with their mechanisms, as functions of a budget: `{"count": lambda epsilon:
    nw.Laplace(epsilon=epsilon, sensitivity=1.0)}`, all of `epsilon` or all of `rho`. Several statistics have `shares`
    of it, equal ones if none are given. A mechanism in place of a function stays as it is.

    `target` is one of `{"width": "theta", "at_most": 4.0}` (of the central interval at `level`), `{"sd": ...}`,
    `{"power": "effect", "excludes": 0.0, "at_least": 0.8, "truth": {...}}`, or `{"error": "theta", "above": 30.0,
    "at_most": 0.05}` (of deciding whether it is above, by the larger chance). Each is an average over releases whose
    true values come from the prior, or are simulated at the parameters in `truth`.

    The curve has 20 budgets between the two of `budgets`. The search doubles the `replicates`, up to 16 times as many,
    while the error exceeds `tolerance` times the budget. Where all laws are normal and all noise is Gaussian, closed
    forms take the place of simulation. An `InferenceError` says that no budget in the range does; its `result` has the
    curve.
    """
    if not isinstance(model, Model):
        raise refusal(WHO, "model", "must be a noisewise Model", model, "Build it with nw.Model.")
    level = checks.level(WHO, level)
    opened = OpenPlan.read(WHO, plan, model)
    goal = Goal.read(WHO, target, model, level)
    split = opened.shares(WHO, shares)
    grid = _grid(budgets, opened.kind)
    replicates = checks.integer(WHO, "replicates", replicates, least=4 * PER_BATCH, advice="Ask for 128, say.")
    tolerance = checks.positive_number(WHO, "tolerance", tolerance, "Give 0.05 for a standard error of 5%.")
    seed = checks.integer(WHO, "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    if engine is not None and not isinstance(engine, Engine):
        raise refusal(WHO, "engine", "must be an engine", engine, "For example nw.Threads(2).")
    start = time.monotonic()
    with Progress(progress, WHO) as bar:
        study = Study(model, goal, seed, replicates, tolerance, engine, bar)
        check(model, opened.at(grid[-1], split), seed)
        found = study.found(lambda budget: opened.at(budget, split), grid)
    held = found.pop("place")
    design_found = Design(
        budget=math.inf if found["status"] == "nowhere" else held,
        kind=opened.kind,
        target=goal,
        mechanisms=FrozenDict(opened.at(held, split)),
        shares=FrozenDict(split),
        seed=seed,
        seconds=time.monotonic() - start,
        **found,
    )
    if found["status"] == "nowhere":
        raise InferenceError(f"design: {design_found.headline()}", design_found)
    return design_found


def _grid(budgets: Any, kind: str) -> list[float]:
    advice = f"Give the least and the largest {kind} to look at, as (0.01, 10.0)."
    if budgets is None:
        budgets = RANGE[kind]
    if not isinstance(budgets, (tuple, list)) or len(budgets) != 2:
        raise refusal(WHO, "budgets", "must be two numbers, the lower first", budgets, advice)
    low, high = (checks.positive_number(WHO, "budgets", budget, advice) for budget in budgets)
    if not low < high:
        raise refusal(WHO, "budgets", "must be two numbers, the lower first", budgets, advice)
    return [float(budget) for budget in np.geomspace(low, high, PLACES)]


@dataclass
class Study:
    """One search along a grid of places (budgets, or numbers of people), by closed form or by simulation."""

    model: Model
    target: Goal
    seed: int
    replicates: int
    tolerance: float
    engine: Engine | None
    bar: Progress

    def found(self, plan_at: Any, grid: list[float]) -> dict[str, Any]:
        """Place, error, status, curve and floor, and what they rest on."""
        names = list(plan_at(grid[0]))
        floor = floor_of(self.model, names, self.target)
        joint = JointNormal.of(self.model, plan_at(grid[0]), self.target)
        if joint is not None:
            exact = None if floor is None else joint.value(floor)
            return self._closed(lambda place: joint.value(plan_at(place)), grid) | {
                "floor": exact,
                "floor_error": None if exact is None else 0.0,
            }
        simulation = Simulation(self.model, self.target, self.seed, self.engine)
        batches = -(-self.replicates // PER_BATCH)
        most = MOST_TIMES * batches

        def evaluate(places: list[float], first: int, last: int) -> Array:
            rows = []
            for batch in range(first, last):
                rows.append(simulation.curve([plan_at(place) for place in places], batch, batch + 1)[:, 0])
                self.bar.update(batch + 1, most, lambda: 0)
            return np.stack(rows, axis=1)

        curve = Curve(evaluate)
        assert self.target.goal is not None
        limits = {"batches": batches, "most": most, "tolerance": self.tolerance}
        root = least(curve, grid, self.target.goal, self.target.falls, **limits)  # type: ignore[arg-type]
        lowest = floor_by_simulation(simulation, floor, batches)
        return {
            "place": root.place,
            "error": root.error,
            "status": root.status,
            "curve": {place: (curve.mean(place), curve.error(place)) for place in curve.batches},
            "floor": None if lowest is None else lowest[0],
            "floor_error": None if lowest is None else lowest[1],
            "closed": False,
            "replicates": PER_BATCH * max(map(len, curve.batches.values())),
            "sampled": simulation.sampled,
        }

    def _closed(self, value: Any, grid: list[float]) -> dict[str, Any]:
        """The same where the target is a function that is known: a monotone one, since noise only takes away."""
        from scipy.optimize import brentq

        goal, sign = self.target.goal, 1.0 if self.target.falls else -1.0

        def excess(place: float) -> float:
            return float(sign * (value(place) - goal))

        curve = {place: (value(place), 0.0) for place in grid}
        root, status = grid[0], "everywhere"
        if excess(grid[-1]) > 0.0:
            root, status = grid[-1], "nowhere"
        elif excess(grid[0]) > 0.0:
            log_root = brentq(lambda x: excess(math.exp(x)), math.log(grid[0]), math.log(grid[-1]), xtol=CLOSED)
            root, status = math.exp(log_root), "complete"
        told = {"curve": curve, "closed": True, "replicates": 0, "sampled": 0}
        return {"place": root, "error": 0.0, "status": status, **told}


def floor_by_simulation(simulation: Simulation, floor: Mechanisms | None, batches: int) -> tuple[float, float] | None:
    """The target without noise, and its standard error."""
    if floor is None:
        return None
    values = simulation.means(floor, 0, batches)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
