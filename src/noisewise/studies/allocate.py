"""How to split a budget over statistics, so that a question is answered best."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.progress import Progress
from noisewise.inference.status import DESIGN, check_status
from noisewise.mechanisms import Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.studies.designs.gaussian import JointNormal
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.simulation import PER_BATCH, Simulation, check
from noisewise.studies.designs.target import Goal

WHO = "allocate"
SMALLEST = 0.01
"""Shares are looked for down to this one; at it, the search is at an edge."""
STEP = 0.2
"""Change of a log share in the differences that tell whether the target is stationary."""
TELLING = 3.0
"""Standard errors by which the best split must differ from lopsided ones."""
STANDING = 4.0
"""Standard errors within which a derivative counts as none."""
EVALUATIONS = 40
"""For each statistic but one, evaluations of the target at most."""
FLAT = 1e-3
"""Relative change of the target by a step of a log share that counts as none where there is no Monte Carlo error."""


@dataclass(frozen=True, eq=False, repr=False)
class Allocation:
    """The shares of a budget that make a target best."""

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
    """By statistic, how the target changes with the logarithm of its share, and the standard error: none at the best
    split, unless a share is as small as is looked for."""
    status: str
    """"complete"; "edge" where a share is the smallest that is looked for; "noisy" where the target is not seen to be
    stationary."""
    kind: str
    budget: float
    target: Goal
    mechanisms: Mapping[str, Mechanism]
    closed: bool
    replicates: int
    seed: int
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

    def headline(self) -> str:
        """The split, and what it gains."""
        split = ", ".join(f"{name} {100 * share:.0f}%" for name, share in self.shares.items())
        basis = "by closed forms" if self.closed else f"by {self.replicates} simulated releases, seed {self.seed}"
        error = "" if self.closed else f" (standard error {self.gain_error:.2g})"
        tail = {
            "complete": "",
            "edge": " A share is at its smallest: consider leaving that statistic out.",
            "noisy": " The target is not seen to be stationary: give more replicates.",
        }[self.status]
        return (
            f"Of {self.kind} = {self.budget:g}: {split}. The {self.target.words} is {self.value:.4g}; with equal "
            f"shares it is {self.equal:.4g}, worse by {self.gain:.2g}{error} ({basis}).{tail}"
        )

    def __repr__(self) -> str:
        return f"{self.headline()}\n{self.table().to_string(float_format=lambda x: f'{x:.3g}')}"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.headline())}</p>{self.table().to_html(float_format=lambda x: f'{x:.3g}')}</div>"


def allocate(
    model: Model,
    plan: Mapping[str, Any],
    *,
    target: Mapping[str, Any],
    epsilon: float | None = None,
    rho: float | None = None,
    level: float = 0.95,
    replicates: int = 128,
    seed: int = 1,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Allocation:
    """The shares of `epsilon` or `rho` by statistic that make `target` best, compared with equal ones.

    `plan` is as in `nw.design`: mechanisms as functions of their own budgets. `target` too, without what it has to be
    at most or at least. Refused, with an `InferenceError`, where the target does not tell one split from another.
    """
    if not isinstance(model, Model):
        raise refusal(WHO, "model", "must be a noisewise Model", model, "Build it with nw.Model.")
    opened = OpenPlan.read(WHO, plan, model)
    if len(opened.makers) < 2:
        advice = "With one, there is nothing to split: see nw.design."
        raise refusal(
            WHO, "plan", "must have at least two statistics whose budget is open", list(opened.makers), advice
        )
    given = {"epsilon": epsilon, "rho": rho}
    other = "rho" if opened.kind == "epsilon" else "epsilon"
    if given[opened.kind] is None or given[other] is not None:
        rule = f"must be given, and no other budget, as the plan is in {opened.kind}"
        raise refusal(WHO, opened.kind, rule, given, f"Give {opened.kind}=1.0.")
    budget = checks.positive_number(WHO, opened.kind, given[opened.kind], "Give one positive number.")
    aim = Goal.read(WHO, target, model, checks.level(WHO, level), needs_goal=False)
    replicates = checks.integer(WHO, "replicates", replicates, least=4 * PER_BATCH, advice="Ask for 128, say.")
    seed = checks.integer(WHO, "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    start = time.monotonic()
    names, batches = list(opened.makers), -(-replicates // PER_BATCH)
    first = opened.at(budget, opened.shares(WHO, None))
    check(model, first, seed)
    joint = JointNormal.of(model, first, aim)
    simulation = Simulation(model, aim, seed, engine)
    with Progress(progress, WHO) as bar:
        count = 0

        def batch_means(shares: Array, first: int = 0) -> Array:
            nonlocal count
            mechanisms = opened.at(budget, dict(zip(names, shares, strict=True)))
            count += 1
            bar.update(count, EVALUATIONS * len(names), lambda: 0)
            if joint is not None:
                return np.array([joint.value(mechanisms)])
            return simulation.means(mechanisms, first, first + batches)

        measure = partial(batch_means, first=batches)
        found = best_split(batch_means, len(names), 1.0 if aim.falls else -1.0, measure)
    if not found["tells"]:
        message = f"allocate: the {aim.words} does not tell one split of {opened.kind} = {budget:g} from another"
        raise InferenceError(
            f"{message}, at {replicates} releases. Ask about another quantity, or give more replicates."
        )
    shares = dict(zip(names, map(float, found["shares"]), strict=True))
    return Allocation(
        shares=FrozenDict(shares),
        value=found["value"],
        error=found["error"],
        equal=found["equal"],
        gain=found["gain"],
        gain_error=found["gain_error"],
        gradient=FrozenDict(dict(zip(names, found["gradient"], strict=True))),
        status=found["status"],
        kind=opened.kind,
        budget=budget,
        target=aim,
        mechanisms=FrozenDict(opened.at(budget, shares)),
        closed=joint is not None,
        replicates=0 if joint is not None else batches * PER_BATCH,
        seed=seed,
        seconds=time.monotonic() - start,
    )


def best_split(
    batch_means: Callable[[Array], Array], size: int, sign: float, measure: Callable[[Array], Array]
) -> dict[str, Any]:
    """The shares at which the average of `batch_means` is least (`sign` 1) or largest (-1), and how sure that is.

    What is said of them comes from `measure`, the same on releases that the search has not seen: on those that it
    has, the best split looks better than it is.
    """
    equal = np.full(size, 1.0 / size)

    def shares_of(free: Array) -> Array:
        u = np.append(free, 0.0)
        shares = np.exp(u - u.max())
        shares = shares / shares.sum()
        return np.asarray(SMALLEST + (1.0 - size * SMALLEST) * shares)

    def objective(free: Array) -> float:
        return sign * float(np.mean(batch_means(shares_of(free))))

    from scipy.optimize import minimize  # slow to import

    options = {"maxfev": EVALUATIONS * (size - 1), "xatol": 1e-4, "fatol": 1e-12, "initial_simplex": _simplex(size)}
    result = minimize(objective, np.zeros(size - 1), method="Nelder-Mead", options=options)
    shares = shares_of(result.x)
    best, even = measure(shares), measure(equal)
    lopsided = [sign * (measure(_towards(place, size)) - best) for place in range(size)]
    gradient = [_derivative(measure, shares, place) for place in range(size)]
    scale = abs(float(np.mean(best)))
    edge = bool(np.any(shares < 2.0 * SMALLEST))
    # the slope at the place that was found has the error of the search too, which is as large as that of `measure`
    still = all(abs(slope) <= STANDING * math.sqrt(2.0) * error + FLAT * scale for slope, error in gradient)
    return {
        "shares": shares,
        "value": float(np.mean(best)),
        "error": _error(best),
        "equal": float(np.mean(even)),
        "gain": sign * float(np.mean(even - best)),
        "gain_error": _error(even - best),
        "gradient": gradient,
        "tells": any(np.mean(more) > TELLING * _error(more) + FLAT * scale for more in lopsided),
        "status": "edge" if edge else "complete" if still else "noisy",
    }


def _simplex(size: int) -> Array:
    """Where the search begins: the equal split, and one where each share in turn is some three times as large."""
    return np.vstack([np.zeros(size - 1), np.eye(size - 1)])


def _towards(place: int, size: int) -> Array:
    """A split that gives nine tenths to one statistic."""
    shares = np.full(size, 0.1 / (size - 1))
    shares[place] = 0.9
    return shares


def _derivative(batch_means: Callable[[Array], Array], shares: Array, place: int) -> tuple[float, float]:
    """How the average changes with the logarithm of one share, the others in proportion; and its standard error."""
    moved = []
    for step in (STEP, -STEP):
        changed = shares.copy()
        changed[place] *= math.exp(step)
        moved.append(batch_means(changed / changed.sum()))
    slopes = (moved[0] - moved[1]) / (2.0 * STEP)
    return float(np.mean(slopes)), _error(slopes)


def _error(values: Array) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
