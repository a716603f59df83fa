"""Other privacy budgets: what could be learnt from a release like this one, had it carried more noise or less.

Releases are simulated and measured as by `nw.design`, but for where they come from: true values are the run's posterior
draws. A run's posterior and the prior differ from the posterior at another budget by the noise density alone, so that
draws of both, weighed anew, often give that posterior at once; where too few of them carry the weight, it is sampled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.analysis import Analysis
from noisewise.diagnostics import weights
from noisewise.errors import InferenceError, NoisewiseError
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress as Bar
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact, Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.page import budget
from noisewise.page.runs import REPLICATES, SIMULATING
from noisewise.release import Release
from noisewise.results.goal import Goal, interval
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior
from noisewise.samplers import NUTS, Augmentation, Rejection
from noisewise.samplers.sample import sample
from noisewise.studies.designs.run import PER_BATCH, StudyRun
from noisewise.studies.designs.simulation import Case, Rows, Simulation

Progress = Callable[[str, int, int], None]
Intervals = dict[str, tuple[float, float]]
Way = tuple[Sampler | None, int]

DRAWS = 2_000
"""Draws of each posterior that has to be sampled."""
MANY = 10 * DRAWS
"""Draws where chains of `DRAWS` disagree or are worth too little."""
QUICK: tuple[tuple[Sampler, int], ...] = (
    *((Rejection(max_proposals=200_000), DRAWS), (NUTS(), DRAWS), (NUTS(), MANY)),
    *((Augmentation(), DRAWS), (Augmentation(), MANY)),
)
"""Samplers with their draws, tried in this order where the analysis names no method: cheap once compiled, or soon known
to fall short."""
BLOCK, MOST_BLOCKS, CELLS = 4_096, 16, 2**22
"""Rows of a block of prior draws, the size that `Model.simulate` compiles for; most blocks, and numbers in them."""
MOST_LEARNT = 12
"""Scalar parameters whose intervals are followed, at most."""


def pooled_rows(problem: Problem, posterior: Posterior, seed: int) -> Rows | None:
    """Rows of prior and posterior together, with the density of their mixture; None where a statistic has no noise.

    That density, relative to the prior, is n0 + n1 eta(release | s) / Z, with n0 rows of the prior and n1 of the
    posterior. It needs Z, the evidence of the run: the self-consistent estimate from all rows (Geyer 1994), which
    solves Z = sum_i eta_i / (n0 + n1 eta_i / Z). With it, each row's weight for another noise eta' is eta' / base: the
    balance heuristic of multiple importance sampling (Veach and Guibas 1995).
    """
    if any(isinstance(item.mechanism, Exact) for item in problem.release.values()):
        return None
    names = list(problem.model.order)
    rng = generator(seed, Purpose.OTHER_NOISE)
    after = _equal(posterior, names, rng)
    if after is None:
        return None
    cells = sum(problem.model.cost_of_row(name) for name in names)
    blocks = int(np.clip(CELLS // (cells * BLOCK), 1, MOST_BLOCKS))
    before = [problem.model.draw(rng, names, BLOCK) for _ in range(blocks)]
    values = {name: np.concatenate([*(block[name] for block in before), after[name]]) for name in names}
    log_eta = problem.log_eta_of_all(values)
    size = len(after[names[0]])
    log_base = _log_base(log_eta, blocks * BLOCK, size)
    least = min(filter(np.isfinite, posterior.ess.values()), default=float(size))
    return Rows(values, log_base, worth=min(1.0, least / size))


def _equal(posterior: Posterior, names: list[str], rng: np.random.Generator) -> dict[str, Array] | None:
    """Posterior draws of equal weight; None where a name is missing, or fewer than two draws remain."""
    if len(posterior) < 2 or any(name not in posterior for name in names):
        return None
    if posterior.log_weights is None:
        return {name: posterior[name] for name in names}
    size = int(weights.effective_size(posterior.log_weights))
    if size < 2:
        return None
    rows = weights.systematic(rng, posterior.log_weights, size)
    return {name: posterior[name][rows] for name in names}


def _log_base(log_eta: Array, before: int, after: int) -> Array:
    with np.errstate(divide="ignore", under="ignore"):
        log_z = weights.log_mean(log_eta[before:])
        for _ in range(10_000):
            log_base = np.logaddexp(math.log(before), math.log(after) + log_eta - log_z)
            new = weights.log_mean(log_eta - log_base) + math.log(len(log_eta))
            if abs(new - log_z) < 1e-10:
                break
            log_z = new
    return np.asarray(log_base)


@dataclass
class Quick:
    """Posteriors with few draws, by the first sampler that delivers; by the library's own choice where none does."""

    model: Model
    method: Sampler | None
    """The sampler that the analysis names."""
    way: tuple[Sampler, int] | None = field(default=None)
    """Sampler and number of draws that delivered the last posterior; tried first for the next one."""

    def __call__(self, release: Release, seed: int) -> Posterior:
        """The posterior of a release."""
        problem = Problem(self.model, release)
        for number, (method, draws) in enumerate(self._ways()):
            if method is not None and method.unfit(problem) is not None:
                continue
            # A fallback has random streams of its own: whether it runs depends on what the run before it drew.
            own = seed if number == 0 else int(generator(seed, Purpose.PAGE_FALLBACK, number).integers(2**53))
            posterior = self._delivered(release, method, draws, own)
            if posterior is not None:
                self.way = None if method is None else (method, draws)
                return posterior
        raise InferenceError("no sampler delivered.", who="page")

    def _ways(self) -> list[Way]:
        if self.method is not None:
            return [(self.method, DRAWS)]
        first = [] if self.way is None else [self.way]
        return [*first, *(way for way in (*QUICK, (None, DRAWS)) if way not in first)]

    def _delivered(self, release: Release, method: Sampler | None, draws: int, seed: int) -> Posterior | None:
        common: dict[str, Any] = {"draws": draws, "seed": seed, "progress": False, "on_failure": "return"}
        try:
            posterior = sample(self.model, release, method, **common)
        except InferenceError:  # nowhere to start from
            return None
        return posterior if posterior.status == "complete" else None


