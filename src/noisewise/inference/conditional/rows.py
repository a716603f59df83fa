"""Very many independent rows, each a number of its own law released with its own noise: a million at a time.

    l(theta) = sum_i log int pi(s | phi_i(theta)) eta(r_i | s) ds,    phi_i the attributes of row i's law.

Rows are taken in blocks on all processors, or on an accelerator; nodes pass by, and of every row only its likelihood,
and its derivatives in the few attributes of its own law, are kept. The chain rule takes these to the parameters once
for all rows. What is kept for each row is added in the order of the rows, so that the sums do not depend on who worked.
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
from scipy.special import roots_legendre

from noisewise.engine import Engine, gather
from noisewise.inference.conditional.charts import law_of, to_s, to_t
from noisewise.inference.conditional.noise_scale import noise_scale
from noisewise.inference.conditional.row_panels import log_noise, panels
from noisewise.mechanisms import Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.model.families import facts_of
from noisewise.model.law import law_attributes
from noisewise.model.variates import VARIATES
from noisewise.numerics import Array, Compiled, double
from noisewise.numerics.tracing import sources

NEGLECTED = 1e-10
"""Most relative error of a row's likelihood, by the difference from a finer rule."""
STILL = 0.05
"""Panels serve as long as no row's law has moved by more than this share of its spread."""
ORDERS = (8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
"""Nodes of a panel."""
BLOCK, ON_DEVICE = 2**13, 2**20
"""Rows worked on at once: on a processor, what is computed for them stays in its cache."""
PROBED = 4
"""Blocks by which the order is chosen; all rows say whether it will do."""
GROUP = 2
"""Nodes of a row evaluated at once."""


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
class RowPanels:
    """The panels of all rows, the law at which they were laid, and the rule that serves them."""

    centre: Array
    spread: Array
    edges: Array
    top: Array
    order: int
    errors: Array
    """Relative error of every row's likelihood: the difference from a finer rule, or the mass outside."""

    def serves(self, centre: Array, spread: Array) -> bool:
        """Whether no row's law has moved much since."""
        shift = np.max(np.abs(centre - self.centre) / self.spread)
        return bool(shift <= STILL and np.max(np.abs(np.log(spread / self.spread))) <= STILL)


@dataclass(frozen=True)
class RowMoments:
    """The log likelihood of every row; score, information and complete information of all (Louis 1982)."""

    log_likelihoods: Array
    score: Array
    information: Array
    complete: Array


class Rows:
    """Likelihood and derivatives of all rows; keeps the panels from one parameter value to the next."""

    def __init__(self, source: RowSource, engine: Engine | None) -> None:
        """Without an engine blocks are done one after the other in the calling thread."""
        self.source, self.engine = source, engine
        self.entries = math.prod(source.shape)
        least = min(BLOCK, 1 << (self.entries - 1).bit_length())
        self.block = least if engine is None or engine.block_rows is None else min(self.entries, ON_DEVICE)
        self.released = self._flat(source.released)
        leaves, self._tree = jax.tree.flatten(source.mechanism)
        self._leaves = [self._flat(leaf) for leaf in leaves]
        self.panels: RowPanels | None = None

    # Values -----------------------------------------------------------------------------------------------------------

    def log_likelihoods(self, given: Any) -> Array:
        """log density of every row's release at these parameters."""
        attributes = self._attributes(given)
        grid = self._laid(attributes)
        return self._values(attributes, grid, grid.order)

    @property
    def errors(self) -> Array:
        """Relative error of every row's likelihood, on the panels at hand."""
        assert self.panels is not None
        return self.panels.errors

    def moments(self, x: Array, given_at: Callable[[Any], Any], purpose: str) -> RowMoments:
        """Derivatives in x, where `given_at(x)` is what the law is given; `purpose` names that function."""
        attributes = self._attributes(self._alone(lambda: jax.tree.map(np.asarray, given_at(jnp.asarray(x)))))
        grid, moving = self._laid(attributes), self._moving(x, given_at, purpose)
        program = self._program(f"moments {moving}", lambda: _moments(self.source.kind, self.source.chart, moving))
        rule = _rule(grid.order)

        def work(block: Any, cut: Any) -> Any:
            return program(block, cut(grid.edges), cut(grid.top), *rule)

        logs, *sums = self._over(attributes, work)
        pieces = self._program(f"chain rule {moving} {purpose}", lambda: partial(self._chained, given_at, moving))
        parts = self._alone(lambda: [np.asarray(one) for one in pieces(x, *(np.asarray(one) for one in sums))])
        score, complete, variance = parts
        return RowMoments(logs, score, complete - variance, complete)

    def _chained(
        self, given_at: Callable[[Any], Any], moving: tuple[str, ...], x: Any, first: Any, second: Any, spread: Any
    ) -> tuple[Any, Any, Any]:
        """Score, complete information and the score's variance in x, from those in every row's own attributes."""

        def attributes(x: Any) -> list[Any]:
            found = self._traced(given_at(x))
            return [jnp.broadcast_to(found[name], (self.entries,)) for name in moving]

        def along(x: Any) -> Any:
            return sum(jnp.sum(slope * one) for slope, one in zip(first, attributes(x), strict=True))

        score, bend = jax.grad(along)(x), jax.hessian(along)(x)
        jacobian = jax.jacfwd(attributes)(x)
        pairs = _pairs(len(moving))

        def folded(matrix: Any) -> Any:
            total = jnp.zeros((len(x), len(x)))
            for number, (a, b) in enumerate(pairs):
                one = (jacobian[a] * matrix[number][:, None]).T @ jacobian[b]
                total = total + (one if a == b else one + one.T)
            return total

        return score, -(folded(second) + bend), folded(spread)

    # Panels -----------------------------------------------------------------------------------------------------------

    def _laid(self, attributes: dict[str, Array]) -> RowPanels:
        """Panels that serve: those at hand, or new ones. Of the orders the first that another confirms."""
        centre, spread = self._over(attributes, self._location)
        if self.panels is not None and self.panels.serves(centre, spread):
            return self.panels
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
        self.panels = RowPanels(centre, spread, edges, top, order, errors)
        return self.panels

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
        kind, chart = self.source.kind, self.source.chart
        scale = noise_scale(block[1], spread if chart == "real" else np.ones(()))
        program = self._program("panels", lambda: partial(panels, kind, chart))
        return program(block, centre, spread, np.asarray(scale, float))

    def _location(self, block: Any, cut: Any) -> tuple[Array, Array]:
        """A centre and a spread of every row's law in the chart's coordinate."""
        kind, chart = self.source.kind, self.source.chart

        def build() -> Any:
            def moments(attributes: Any, like: Any) -> Any:
                law = law_of(kind, attributes)
                return jnp.broadcast_to(law.mean, like.shape), jnp.broadcast_to(law.variance, like.shape)

            return moments

        try:
            moments = self._program("location", build)(block[0], np.zeros(self.block))
            mean, variance = (np.asarray(one) for one in moments)
        except NotImplementedError:
            mean = variance = np.full(self.block, np.nan)
        centre, spread = to_t(chart, mean), np.sqrt(variance)
        if chart == "positive":
            spread = np.sqrt(np.log1p(variance / mean**2))
        elif chart == "unit":
            spread = spread / (mean * (1.0 - mean))
        if np.all(np.isfinite(centre) & np.isfinite(spread) & (spread > 0)):
            return centre, spread
        draws = VARIATES[kind](np.random.default_rng(0), (64, self.block), block[0])  # no moments: a look at draws
        low, centre, high = np.quantile(to_t(chart, draws), [0.25, 0.5, 0.75], axis=0)
        return centre, np.maximum(high - low, 1e-300)

    def _values(self, attributes: dict[str, Array], grid: RowPanels, order: int, rows: int | None = None) -> Array:
        program = self._program("values", lambda: _value(self.source.kind, self.source.chart))
        rule = _rule(order)

        def work(block: Any, cut: Any) -> Any:
            return [program(block, cut(grid.edges), cut(grid.top), *rule)]

        return self._over(attributes, work, rows)[0]

    # Blocks -----------------------------------------------------------------------------------------------------------

    def _attributes(self, given: Any) -> dict[str, Array]:
        """The law's attributes at what it is given: one number per row, or one for all."""
        program = self._program("attributes", lambda: lambda given: law_attributes(self.source.law_at(given)))
        found = self._alone(lambda: {name: np.asarray(one) for name, one in program(given).items()})
        return {name: self._flat(one) for name, one in found.items()}

    def _traced(self, given: Any) -> dict[str, Any]:
        """The same, traced."""
        found = law_attributes(self.source.law_at(given))
        shape = self.source.shape
        return {n: jnp.broadcast_to(v, shape).reshape(-1) if v.size > 1 else v.reshape(()) for n, v in found.items()}

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

    def _flat(self, value: Any) -> Array:
        """One number per row; a single number, or what is no number per row, as it is."""
        value = np.asarray(value, dtype=np.float64)
        if value.size == 1:
            return value.reshape(())
        try:
            return np.ascontiguousarray(np.broadcast_to(value, self.source.shape)).reshape(-1)
        except ValueError:
            return value

    def _cut(self, start: int, value: Array) -> Array:
        """Rows from `start` on of the last axis, filled up with the last one."""
        if value.ndim == 0 or value.shape[-1] != self.entries:
            return value
        piece = value[..., start : start + self.block]
        missing = self.block - piece.shape[-1]
        return np.concatenate([piece, np.repeat(piece[..., -1:], missing, axis=-1)], axis=-1) if missing else piece

    def _over(self, attributes: dict[str, Array], work: Callable[[Any, Any], Any], rows: int | None = None) -> Any:
        """`work(block, cut)` for every block of rows, or of the first `rows`; results joined along the last axis."""
        rows = self.entries if rows is None else min(rows, self.entries)
        starts = range(0, rows, self.block)
        joined: list[Array] = []

        def place(start: int, pieces: Sequence[Array]) -> None:
            if not joined:
                joined.extend(np.empty((*piece.shape[:-1], rows)) for piece in pieces)
            for whole, piece in zip(joined, pieces, strict=True):
                room = whole[..., start : start + piece.shape[-1]]
                room[...] = piece[..., : room.shape[-1]]

        def one(start: int, _: Any = None) -> Any:
            cut = partial(self._cut, start)
            mechanism = jax.tree.unflatten(self._tree, [cut(leaf) for leaf in self._leaves])
            block = ({name: cut(value) for name, value in attributes.items()}, mechanism, cut(self.released))
            with double(), np.errstate(all="ignore"):
                return [np.asarray(found) for found in work(block, cut)]

        if self.engine is None:
            for start in starts:
                place(start, one(start))
        else:
            works = [partial(one, start) for start in starts]
            gather(self.engine, works, seen=lambda number, pieces: place(starts[number], pieces))
        return joined

    def _alone(self, work: Callable[[], Any]) -> Any:
        """One piece of work that is no block of rows, where the blocks are."""

        def run(_: Any = None) -> Any:
            with double():
                return work()

        return run() if self.engine is None else gather(self.engine, [run])[0]

    def _program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        return self.source.compiled(f"rows {purpose}", build)


# One block of rows: traceable -----------------------------------------------------------------------------------------


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(size) for b in range(a, size)]


