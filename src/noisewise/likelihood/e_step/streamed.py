"""E-steps of very many entries in bounded memory: nodes pass by, and only sums per entry are kept.

For an exponential family Q and Louis's moments need E b(s) and Cov b(s) per entry, nothing else of the cloud. So the
law is evaluated at a few nodes of every entry at a time, and the likelihood, the sums of b and of its products are
updated. The sums come back as two or three points per entry with affine weights. Derivation: docs/likelihood-scale.md.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_legendre

from noisewise.engine import processors
from noisewise.inference.conditional.charts import law_of, log_jacobian, to_s, to_t
from noisewise.inference.conditional.row_blocks import Laid, RowBlocks, block_of, noise_scale, place
from noisewise.likelihood.e_step.released_law import Part
from noisewise.mechanisms import Gaussian, Laplace
from noisewise.mechanisms.additive import Additive
from noisewise.model.families import FACTS
from noisewise.model.law import law_attributes
from noisewise.model.masses import formula
from noisewise.model.variates import VARIATES
from noisewise.numerics import Array, Compiled, Values, double

NEGLECTED = 1e-10
"""Most relative error of an entry's likelihood, by the last refinement."""
DEEP = 28.0
"""A window reaches to where the log integrand has fallen by this much: e^-28 is 7e-13."""
ORDERS = (16, 24, 32, 40, 48, 64, 96, 128, 192, 256)
GROUP = 4
"""Nodes of an entry evaluated at once."""
POWERS = np.concatenate([[0.0], 2.0 ** np.arange(-1, 11)])


# Families: b(s), up to an affine map that makes it zero at a reference ----------------------------------------------


def _quadratic(t: Any, t0: Any) -> list[Any]:
    return [t - t0, (t - t0) ** 2]


def _gamma(t: Any, t0: Any) -> list[Any]:
    return [t - t0, jnp.expm1(t - t0)]


def _inverse_gamma(t: Any, t0: Any) -> list[Any]:
    return [t - t0, jnp.expm1(t0 - t)]


def _beta(t: Any, t0: Any) -> list[Any]:
    return [jax.nn.log_sigmoid(t) - jax.nn.log_sigmoid(t0), jax.nn.log_sigmoid(-t) - jax.nn.log_sigmoid(-t0)]


@dataclass(frozen=True)
class StreamedFamily:
    """`b` from (t, reference t0); `slope` gives t - t0 as a linear combination of b, and is empty where b is s."""

    chart: str
    b: Callable[[Any, Any], list[Any]]
    slope: tuple[float, ...] = ()


BY_STATISTICS = {
    ("s",): StreamedFamily("positive", lambda t, t0: [jnp.exp(t) - jnp.exp(t0)]),
    ("s", "s^2"): StreamedFamily("real", _quadratic, (1.0, 0.0)),
    ("log s", "log^2 s"): StreamedFamily("positive", _quadratic, (1.0, 0.0)),
    ("log s", "s"): StreamedFamily("positive", _gamma, (1.0, 0.0)),
    ("log s", "1/s"): StreamedFamily("positive", _inverse_gamma, (1.0, 0.0)),
    ("log s",): StreamedFamily("positive", lambda t, t0: [t - t0], (1.0,)),
    ("log s", "log(1-s)"): StreamedFamily("unit", _beta, (1.0, -1.0)),
}
"""Continuous families, by what b(s) consists of."""
FAMILIES = {
    kind: BY_STATISTICS[facts.statistics]
    for kind, facts in FACTS.items()
    if facts.statistics and not facts.discrete and not facts.event_dim
}
WHOLE = StreamedFamily("real", lambda t, t0: [t - t0])
"""Discrete families with b(s) = s."""
WHOLE_KINDS = {kind for kind, facts in FACTS.items() if facts.linear_count}


