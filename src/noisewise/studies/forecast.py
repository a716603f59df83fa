"""What sampling will take, by each sampler that applies; the choice and why; and whether prior and release conflict.

The probe and the ranking are those of `nw.sample` without a sampler (samplers/choosing/choice.py).
docs/how-to-choose.md.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.diagnostics.surprise import SURPRISING, whole_release
from noisewise.engine import Engine, Threads
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.notebook import for_people, html_table
from noisewise.numerics import tally
from noisewise.release import Release
from noisewise.samplers.choosing import choice as choosing
from noisewise.samplers.choosing.probe import probe_of
from noisewise.samplers.integrated import integrated
from noisewise.samplers.sample import forecast_of
from noisewise.studies.forecast_seconds import Clock

NUMBERS = ("work", "seconds", "efficiency")
"""What is forecast of a sampler: rough, and shown with two digits."""

REPEATS, SHORT = 3, 0.05
"""The quickest of at least `REPEATS` blocks gives the speed; more are run until they have taken `SHORT` seconds."""

__all__ = ["Forecast", "forecast"]


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
    seconds: Mapping[str, float] = field(default_factory=FrozenDict)
    """By sampler, as `table` names it: what `nw.sample` with so many draws would take here, all included; rough."""

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
                "seconds": self.seconds.get(choosing.label(estimate.sampler), estimate.work * self.seconds_per_unit),
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
        first, *rest = (escape(line) for line in self.lines())
        lines = f"<p><strong>{first}</strong></p>" + "".join(f"<p>{line}</p>" for line in rest)
        rows = [
            (
                label,
                *("" if np.isnan(row[key]) else for_people(float(f"{row[key]:.2g}")) for key in NUMBERS),
                row["note"],
            )
            for label, row in self.table().iterrows()
        ]
        return f"<div>{lines}{html_table(('sampler', *NUMBERS, 'note'), rows)}</div>"


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
    problem, engine = integrated(Problem(model, release)), engine or Threads()
    before = tally()
    probe_of(problem, seed, engine, Purpose.CONFLICT_PILOT)  # the choice's own probe may have several blocks
    compiled = (tally() - before).operations
    ranking, reason, probe = forecast_of(problem, draws, seed, engine)
    # Everything is compiled by now: this probe measures the speed, and serves the check of prior against release.
    times: list[float] = []
    while len(times) < REPEATS or (sum(times) < SHORT and len(times) < 10 * REPEATS):
        start = time.perf_counter()
        second = probe_of(problem, seed, engine, Purpose.CONFLICT_PILOT)
        times.append(time.perf_counter() - start)
    probing = min(times)
    settled = bool(choosing.sparing(problem) or choosing.settled(probe, draws))
    clock = Clock(second, draws, engine, ranking, probing, compiled, settled)
    seconds = FrozenDict({choosing.label(one.sampler): clock.seconds(one) for one in ranking})
    noisy = not any(isinstance(item.mechanism, Exact) for item in release.values())
    acceptance = probe.acceptance if noisy else (float("nan"), float("nan"))
    unfit = {name: cls().unfit(problem) for name, cls in choosing.public_samplers().items()}
    return Forecast(
        ranking[0].sampler,
        reason,
        tuple(ranking),
        FrozenDict({name: why for name, why in unfit.items() if why is not None}),
        *acceptance,
        FrozenDict(second.tails),
        draws,
        seed,
        probe.rows,
        clock.unit,
        seconds,
    )
