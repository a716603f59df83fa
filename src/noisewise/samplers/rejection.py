"""Rejection: independent draws from the exact posterior (Gong 2022, Algorithm 1 and Theorem 1).

The default plan divides the model's graph and conquers: each released statistic is one merge of the groups of
parameters it touches, accepted on its own noise density. `plan="joint"` is the paper's Algorithm 1, and
`plan="predictive"`, for conjugate models, rejects nothing (predictive.py). Proof of exactness, of the independence of
draws and of the unbiased evidence: docs/derivations/rejection.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.inference.blocks import Columns, rows_within
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.inference.stream import Stream
from noisewise.inference.streams import Budget, Outcome, run
from noisewise.model.on_device.draws import on_accelerator
from noisewise.model.on_device.held import rows_or_more
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import posterior_of
from noisewise.samplers.predictive import Predictive
from noisewise.samplers.rejection_on_device import accept

LEAF_ROWS, MERGE_ROWS, LEAST_ROWS, CELLS = 2**16, 2**13, 2**6, 2**19
"""Most rows of a block of the prior and of a merge; least of either; numbers a block may handle between these."""
GROWTH = 4
"""By how many times blocks of the prior grow in a long run, where rows are light."""
TOGETHER = 2**21
"""Numbers that blocks evaluated together may handle, with many threads: fewer calls for as many rows."""
WORTH_STAYING = 2**20
"""Draws from which on they may stay on an accelerator: NumPy summarises fewer before a program is compiled."""


@dataclass(frozen=True)
class Rejection(Sampler):
    """Settings: `plan` ("divide", "joint", or "predictive" for conjugate models), limits on proposals and seconds.

    `max_proposals` counts simulated rows over all merges; when it is reached the run ends with a status.
    """

    plan: str = "divide"
    max_proposals: int | None = 10**9
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("Rejection", "plan", self.plan, ["divide", "joint", "predictive"])

    def unfit(self, problem: Problem) -> str | None:
        """Needs a finite supremum of the noise density, or conjugate laws."""
        if self.plan != "predictive":
            return problem.never_accepted()
        exact = Predictive.of(problem)
        return exact if isinstance(exact, str) else None

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Draw from the posterior."""
        exact = Predictive.of(problem) if self.plan == "predictive" else None
        if isinstance(exact, Predictive):
            roots = [exact.stream()]
        else:
            stay = engine.keeps and not log
            roots = plan_streams(problem, joint=self.plan == "joint", device_rows=engine.block_rows, stay=stay)
            if stay and draws_stay(problem, roots, draws, engine):
                for root in roots:
                    root.work = replace(cast(Merge, root.work), stay=True)
        budget = Budget(self.max_proposals, self.max_seconds)
        outcome = run(roots, draws, seed, Purpose.PROPOSALS, engine=engine, progress=progress, budget=budget, log=log)
        if isinstance(exact, Predictive):
            tally: dict[str, Any] = {
                "acceptance_rate": 1.0,
                "log_evidence": exact.log_evidence,
                "log_evidence_se": 0.0,
            }
        else:
            tally = _tally(problem, outcome)
        return posterior_of(
            self,
            problem,
            seed,
            outcome.columns,
            status=outcome.status,
            message=outcome.message,
            proposals=outcome.proposals,
            seconds=outcome.seconds,
            **tally,
        )


@dataclass(frozen=True)
class Merge:
    """One step: draw fresh parameters, simulate statistics, accept on the released ones."""

    problem: Problem
    fresh: tuple[str, ...]
    released: tuple[str, ...]
    stay: bool = False
    """Whether survivors stay on an accelerator, for the next merge to take them there, or as draws."""

    def __call__(
        self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]
    ) -> tuple[Columns, Array]:
        """One block. The acceptance variate is exponential: P(E >= -log r) = r, with 53 random bits in logs."""
        if self.released and on_accelerator() and self.problem.model.simulates_on_accelerator(self.fresh):
            poll()
            return accept(self.problem, rng, self.fresh, self.released, inputs, rows, self.stay)
        values = self.problem.model.draw(rng, list(self.fresh), rows, inputs, poll)
        if not self.released:
            return values, np.arange(rows, dtype=np.int32)
        ratio = self.problem.log_ratio(list(self.released), values)
        accepted = np.flatnonzero(rng.standard_exponential(rows) >= -ratio)
        return {name: column[accepted] for name, column in values.items()}, accepted


def prior_groups(problem: Problem) -> list[set[str]]:
    """Connected components of the prior's own graph, in the order in which their last members are declared."""
    groups: list[set[str]] = []
    for name in problem.model.parameters:
        joined = {name, *problem.model.parents(name)}
        apart = [group for group in groups if not group & joined]
        for group in groups:
            if group & joined:
                joined |= group
        groups = [*apart, joined]
    return groups