@dataclass(frozen=True)
class Condensed:
    """The sums of a pass as r + 1 points per entry with affine weights, and log likelihoods.

    `points` and `weights` are (r + 1, entries). `spread`, (r, r, entries), is the covariance of the weights of points 1
    to r over the law of s given the release.
    """

    points: Array
    weights: Array
    spread: Array
    log_likelihoods: Array
    mass: Array
    """The law's own probability of the nodes; for whole numbers only."""


# One piece of the entries: traceable --------------------------------------------------------------------------------


def _integrand(kind: str, chart: str, given: Any, t: Any) -> tuple[Any, Any]:
    """log pi(s) + log eta(s_dp | s) + log ds/dt for one t per entry, and log pi(s) alone."""
    attributes, mechanism, released, (low, high) = given
    s = to_s(chart, t)
    law = formula(law_of(kind, attributes), s)
    # Formulas go on beyond the support, and overflow far out.
    law = jnp.where((s >= low) & (s <= high) & (law < jnp.inf), law, -jnp.inf)
    both = law + mechanism.log_prob(released, s) + log_jacobian(chart, t)
    return jnp.where(both < jnp.inf, both, -jnp.inf), law


def _pass(kind: str, family: StreamedFamily) -> Callable[..., Any]:
    """(given, starts, halves, t0, nodes, log weights) -> fields of `Condensed`; panels [start, start + 2 half]."""
    size = len(family.b(np.zeros(1), np.zeros(1)))
    pairs = [(i, j) for i in range(size) for j in range(i, size)]

    def run(given: Any, starts: Any, halves: Any, t0: Any, nodes: Any, log_rule: Any) -> Any:
        def group(state: Any, rule: Any, start: Any, half: Any) -> Any:
            top, mass, sums = state
            node, log_weight = rule
            t = start + half * (1.0 + node[:, None])
            both, law = jax.vmap(lambda one: _integrand(kind, family.chart, given, one))(t)
            both = both + log_weight[:, None] + jnp.log(half)
            new = jnp.maximum(top, jnp.max(both, axis=0))
            weight, fade = jnp.exp(both - new), jnp.exp(top - new)
            b = family.b(t, t0)
            terms = [weight, *(weight * one for one in b), *(weight * b[i] * b[j] for i, j in pairs)]
            sums = [fade * old + jnp.sum(term, axis=0) for old, term in zip(sums, terms, strict=True)]
            if family is WHOLE:
                mass = mass + jnp.sum(jnp.exp(law + log_weight[:, None]), axis=0)
            return (new, mass, sums), None

        def panel(state: Any, ends: Any) -> Any:
            return jax.lax.scan(lambda s, rule: group(s, rule, *ends), state, (nodes, log_rule))[0], None

        zero = jnp.zeros_like(t0)
        state = (jnp.full_like(t0, -1e300), zero, [zero] * (1 + size + len(pairs)))
        (top, mass, sums), _ = jax.lax.scan(panel, state, (starts, halves))
        total, first = sums[0], [one / sums[0] for one in sums[1 : 1 + size]]
        second = dict(zip(pairs, (one / total for one in sums[1 + size :]), strict=True))
        covariance = {(i, j): second[i, j] - first[i] * first[j] for i, j in pairs}
        points, weights, spread = _points(family, t0, first, covariance)
        return points, weights, spread, top + jnp.log(total), mass

    return run


