"""The probe: rows of the prior, and what they tell of the release and of the work that each sampler will take.

One block of prior draws with their noise densities, or several where these bound what may have been missed.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.errors import InputError
from noisewise.inference.blocks import rows_within
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.record_steps import records_apart
from noisewise.inference.stream import Stream
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.samplers.choosing import conflict
from noisewise.samplers.importance import Importance
from noisewise.samplers.proposals.by_value import has_explanations
from noisewise.samplers.proposals.collapsed import Collapse
from noisewise.samplers.proposals.pilot import least_work
from noisewise.samplers.rejection import Merge, plan_streams

ROWS, LEAST_ROWS, CELLS = 2**14, 2**6, 2**17
"""Rows of the probe at most and at least, and numbers it may handle between these."""
LEAST = -200.0
"""log of the least acceptance probability worth telling from zero."""
MOST_ADAPTED = 16
"""Scalar parameters beyond which no proposal is fitted: too few draws then carry the weight to fit one to."""
MOST_EXPLAINED = 32
"""The same where chains have found several explanations: each stays with one, and does not tell their shares."""
MOST_EXPLORED = 2**28
"""Most work of their pilot's shortest run."""
MOST_UNSEEN = 0.1
"""Most posterior mass that rows of the prior may have missed before another look is needed."""
MOST_SUMMED = 2**16
"""Values that one row's sums may run over where the likelihood is computed unasked: a pilot takes very many rows."""
MOST_FURTHER = 64
"""Most further blocks, each as large as the first, that are drawn to make sure that little has been missed."""
FEW = 10.0
"""Effective rows of the probe below which its efficiency is an optimistic guess."""
DEAR = 2.0**14
"""Work of one noise density beyond which nothing that needs thousands of them is tried unasked."""
COLLAPSED = Importance(proposal="adapted", collapse=True)
"""The sampler that weighs draws of a fitted proposal by the exact likelihood."""


