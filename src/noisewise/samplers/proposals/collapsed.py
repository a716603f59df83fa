"""Weighted candidates whose statistics are summed or integrated out: parameters weighed by the likelihood itself.

The statistic is drawn afterwards, from its law given parameters and release. Shared by `Importance(collapse=True)` and
its pilot. Derivation: docs/derivations/conditional.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.diagnostics.weights import relative
from noisewise.inference.blocks import Columns, rows_within
from noisewise.inference.conditional.sums import Sum
from noisewise.inference.conditional.target import Target
from noisewise.inference.problem import Problem
from noisewise.model.graph import Poll
from noisewise.numerics import Array, Compiled, double
from noisewise.numerics.compiled import NO_OPTIONS, PLAINLY, looking
from noisewise.numerics.inversion import Inversion
from noisewise.samplers.proposals.proposal import Proposal, made_once

ROWS, LEAST_ROWS, CELLS = 2**13, 2**6, 2**20
"""Rows of one block at most and at least, and numbers that it may handle between these."""
NEGLECTED = 1e-10
"""Share of the evidence that windows of sums may leave out."""
ROUGH = 1e-6
"""Share of the evidence that integrals may miss, by their own estimate: far below what draws can tell."""
WIDENINGS = 8
"""Most runs, each with windows twice as wide as the last, before the release is called too unlikely."""

Widened = tuple[tuple[tuple[str, ...], int], ...]
"""How often the window of each sum has been doubled."""


@dataclass(frozen=True)
class Fixed:
    """The laws of all statistics given the release, where no row differs from another."""

    shares: list[Array]
    """The terms of every `Sum`, by its `shares`; a `Tree` is drawn from by a program."""
    left: Array
    """The share of each sum that its window may leave out."""
    moments: Any
    """Moments of the statistics that are normal under noise with a closed form."""
    log_likelihood: Array
    """log m(release)."""

    @cached_property
    def laws(self) -> list[Inversion]:
        """The law that each sum is drawn from; any law where the release is impossible: all weights are then zero."""
        possible = self.log_likelihood > -np.inf
        return [Inversion(one if possible else np.ones_like(one)) for one in self.shares]


class Collapse:
    """The likelihood of parameters, every confidential statistic summed or integrated out, and draws of these."""

    def __init__(self, problem: Problem, widened: Widened = ()) -> None:
        self.target = Target(problem, dict(widened), integrate=True)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The release and what is tabulated of it, as arguments of compiled programs."""
        return self.target.data()

    @staticmethod
    def of(problem: Problem, widened: Widened = ()) -> "Collapse":
        """The instance kept with the model: what it has traced and tabulated serves every block."""
        key = ("collapse", problem.release.hash, widened)
        collapse: Collapse = made_once(problem.model, key, lambda: Collapse(problem, widened))
        return collapse

    @property
    def cells(self) -> int:
        """Values that one row's sums and integrals run over."""
        return self.target.cells + 1

    @property
    def work(self) -> int:
        """Numbers that one row's likelihood handles."""
        return self.target.work + 1

    @property
    def rows(self) -> int:
        """Rows of one block; by model, release and windows alone."""
        return rows_within(ROWS, LEAST_ROWS, self.work, CELLS)

    def log_likelihood(self, values: Columns, rows: int) -> Array:
        """log m(release | parameters), for each row."""
        if not values:
            return np.broadcast_to(self.fixed.log_likelihood, rows)
        with double():
            if self.target.weighs_apart:
                return np.asarray(self._likelihood(self._parameters(values), self.data))
            none = [np.zeros((rows, entries)) for entries in self.target.uniforms]
            return np.asarray(self._complete(np.arange(rows), self._parameters(values), self.data, none)[-1])

    @cached_property
    def fixed(self) -> Fixed:
        """The laws and the likelihood of a problem without parameters."""
        target = self.target

        def laws(data: Any) -> Any:
            sums = zip(target.sums, data["tables"], strict=True)
            shares = [
                sum_.shares(data["exact"], data["items"], tables) for sum_, tables in sums if isinstance(sum_, Sum)
            ]
            _, *rest = target.completed({}, data, [jnp.zeros(entries) for entries in target.uniforms])
            return shares, *rest

        with looking(), double():
            return Fixed(*jax.tree.map(np.asarray, self._program("fixed", lambda: laws)(self.data)))

    def prepare(self) -> None:
        """Compile the likelihood for a pilot, then the program that draws the statistics, in threads of their own."""
        model, rows = self.target.model, self.rows
        shapes = {n: jax.ShapeDtypeStruct((rows, *model.shape(n)), model.dtype(n)) for n in model.parameters}
        uniform = [jax.ShapeDtypeStruct((rows, entries), np.float64) for entries in self.target.uniforms]
        first = self._likelihood.prepare(shapes, self.data) if self.target.weighs_apart else None
        self._complete.prepare(np.arange(rows), shapes, self.data, uniform, after=first)

    def complete(self, rng: np.random.Generator, values: Columns, rows: int) -> tuple[Columns, Array, Array]:
        """Draws of every confidential statistic given parameters and release, shares left out, and the log likelihood.

        The shares are those of each sum or integral that may be missing, row by row.
        """
        if not values and not self.target.integrals and not self.target.trees:
            return self._from_tables(rng, rows)
        log_likelihood = None if self.target.draws_as_it_weighs else self.log_likelihood(values, rows)
        uniform = [rng.random((rows, entries)) for entries in self.target.uniforms]
        with double():
            numbers = np.arange(rows), self._parameters(values), self.data, uniform
            drawn, left, moments, weighed = jax.tree.map(np.asarray, self._complete(*numbers))
        drawn = self._finished(rng, drawn, moments, rows)
        return drawn, left, weighed if log_likelihood is None else log_likelihood

    def _from_tables(self, rng: np.random.Generator, rows: int) -> tuple[Columns, Array, Array]:
        """`complete` where all rows have the same laws."""

        def repeated(one: Any) -> Array:
            return np.broadcast_to(one, (rows, *np.shape(one)))

        fixed = self.fixed
        drawn = {name: repeated(value) for name, value in self.data["exact"].items()}
        for law, sum_, tables in zip(fixed.laws, self.target.sums, self.data["tables"], strict=True):
            assert isinstance(sum_, Sum)
            drawn |= sum_.values_at(law(rng.random((rows, sum_.entries))), tables)
        drawn = self._finished(rng, drawn, jax.tree.map(repeated, fixed.moments), rows)
        return drawn, repeated(fixed.left), repeated(fixed.log_likelihood)

    def _finished(self, rng: np.random.Generator, drawn: Columns, moments: Any, rows: int) -> Columns:
        """The draws with folded (normal) statistics drawn too, measurements added, and types as the model has them."""
        drawn |= self.target.draw_folded(rng, moments, rows)
        self.target.measure(drawn)
        exact = set(self.target.exact)  # as released: a naive analysis may put a count between whole numbers
        return {
            name: column if name in exact else column.astype(self.target.model.dtype(name), copy=False)
            for name, column in drawn.items()
        }

    def _completed(self, _: Any, values: Any, data: Any, uniform: Any) -> Any:
        """One row; its number only gives `vmap` an axis where there is no parameter and nothing to invert."""
        drawn, left, moments, log_likelihood = self.target.completed(values, data, uniform)
        return drawn, left, moments, log_likelihood if self.target.draws_as_it_weighs else jnp.zeros(())

    @property
    def _likelihood(self) -> Compiled:
        return self._program("likelihood", lambda: jax.vmap(self.target.log_likelihood, in_axes=(0, None)))

    @property
    def _complete(self) -> Compiled:
        return self._program("complete", lambda: jax.vmap(self._completed, in_axes=(0, 0, None, 0)))

    def _parameters(self, values: Columns) -> Columns:
        return {name: np.asarray(values[name]) for name in self.target.model.parameters}

    def _program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        key = ("collapse", purpose, self.target.signature)
        options = NO_OPTIONS if any(sum_.by_powers for sum_ in self.target.sums) else PLAINLY
        return self.target.model.compiled.setdefault(key, Compiled(build, options=options))


