"""Maximum likelihood from a release: exact for model and noise together."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from noisewise import checks
from noisewise.checkpoint.log import fingerprint
from noisewise.checkpoint.opening import opened
from noisewise.engine import Engine, Threads, terminable
from noisewise.errors import InferenceError, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Steps
from noisewise.inference.settings import Estimator
from noisewise.inference.tables import lattice
from noisewise.likelihood.em import EM
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.mcem import MCEM
from noisewise.likelihood.schedules import Ascent
from noisewise.likelihood.starts import best_of, starting_points
from noisewise.model import Model
from noisewise.release import Release
from noisewise.results.fit import Fit


def fit(
    model: Model,
    release: Release,
    estimator: Estimator | None = None,
    *,
    start: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    seed: int | None = None,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_failure: str = "raise",
) -> Fit:
    """The maximum likelihood estimate of the model's parameters given the release, with its standard errors.

    Prior densities are ignored; the prior's support is the parameter space. `EM()` is exact and needs no seed;
    `MCEM()` works for any law with a density and for totals; for totals with little noise, `MCEM(e_step="augmented")`.
    Without `estimator`, `EM()` serves where it applies, else `MCEM()`, by chains where a table is measured several
    ways; for totals, which take long, `MCEM()` must be asked for. `start`: a value for every parameter, or a list of
    such; left out, the best three or four of many candidates, drawn from the prior and around the best draws. The start
    that ends highest gives the result, and `diagnostics["starts"]` says where each ended. `checkpoint` is a file in
    which `MCEM` keeps its iterations; called again after an interruption it goes on from there.
    """
    problem = Problem(model, release)
    if estimator is None:
        estimator = chosen(problem)
    if not isinstance(estimator, Estimator):
        raise refusal("fit", "estimator", "must be an estimator", estimator, "For example nw.EM() or nw.MCEM().")
    checks.choice("fit", "on_failure", on_failure, ["raise", "return"])
    if seed is not None or estimator.simulates:
        advice = f"{type(estimator).__name__} simulates: give a whole number from 0 on, for example 1."
        seed = checks.integer("fit", "seed", seed, least=0, advice=advice)
    points = starting_points(problem, Coordinates(model), start, seed)
    name, used = type(estimator).__name__, engine or Threads()
    if checkpoint is not None and not estimator.simulates:
        raise refusal("fit", "checkpoint", "is for estimators that simulate", name, "Leave it out, or use nw.MCEM().")
    starts = fingerprint(points)
    with terminable() as results, opened("fit", checkpoint, problem, estimator, seed, used, starts=starts) as log:

        def run(number: int) -> Fit:
            label = name if len(points) == 1 else f"{name}, start {number + 1} of {len(points)}"
            return estimator.run(problem, points[number], seed, used, Steps(progress, label), log.within(number))

        log.put(None, "begin")
        best = best_of(points, run)
        results.append(best)
        log.put({"status": best.status}, "end")
    if best.status != "converged" and on_failure == "raise":
        raise InferenceError(best.message, best, who=name)
    return best


def chosen(problem: Problem) -> Estimator:
    """The estimator if none is asked for: `EM` where it applies, else `MCEM`, by chains over measured tables."""
    if EM().unfit(problem) is None:
        return EM()
    tables = {one.statistic for one in problem.measured.values() if problem.model.is_discrete(one.statistic)}
    chains = tables and all(lattice.unfit(problem, name) is None for name in tables)
    return MCEM(e_step="augmented", schedule=Ascent(most=20_000), final=20_000) if chains else MCEM()
