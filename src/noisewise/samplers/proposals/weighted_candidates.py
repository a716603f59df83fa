"""Weighted candidates: parameters from a proposal, statistics from the model, weights from the noise density.

Shared by `Importance`, `RejectionControl` and their pilots. Derivation: docs/derivations/importance.md.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from noisewise.errors import refusal
from noisewise.inference.blocks import Columns, rows_within
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.numerics import Array
from noisewise.samplers.proposals.guided import guides_of
from noisewise.samplers.proposals.proposal import Proposal

Poll = Callable[[], None]

ROWS, LEAST_ROWS, CELLS = 2**15, 64, 2**19
"""Rows of one block at most and at least, and numbers that it may handle between these."""
RECORDS = 8
"""Numbers in a total's simulated records that count as one: they are added up in parts, never all held at once."""


def block_rows(problem: Problem, simulations: int = 1) -> int:
    """Rows of one block; by model, release and settings alone, never by draws, threads or memory."""
    model = problem.model

    def cells_of(name: str) -> int:
        total = model.total(name)
        if total is None or total.known is not None:
            cost = model.cost_of_row(name)
        else:
            cost = max(model.block_cost_of_row(name) // RECORDS, math.prod(total.struct.shape))
        return cost * (1 if name in model.parameters else simulations)

    return rows_within(ROWS, LEAST_ROWS, sum(map(cells_of, model.order)), CELLS)


@dataclass(frozen=True)
class Weigh:
    """One block of weighted draws, with `simulations` statistics tried for each parameter value.

    Parts of the statistics that are independent given the parameters are averaged and picked each by itself.
    """

    problem: Problem
    proposal: Proposal
    simulations: int = 1

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Every candidate survives; `log_weights` is among the columns."""
        values, log_weights = self.candidates(rng, rows, poll)
        return {**values, "log_weights": log_weights}, np.arange(rows, dtype=np.int32)

    def candidates(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Values of everything, and log(pi0 / g) + the sum over parts of log(mean eta)."""
        values, log_ratio = self.proposal(rng, rows, poll)
        if self.simulations == 1:
            values, terms = simulate_and_weigh(self.problem, rng, values, rows, poll)
            return values, log_ratio + added(terms.values(), rows)
        tried, log_etas = self.tried(rng, values, rows, poll)
        for number, part in enumerate(self.problem.parts):
            picked = pick_simulation(rng, log_etas[:, :, number])
            values = {**values, **{name: tried[name][np.arange(rows), picked] for name in part if name in tried}}
        return values, log_ratio + log_average(log_etas).sum(axis=1)

    def looked_at(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array, Array]:
        """Parameters of a pilot's round, their log weights, and each simulation's log factor of them, part by part."""
        values, log_ratio = self.proposal(rng, rows, poll)
        _, log_etas = self.tried(rng, values, rows, poll)
        log_etas[:, :, 0] += log_ratio[:, None]
        return values, log_average(log_etas).sum(axis=1), log_etas

    def tried(self, rng: np.random.Generator, values: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Several simulations for each row of parameter values, (rows, simulations, ...), and their log eta by part."""
        several = {name: np.repeat(column, self.simulations, axis=0) for name, column in values.items()}
        columns, terms = simulate_and_weigh(self.problem, rng, several, rows * self.simulations, poll)
        shaped = {name: column.reshape(rows, self.simulations, *column.shape[1:]) for name, column in columns.items()}
        log_etas = [
            added([terms[name] for name in part if name in terms], rows * self.simulations)
            for part in self.problem.parts
        ]
        return shaped, np.stack(log_etas, axis=1).reshape(rows, self.simulations, -1)


def added(terms: Iterable[Array], rows: int) -> Array:
    """The sum of terms of a log weight, row by row."""
    total: Array = sum(terms, start=np.zeros(rows))
    return total


def pick_simulation(rng: np.random.Generator, log_each: Array) -> Array:
    """One column for each row, with probability proportional to exp(log_each): the first of exponential clocks."""
    with np.errstate(divide="ignore"):
        clock = np.log(rng.standard_exponential(log_each.shape))
    return np.argmin(clock - log_each, axis=1)


def log_average(log_each: Array) -> Array:
    """log of the mean over each row's simulations, the second axis, of exp(log_each)."""
    top = log_each.max(axis=1)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return base + np.log(np.exp(log_each - base[:, None]).sum(axis=1)) - math.log(log_each.shape[1])


def simulate_and_weigh(
    problem: Problem, rng: np.random.Generator, values: Columns, rows: int, poll: Poll
) -> tuple[Columns, dict[str, Array]]:
    """Statistics given parameter values, and log eta by name; one without noise is conditioned on instead of drawn.

    One with a guide is drawn by that, and weighed by what the guide gives in place of eta.
    """
    model, release, guides = problem.model, problem.release, guides_of(problem)
    terms: dict[str, Array] = {}
    noise_free = [name for name in release if isinstance(release[name].mechanism, Exact)]
    for name in model.order:
        if name in model.parameters:
            continue
        if name in noise_free:
            value = release[name].value
            values = {**values, name: np.broadcast_to(value, (rows, *model.shape(name)))}
            terms[name] = model.log_prob(name, value, values)
        elif name in guides:
            values, terms[name] = guides[name].draw(rng, values, rows, poll)
        else:
            values = model.draw(rng, [name], rows, values, poll)
    for name in release:  # after all draws: a mechanism may read values other than its own
        if name not in terms:
            terms[name] = problem.log_eta(name, values)
    if not np.all(added(terms.values(), rows) < np.inf):  # NaN too
        rule = "must lie where the statistic's density is a finite number"
        shown = {name: release[name].value for name in noise_free}
        advice = "The law's log_prob overflows there: use another law, or a truncation nearer its centre."
        raise refusal("sample", "release", rule, shown, advice)
    return values, terms