def _points(family: StreamedFamily, t0: Any, mean: list[Any], covariance: Any) -> tuple[Any, Any, Any]:
    """Points near the bulk of s given the release, and the affine coordinates of b(s) in them: mean and covariance."""
    if not family.slope:  # b = s >= 0: the mean, and a point below it that is still in the support's hull
        s0 = to_s(family.chart, t0)
        centre = s0 + mean[0]
        variance = jnp.maximum(covariance[0, 0], 0.0)
        step = jnp.minimum(jnp.sqrt(variance), 0.5 * jnp.abs(centre))
        safe = step > 1e-100
        scaled = jnp.where(safe, variance / jnp.where(safe, step, 1.0) ** 2, 0.0)
        return (
            jnp.stack([centre, centre - step]),
            jnp.stack([jnp.ones_like(step), jnp.zeros_like(step)]),
            scaled[None, None],
        )
    slope, size = family.slope, len(family.slope)
    full = [[covariance[min(i, j), max(i, j)] for j in range(size)] for i in range(size)]
    move = sum(a * m for a, m in zip(slope, mean, strict=True))
    variance = sum(slope[i] * slope[j] * full[i][j] for i in range(size) for j in range(size))
    centre = t0 + move
    least = 1e-100 if family.chart == "real" else 1e-12  # coordinates on the whole line have a unit, logs have none
    step = jnp.maximum(jnp.sqrt(jnp.maximum(variance, 0.0)), jnp.maximum(least, 1e-12 * jnp.abs(centre)))
    t = [centre, centre + step, centre - step][: size + 1]
    b = [family.b(one, t0) for one in t]
    edges = [[b[k + 1][i] - b[0][i] for k in range(size)] for i in range(size)]  # b(s) = b_0 + edges c
    gap = [m - start for m, start in zip(mean, b[0], strict=True)]
    if size == 1:
        inverse = [[1.0 / edges[0][0]]]
    else:
        determinant = edges[0][0] * edges[1][1] - edges[0][1] * edges[1][0]
        inverse = [
            [edges[1][1] / determinant, -edges[0][1] / determinant],
            [-edges[1][0] / determinant, edges[0][0] / determinant],
        ]
    c = [sum(inverse[i][j] * gap[j] for j in range(size)) for i in range(size)]
    spread = [
        [sum(inverse[i][k] * full[k][m] * inverse[j][m] for k in range(size) for m in range(size)) for j in range(size)]
        for i in range(size)
    ]
    points = jnp.stack([to_s(family.chart, one) for one in t])
    return points, jnp.stack([1.0 - sum(c), *c]), jnp.stack([jnp.stack(row) for row in spread])


# All entries, piece by piece ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntryPanels(Laid):
    """Panels for every entry, in the chart's coordinate, and how finely they must be cut."""

    starts: Array
    halves: Array
    top: Array
    """Where the integrand was found largest."""
    tail: Array
    """log of the mass outside the window, roughly."""
    order: int = ORDERS[0]
    errors: Array = field(default_factory=lambda: np.full(1, np.inf))


def applies(part: Part) -> bool:
    """Whether the law's entries can be evaluated in pieces, and the windows' edges can be found."""
    known = part.kind in VARIATES and not VARIATES[part.kind].axes
    if part.discrete:
        return known and part.kind in WHOLE_KINDS
    return known and not part.facts.kink and part.chart != "" and isinstance(part.mechanism, Additive)


