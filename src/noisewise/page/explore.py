"""Other privacy budgets: what could be learnt from a release like this one, had it carried more noise or less.

A run's posterior and the prior differ from the posterior at another budget by the noise density alone, so that draws of
both, weighed anew, often give that posterior at once; where too few of them carry the weight, it is sampled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noisewise.analysis import Analysis
from noisewise.axes import Axes
from noisewise.diagnostics import weights
from noisewise.errors import InferenceError, NoisewiseError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact
from noisewise.numerics import Array
from noisewise.page import budget
from noisewise.page.runs import REPLICATES, SIMULATING
from noisewise.release import Release
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior
from noisewise.samplers import NUTS, Augmentation, Rejection
from noisewise.samplers.sample import sample

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
ENOUGH = 400
"""Effective draws that suffice where the run's own are weighed anew."""
BLOCK, MOST_BLOCKS, CELLS = 4_096, 16, 2**22
"""Rows of the prior come in blocks of the size that `Model.simulate` compiles for; numbers handled at most."""
MOST_LEARNT = 12
"""Scalars that are followed."""


@dataclass(frozen=True)
class PooledRows:
    """Rows of parameters and statistics from prior and posterior together."""

    values: dict[str, Array]
    log_base: Array
    """log of n0 + n1 eta(release | s) / Z: the density the rows come from, relative to the prior (n0 rows of it)."""
    worth: float
    """Effective over nominal number of the posterior's draws, which may be correlated."""


def pooled_rows(problem: Problem, posterior: Posterior, seed: int) -> PooledRows | None:
    """The rows and the density of their mixture; None where a statistic has no noise to change.

    The mixture needs Z, the evidence of the run: the self-consistent estimate from all rows (Geyer 1994), which solves
    Z = sum_i eta_i / (n0 + n1 eta_i / Z). With it, each row's weight for another noise eta' is eta' / base: the balance
    heuristic of multiple importance sampling (Veach and Guibas 1995).
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
    log_eta = _log_eta(problem, values)
    size = len(after[names[0]])
    log_base = _log_base(log_eta, blocks * BLOCK, size)
    least = min(filter(np.isfinite, posterior.ess.values()), default=float(size))
    return PooledRows(values, log_base, min(1.0, least / size))


def _equal(posterior: Posterior, names: list[str], rng: np.random.Generator) -> dict[str, Array] | None:
    """Draws of equal weight; None where the posterior does not hold everything."""
    if len(posterior) < 2 or any(name not in posterior for name in names):
        return None
    if posterior.log_weights is None:
        return {name: posterior[name] for name in names}
    size = int(weights.effective_size(posterior.log_weights))
    if size < 2:
        return None
    rows = weights.systematic(rng, posterior.log_weights, size)
    return {name: posterior[name][rows] for name in names}


def _log_eta(problem: Problem, values: dict[str, Array]) -> Array:
    return np.sum([problem.log_eta(name, values) for name in problem.release], axis=0)


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
class Explorer:
    """Intervals of the parameters for any release of the same model, by weighing the run's rows anew or by sampling."""

    analysis: Analysis
    cloud: PooledRows | None
    way: tuple[Sampler, int] | None = field(default=None)
    """Sampler and draws that delivered for the last release that had to be sampled, tried first for the next."""
    axes: Axes = field(default_factory=Axes)

    def intervals(self, release: Release, seed: int) -> Intervals:
        """Central intervals by scalar."""
        weighed = None if self.cloud is None else self._weighed(Problem(self.analysis.model, release), self.cloud)
        return self._sampled(release, seed) if weighed is None else weighed

    def _weighed(self, problem: Problem, cloud: PooledRows) -> Intervals | None:
        """From the run's rows; None where they are worth too few draws, or a few of them carry too much."""
        log_weights = _log_eta(problem, cloud.values) - cloud.log_base
        if cloud.worth * weights.effective_size(log_weights) < ENOUGH:
            return None
        if weights.pareto_k(log_weights) > weights.LARGEST_K:
            return None
        normal = weights.normalised(log_weights)
        positive = normal > 0
        return self._of({name: cloud.values[name][positive] for name in problem.model.parameters}, normal[positive])

    def _sampled(self, release: Release, seed: int) -> Intervals:
        """By the first sampler that delivers; by the library's own choice where none of the quick ones does."""
        problem = Problem(self.analysis.model, release)
        for number, (method, draws) in enumerate(self._ways()):
            if method is not None and method.unfit(problem) is not None:
                continue
            # A fallback starts on new streams: it was called for by what the run before it drew.
            own = seed if number == 0 else int(generator(seed, Purpose.PAGE_FALLBACK, number).integers(2**53))
            posterior = self._delivered(release, method, draws, own)
            if posterior is not None:
                self.way = None if method is None else (method, draws)
                return self._of({name: posterior[name] for name in posterior.parameters}, posterior.weights)
        raise InferenceError("page: no sampler delivered.")

    def _ways(self) -> list[Way]:
        if self.analysis.settings.method is not None:
            return [(self.analysis.settings.method, DRAWS)]
        first = [] if self.way is None else [self.way]
        return [*first, *(way for way in (*QUICK, (None, DRAWS)) if way not in first)]

    def _delivered(self, release: Release, method: Sampler | None, draws: int, seed: int) -> Posterior | None:
        common: dict[str, Any] = {"draws": draws, "seed": seed, "progress": False, "on_failure": "return"}
        try:
            posterior = sample(self.analysis.model, release, method, **common)
        except InferenceError:  # nowhere to start from
            return None
        return posterior if posterior.status == "complete" else None

    def _of(self, draws: dict[str, Array], weight: Array | None) -> Intervals:
        level = self.analysis.settings.level
        intervals: Intervals = {}
        for name, values in draws.items():
            low, high = weights.quantiles(values.astype(float), weight, [(1 - level) / 2, (1 + level) / 2])
            for index in np.ndindex(values.shape[1:]):
                intervals[label_of(name, index, self.axes)] = (float(low[index]), float(high[index]))
        return intervals


