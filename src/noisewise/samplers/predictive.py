"""Rejection's plan without a rejection: where prior and law are conjugate, the posterior itself can be drawn from.

    s     ~ law of the statistic with every parameter integrated out, given its release
    theta ~ law of the parameters given s

The first is a table, or a mixture of normal laws, that is computed once; the second is the prior's family. Draws are
independent. Proof: docs/derivations/layers.md.
"""

from dataclasses import dataclass

import numpy as np

from noisewise.inference.blocks import Columns, rows_within
from noisewise.inference.problem import Problem
from noisewise.inference.stream import Stream
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.samplers.integrated import wholly_integrated
from noisewise.samplers.proposals import collapsed
from noisewise.samplers.proposals.proposal import made_once

ROWS, LEAST_ROWS, NUMBERS = 2**16, 2**6, 2**18
"""Rows of one block at most and at least, and numbers that it may hold between these."""
MOST_VALUES = 2**20
"""Values that sums run over, at most: a table of them is kept."""
IMPOSSIBLE = "needs a release that can come about: under this model and noise, it cannot"


@dataclass(frozen=True)
class Predictive:
    """A problem without parameters, and windows of its sums that leave next to nothing out."""

    problem: Problem
    widened: collapsed.Widened

    @staticmethod
    def of(problem: Problem) -> "Predictive | str":
        """The exact law of a problem with conjugate parameters; else why there is none, as the end of a sentence."""
        key = ("predictive", problem.release.hash)
        predictive: Predictive | str = made_once(problem.model, key, lambda: _found(problem))
        return predictive

    @property
    def collapse(self) -> collapsed.Collapse:
        """The sums and closed forms that draw the statistics."""
        return collapsed.Collapse.of(self.problem, self.widened)

    def stream(self) -> Stream:
        """The stream whose rows are posterior draws."""
        return Stream(0, self.rows, self, "the exact law")

    @property
    def rows(self) -> int:
        """Rows of one block; by model and release alone."""
        model = self.problem.model
        return rows_within(ROWS, LEAST_ROWS, sum(model.cost_of_row(name) for name in model.order), NUMBERS)

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """One block of statistics, and of the parameters behind them."""
        poll()
        columns, *_ = self.collapse.complete(rng, {}, rows)
        for layer in self.problem.model.layers:
            columns[layer.name] = layer.draw(rng, columns)
        return columns, np.arange(rows)


def _found(problem: Problem) -> Predictive | str:
    smaller = wholly_integrated(problem)
    if smaller is None:
        return "needs every parameter to be conjugate to the law of a statistic of its own"
    objection = collapsed.unfit(smaller)
    if objection is not None:
        return objection
    if collapsed.Collapse.of(smaller).target.integrals:
        return "needs the law of every statistic given its release in closed form or as a sum"
    widened: collapsed.Widened = ()
    for _ in range(collapsed.WIDENINGS):
        collapse = collapsed.Collapse.of(smaller, widened)
        if collapse.cells > MOST_VALUES or collapse.target.excess():
            break
        wider = collapse.target.too_narrow(collapse.fixed.left, collapsed.NEGLECTED)
        if not wider:
            impossible = collapse.fixed.log_likelihood == -np.inf
            return IMPOSSIBLE if impossible else Predictive(smaller, widened)
        widened = collapsed.doubled(widened, wider)
    return f"needs sums over statistics that leave next to nothing out with at most {MOST_VALUES:,} values"
