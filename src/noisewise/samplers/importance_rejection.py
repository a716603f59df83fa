"""Importance rejection: accept on the noise density, weigh by prior over proposal (Fearnhead and Prangle 2012).

Derivation, with the evidence: docs/derivations/importance-rejection.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.inference.stream import Stream
from noisewise.inference.streams import Outcome, run
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.importance import pilot_diagnostics, remaining, settings_as_data, settle
from noisewise.samplers.judging import posterior_of
from noisewise.samplers.proposals import proposal as proposals
from noisewise.samplers.proposals.pilot import pilot_of
from noisewise.samplers.proposals.proposal import Proposal
from noisewise.samplers.proposals.weighted_candidates import block_rows
from noisewise.samplers.rejection import log_rate


@dataclass(frozen=True)
class ImportanceRejection(Sampler):
    """Independent draws, accepted with probability eta / sup, with the weights pi0 / g. `draws` counts accepted rows.

    `proposal` and `prior_share` as for `Importance`. No weight exceeds 1 / `prior_share`. `max_proposals` counts
    simulated rows, the pilot's left out.
    """

    proposal: str | Mapping[str, Any] | None = "adapted"
    prior_share: float = 0.1
    min_ess: float = 400.0
    max_proposals: int | None = 10**9
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self)

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data; a function among the proposal's laws is only described."""
        return settings_as_data(self)

    def unfit(self, problem: Problem) -> str | None:
        """Needs a finite supremum of the noise density."""
        return problem.never_accepted() or proposals.unfit(problem.model, self.proposal)

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Draw from the proposal, accept on the noise, weigh what is left."""
        pilot = pilot_of(self, problem, seed, engine, log=log)
        stream = Stream(0, block_rows(problem), Accept(problem, pilot.proposal), "the proposal")
        budget = remaining(self.max_proposals, self.max_seconds, pilot)
        context: Any = {"engine": engine, "progress": progress, "budget": budget, "log": log}
        outcome = run([stream], draws, seed, Purpose.PROPOSALS, **context)
        log_bound = -math.log(pilot.proposal.share)
        return kept_posterior(self, problem, seed, outcome, problem.log_sup_of_all, log_bound, pilot_diagnostics(pilot))


@dataclass(frozen=True)
class Accept:
    """One block: parameters from the proposal, statistics from the model, accepted on the release."""

    problem: Problem
    proposal: Proposal

    def __call__(
        self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]
    ) -> tuple[Columns, Array]:
        """Survivors; the acceptance variate is exponential, as in `Rejection`."""
        model = self.problem.model
        values, log_ratio = self.proposal(rng, rows, poll)
        values = model.draw(rng, [name for name in model.order if name not in model.parameters], rows, values, poll)
        accepted = survivors(rng, self.problem.log_ratio(list(self.problem.release), values))
        values["log_weights"] = log_ratio
        return {name: column[accepted] for name, column in values.items()}, accepted


def survivors(rng: np.random.Generator, log_chance: Array) -> Array:
    """Rows kept, each with probability min(1, exp(log_chance)): 53 random bits, compared in logs."""
    return np.flatnonzero(rng.standard_exponential(len(log_chance)) >= -log_chance)


def kept_posterior(
    sampler: Any,
    problem: Problem,
    seed: int,
    outcome: Outcome,
    log_scale: float,
    log_bound: float,
    diagnostics: dict[str, Any],
) -> Posterior:
    """The posterior from survivors with weights up to exp(log_bound); evidence: exp(log_scale) * rate * mean weight."""
    columns = dict(outcome.columns)
    log_weights = columns.pop("log_weights", np.empty(0))
    status, message, numbers = weights.judge_weights(log_weights, sampler.min_ess, log_bound)
    if outcome.status != "complete":
        status, message = outcome.status, outcome.message
    rate, log_evidence, error = rate_and_evidence(outcome, log_weights, log_scale)
    return posterior_of(
        sampler,
        problem,
        seed,
        columns,
        status=status,
        message=message,
        log_weights=log_weights,
        acceptance_rate=math.exp(rate),
        proposals=outcome.proposals * int(diagnostics.get("simulations", 1)),
        log_evidence=log_evidence,
        log_evidence_se=error,
        seconds=outcome.seconds,
        diagnostics=diagnostics | numbers,
    )


def rate_and_evidence(outcome: Outcome, log_weights: Array, log_scale: float) -> tuple[float, float, float]:
    """log of the acceptance rate, log evidence, and its error: rate and mean weight are independent, both unbiased."""
    if not outcome.draws:
        return math.nan, math.nan, math.inf
    rate, rate_error = log_rate([(accepted, proposed) for _, accepted, proposed in outcome.tally])
    error = math.hypot(rate_error, weights.log_mean_se(log_weights))
    return rate, rate + log_scale + weights.log_mean(log_weights), error