def plan_streams(problem: Problem, *, joint: bool, device_rows: int | None = None, stay: bool = False) -> list[Stream]:
    """The streams whose rows, side by side, are posterior draws.

    `device_rows` is the size of a block of scalars on an accelerator, where rows that a later merge takes may `stay`.
    """
    _stream = partial(_stream_of, problem, device_rows)
    model, order = problem.model, problem.model.order
    if joint:
        everything = [name for name in order if name in problem.needed or name in model.parameters]
        return [_stream(0, everything, tuple(problem.release), [])]
    groups: list[tuple[set[str], Stream | None]] = [(group, None) for group in prior_groups(problem)]
    waiting = [name for name in order if name in problem.release]
    count = 0
    while waiting:
        name = _next_statistic(problem, waiting, [names for names, _ in groups])
        waiting.remove(name)
        reach = problem.roots_of(name)
        touched = [(names, stream) for names, stream in groups if names & reach]
        drawn: set[str] = set().union(*(names for names, stream in touched if stream is not None))
        inside = reach.union(*(names for names, _ in touched))
        # What a child stream holds is never drawn again, including a statistic that was needed earlier.
        fresh = [member for member in order if member in inside - drawn]
        children = [stream for _, stream in touched if stream is not None]
        for child in children:
            child.work = replace(cast(Merge, child.work), stay=stay)
        merged = _stream(count, fresh, (name,), children)
        groups = [entry for entry in groups if not entry[0] & reach] + [(inside, merged)]
        count += 1
    roots: list[Stream] = []
    for names, stream in groups:
        if stream is None:  # no released statistic depends on these parameters: draw their prior
            stream = _stream(count, [member for member in order if member in names], (), [])
            count += 1
        roots.append(stream)
    return roots


def draws_stay(problem: Problem, roots: list[Stream], draws: int, engine: Engine) -> bool:
    """Whether draws stay on the accelerator: they are many, they fit, and no layers are to be drawn elsewhere."""
    if draws < WORTH_STAYING or problem.model.layers:
        return False
    names = {name for root in roots for stream in root.below() for name in cast(Merge, stream.work).fresh}
    row = sum(math.prod(problem.model.shape(name)) * problem.model.dtype(name).itemsize for name in names)
    return rows_or_more(draws) * row <= engine.staying_bytes


def _next_statistic(problem: Problem, waiting: list[str], groups: list[set[str]]) -> str:
    """Among statistics whose released ancestors are done, the one that merges fewest groups."""

    def cost(name: str) -> tuple[int, int]:
        return sum(bool(group & problem.roots_of(name)) for group in groups), waiting.index(name)

    ready = [name for name in waiting if not (problem.roots_of(name) - {name}) & set(waiting)]
    return min(ready or waiting, key=cost)  # none ready: mechanisms that read each other's statistics


def _stream_of(
    problem: Problem,
    device_rows: int | None,
    index: int,
    fresh: list[str],
    released: tuple[str, ...],
    children: list[Stream],
) -> Stream:
    # Block sizes follow from model, release and kind of engine alone, never from draws, threads or memory.
    # On the processor a run waits for its last block, so each record counts; an accelerator handles them side by side.
    cost = problem.model.block_cost_of_row if device_rows is None else problem.model.cost_of_row
    cells = sum(cost(name) for name in fresh)
    leaf_rows = LEAF_ROWS if device_rows is None else device_rows
    rows = leaf_rows * MERGE_ROWS // LEAF_ROWS if children else leaf_rows
    rows = rows_within(rows, LEAST_ROWS, cells, leaf_rows * CELLS // LEAF_ROWS)
    label = " and ".join(repr(name) for name in released) or "the prior"
    entrywise = all(problem.release[name].mechanism.event_dim == 0 for name in released)
    alone = device_rows is None and entrywise and problem.model.acts_row_by_row(fresh)
    together = max(1, TOGETHER // (rows * cells)) if alone else 1
    work = Merge(problem, tuple(fresh), released)
    growth = GROWTH if alone and not children and rows * cells <= CELLS else 1
    return Stream(index, rows, work, label, children, counted=bool(released), together=together, growth=growth)


def _tally(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    """Acceptance rate, evidence and counts of each merge, by the shares of accepted rows."""
    merges = [
        {"statistic": stream.label, "accepted": accepted, "proposals": proposals}
        for stream, accepted, proposals in outcome.tally
        if stream.counted
    ]
    rate, error = math.nan, math.inf
    if outcome.draws:
        rate, error = log_rate([(k, n) for stream, k, n in outcome.tally if stream.counted])
    return {
        "acceptance_rate": math.exp(rate),
        "log_evidence": rate + problem.log_sup_of_all,
        "log_evidence_se": error,
        "diagnostics": {"merges": merges},
    }


def log_rate(counts: list[tuple[int, int]]) -> tuple[float, float]:
    """log of the unbiased estimate prod (k - 1)/(N - 1) of the joint acceptance probability, and its error.

    k survivors fixed, N proposals random: (k - 1)/(N - 1) is unbiased for the rate, k/N is not. The relative
    variance of one factor is at most (1 - rate)/(k - 2); factors are uncorrelated. One survivor says too little.
    """
    total, variance = 0.0, 0.0
    for survivors, proposals in counts:
        if survivors < 2:
            return math.nan, math.inf
        rate = (survivors - 1) / (proposals - 1)
        total += math.log(rate)
        variance += (1 - rate) / (survivors - 2) if survivors > 2 else math.inf
    return total, math.sqrt(variance)
