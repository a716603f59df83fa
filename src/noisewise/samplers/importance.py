"""Importance sampling from the prior: every proposal kept, weighted by the noise density (Gong 2022, section 3).

Statistics released without noise (`Exact`) are set to their released value and weighted by their own density,
which gives naive and confidential-data fits. Derivation: docs/derivations/importance.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks, weights
from noisewise.engine import Engine
from noisewise.errors import refusal
from noisewise.mechanisms import Exact
from noisewise.posterior import Posterior
from noisewise.progress import Progress
from noisewise.samplers.problem import Problem
from noisewise.samplers.verdict import posterior_of
from noisewise.settings import Sampler
from noisewise.streams import Columns, Purpose, Stream, run

Array = np.ndarray[Any, Any]

ROWS = 2**14


@dataclass(frozen=True)
class Importance(Sampler):
    """Weighted draws: parameters from the prior, weights eta(s_dp | s). `draws` counts proposals.

    A run whose effective number of draws falls below `min_ess` ends with the status "low_ess".
    """

    min_ess: float = 400.0

    def __post_init__(self) -> None:
        least = checks.positive_number("Importance", "min_ess", self.min_ess, "The default is 400.")
        object.__setattr__(self, "min_ess", least)

    def unfit(self, problem: Problem) -> str | None:
        """Statistics without noise need a density to weigh by."""
        for name, item in problem.release.items():
            if isinstance(item.mechanism, Exact) and not problem.model.has_density(name):
                return f"needs the density of '{name}', which has no noise and is a Total or Simulator"
        return None

    def run(self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress) -> Posterior:
        """Weigh draws of the prior."""
        model = problem.model
        cells = sum(model.cost_of_row(name) for name in model.order)
        rows = ROWS
        while rows > 64 and rows * cells > 2**19:
            rows //= 2
        stream = Stream(0, rows, Weigh(problem), "the prior")
        outcome = run([stream], draws, seed, Purpose.WEIGHTED, engine=engine, progress=progress)
        columns = dict(outcome.columns)
        log_weights = columns.pop("log_weights", np.empty(0))
        status, message = outcome.status, outcome.message
        effective = weights.effective_size(log_weights)
        if status == "complete" and effective == 0.0:
            status = "no_weight"
            message = (
                f"all {len(log_weights)} weights are zero: no draw of the prior could have given the release. Check "
                "the model's support against the released values (a negative count, say, has no naive analysis), or "
                "ask for more draws."
            )
        elif status == "complete" and effective < self.min_ess:
            status = "low_ess"
            message = (
                f"the {len(log_weights)} weighted draws are worth {effective:.0f} independent ones, fewer than "
                f"min_ess={self.min_ess:g}. Ask for more draws, or use a sampler that adapts to the release."
            )
        return posterior_of(
            self,
            problem,
            seed,
            columns,
            status=status,
            message=message,
            log_weights=log_weights,
            proposals=outcome.proposals,
            log_evidence=weights.log_mean(log_weights),
            log_evidence_se=weights.log_mean_se(log_weights),
            seconds=outcome.seconds,
        )


@dataclass(frozen=True)
class Weigh:
    """One block of weighted draws."""

    problem: Problem

    def __call__(
        self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]
    ) -> tuple[Columns, Array]:
        """Draw in the model's order; a noise-free statistic is conditioned on instead of drawn."""
        model, release = self.problem.model, self.problem.release
        values: Columns = dict(inputs)
        total: Any = np.zeros(rows)
        noise_free = [name for name in release if isinstance(release[name].mechanism, Exact)]
        for name in model.order:
            if name in noise_free:
                value = release[name].value
                values[name] = np.broadcast_to(value, (rows, *model.shape(name)))
                total = total + model.log_prob(name, value, values)
            else:
                values = model.draw(rng, [name], rows, values, poll)
        for name in release:  # after all draws: a mechanism may read values other than its own
            if name not in noise_free:
                total = total + self.problem.log_eta(name, values)
        if not np.all(total < np.inf):  # NaN too
            rule = "must lie where the statistic's density is a finite number"
            shown = {name: release[name].value for name in noise_free}
            advice = "The law's log_prob overflows there: use another law, or a truncation nearer its centre."
            raise refusal("sample", "release", rule, shown, advice)
        return {**values, "log_weights": total}, np.arange(rows)
