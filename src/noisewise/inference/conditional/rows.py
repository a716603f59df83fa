"""Very many independent rows, each a number of its own law released with its own noise: a million at a time.

    l(theta) = sum_i log int pi(s | phi_i(theta)) eta(r_i | s) ds,    phi_i the attributes of row i's law.

Rows are taken in blocks on all processors, or on an accelerator. Nodes are summed as they are evaluated: of every row
only its likelihood, and its derivatives in the few attributes of its own law, are kept. The chain rule takes these to
the parameters once for all rows. Rows are added up in their own order, so that sums do not depend on scheduling.
Derivation: docs/likelihood-scale.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.engine import Engine, gather
from noisewise.inference.conditional import row_programs
from noisewise.inference.conditional.normal import is_closed
from noisewise.inference.conditional.row_blocks import Laid, RowBlocks, block_of, noise_scale, place
from noisewise.inference.conditional.row_panels import panel_edges
from noisewise.inference.conditional.row_programs import ORDERS, pairs_of
from noisewise.mechanisms import Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.model.families import facts_of
from noisewise.model.law import law_attributes
from noisewise.model.variates import VARIATES
from noisewise.numerics import Array, Compiled, double, placement
from noisewise.numerics.tracing import sources

NEGLECTED = 1e-10
"""Most relative error of a row's likelihood, by the difference from a finer rule."""
ON_DEVICE = 2**20
"""Rows worked on at once on an accelerator."""
PROBED = 4
"""Blocks by which the order of the rule is chosen; it is then confirmed by all rows."""
ROUGHLY = 1e-3
"""Error allowed in the log likelihood of a row where parameters are only to be ruled out."""
FEWER = 4
"""Factor by which the rows grow on which parameters may be ruled out."""


@dataclass(frozen=True)
class RowSource:
    """What the rows are: their law, their noise, and where programs made for them are kept."""

    law_at: Callable[[Any], Any]
    """The law of all rows at what the caller gives for the parameters; traceable."""
    mechanism: Mechanism
    released: Any
    shape: tuple[int, ...]
    kind: str
    chart: str
    compiled: Callable[[str, Callable[[], Any]], Compiled]


def applies(kind: str, chart: str, mechanism: Mechanism) -> bool:
    """Whether a law can be evaluated for some rows only, and the edges of windows be found."""
    known = kind in VARIATES and not VARIATES[kind].axes and not facts_of(kind).discrete
    return known and chart != "" and not facts_of(kind).kink and isinstance(mechanism, Additive)


@dataclass(frozen=True)
class RowPanels(Laid):
    """The panels of all rows, the law at which they were laid, and the rule that serves them."""

    edges: Array
    top: Array
    order: int
    errors: Array
    """Relative error of every row's likelihood: the difference from a finer rule, or the mass outside."""


@dataclass(frozen=True)
class RowMoments:
    """The log likelihood of every row; score, information and complete information of all (Louis 1982)."""

    log_likelihoods: Array
    score: Array
    information: Array
    complete: Array