class Sweep(RowBlocks):
    """Passes over a part's entries in pieces of one size, on all processors. Keeps the windows from step to step."""

    def __init__(self, part: Part) -> None:
        self.part = part
        chart = "real" if part.discrete else part.chart
        super().__init__(part.kind, chart, part.mechanism, part.item.value, part.shape, block_of(part.entries))
        self.grid: EntryPanels | None = None
        self.few_panels = self.kind in FAMILIES and type(part.mechanism) in (Laplace, Gaussian)

    def attributes(self, values: Values) -> Values:
        """The law's attributes at these parameters, flat; under "bounds" the ends of its support."""
        part = self.part
        program = part.compiled("attributes", lambda: lambda given, at: law_attributes(part.law_at(given, at)))
        with double():
            attributes = program(part.given(values), part.place)
            flat = {name: self.flat(one) for name, one in attributes.items()}
        ends = [-np.inf, np.inf] if not part.discrete else part.bounds(values)  # a chart has no ends
        return flat | {"bounds": [self.flat(end) for end in ends]}

    def over(self, attributes: Values, work: Callable[[Any, Callable[[Array], Array]], Any]) -> list[Array]:
        """`work(given, cut)` for every piece, its results joined along the last axis."""

        bounds = attributes["bounds"]
        law = {name: value for name, value in attributes.items() if name != "bounds"}

        def one(start: int) -> Any:
            cut = partial(self.cut, start)
            given = (*self.block_at(start, law), tuple(cut(end) for end in bounds))
            with double(), np.errstate(all="ignore"):
                return [np.asarray(array) for array in work(given, cut)]

        starts = range(0, self.entries, self.block)
        first = one(0)  # compiles once, before the others need it
        joined = [np.empty((*piece.shape[:-1], self.entries)) for piece in first]
        place(joined, 0, first)
        with ThreadPoolExecutor(processors()) as pool:
            for start, pieces in zip(starts[1:], pool.map(one, starts[1:]), strict=True):
                place(joined, start, pieces)
        return joined

    def program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program for one piece."""
        return self.part.compiled(f"streamed {purpose}", build)

    # Continuous laws ------------------------------------------------------------------------------------------------

    def windows(self, attributes: Values, run: Callable[[EntryPanels, int], Any]) -> tuple[EntryPanels, Any]:
        """Windows for every entry, and what `run(grid, order)` gave on them if they are new.

        The order is raised until no entry's likelihood changes. Windows are kept while no entry's law moves much, so
        that most steps need one pass.
        """
        centre, spread = self.over(attributes, self.location)
        if self.grid is not None and self.grid.serves(centre, spread):
            return self.grid, None
        windows = self.over(attributes, lambda given, cut: self._window(given, cut(centre), cut(spread)))
        starts, halves = windows[0], windows[1]
        grid = EntryPanels(centre, spread, starts, halves, windows[2][0], windows[3][0])
        before = run(grid, ORDERS[0])
        for order in ORDERS[1:]:
            after = run(grid, order)
            errors = np.abs(np.expm1(after.log_likelihoods - before.log_likelihoods))
            before = after
            if errors.max() <= NEGLECTED:
                break
        outside = np.exp(grid.tail - before.log_likelihoods)
        self.grid = replace(grid, order=order, errors=np.maximum(errors, outside))
        return self.grid, before

    def condense(self, values: Values) -> tuple[Condensed, Array]:
        """An exponential family's sums, and the relative error of every entry's likelihood."""
        family, attributes = FAMILIES[self.kind], self.attributes(values)
        program = self.program("pass", lambda: _pass(self.kind, family))

        def run(grid: EntryPanels, order: int) -> Condensed:
            rule = _rule(order)
            return Condensed(
                *self.over(
                    attributes,
                    lambda given, cut: program(given, cut(grid.starts), cut(grid.halves), cut(grid.top), *rule),
                )
            )

        grid, sums = self.windows(attributes, run)
        return sums or run(grid, grid.order), grid.errors

    def nodes(self, values: Values, limit: Callable[[int], None], weigh: Callable[..., Any]) -> tuple[Any, Array]:
        """All nodes of the windows, weighed by `weigh(s, log weights)`; `limit` may refuse their number."""
        attributes = self.attributes(values)

        def run(grid: EntryPanels, order: int) -> Any:
            count = len(grid.starts) * order
            limit(count)
            nodes, weights = roots_legendre(order)

            def work(given: Any, cut: Any) -> Any:
                t = (cut(grid.starts)[:, None] + cut(grid.halves)[:, None] * (1.0 + nodes[:, None])).reshape(count, -1)
                log_rule = (np.log(cut(grid.halves))[:, None] + np.log(weights)[:, None]).reshape(count, -1)
                logs = np.stack([self._log_integrand(given, one) for one in t])
                return np.asarray(to_s(self.chart, jnp.asarray(t))), logs + log_rule

            s, logs = self.over(attributes, work)
            return weigh(s.reshape(-1, *self.part.shape), logs)

        grid, cloud = self.windows(attributes, run)
        return (cloud if cloud is not None else run(grid, grid.order)), grid.errors

    def _window(self, given: Any, centre: Array, spread: Array) -> Any:
        """Where the integrand matters: coarse points about release and law, then two closer looks."""
        released = np.broadcast_to(given[2], centre.shape)
        scale = np.broadcast_to(noise_scale(given[1], spread if self.chart == "real" else np.ones(())), centre.shape)
        kink = to_t(self.chart, released)
        kink = np.where(np.isnan(kink), centre, kink)
        near = [to_t(self.chart, released + side * power * scale) for side in (-1.0, 1.0) for power in POWERS]
        points = [np.where(np.isnan(one), centre, one) for one in near]
        points += [centre + side * power * spread for side in (-1.0, 1.0) for power in POWERS]
        top, low, high = self._hull(given, np.stack(points))
        for _ in range(2):
            points = [low + (high - low) * (step / 16) for step in range(17)]
            points += [np.clip(special, low, high) for special in (kink, centre)]
            top, low, high = self._hull(given, np.stack(points))
        edges = np.stack([low, *self._cuts(kink, low, high), high])
        if not self.few_panels:  # perhaps a peak at the release and another where the law lies
            around = [to_t(self.chart, released + side * 6.0 * scale) for side in (-1.0, 1.0)]
            around = [*around, centre, centre - 4.0 * spread, centre + 4.0 * spread]
            extra = [np.clip(np.where(np.isnan(one), low, one), low, high) for one in around]
            edges = np.sort(np.concatenate([edges, np.stack(extra)]), axis=0)
        ends = np.logaddexp(self._log_integrand(given, low), self._log_integrand(given, high))
        return edges[:-1], 0.5 * np.diff(edges, axis=0), top[None], (ends + np.log(high - low))[None]

    @staticmethod
    def _cuts(kink: Array, low: Array, high: Array) -> list[Array]:
        """At the kink where it lies inside, else in the middle; and in the middle of the longer side."""
        cut = np.where((kink > low) & (kink < high), kink, 0.5 * (low + high))
        other = np.where(cut - low > high - cut, 0.5 * (low + cut), 0.5 * (cut + high))
        return [np.minimum(cut, other), np.maximum(cut, other)]

    def _log_integrand(self, given: Any, t: Array) -> Array:
        kind, chart = self.kind, self.chart
        return np.asarray(
            self.program("integrand", lambda: lambda given, t: _integrand(kind, chart, given, t)[0])(given, t)
        )

    def _hull(self, given: Any, points: Array) -> tuple[Array, Array, Array]:
        """The best point, and the points next outside those within `DEEP` of it."""
        logs = np.stack([self._log_integrand(given, t) for t in points])
        best = np.argmax(logs, axis=0)[None]
        is_high = logs >= np.take_along_axis(logs, best, axis=0) - DEEP
        low = np.min(np.where(is_high, points, np.inf), axis=0)
        high = np.max(np.where(is_high, points, -np.inf), axis=0)
        below = np.max(np.where(points < low, points, -np.inf), axis=0)
        above = np.min(np.where(points > high, points, np.inf), axis=0)
        top = np.take_along_axis(points, best, axis=0)[0]
        return top, np.where(np.isfinite(below), below, low), np.where(np.isfinite(above), above, high)

    # Whole numbers --------------------------------------------------------------------------------------------------

    def condense_whole(self, values: Values, centre: Array, low: float, high: float) -> Condensed:
        """Sums over the whole numbers centre + low, ..., centre + high."""
        steps = np.arange(low, high + 1.0)
        missing = -len(steps) % GROUP
        log_rule = np.concatenate([np.zeros(len(steps)), np.full(missing, -np.inf)]).reshape(-1, GROUP)
        nodes = np.concatenate([steps, np.zeros(missing)]).reshape(-1, GROUP) - 1.0
        program, flat = self.program("pass", lambda: _pass(self.kind, WHOLE)), centre.reshape(-1)

        def work(given: Any, cut: Any) -> Any:  # a panel of half width one has nodes start + (1 + node)
            start = cut(flat)
            return program(given, start[None], np.ones_like(start)[None], start, nodes, log_rule)

        return Condensed(*self.over(self.attributes(values), work))


def _rule(order: int) -> tuple[Array, Array]:
    nodes, weights = roots_legendre(order)
    return nodes.reshape(-1, GROUP), np.log(weights).reshape(-1, GROUP)
