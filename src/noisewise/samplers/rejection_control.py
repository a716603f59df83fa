"""Rejection control: small weights are dropped at random, so that those kept vary less (Liu, Chen and Wong 1998).

Derivation, with the corrected weights and the evidence: docs/derivations/rejection-control.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics.weights import relative
from noisewise.engine import Engine
from noisewise.errors import refusal
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.inference.stream import Stream
from noisewise.inference.streams import run
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.importance import (
    log_weight_bound,
    pilot_diagnostics,
    remaining,
    settings_as_data,
    settle,
    without_density,
)
from noisewise.samplers.importance_rejection import kept_posterior, survivors
from noisewise.samplers.proposals import proposal as proposals
from noisewise.samplers.proposals.pilot import PilotPlan, pilot_of
from noisewise.samplers.proposals.weighted_candidates import Weigh, block_rows


@dataclass(frozen=True)
class RejectionControl(Sampler):
    """Weighted draws kept with probability min(1, w / c), with the weight max(w, c). `draws` counts those kept.

    The threshold c is a `quantile` of a pilot's positive weights, or given as `log_threshold`, in the units of
    eta * pi0 / g. `proposal`, `simulations` and `prior_share` as for `Importance`.
    """

    proposal: str | Mapping[str, Any] | None = None
    quantile: float = 0.9
    log_threshold: float | None = None
    simulations: int | None = 1
    prior_share: float = 0.1
    min_ess: float = 400.0
    max_proposals: int | None = 10**9
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self)
        advice = "Give a number between 0 and 1, such as 0.9."
        quantile = checks.positive_number("RejectionControl", "quantile", self.quantile, advice)
        if quantile >= 1.0:
            raise refusal("RejectionControl", "quantile", "must be below 1", quantile, advice)
        self._keep(quantile=quantile)
        if self.log_threshold is not None:
            advice = "Give the log of a weight, or None for a quantile of the pilot's."
            value = checks.numeric("RejectionControl", "log_threshold", self.log_threshold, advice)
            if np.ndim(value) or not np.isfinite(value):
                raise refusal("RejectionControl", "log_threshold", "must be one finite number", value, advice)
            self._keep(log_threshold=value)

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data; a function among the proposal's laws is only described."""
        return settings_as_data(self)

    def unfit(self, problem: Problem) -> str | None:
        """Statistics without noise need a density to weigh by."""
        return without_density(problem) or proposals.unfit(problem.model, self.proposal)

    def run(
        self,
        problem: Problem,
        draws: int,
        seed: int,
        engine: Engine,
        progress: Progress,
        log: Log = NOTHING,
        pilot: PilotPlan | None = None,
    ) -> Posterior:
        """Weigh, and drop small weights at random; `pilot` is one already made, with a look at its weights."""
        if pilot is None:
            pilot = pilot_of(self, problem, seed, engine, look=self.log_threshold is None, log=log)
        log_threshold = self.log_threshold
        if log_threshold is None:
            log_threshold = threshold(pilot.log_weights, self.quantile)
        work = Control(Weigh(problem, pilot.proposal, pilot.simulations), log_threshold)
        stream = Stream(0, block_rows(problem, pilot.simulations), work, "the proposal")
        budget = remaining(self.max_proposals, self.max_seconds, pilot)
        context: Any = {"engine": engine, "progress": progress, "budget": budget, "log": log}
        outcome = run([stream], draws, seed, Purpose.PROPOSALS, **context)
        most = max(log_weight_bound(problem, pilot), log_threshold)
        diagnostics = {"log_threshold": log_threshold} | pilot_diagnostics(pilot)
        return kept_posterior(self, problem, seed, outcome, 0.0, most, diagnostics)


def threshold(log_weights: Array, quantile: float) -> float:
    """A quantile of the positive weights; -inf, which drops only zero weights, where there are none."""
    positive = log_weights[log_weights > -np.inf]
    return float(np.quantile(positive, quantile)) if len(positive) else -np.inf


def foreseen(log_weights: Array, quantile: float) -> tuple[float, float]:
    """What a threshold at this quantile is expected to do: the share of candidates kept, and what each is worth.

    With weights w of candidates, u = min(1, w / c) and v = max(w, c): the share is E[u]; by Kish's number a row kept is
    worth E[w]^2 / (E[u] E[w v]) independent ones.
    """
    weights = relative(log_weights)
    level = np.exp(threshold(log_weights, quantile) - log_weights.max())
    share = float(np.minimum(1.0, weights / level).mean())
    return share, float(weights.mean() ** 2 / (share * (weights * np.maximum(weights, level)).mean()))


@dataclass(frozen=True)
class Control:
    """One block of weighted draws, small weights dropped at random."""

    weigh: Weigh
    log_threshold: float

    def __call__(
        self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]
    ) -> tuple[Columns, Array]:
        """Survivors, with weights at least the threshold."""
        values, log_weights = self.weigh.candidates(rng, rows, poll)
        with np.errstate(invalid="ignore"):
            log_chance = np.where(log_weights == -np.inf, -np.inf, log_weights - self.log_threshold)
        positions = survivors(rng, log_chance)
        values["log_weights"] = corrected(log_weights, self.log_threshold)
        return {name: column[positions] for name, column in values.items()}, positions


def corrected(log_weights: Array, log_threshold: float) -> Array:
    """log max(w, c), that is, log of w over the probability min(1, w / c) of keeping it."""
    return np.maximum(log_weights, log_threshold)