class NoisyRows(RowBlocks):
    """Likelihood and derivatives of all rows; keeps the panels from one parameter value to the next."""

    def __init__(self, source: RowSource, engine: Engine | None, own: Array | None = None) -> None:
        """All rows, or those numbered `own`; without an engine, block by block in the calling thread."""
        self.source, self.engine = source, engine
        rows = math.prod(source.shape) if own is None else len(own)
        placed = placement() is not None if engine is None else engine.block_rows is not None
        block = min(rows, ON_DEVICE) if placed else block_of(rows)
        super().__init__(source.kind, source.chart, source.mechanism, source.released, source.shape, block, own)
        self.panels: RowPanels | None = None

    # Values -----------------------------------------------------------------------------------------------------------

    def log_likelihoods(self, given: Any) -> Array:
        """log density of every row's release at these parameters."""
        attributes = self._attributes(given)
        grid = self._laid(attributes)
        return self._values(attributes, grid, grid.order)

    def log_likelihood_near(self, given: Any, least: float) -> float:
        """log density of all releases; the panels at hand stay, and are used where they serve these parameters.

        Elsewhere panels are laid for this value alone; or it is -inf, at once, where it is certain to be below `least`.
        """
        attributes = self._attributes(given)
        centre, spread = self._over(attributes, self.location)
        if self.panels is not None and self.panels.serves(centre, spread):
            return float(np.sum(self._values(attributes, self.panels, self.panels.order)))
        if self._surely_below(attributes, centre, spread, least):
            return -math.inf
        grid = self._new_panels(attributes, centre, spread)
        return float(np.sum(self._values(attributes, grid, grid.order)))

    def _surely_below(self, attributes: dict[str, Array], centre: Array, spread: Array, least: float) -> bool:
        """Whether the likelihood of some rows, and the most that noise allows the others, are less than `least`.

        No density of a release is above the noise's supremum: log m(r) <= log sup eta. The rows' own likelihood is
        taken to be known within `ROUGHLY`.
        """
        mechanism = jax.tree.unflatten(self._tree, self._leaves)
        most = np.broadcast_to(np.asarray(mechanism.log_sup(self.released)), (self.entries,))
        rule = row_programs.rule(self.panels.order if self.panels is not None else ORDERS[-1] // 4)

        def work(block: Any, cut: Any) -> list[Array]:
            edges, top, _ = (np.asarray(one) for one in self._panels(block, cut(centre), cut(spread)))
            return self._run("values", row_programs.value, block, edges, top, *rule)

        rows, all_at_most = self.block, float(np.sum(most))
        while rows < FEWER * self.entries:  # FEWER times as many each time: little more work than for all
            (logs,) = self._over(attributes, work, rows)
            short = np.maximum(most[: len(logs)] - logs - ROUGHLY, 0.0)
            if all_at_most - float(np.sum(short)) < least:
                return True
            rows *= FEWER
        return False

    @property
    def errors(self) -> Array:
        """Relative error of every row's likelihood, on the panels at hand."""
        assert self.panels is not None
        return self.panels.errors

    def moments(self, x: Array, given_at: Callable[[Any], Any], purpose: str) -> RowMoments:
        """Derivatives in x, where `given_at(x)` is what the law is given; `purpose` names that function."""
        attributes = self._attributes(self._given(x, given_at))
        grid, moving = self._laid(attributes), self._moving(x, given_at, purpose)
        logs, *sums = self._over(attributes, partial(self._moments_of, grid, moving))
        score, complete, variance = self._through(x, given_at, moving, purpose, sums)
        return RowMoments(logs, score, complete - variance, complete)

    def _given(self, x: Array, given_at: Callable[[Any], Any]) -> Any:
        return self._alone(lambda: jax.tree.map(np.asarray, given_at(jax.device_put(x))))

    def _through(
        self, x: Array, given_at: Any, moving: tuple[str, ...], purpose: str, sums: list[Array]
    ) -> list[Array]:
        """`_chained`, compiled."""
        purpose = f"chain rule {moving} {purpose} of {self.entries}"
        chained = self.program(purpose, lambda: partial(self._chained, given_at, moving))
        sums_at: list[Array] = self._alone(lambda: [np.asarray(one) for one in chained(x, *sums)])
        return sums_at

    def _chained(
        self, given_at: Callable[[Any], Any], moving: tuple[str, ...], x: Any, first: Any, second: Any, spread: Any
    ) -> tuple[Any, Any, Any]:
        """Score, complete information and the score's variance in x, from those in every row's own attributes."""

        def attributes(x: Any) -> list[Any]:
            traced = self._traced(given_at(x))
            return [jnp.broadcast_to(traced[name], (self.entries,)) for name in moving]

        def along(x: Any) -> Any:
            return sum(jnp.sum(slope * one) for slope, one in zip(first, attributes(x), strict=True))

        score, bend = jax.grad(along)(x), jax.hessian(along)(x)
        jacobian = jax.jacfwd(attributes)(x)
        pairs = pairs_of(len(moving))

        def folded(matrix: Any) -> Any:
            total = jnp.zeros((len(x), len(x)))
            for number, (a, b) in enumerate(pairs):
                one = (jacobian[a] * matrix[number][:, None]).T @ jacobian[b]
                total = total + (one if a == b else one + one.T)
            return total

        return score, -(folded(second) + bend), folded(spread)

    # Panels -----------------------------------------------------------------------------------------------------------

    def _laid(self, attributes: dict[str, Array]) -> RowPanels:
        """Panels that serve: those at hand, or new ones."""
        centre, spread = self._over(attributes, self.location)
        if self.panels is None or not self.panels.serves(centre, spread):
            self.panels = self._new_panels(attributes, centre, spread)
        return self.panels

    def _new_panels(self, attributes: dict[str, Array], centre: Array, spread: Array) -> RowPanels:
        """Panels at these parameters, with the first order of the rule that the next order confirms."""
        edges, top, tail = self._over(attributes, lambda block, cut: self._panels(block, cut(centre), cut(spread)))
        grid = RowPanels(centre, spread, edges, top, ORDERS[0], np.full(1, np.inf))
        number, least = 0, PROBED * self.block
        while True:
            number = self._enough(attributes, grid, number, least)
            order, finer = ORDERS[number], ORDERS[min(number + 1, len(ORDERS) - 1)]
            logs, better = (self._values(attributes, grid, one) for one in (order, finer))
            with np.errstate(invalid="ignore", over="ignore"):
                errors = np.maximum(np.abs(np.expm1(better - logs)), np.exp(tail - logs))
            changed = float(np.max(np.nan_to_num(np.abs(better - logs), nan=0.0)))  # no mass by either
            if changed <= NEGLECTED or finer == ORDERS[-1]:
                break
            number += 1
        return RowPanels(centre, spread, edges, top, order, errors)

    def _enough(self, attributes: dict[str, Array], grid: RowPanels, number: int, rows: int) -> int:
        """The first order from `number` on that the next one confirms, by some of the rows."""
        before = self._values(attributes, grid, ORDERS[number], rows)
        while number < len(ORDERS) - 2:
            after = self._values(attributes, grid, ORDERS[number + 1], rows)
            if np.max(np.abs(after - before)) <= NEGLECTED:
                break
            number, before = number + 1, after
        return number

    def _panels(self, block: Any, centre: Array, spread: Array) -> Any:
        kind, chart = self.kind, self.chart
        scale = noise_scale(block[1], spread if chart == "real" else np.ones(()))
        program = self.program("panels", lambda: partial(panel_edges, kind, chart))
        return program(block, centre, spread, np.asarray(scale, float))

    def _values(self, attributes: dict[str, Array], grid: RowPanels, order: int, rows: int | None = None) -> Array:
        return self._over(attributes, partial(self._values_of, grid, order), rows)[0]

    def _values_of(self, grid: RowPanels, order: int, block: Any, cut: Any) -> list[Array]:
        return self._run("values", row_programs.value, block, cut(grid.edges), cut(grid.top), *row_programs.rule(order))

    def _moments_of(self, grid: RowPanels, moving: tuple[str, ...], block: Any, cut: Any) -> list[Array]:
        build = partial(row_programs.moments, moving=moving)
        return self._run(
            f"moments {moving}", build, block, cut(grid.edges), cut(grid.top), *row_programs.rule(grid.order)
        )

    def _run(self, purpose: str, build: Callable[..., Any], *arguments: Any) -> list[Array]:
        """A program's results; with care, at twice the time, where a formula is beyond its range at some node."""
        kind, chart = self.kind, self.chart
        outputs = self.program(purpose, lambda: build(kind, chart, careful=False))(*arguments)
        results = [np.asarray(one) for one in outputs]
        if all(np.isfinite(one).all() for one in results):
            return results
        again = self.program(f"{purpose}, with care", lambda: build(kind, chart, careful=True))(*arguments)
        return [np.asarray(one) for one in again]

    # Blocks -----------------------------------------------------------------------------------------------------------

    def _attributes(self, given: Any) -> dict[str, Array]:
        """The law's attributes at what it is given: one number per row, or one for all."""
        program = self.program("attributes", lambda: lambda given: law_attributes(self.source.law_at(given)))
        arrays = self._alone(lambda: {name: np.asarray(one) for name, one in program(given).items()})
        return {name: self.flat(one) for name, one in arrays.items()}

    def _traced(self, given: Any) -> dict[str, Any]:
        """`_attributes`, traced."""
        attributes = law_attributes(self.source.law_at(given))

        def flat(one: Any) -> Any:
            if one.size == 1:
                return one.reshape(())
            whole = jnp.broadcast_to(one, self.shape).reshape(-1)
            return whole if self.own is None else whole[self.own]

        return {name: flat(one) for name, one in attributes.items()}

    def _moving(self, x: Array, given_at: Callable[[Any], Any], purpose: str) -> tuple[str, ...]:
        """Attributes that change with x."""
        known = self.__dict__.setdefault("_known_moving", {})
        if purpose not in known:
            with double():
                program = jax.make_jaxpr(lambda x: self._traced(given_at(x)))(x).jaxpr
                names = sorted(jax.eval_shape(lambda x: self._traced(given_at(x)), x))
            known[purpose] = tuple(n for n, reached in zip(names, sources(program), strict=True) if reached)
        moving: tuple[str, ...] = known[purpose]
        return moving

    def _over(self, attributes: dict[str, Array], work: Callable[[Any, Any], Any], rows: int | None = None) -> Any:
        """`work(block, cut)` for every block of rows, or of the first `rows`; results joined along the last axis."""
        rows = self.entries if rows is None else min(rows, self.entries)
        starts = range(0, rows, self.block)
        joined: list[Array] = []

        def add(start: int, pieces: Sequence[Array]) -> None:
            if not joined:
                joined.extend(np.empty((*piece.shape[:-1], rows)) for piece in pieces)
            place(joined, start, pieces)

        def one(start: int, _: Any = None) -> Any:
            block = self.block_at(start, attributes)
            with double(), np.errstate(all="ignore"):
                return [np.asarray(array) for array in work(block, partial(self.cut, start))]

        if self.engine is None:
            for start in starts:
                add(start, one(start))
        else:
            works = [partial(one, start) for start in starts]
            gather(self.engine, works, seen=lambda number, pieces: add(starts[number], pieces))
        return joined

    def _alone(self, work: Callable[[], Any]) -> Any:
        """The result of work on all rows together, done where the blocks are."""

        def run(_: Any = None) -> Any:
            with double():
                return work()

        return run() if self.engine is None else gather(self.engine, [run])[0]

    def program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program for one block, kept where the source keeps them."""
        return self.source.compiled(f"rows {purpose}", build)


class ClosedRows(NoisyRows):
    """Normal rows under noise with a closed form: no panels, no error, and no complete information."""

    def log_likelihoods(self, given: Any) -> Array:
        """log density of every row's release at these parameters."""
        return self._over(self._attributes(given), partial(self._closed, "values", row_programs.closed_value))[0]

    def log_likelihood_near(self, given: Any, least: float) -> float:
        """log density of all releases."""
        return float(np.sum(self.log_likelihoods(given)))

    @property
    def errors(self) -> Array:
        """Zero: a closed form has no error."""
        return np.zeros(1)

    def moments(self, x: Array, given_at: Callable[[Any], Any], purpose: str) -> RowMoments:
        """Derivatives in x; `complete` is the information itself."""
        attributes, moving = self._attributes(self._given(x, given_at)), self._moving(x, given_at, purpose)
        work = partial(self._closed, f"moments {moving}", partial(row_programs.closed_moments, moving))
        logs, *sums = self._over(attributes, work)
        score, information, _ = self._through(x, given_at, moving, purpose, sums)
        return RowMoments(logs, score, information, information)

    def _closed(self, purpose: str, build: Any, block: Any, cut: Any) -> Any:
        return self.program(f"closed {purpose}", lambda: build)(block)


def rows_for(source: RowSource, engine: Engine | None, own: Array | None = None) -> NoisyRows:
    """Rows in closed form where there is one, else by quadrature."""
    closed = source.kind == "Normal" and is_closed(source.mechanism)
    return (ClosedRows if closed else NoisyRows)(source, engine, own)