@dataclass(frozen=True, eq=False)
class Probe:
    """Rows from the prior, and what they tell of the release."""

    problem: Problem
    seed: int
    values: dict[str, Array]
    terms: dict[str, Array]
    """For each released statistic, log(eta / sup) by row; the log density where it has no noise."""

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.log_weights)

    @property
    def conditioned(self) -> bool:
        """Whether a statistic has no noise and a density: weighting by that wastes no draw, rejecting nearly all."""
        return noise_free(self.problem) is not None

    @cached_property
    def log_weights(self) -> Array:
        """log of each row's weight: the product of its terms over the statistics."""
        total: Array = sum(self.terms.values(), start=np.zeros(1))
        return total

    @cached_property
    def acceptance(self) -> tuple[float, float]:
        """Acceptance probability of joint rejection (Gong's Algorithm 1), and its standard error."""
        ratio = np.exp(np.minimum(self.log_weights, 0.0))
        return float(ratio.mean()), float(ratio.std(ddof=1) / np.sqrt(self.rows))

    @cached_property
    def tails(self) -> dict[str, float]:
        """Where the release lies in its prior predictive: the tail probability of each value, and of all."""
        return conflict.tail_probabilities(self.problem, self.values, self.seed, dear(self.problem))

    @cached_property
    def expected(self) -> dict[str, tuple[Array, Array]]:
        """Ends of the range in which 95% of the releases lie that the prior expects, entry by entry."""
        return conflict.expected_ranges(self.problem, self.values, self.seed, dear(self.problem))

    @cached_property
    def unseen(self) -> float:
        """Most posterior mass that all the rows may have missed together (with probability exp(-3), 1 in 20).

        A region of prior mass 3 / rows is missed with that probability. Its posterior mass is at most 3 / rows over the
        acceptance probability of rejection, since no weight is above the noise's bound; and on average over releases at
        least as surprising as this one, at most 3 / rows over their probability. Even weights that all lie far below
        the bound are no sign that there is nothing else. Derivation: docs/derivations/conditional.md.
        """
        rate = self.acceptance[0]
        if rate * self.rows < 3.0 / MOST_UNSEEN:
            with suppress(InputError):  # releases that cannot be simulated tell nothing
                rate = max(rate, conflict.as_surprising(self.tails))
        return min(1.0, 3.0 / (self.rows * rate)) if rate > 0.0 else 1.0

    @property
    def further_blocks(self) -> int:
        """Further blocks like this one after which little is unseen, where that matters and they are few; else 0."""
        if self.unseen <= MOST_UNSEEN or not collapses(self):
            return 0
        expected = self.rows * self.acceptance[0]
        blocks = 3.0 / (MOST_UNSEEN * expected) if expected > 0.0 else math.inf
        return math.ceil(blocks) if blocks <= MOST_FURTHER else 0

    @cached_property
    def worth(self) -> float:
        """Kish's effective number of the probe's rows."""
        return weights.effective_size(self.log_weights)

    @property
    def efficiency(self) -> float:
        """Effective draws per row weighted from the prior, for the worst parameter's mean."""
        names = self.problem.model.parameters
        return per_row([self.values[name] for name in names], self.log_weights)

    @cached_property
    def cells(self) -> float:
        """Numbers handled for one row of everything, dear noise densities included."""
        model = self.problem.model
        return float(sum(model.cost_of_row(name) for name in model.order)) + sum(dear(self.problem).values())

    @property
    def unknowns(self) -> int:
        """Scalars among the parameters."""
        return sum(max(1, math.prod(self.problem.model.shape(name))) for name in self.problem.model.parameters)

    @property
    def hierarchical(self) -> bool:
        """Whether the prior of some parameter depends on another."""
        return any(self.problem.model.parents(name) for name in self.problem.model.parameters)

    @property
    def nested(self) -> bool:
        """Whether the prior of some continuous parameter depends on another: as that one moves, so must its scale."""
        model = self.problem.model
        return any(model.parents(name) and not model.is_discrete(name) for name in model.parameters)

    def latent(self, *, continuous: bool) -> float:
        """Numbers behind the statistics with noise: their entries, or the records' of a total."""
        model = self.problem.model
        names = [n for n in model.statistics if n in self.problem.needed and model.is_discrete(n) != continuous]
        return float(sum(model.latent_of_row(name) for name in names))

    @property
    def summed_out(self) -> float:
        """Numbers that a gradient handles to sum discrete statistics out: 20 per entry, less where all have one law."""
        problem = self.problem
        alike = Collapse.of(problem).target.sums if COLLAPSED.unfit(problem) is None else ()
        saved = {sum_.names[0]: 3.0 * sum_.work for sum_ in alike if sum_.span}
        model = problem.model
        names = [n for n in model.statistics if n in problem.needed and model.is_discrete(n)]
        return float(sum(min(20.0 * model.cost_of_row(n), saved.get(n, math.inf)) for n in names))

    @property
    def summed(self) -> int:
        """Sums that the same records add up to, at least 1: every record must agree with all of them."""
        model = self.problem.model
        names = [n for n in model.statistics if n in self.problem.needed and not model.has_density(n)]
        return max(1, sum(math.prod(_sums(model, name)) for name in names))

    def log_rate(self, names: set[str]) -> float:
        """log of the mean of prod eta / sup over these statistics; where all are zero, as if their sum were 1/20."""
        total: Any = sum((self.terms[name] for name in names), start=np.zeros(self.rows))
        rate = weights.log_mean(total)
        return rate if np.isfinite(rate) else -math.log(20.0 * self.rows)

    def rejection(self, *, joint: bool = False) -> tuple[float, float]:
        """(numbers handled, rows simulated) per draw.

        A merge proposes rows from the posterior given the statistics below it, so its acceptance probability is a
        ratio of two prior averages: all of its statistics over those below.
        """
        merges = [self._merged(root) for root in plan_streams(self.problem, joint=joint)]
        return sum(work for work, _, _ in merges), sum(rows for _, rows, _ in merges)

    def _merged(self, stream: Stream) -> tuple[float, float, set[str]]:
        merge = stream.work
        assert isinstance(merge, Merge)
        below = [self._merged(child) for child in stream.children]
        earlier: set[str] = set().union(*(names for _, _, names in below))
        names = earlier | set(merge.released)
        rate = math.exp(np.clip(self.log_rate(names) - sum(self.log_rate(inner) for _, _, inner in below), LEAST, 0.0))
        noise = dear(self.problem)
        work = float(sum(self.problem.model.cost_of_row(name) for name in merge.fresh))
        work += sum(noise.get(name, 0.0) for name in merge.released)
        rows = float(stream.counted) + sum(proposed for _, proposed, _ in below)
        return (work + sum(cost for cost, _, _ in below)) / rate, rows / rate, names


