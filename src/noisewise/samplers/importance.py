"""Importance sampling: every proposal kept, weighted by noise density and prior over proposal (Gong 2022, section 3).

Statistics released without noise (`Exact`) are set to their released value and weighted by their own density,
which gives naive and confidential-data fits. Derivation: docs/derivations/importance.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.inference.stream import Stream
from noisewise.inference.streams import Budget, Outcome, run
from noisewise.mechanisms import Exact
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import posterior_of
from noisewise.samplers.proposals import collapsed, many_rows
from noisewise.samplers.proposals import proposal as proposals
from noisewise.samplers.proposals.pilot import PilotPlan, pilot_of
from noisewise.samplers.proposals.weighted_candidates import Weigh, block_rows


@dataclass(frozen=True)
class Importance(Sampler):
    """Weighted draws: parameters from a proposal g, weights eta(s_dp | s) pi0 / g. `draws` counts rows.

    `proposal`: None for the prior; "adapted" for a mixture fitted in pilot rounds; or a dict of laws by parameter, each
    written as a prior is. Both of the latter are mixed with `prior_share` of the prior. `simulations` statistics are
    tried for each parameter value (None: a number chosen in the pilot), the weight is their average and one is kept.
    With `collapse`, none is simulated: parameters are weighed by the exact likelihood of the release, statistics summed
    or integrated out, and then drawn given parameters and release. Status "low_ess" below `min_ess` effective draws;
    "high_k" where Pareto k-hat is above 0.7, unless the bound of the weights shows that none could dominate.
    """

    proposal: str | Mapping[str, Any] | None = None
    simulations: int | None = 1
    prior_share: float = 0.1
    min_ess: float = 400.0
    max_seconds: float | None = None
    collapse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self)
        if not isinstance(self.collapse, bool):
            raise refusal("Importance", "collapse", "must be True or False", self.collapse, "Leave it out if unsure.")
        if self.collapse and self.simulations != 1:
            rule = "must be 1 where statistics are integrated out"
            raise refusal("Importance", "simulations", rule, self.simulations, "Leave it out.")

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data; a function among the proposal's laws is only described."""
        return settings_as_data(self)

    def unfit(self, problem: Problem) -> str | None:
        """Statistics without noise need a density to weigh by."""
        against = without_density(problem) or proposals.unfit(problem.model, self.proposal)
        return against or (collapsed.unfit(problem) if self.collapse and not self._by_rows(problem) else None)

    def _by_rows(self, problem: Problem) -> bool:
        """Whether the likelihood is that of very many rows, more than can be weighed in any other way."""
        if not self.collapse or self.proposal != "adapted" or not many_rows.applies(problem):
            return False
        return many_rows.are_many(problem) or collapsed.unfit(problem) is not None

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
        """Weigh draws of the proposal; `pilot` is one already made with this seed and these settings."""
        if self._by_rows(problem):
            return self._weigh_rows(problem, draws, seed, engine, progress, log)
        if pilot is None:
            pilot = pilot_of(self, problem, seed, engine, log=log)
        draw = partial(run, draws=draws, seed=seed, purpose=Purpose.WEIGHTED, engine=engine, progress=progress, log=log)
        draw = partial(draw, budget=remaining(None, self.max_seconds, pilot))
        numbers: dict[str, Any] = {}
        if self.collapse:
            outcome, numbers = self._collapsed(problem, pilot, draw)
        else:
            weigh = Weigh(problem, pilot.proposal, pilot.simulations)
            outcome = draw([Stream(0, block_rows(problem, pilot.simulations), weigh, "the proposal")])
        bound, simulations = log_weight_bound(problem, pilot), pilot.simulations
        numbers = pilot_diagnostics(pilot) | numbers
        return self._judged(problem, seed, outcome, bound, pilot.seconds, numbers, simulations=simulations)

    def _judged(
        self,
        problem: Problem,
        seed: int,
        outcome: Outcome,
        bound: float,
        seconds: float,
        numbers: dict[str, Any],
        simulations: int = 1,
        left_out: str = "",
    ) -> Posterior:
        """The weighted draws with their verdict; `left_out` says why the statistics are not among them."""
        columns = dict(outcome.columns)
        log_weights = columns.pop("log_weights", np.empty(0))
        status, message, diagnostics = weights.judge_weights(log_weights, self.min_ess, bound)
        if outcome.status != "complete":
            status, message = outcome.status, outcome.message
        return posterior_of(
            self,
            problem,
            seed,
            columns,
            left_out=tuple(problem.release) if left_out else (),
            status=status,
            message=message or left_out,
            log_weights=log_weights,
            proposals=outcome.proposals * simulations,
            log_evidence=weights.log_mean(log_weights),
            log_evidence_se=weights.log_mean_se(log_weights),
            seconds=outcome.seconds + seconds,
            diagnostics=diagnostics | numbers,
        )

    def _weigh_rows(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log
    ) -> Posterior:
        """Climb to the posterior's tops, and weigh draws about them by the likelihood of all rows."""
        plan = many_rows.lay_panels(problem, self.prior_share, seed, engine, lambda: None)
        seconds = None if self.max_seconds is None else max(1e-3, self.max_seconds - plan.seconds)
        stream = Stream(0, many_rows.TOGETHER, plan.weigh, "the proposal")
        how = partial(run, engine=engine, progress=progress, log=log, budget=Budget(None, seconds))
        outcome = how([stream], draws, seed, Purpose.WEIGHTED)
        bound = problem.log_sup_of_all - math.log(plan.weigh.proposal.share)
        numbers = {"neglected": plan.neglected, "tops": plan.tops}
        left_out = many_rows.left_out(problem)
        return self._judged(problem, seed, outcome, bound, plan.seconds, numbers, left_out=left_out)

    def _collapsed(
        self, problem: Problem, pilot: PilotPlan, draw: Callable[..., Outcome]
    ) -> tuple[Outcome, dict[str, Any]]:
        """Weigh by the likelihood; again on new streams, with wider windows, where sums left too much out."""
        widened = pilot.widened
        for attempt in range(collapsed.WIDENINGS):
            collapse = collapsed.Collapse.of(problem, widened)
            weigh = collapsed.WeighCollapsed(problem, pilot.proposal, widened)
            outcome = draw([Stream(attempt, collapse.rows, weigh, "the proposal")])
            neglected = outcome.columns.pop("neglected", np.zeros((0, 0)))
            log_weights = outcome.columns.get("log_weights", np.empty(0))
            wider = collapsed.too_narrow(collapse, log_weights, neglected)
            rough = collapsed.too_rough(collapse, log_weights, neglected)
            if rough is not None:
                rule = f"must give '{rough}' a law and noise whose integral is accurate to {collapsed.ROUGH:g}"
                value = collapsed.shares_left_out(log_weights, neglected).sum()
                advice = "Use a sampler that draws the statistic, such as nw.Importance()."
                raise refusal("Importance", "model", rule, f"an error of {value:.2g}", advice)
            if not wider or outcome.status != "complete":
                left_out = collapsed.shares_left_out(log_weights, neglected).sum() if neglected.size else 0.0
                return outcome, {"neglected": float(left_out), "widened": attempt}
            widened = collapsed.doubled(widened, wider)
            if collapsed.Collapse.of(problem, widened).target.excess():
                break
        values = {name: problem.release[name].value for name in wider[0] if name in problem.release}
        rule = f"must be likelier under the model: sums over {' and '.join(map(repr, wider[0]))} leave too much out"
        advice = "Check the prior against the release, or use a sampler that only simulates, such as nw.Rejection()."
        raise refusal("Importance", "release", rule, values, advice)