@dataclass
class Explorer:
    """Intervals at other budgets, of the very release of a run and of releases that the run makes likely."""

    analysis: Analysis
    posterior: Posterior
    rows: Rows | None
    """Rows to be weighed anew, from `pooled_rows`; None: rows of the prior, or sampled posteriors, serve instead."""
    run: StudyRun = field(default_factory=StudyRun)

    @cached_property
    def targets(self) -> dict[str, Goal]:
        """The width of the interval of each scalar parameter that is followed, by label."""
        model, level = self.analysis.model, self.analysis.settings.level
        scalars = [(name, index) for name in model.parameters for index in np.ndindex(model.shape(name))]
        axes = self.posterior.axes
        return {label_of(n, index, axes): Goal("width", n, index, level) for n, index in scalars[:MOST_LEARNT]}

    @cached_property
    def simulation(self) -> Simulation:
        """Releases whose confidential statistics are draws of the run's posterior."""
        settings = self.analysis.settings
        quick = Quick(self.analysis.model, settings.method)
        targets = tuple(self.targets.values())
        return Simulation(self.analysis.model, targets, settings.seed, source=self._likely, sampler=quick, run=self.run)

    def _likely(self, batch: int) -> tuple[dict[str, Array], Rows | None]:
        """Posterior draws, chosen by weight, in place of true values; and the rows to be weighed."""
        rng = generator(self.analysis.settings.seed, Purpose.OTHER_RELEASES, batch)
        posterior = self.posterior
        if posterior.log_weights is None:
            chosen = rng.choice(len(posterior), size=PER_BATCH)
        else:
            chosen = rng.permutation(weights.systematic(rng, posterior.log_weights, PER_BATCH))
        return {name: posterior[name][chosen] for name in self.analysis.model.order}, self.rows

    def intervals(self, release: Release) -> Intervals:
        """Central intervals by scalar, for one release."""
        mechanisms, values = mechanisms_of(release), {name: item.value for name, item in release.items()}
        case = Case(mechanisms, values, {}, (), (REPLICATES,))
        rows, weight = self.simulation.posterior([] if self.rows is None else [self.rows], case)
        intervals = {}
        for label, target in self.targets.items():
            order, ordered = rows.by(target)
            intervals[label] = interval(ordered, weight[order], target.level)
        return intervals

    def widths(self, release: Release) -> Array:
        """Widths by scalar and simulated release, without batches in which a posterior could not be had."""
        widths = []
        for batch in range(REPLICATES // PER_BATCH):
            try:
                widths.append(self.simulation.values([mechanisms_of(release)], batch)[:, 0, :])
            except NoisewiseError:  # a release so unusual that few draws do not suffice
                self.run.tell(PER_BATCH)
        return np.concatenate(widths, axis=1) if widths else np.empty((len(self.targets), 0))


def mechanisms_of(release: Release) -> dict[str, Mechanism]:
    """The mechanisms of a release, by statistic."""
    return {name: item.mechanism for name, item in release.items()}


class Sent(Bar):
    """Progress that goes to a function."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(False, SIMULATING)
        self.progress = progress

    def update(self, done: int, total: int, proposals: Callable[[], int]) -> None:
        """Report how many releases are measured."""
        self.progress(self.label, done, total)


def explore(analysis: Analysis, posterior: Posterior, factor: float, progress: Progress) -> dict[str, Any]:
    """What could be learnt with `factor` times the privacy budget.

    `same`: the interval for the very value that was released, had it carried that noise. `expected`: the interval's
    width on average over releases simulated at that budget, from confidential statistics drawn from the posterior of
    the run: what an analyst may expect to learn, given all that is known now.
    """
    release = budget.release_at(analysis.release, factor)
    progress("starting", 0, 0)
    rows = pooled_rows(Problem(analysis.model, analysis.release), posterior, analysis.settings.seed)
    explorer = Explorer(analysis, posterior, rows, StudyRun(bar=Sent(progress), total=REPLICATES))
    try:
        same = explorer.intervals(release)
    except NoisewiseError:  # so unusual that its posterior cannot be had with few draws
        same = {}
    progress(SIMULATING, 0, REPLICATES)
    widths = explorer.widths(release)
    learnt = [_learnt(label, same.get(label), of) for label, of in zip(explorer.targets, widths, strict=True)]
    failed = REPLICATES - widths.shape[1]
    return {"factor": factor, "level": analysis.settings.level, "failed": failed, "rows": learnt}


def _learnt(label: str, same: tuple[float, float] | None, widths: Array) -> dict[str, Any]:
    mean = float(np.mean(widths)) if len(widths) else None
    spread = float(np.std(widths, ddof=1)) if len(widths) > 1 else None
    interval = None if same is None else list(same)
    return {"name": label, "same": interval, "expected": mean, "spread": spread, "releases": len(widths)}