def _rule(order: int) -> tuple[Array, Array, Any]:
    """Nodes and weights, filled up to one length for all orders, and how many groups of them count."""
    nodes, weights = roots_legendre(order)
    room = np.zeros((2, ORDERS[-1]))
    room[:, :order] = nodes, weights
    return room[0].reshape(-1, GROUP), room[1].reshape(-1, GROUP), np.int64(order // GROUP)


def _summed(term: Callable[[Any, Any], Any], start: Any, edges: Any, nodes: Any, weights: Any, groups: Any) -> Any:
    """Sums over all nodes of `term(t, weight)`, from the nothing that `start` is."""

    def panel(sums: Any, ends: Any) -> Any:
        low, half = ends[0], 0.5 * (ends[1] - ends[0])

        def group(number: Any, sums: Any) -> Any:
            t = low + half * (1.0 + nodes[number][:, None])
            terms = term(t, weights[number][:, None] * half)
            return [old + jnp.sum(new, axis=0) for old, new in zip(sums, terms, strict=True)]

        return jax.lax.fori_loop(0, groups, group, sums), None

    return jax.lax.scan(panel, start, (edges[:-1], edges[1:]))[0]


def _value(kind: str, chart: str) -> Callable[..., Any]:
    """(block, edges, top, nodes, weights, groups) -> log likelihood of every row."""

    def run(block: Any, edges: Any, top: Any, *rule: Any) -> Any:
        attributes, mechanism, released = block

        def term(t: Any, weight: Any) -> list[Any]:
            both = law_of(kind, attributes).log_prob(to_s(chart, t)) + log_noise(chart, mechanism, released, t)
            return [_mass(both - top, weight)]

        return top + jnp.log(_summed(term, [jnp.zeros_like(top)], edges, *rule)[0])

    return run


def _mass(log_integrand: Any, weight: Any) -> Any:
    """The integrand times its weight; nothing where the formula is beyond its range, or the panel is empty."""
    known = (log_integrand < jnp.inf) & (weight > 0.0)
    return jnp.where(known, weight * jnp.exp(jnp.where(known, log_integrand, 0.0)), 0.0)


def _moments(kind: str, chart: str, moving: tuple[str, ...]) -> Callable[..., Any]:
    """As `_value`, with E lambda, E lambda' and Var lambda of every row, lambda the score in `moving` attributes."""
    pairs, size = _pairs(len(moving)), len(moving)

    def run(block: Any, edges: Any, top: Any, *rule: Any) -> Any:
        attributes, mechanism, released = block
        own = {name: attributes[name] for name in moving}
        units = [{n: jnp.full_like(own[n], 1.0 if n == name else 0.0) for n in moving} for name in moving]

        def term(t: Any, weight: Any) -> list[Any]:
            def log_law(own: Any) -> Any:
                return law_of(kind, {**attributes, **own}).log_prob(to_s(chart, t))

            def slope(own: Any, a: int) -> Any:
                return jax.jvp(log_law, (own,), (units[a],))[1]

            first = [slope(own, a) for a in range(size)]
            second = [jax.jvp(partial(slope, a=a), (own,), (units[b],))[1] for a, b in pairs]
            mass = _mass(log_law(own) + log_noise(chart, mechanism, released, t) - top, weight)
            some = mass > 0.0  # derivatives where there is no mass may be no numbers
            terms = [*first, *second, *(first[a] * first[b] for a, b in pairs)]
            return [mass, *(jnp.where(some, mass * jnp.where(some, one, 0.0), 0.0) for one in terms)]

        zero = jnp.zeros_like(top)
        total, *sums = _summed(term, [zero] * (1 + size + 2 * len(pairs)), edges, *rule)
        means = [one / total for one in sums]
        first, second = means[:size], means[size : size + len(pairs)]
        squares = means[size + len(pairs) :]
        spread = [square - first[a] * first[b] for square, (a, b) in zip(squares, pairs, strict=True)]
        return top + jnp.log(total), jnp.stack(first), jnp.stack(second), jnp.stack(spread)

    return run