# Shared by the samplers that weigh ----------------------------------------------------------------------------


def settle(sampler: Any) -> None:
    """Check the settings that all weighing samplers share, and keep them in one form."""
    who = type(sampler).__name__
    sampler._keep(
        proposal=proposals.checked_proposal(who, sampler.proposal),
        prior_share=proposals.checked_share(who, sampler.prior_share),
    )
    sampler._whole("simulations", 1, "Give 1, or None to let the pilot choose.", optional=True)


def settings_as_data(sampler: Any) -> dict[str, Any]:
    """Name and settings as plain data."""
    settings = {item.name: getattr(sampler, item.name) for item in fields(sampler)}
    return {"name": type(sampler).__name__, **settings, "proposal": proposals.as_data(sampler.proposal)}


def without_density(problem: Problem) -> str | None:
    """Why a statistic without noise has no density to weigh by, as the end of a sentence; None where all have one."""
    for name, item in problem.release.items():
        if isinstance(item.mechanism, Exact) and not problem.model.has_density(name):
            return f"needs the density of '{name}', which has no noise and is a Total or Simulator"
    return problem.without_measure()


def remaining(max_proposals: int | None, max_seconds: float | None, pilot: PilotPlan) -> Budget:
    """The budget after a pilot: its seconds count, its rows do not. A row costs `simulations` proposals."""
    rows = None if max_proposals is None else max(1, max_proposals // pilot.simulations)
    seconds = None if max_seconds is None else max(1e-3, max_seconds - pilot.seconds)
    return Budget(rows, seconds)


def log_weight_bound(problem: Problem, pilot: PilotPlan) -> float:
    """Bound of the log weights, from the suprema of the noise densities and the prior's share of the proposal."""
    if any(isinstance(item.mechanism, Exact) for item in problem.release.values()):
        return math.inf
    return problem.log_sup_of_all - math.log(pilot.proposal.share)


def pilot_diagnostics(pilot: PilotPlan) -> dict[str, Any]:
    """What the pilot did, for the diagnostics."""
    return {"simulations": pilot.simulations, "pilot_rounds": pilot.rounds, "pilot_proposals": pilot.proposals}
