"""What sampling will take, by each sampler that applies; the choice and why; and whether prior and release conflict.

The probe and the ranking are those of `nw.sample` without a sampler (samplers/choice.py). docs/how-to-choose.md.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.engine import Engine, Threads
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.samplers.choosing import choice as choosing
from noisewise.samplers.sample import forecast_of

SIMULATED = 199
"""Releases simulated from the prior predictive: tail probabilities come in steps of 1/200."""
WEIGHED = 512
"""Probe rows, at most, that estimate the prior predictive density."""
MOST_HANDLED = 2**14
"""Numbers handled, at most, for each release."""
SURPRISING = 0.02
"""A tail probability below this is called a conflict."""


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """Expected work by sampler, the choice, and the check of prior against release."""

    choice: Sampler
    reason: str
    ranking: tuple[choosing.Estimate, ...]
    """Samplers that apply, best first."""
    unfit: Mapping[str, str]
    """Why each of the others does not apply."""
    acceptance: float
    """Estimated acceptance probability of joint rejection (Algorithm 1); NaN where a statistic has no noise."""
    acceptance_se: float
    conflict: Mapping[str, float]
    """Tail probability of each released value, and of all ("release"), in its prior predictive."""
    draws: int
    seed: int
    pilot: int
    """Prior rows of the probe."""
    seconds_per_unit: float
    """Measured here, for display only: seconds per number handled."""

    @property
    def in_conflict(self) -> bool:
        """Whether the release lies far out in its prior predictive."""
        return bool(self.conflict) and whole_release(self.conflict)[1] < SURPRISING

    def table(self) -> Any:
        """A pandas table, best first: expected work, rough seconds, effective draws per row, and a note."""
        import pandas as pd

        rows = {
            choosing.label(estimate.sampler): {
                "work": estimate.work,
                "seconds": estimate.work * self.seconds_per_unit,
                "efficiency": estimate.efficiency,
                "note": estimate.note if estimate.delivers else f"{estimate.note}; not expected to deliver",
            }
            for estimate in self.ranking
        }
        rows |= {name: {"note": f"{name} {why}"} for name, why in self.unfit.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["work", "seconds", "efficiency", "note"])

    def lines(self) -> list[str]:
        """The choice, its reason and the check of prior against release, in sentences."""
        lines = [
            f"Forecast for {self.draws:,} effective draws: {choosing.label(self.choice)}",
            f"Reason: {self.reason}.",
        ]
        if np.isfinite(self.acceptance):
            share = f"{self.acceptance:.3g} ± {self.acceptance_se:.2g}"
            lines.append(f"Acceptance probability of joint rejection: {share}, from {self.pilot:,} prior draws.")
        tails = ", ".join(f"{name} {value:.3g}" for name, value in self.conflict.items())
        finding = "the release is surprising under the prior" if self.in_conflict else "none seen"
        finding = finding if self.conflict else "not looked at"
        lines.append(f"Conflict of prior and release: {finding} (tail probabilities: {tails or 'not available'}).")
        return lines

    def __repr__(self) -> str:
        shown = self.table().drop(columns="note").dropna()
        return "\n".join([*self.lines(), shown.to_string(float_format=lambda x: f"{x:.3g}")])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.lines())
        return f"<div>{lines}{self.table().to_html(float_format=lambda x: f'{x:.3g}')}</div>"


def forecast(
    model: Model, release: Release, *, draws: int = 10_000, seed: int = 0, engine: Engine | None = None
) -> Forecast:
    """Run a short probe and say what each sampler would take for `draws` effective draws, and which is chosen.

    Work is counted, so that one seed gives one choice on every machine; seconds are rough and only shown.
    """
    draws = checks.integer("forecast", "draws", draws, least=1, advice="Write 10_000, not 1e4.")
    seed = checks.integer("forecast", "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    if engine is not None and not isinstance(engine, Engine):
        raise refusal("forecast", "engine", "must be an engine", engine, "For example nw.Threads(2).")
    problem, engine = Problem(model, release), engine or Threads()
    ranking, reason, probe = forecast_of(problem, draws, seed, engine)
    start = time.perf_counter()
    # Everything is compiled by now: this probe measures the speed, and serves the check of prior against release.
    second = choosing.probe(problem, seed, engine, Purpose.CONFLICT_PILOT)
    seconds = (time.perf_counter() - start) / (probe.rows * probe.cells)
    noisy = not any(isinstance(item.mechanism, Exact) for item in release.values())
    acceptance = probe.acceptance if noisy else (float("nan"), float("nan"))
    unfit = {name: cls().unfit(problem) for name, cls in choosing.public_samplers().items()}
    return Forecast(
        ranking[0].sampler,
        reason,
        tuple(ranking),
        FrozenDict({name: why for name, why in unfit.items() if why is not None}),
        *acceptance,
        FrozenDict(conflict(second, seed)),
        draws,
        seed,
        probe.rows,
        seconds,
    )


def whole_release(tails: Mapping[str, float]) -> tuple[str, float]:
    """The one tail probability that decides, by name: that of the whole release, or of its only statistic.

    The smallest of many would be small for a right model too: of thirty below 0.02 nearly every other time.
    """
    name = "release" if "release" in tails else next(iter(tails))
    return name, tails[name]


# Conflict of prior and release (Evans and Moshonov 2006) ------------------------------------------------------------


def conflict(probe: choosing.Probe, seed: int) -> dict[str, float]:
    """Where the release lies in its prior predictive: P(m(S) <= m(s_dp)), m the prior predictive density.

    m is estimated from the probe's rows, and releases are simulated from other prior draws, so that under the model
    the estimate at the release and those at the simulated ones are exchangeable: each tail probability is a valid
    p-value whatever the quality of the estimate. Statistics without noise, or whose noise takes too long to weigh, are
    left out.
    """
    problem = probe.problem
    left_out = choosing.dear(problem)
    noisy = [n for n, item in problem.release.items() if n not in left_out and not isinstance(item.mechanism, Exact)]
    if not noisy:
        return {}
    rng = generator(seed, Purpose.CONFLICT)
    fresh = _simulated(rng, problem, noisy, probe)
    densities = {name: _log_density(problem, name, fresh[name], probe) for name in noisy}
    tails = {name: _tail(_mean(log_densities)) for name, log_densities in densities.items()}
    if len(noisy) > 1:
        tails["release"] = _tail(_mean(sum(densities.values(), start=np.zeros(1))))
    return tails


def _simulated(
    rng: np.random.Generator, problem: Problem, names: list[str], probe: choosing.Probe
) -> dict[str, list[Any]]:
    """For each statistic its released value, then values simulated from the prior predictive."""
    model, releases = problem.model, {}
    values = model.draw(rng, model.order, probe.rows)  # the probe's own shape: nothing compiles
    if probe.rows < SIMULATED:
        more = [model.draw(rng, model.order, probe.rows) for _ in range(SIMULATED // probe.rows)]
        values = {name: np.concatenate([values[name], *(block[name] for block in more)]) for name in values}
    values = {name: column[:SIMULATED] for name, column in values.items()}
    for name in names:
        item = problem.release[name]
        extra = {other: values[other] for other in item.mechanism.inputs}
        noisy = item.mechanism.sample(rng, values[name], **extra)
        releases[name] = [item.value, *(item.mechanism.released(row).value for row in noisy)]
    return releases


def _log_density(problem: Problem, name: str, released: list[Any], probe: choosing.Probe) -> Array:
    """log eta of each released value given each of some probe rows."""
    mechanism = problem.release[name].mechanism
    width = max(1, int(np.prod(problem.model.shape(name))))
    rows = int(np.clip(MOST_HANDLED // width, 16, min(WEIGHED, probe.rows)))
    confidential = probe.values[name][:rows]
    extra = {other: probe.values[other][:rows] for other in mechanism.inputs}
    # Rows may differ in number between statistics: the joint density takes those that all have.
    log_densities = np.full((len(released), min(WEIGHED, probe.rows)), np.nan)
    with np.errstate(over="ignore", under="ignore"):
        for number, value in enumerate(released):
            log_prob = np.asarray(mechanism.log_prob(value, confidential, **extra))
            log_densities[number, :rows] = log_prob.reshape(rows, -1).sum(axis=1)
    return log_densities


def _mean(log_densities: Array) -> Array:
    """log of the average density over rows, for each released value; rows that were not computed are NaN."""
    computed = log_densities[:, ~np.isnan(log_densities).any(axis=0)]
    return np.round(np.logaddexp.reduce(computed, axis=1) - np.log(computed.shape[1]), 9)


def _tail(densities: Array) -> float:
    """Share of the densities that are no larger than the first, the release's own, which counts too."""
    return float(np.mean(densities <= densities[0]))


# Which sampler applies to what -----------------------------------------------------------------------------------


def applicability(problems: Mapping[str, tuple[Model, Release]]) -> Any:
    """A pandas table of kinds of problem by sampler: "yes", or why not, as `unfit` says."""
    import pandas as pd

    samplers = choosing.public_samplers()
    rows = {
        kind: {name: cls().unfit(Problem(model, release)) or "yes" for name, cls in samplers.items()}
        for kind, (model, release) in problems.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")