def unfit(problem: Problem) -> str | None:
    """Why a statistic cannot be summed or integrated out, as the end of a sentence; None where all can."""
    key = ("collapse", "unfit", problem.release.hash)
    against: str | None = made_once(problem.model, key, lambda: _unfit(problem))
    return against


def _unfit(problem: Problem) -> str | None:
    model = problem.model
    names = [name for name in model.statistics if name in problem.needed and name not in problem.measured]
    for name in names:
        if not model.has_density(name):
            return f"cannot integrate out '{name}', which is a Total or Simulator"
    discrete = {name for name in names if model.is_discrete(name)}
    for name in names:
        read = sorted(discrete & set(model.parents(name)))
        if read and not model.is_discrete(name):
            return f"cannot sum out '{read[0]}', on which the continuous '{name}' depends"
    objection = problem.measured_tables() or problem.without_measure()
    if objection is not None:
        return objection
    target = Collapse.of(problem).target
    if target.sampled:
        return f"cannot integrate out '{target.sampled[0]}': no rule for its law and noise is known here"
    return target.excess()


@dataclass(frozen=True)
class WeighCollapsed:
    """One block of parameters weighed by the likelihood, with statistics drawn given the release."""

    problem: Problem
    proposal: Proposal
    widened: Widened = ()

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Every candidate survives; `log_weights` and the shares that sums `neglected` are among the columns."""
        values, log_ratio = self.proposal(rng, rows, poll)
        collapse = Collapse.of(self.problem, self.widened)
        drawn, neglected, log_likelihood = collapse.complete(rng, values, rows)
        log_weights = log_ratio + log_likelihood
        columns = {**drawn, **values, "log_weights": log_weights, "neglected": neglected}
        return columns, np.arange(rows, dtype=np.int32)

    def looked_at(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array, Array]:
        """Parameters of a pilot's round and their weights; statistics are of no use there."""
        values, log_ratio = self.proposal(rng, rows, poll)
        log_weights = log_ratio + Collapse.of(self.problem, self.widened).log_likelihood(values, rows)
        return values, log_weights, log_weights[:, None, None]


