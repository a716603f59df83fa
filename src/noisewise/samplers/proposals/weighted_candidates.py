"""Weighted candidates: parameters from a proposal, statistics from the model, weights from the noise density.

What `Importance`, `RejectionControl` and their pilots share. Derivation: docs/derivations/importance.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.streams import Columns
from noisewise.mechanisms import Exact
from noisewise.numerics import Array
from noisewise.samplers.proposals.proposal import Proposal

Poll = Callable[[], None]

ROWS, LEAST_ROWS, CELLS = 2**15, 64, 2**19
"""Rows of one block at most and at least, and numbers that it may handle between these."""


def block_rows(problem: Problem, simulations: int = 1) -> int:
    """Rows of one block; by model, release and settings alone, never by draws, threads or memory."""
    model = problem.model
    cells = sum(model.cost_of_row(name) * (1 if name in model.parameters else simulations) for name in model.order)
    rows = ROWS
    while rows > LEAST_ROWS and rows * cells > CELLS:
        rows //= 2
    return rows


@dataclass(frozen=True)
class Weigh:
    """One block of weighted draws, with `simulations` statistics tried for each parameter value."""

    problem: Problem
    proposal: Proposal
    simulations: int = 1

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Every candidate survives; `log_weights` is among the columns."""
        values, log_weights = self.candidates(rng, rows, poll)
        return {**values, "log_weights": log_weights}, np.arange(rows, dtype=np.int32)

    def candidates(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Values of everything, and log(pi0 / g) + log(mean eta)."""
        values, log_ratio = self.proposal(rng, rows, poll)
        if self.simulations == 1:
            values, log_eta = simulate_and_weigh(self.problem, rng, values, rows, poll)
            return values, log_ratio + log_eta
        values, log_etas = self.tried(rng, values, rows, poll)
        picked = pick_simulation(rng, log_etas)
        values = {name: column[np.arange(rows), picked] for name, column in values.items()}
        return values, log_ratio + log_average(log_etas)

    def looked_at(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array, Array]:
        """Parameters of a pilot's round, their weights, and the weight of each statistic tried."""
        values, log_ratio = self.proposal(rng, rows, poll)
        _, log_eta = self.tried(rng, values, rows, poll)
        log_each_weight = log_ratio[:, None] + log_eta
        return values, log_average(log_each_weight), log_each_weight

    def tried(self, rng: np.random.Generator, values: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Several statistics for each row of parameter values: (rows, simulations, ...), and log eta of each."""
        several = {name: np.repeat(column, self.simulations, axis=0) for name, column in values.items()}
        columns, log_eta = simulate_and_weigh(self.problem, rng, several, rows * self.simulations, poll)
        shaped = {name: column.reshape(rows, self.simulations, *column.shape[1:]) for name, column in columns.items()}
        return shaped, log_eta.reshape(rows, self.simulations)


def pick_simulation(rng: np.random.Generator, log_each: Array) -> Array:
    """One column for each row, with probability proportional to exp(log_each): the first of exponential clocks."""
    with np.errstate(divide="ignore"):
        clock = np.log(rng.standard_exponential(log_each.shape))
    return np.argmin(clock - log_each, axis=1)


def log_average(log_each: Array) -> Array:
    """log of the mean over each row of exp(log_each)."""
    top = log_each.max(axis=1)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return base + np.log(np.exp(log_each - base[:, None]).sum(axis=1)) - math.log(log_each.shape[1])


def simulate_and_weigh(
    problem: Problem, rng: np.random.Generator, values: Columns, rows: int, poll: Poll
) -> tuple[Columns, Array]:
    """Statistics given parameter values, and log eta; a noise-free statistic is conditioned on instead of drawn."""
    model, release = problem.model, problem.release
    total: Any = np.zeros(rows)
    noise_free = [name for name in release if isinstance(release[name].mechanism, Exact)]
    for name in model.order:
        if name in model.parameters:
            continue
        if name in noise_free:
            value = release[name].value
            values = {**values, name: np.broadcast_to(value, (rows, *model.shape(name)))}
            total = total + model.log_prob(name, value, values)
        else:
            values = model.draw(rng, [name], rows, values, poll)
    for name in release:  # after all draws: a mechanism may read values other than its own
        if name not in noise_free:
            total = total + problem.log_eta(name, values)
    if not np.all(total < np.inf):  # NaN too
        rule = "must lie where the statistic's density is a finite number"
        shown = {name: release[name].value for name in noise_free}
        advice = "The law's log_prob overflows there: use another law, or a truncation nearer its centre."
        raise refusal("sample", "release", rule, shown, advice)
    return values, total
