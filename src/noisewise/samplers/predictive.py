"""Rejection's plan without a rejection: where prior and law are conjugate, the posterior itself can be drawn from.

    s     ~ law of the statistic with every parameter integrated out, given its release
    theta ~ law of the parameters given s

The first is a table, a mixture of normal laws, or the law of cells that add up to a known total, and is computed once;
the second is the prior's family. Draws are independent. Proof: docs/derivations/layers.md.
"""

from dataclasses import dataclass

import numpy as np

from noisewise.inference.blocks import Columns, rows_within
from noisewise.inference.conditional import cells_of_total
from noisewise.inference.conditional.cells_of_total import CellsOfTotal
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
    rest: Problem | None
    """The same without `tables`; None where nothing else is released."""
    tables: tuple[CellsOfTotal, ...]
    """The laws of tables with known totals."""
    widened: collapsed.Widened

    @staticmethod
    def of(problem: Problem) -> "Predictive | str":
        """The exact law of a problem with conjugate parameters; else why there is none, as the end of a sentence."""
        key = ("predictive", problem.release.hash)
        predictive: Predictive | str = made_once(problem.model, key, lambda: _found(problem))
        return predictive

    def stream(self) -> Stream:
        """The stream whose rows are posterior draws."""
        return Stream(0, self.rows, self, "the exact law")

    @property
    def rows(self) -> int:
        """Rows of one block; by model and release alone."""
        model = self.problem.model
        numbers = sum(model.cost_of_row(name) for name in model.order)
        return rows_within(ROWS, LEAST_ROWS, max(numbers, *(table.widest for table in self.tables), 1), NUMBERS)

    @property
    def work(self) -> int:
        """Numbers handled for one row, beside those of the model's own."""
        return sum(table.work for table in self.tables)

    @property
    def log_evidence(self) -> float:
        """log m(release)."""
        rest = 0.0 if self.rest is None else float(self.collapse.fixed.log_likelihood)
        return rest + sum(table.log_evidence for table in self.tables)

    @property
    def collapse(self) -> collapsed.Collapse:
        """The sums and closed forms that draw the other statistics."""
        assert self.rest is not None
        return collapsed.Collapse.of(self.rest, self.widened)

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """One block of statistics, and of the parameters behind them."""
        poll()
        model = self.problem.model
        columns = {} if self.rest is None else self.collapse.complete(rng, {}, rows)[0]
        for table in self.tables:
            columns[table.name] = table.draw(rng, rows).astype(model.dtype(table.name), copy=False)
        for layer in model.layers:
            columns[layer.name] = layer.draw(rng, columns)
        return columns, np.arange(rows)


def _found(problem: Problem) -> Predictive | str:
    smaller = wholly_integrated(problem)
    if smaller is None:
        return "needs every parameter to be conjugate to the law of a statistic of its own"
    pairs = {layer.statistic for layer in smaller.model.layers if layer.pair.alone}
    counted = [name for name in smaller.release if name in pairs]
    for name in counted:
        objection = cells_of_total.applies(smaller, name)
        if objection is not None:
            return objection
    others = [name for name in smaller.release if name not in counted]
    tables = tuple(cells_of_total.cells_of_total(smaller, name) for name in counted)
    if any(table.neglected > collapsed.NEGLECTED for table in tables):
        return "needs cells whose counts add up to their total less improbably, or with less work"
    if any(table.log_evidence == -np.inf for table in tables):
        return IMPOSSIBLE
    if not others:
        return Predictive(smaller, None, tables, ())
    rest = Problem(smaller.model.restricted(counted), smaller.release.select(*others)) if counted else smaller
    widened = _windows(rest)
    return widened if isinstance(widened, str) else Predictive(smaller, rest, tables, widened)


def _windows(problem: Problem) -> collapsed.Widened | str:
    """How often windows of sums must be doubled; else why there is no such law."""
    objection = collapsed.unfit(problem)
    if objection is not None:
        return objection
    if collapsed.Collapse.of(problem).target.integrals:
        return "needs the law of every statistic given its release in closed form or as a sum"
    widened: collapsed.Widened = ()
    for _ in range(collapsed.WIDENINGS):
        collapse = collapsed.Collapse.of(problem, widened)
        if collapse.cells > MOST_VALUES or collapse.target.excess():
            break
        wider = collapse.target.too_narrow(collapse.fixed.left, collapsed.NEGLECTED)
        if not wider:
            return IMPOSSIBLE if collapse.fixed.log_likelihood == -np.inf else widened
        widened = collapsed.doubled(widened, wider)
    return f"needs sums over statistics that leave next to nothing out with at most {MOST_VALUES:,} values"