def too_narrow(collapse: Collapse, log_weights: Array, neglected: Array) -> list[tuple[str, ...]]:
    """The sums of which too much may be missing: the share of each row's bound, averaged by the rows' weights."""
    if not neglected.shape[1] or not np.any(log_weights > -np.inf):
        return []
    return collapse.target.too_narrow(shares_left_out(log_weights, neglected), NEGLECTED)


def too_rough(collapse: Collapse, log_weights: Array, neglected: Array) -> str | None:
    """A statistic whose integral is not accurate enough, if there is one."""
    integrals, sums = collapse.target.integrals, len(collapse.target.sums)
    if not integrals or not neglected.size or not np.any(log_weights > -np.inf):
        return None
    share = np.where([integral.bounded for integral in integrals], 0.0, shares_left_out(log_weights, neglected)[sums:])
    return integrals[int(np.argmax(share))].name if share.max() > ROUGH else None


def shares_left_out(log_weights: Array, neglected: Array) -> Array:
    """For each sum, the share of the evidence that its windows may leave out.

    Weights are upper bounds of the likelihood, so parameter values that the windows do not serve are not passed over.
    """
    if not np.any(log_weights > -np.inf):
        return np.zeros(neglected.shape[1])
    weights = relative(log_weights)
    return (weights[:, None] * neglected).sum(axis=0) / weights.sum()


def doubled(widened: Widened, names: Sequence[tuple[str, ...]]) -> Widened:
    """`widened` with the windows of these sums doubled once more."""
    counts = dict(widened)
    return tuple(sorted({**counts, **{group: counts.get(group, 0) + 1 for group in names}}.items()))