def _sums(model: Model, name: str) -> tuple[int, ...]:
    """The shape of a statistic without a density; () where each of its entries is a sum over records of its own."""
    bound = model.total(name)
    return () if bound is not None and records_apart(bound) else model.shape(name)


def percent(share: float) -> str:
    """A share in words: two digits below ten percent, whole percents above."""
    return f"{100.0 * share:.2g}%" if share < 0.095 else f"{100.0 * share:.0f}%"


def per_row(columns: list[Array], log_weights: Array) -> float:
    """Effective draws per weighted row; at most a tenth of Kish's number where few rows carry the weight.

    The mean of one heavy row is that row, and would seem to be known without error.
    """
    worth, kish = weights.effective_for_means(columns, log_weights), weights.effective_size(log_weights)
    if kish < FEW:
        worth = 0.1 * min(worth, kish)
    return max(worth, 0.01) / max(len(log_weights), 1)


def noise_free(problem: Problem) -> str | None:
    """A statistic without noise whose density can weigh the draws instead, if there is one."""
    for name, item in problem.release.items():
        if isinstance(item.mechanism, Exact) and problem.model.has_density(name):
            return name
    return None


def dear(problem: Problem) -> dict[str, float]:
    """Released statistics whose noise density takes too long for weighing thousands of rows, with its work."""
    work = {name: getattr(item.mechanism, "work", 0.0) for name, item in problem.release.items()}
    return {name: amount for name, amount in work.items() if amount > DEAR}


def probe_rows(problem: Problem) -> int:
    """Rows of the probe: fewer where a row is expensive."""
    model, most = problem.model, ROWS if not dear(problem) else LEAST_ROWS
    return rows_within(most, LEAST_ROWS, sum(model.cost_of_row(name) for name in model.order), CELLS)


def probe_of(problem: Problem, seed: int, engine: Engine, purpose: Purpose = Purpose.CHOICE) -> Probe:
    """One block of prior rows; a noise-free statistic with a density is set to its value, as `Importance` does.

    For a choice, more blocks where a few of them tell whether even weights have missed something.
    """
    rows = probe_rows(problem)
    first = Probe(
        problem, seed, *gather(engine, [partial(_probed, problem, rows, seed, purpose, ())], portable=True)[0]
    )
    more = first.further_blocks if purpose is Purpose.CHOICE else 0
    if not more:
        return first
    works = [partial(_probed, problem, rows, seed, purpose, (block,)) for block in range(1, more + 1)]
    parts = [(first.values, first.terms), *gather(engine, works, portable=True)]
    values, terms = ({name: np.concatenate([part[i][name] for part in parts]) for name in parts[0][i]} for i in (0, 1))
    return Probe(problem, seed, values, terms)


def _probed(
    problem: Problem, rows: int, seed: int, purpose: Purpose, index: tuple[int, ...], poll: Poll
) -> tuple[dict[str, Array], dict[str, Array]]:
    """A block of prior rows, and the terms of their weights."""
    model, release, rng = problem.model, problem.release, generator(seed, purpose, *index)
    values: dict[str, Array] = {}
    terms: dict[str, Array] = {}
    for name in model.order:
        item = release.get(name)
        if item is not None and isinstance(item.mechanism, Exact) and model.has_density(name):
            values[name] = np.broadcast_to(item.value, (rows, *model.shape(name)))
            terms[name] = model.log_prob(name, item.value, values)
        else:
            values = model.draw(rng, [name], rows, values, poll)
    for name in release:
        if name not in terms:
            terms[name] = problem.log_eta(name, values) - problem.log_sup(name)
    return values, terms


def collapses(probe: Probe) -> bool:
    """Whether a proposal can be fitted by the exact likelihood."""
    problem = probe.problem
    return probe.unknowns <= MOST_ADAPTED and _weighs_exactly(problem)


def explains(probe: Probe) -> bool:
    """Whether a proposal can be fitted to each of several explanations, where there are too many unknowns otherwise."""
    problem = probe.problem
    if not MOST_ADAPTED < probe.unknowns <= MOST_EXPLAINED or not has_explanations(problem.model):
        return False
    return _weighs_exactly(problem) and least_work(problem) <= MOST_EXPLORED


def _weighs_exactly(problem: Problem) -> bool:
    if dear(problem) or COLLAPSED.unfit(problem) is not None:
        return False
    return Collapse.of(problem).work <= MOST_SUMMED
