"""Parametric bootstrap: refits to releases simulated at the estimate."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine, Threads
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Estimator
from noisewise.likelihood.e_step.measured import MeasuredPart
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.simulated_records import SimulatedRecords
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.fit import fit as refit
from noisewise.likelihood.mcem import MCEM
from noisewise.likelihood.observed import check_fit
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.results.fit import Fit


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Refits to simulated releases. Failed refits are in no summary; `failures` counts them by reason."""

    estimates: Mapping[str, Array]
    """By name; the first axis is the replicate."""
    draws: int
    seed: int
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many of the draws gave no estimate."""
        return sum(self.failures.values())

    @property
    def standard_error(self) -> dict[str, Any]:
        """Standard deviation over the replicates."""
        return {name: np.std(value, axis=0, ddof=1)[()] for name, value in self.estimates.items()}

    def interval(self, level: float = 0.95) -> dict[str, tuple[Any, Any]]:
        """Percentile intervals."""
        checks.level("Bootstrap", level)
        tails = [(1 - level) / 2, (1 + level) / 2]
        ends = {name: np.quantile(value, tails, axis=0) for name, value in self.estimates.items()}
        return {name: (pair[0], pair[1]) for name, pair in ends.items()}


def bootstrap(
    model: Model,
    release: Release,
    fit: Fit,
    draws: int,
    seed: int,
    estimator: Estimator | None = None,
    engine: Engine | None = None,
) -> Bootstrap:
    """Parametric bootstrap: releases simulated at the estimate, noise included, each fitted again from there.

    `estimator` refits; left out, the fit's own. Replicate r depends on (seed, r) alone, so fewer draws are a prefix of
    more. A refit that does not converge, or cannot be made, is counted in `failures` and left out of the summaries.
    """
    who = "bootstrap"
    draws = checks.integer(who, "draws", draws, least=2, advice="Give, for example, 200.")
    seed = checks.integer(who, "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    check_fit(who, release, fit)
    estimator = fit.estimator if estimator is None else estimator
    if not isinstance(estimator, Estimator):
        raise refusal(who, "estimator", "must be an estimator", estimator, "For example nw.EM() or nw.MCEM().")
    problem = Problem(model, release)
    e_step = E_STEPS[estimator.e_step] if isinstance(estimator, MCEM) else None
    parts_of(
        problem, e_step.records if e_step else SimulatedRecords, e_step.tables if e_step else MeasuredPart
    )  # refuses
    estimates: dict[str, list[Any]] = {name: [] for name in fit.estimate}
    failures: Counter[str] = Counter()
    for replicate in range(draws):
        rng = generator(seed, Purpose.BOOTSTRAP, replicate)
        again, reason = _refit(problem, fit, estimator, rng, engine or Threads())
        if again is None:
            failures[reason] += 1
            continue
        for name, value in again.estimate.items():
            estimates[name].append(value)
    if min(map(len, estimates.values())) < 2:
        raise InferenceError(f"of {draws} refits nearly all failed: {dict(failures)}.", dict(failures), who=who)
    return Bootstrap({name: np.stack(each) for name, each in estimates.items()}, draws, seed, dict(failures))


def _refit(
    problem: Problem, fit: Fit, estimator: Estimator, rng: np.random.Generator, engine: Engine
) -> tuple[Fit | None, str]:
    """A fit to one simulated release, or the reason why there is none."""
    try:
        simulated = _simulated(problem, fit, rng)
        start, seed = dict(fit.estimate), int(rng.integers(2**31))
        settings: dict[str, Any] = {"engine": engine, "progress": False, "on_failure": "return"}
        again = refit(problem.model, simulated, estimator, start=start, seed=seed, **settings)
    except (InputError, InferenceError) as error:
        return None, error.headline
    return (again, "") if again.status == "converged" else (None, again.status)


def _simulated(problem: Problem, fit: Fit, rng: np.random.Generator) -> Release:
    """A release of the same form, the confidential statistics drawn at the estimate and noise added."""
    values = {name: np.asarray(value)[None] for name, value in fit.estimate.items()}
    for measured in problem.measured.values():
        if measured.statistic not in values:
            values = problem.model.draw(rng, [measured.statistic], 1, values)
    items = {}
    for name, item in problem.release.items():
        if name not in values:
            values = problem.model.draw(rng, [name], 1, values)
        items[name] = replace(item, value=np.asarray(item.mechanism.sample(rng, values[name]))[0])
    return Release(items)