def explore(analysis: Analysis, posterior: Posterior, factor: float, progress: Progress) -> dict[str, Any]:
    """What could be learnt with `factor` times the privacy budget.

    `same`: the interval for the very value that was released, had it carried that noise. `expected`: the interval's
    width on average over releases simulated at that budget, from confidential statistics drawn from the posterior of
    the run: what an analyst may expect to learn, given all that is known now.
    """
    level, seed = analysis.settings.level, analysis.settings.seed
    release = budget.release_at(analysis.release, factor)
    progress("starting", 0, 0)
    explorer = Explorer(
        analysis, pooled_rows(Problem(analysis.model, analysis.release), posterior, seed), axes=posterior.axes
    )
    same = _possible(explorer, release, seed)
    rng = generator(seed, Purpose.OTHER_RELEASES)
    simulated: list[Intervals | None] = []
    for number, row in enumerate(_chosen(posterior, rng)):
        progress(SIMULATING, number, REPLICATES)
        simulated.append(_possible(explorer, _simulated(release, posterior, row, rng), seed + 1 + number))
    widths = [
        {name: high - low for name, (low, high) in intervals.items()}
        for intervals in simulated
        if intervals is not None
    ]
    rows = _learnt(same or {}, widths)
    return {"factor": factor, "level": level, "failed": REPLICATES - len(widths), "rows": rows}


def _possible(explorer: Explorer, release: Release, seed: int) -> Intervals | None:
    """None for a release so unlucky that its posterior cannot be had with few draws."""
    try:
        return explorer.intervals(release, seed)
    except NoisewiseError:
        return None


def _chosen(posterior: Posterior, rng: np.random.Generator) -> Any:
    """Rows of the posterior, by weight."""
    if posterior.log_weights is None:
        return rng.choice(len(posterior), size=REPLICATES)
    return rng.permutation(weights.systematic(rng, posterior.log_weights, REPLICATES))


def _simulated(release: Release, posterior: Posterior, row: int, rng: np.random.Generator) -> Release:
    """A release drawn anew, given the confidential values of one posterior draw."""
    values = {}
    for name, item in release.items():
        confidential = posterior[name][row : row + 1]
        extra = {input_name: posterior[input_name][row : row + 1] for input_name in item.mechanism.inputs}
        values[name] = replace(item, value=item.mechanism.sample(rng, confidential, **extra)[0])
    return Release(values)


def _learnt(same: Intervals, widths: list[dict[str, float]]) -> list[dict[str, Any]]:
    names = list(same) or list(widths[0] if widths else ())
    rows = []
    for name in names[:MOST_LEARNT]:
        samples = [by_label[name] for by_label in widths]
        mean = float(np.mean(samples)) if samples else None
        spread = float(np.std(samples, ddof=1)) if len(samples) > 1 else None
        interval = list(same[name]) if name in same else None
        rows.append({"name": name, "same": interval, "expected": mean, "spread": spread, "releases": len(samples)})
    return rows
