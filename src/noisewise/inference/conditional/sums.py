"""Discrete statistics summed out.

A `Sum` holds the values that one or more discrete statistics are enumerated over: a window that does not move with the
parameters, and a bound on what it leaves out. Derivation: docs/derivations/nuts.md.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional import powers, ratios
from noisewise.inference.conditional.laws import constant_bounds, constant_of, is_affine, rows_of, sketch_of
from noisewise.inference.conditional.marginal import log_sum, pick
from noisewise.inference.conditional.powers import SMALLEST
from noisewise.inference.conditional.windows import ROUNDED, window_of
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.model.coordinates import Space
from noisewise.model.families import facts_of
from noisewise.model.law import log_density
from noisewise.model.masses import bounds, entries
from noisewise.model.wrappers import peel, unchecked
from noisewise.numerics import Array, Compiled, Values, double, namespace
from noisewise.numerics.compiled import looking

MOST_POINTS = 2**16
"""Values of several numbers enumerated jointly, at most."""
MOST_CELLS = 2**22
"""Values times entries of one statistic, at most."""
MORE_ROWS = 256
"""Draws of the parameters among which one is looked for whose law has a probability for every value."""
ALIKE = 4
"""Entries from which on sums are taken by ratios, or, where all have one law, by its probabilities computed once."""


class Sum:
    """Discrete statistics summed out together over a grid of values, or one of them entry by entry."""

    def __init__(self, problem: Problem, names: tuple[str, ...], widened: int, *, by_ratios: bool = False) -> None:
        """Sums over windows that are doubled `widened` times.

        With `by_ratios`, values come from `ratios` where they can: fast at parameters that are likely.
        """
        self.problem, self.names, self.space, self.by_ratios = problem, names, Space(problem.model), by_ratios
        release = problem.release
        self.read_by = tuple(n for n in release if n not in _exact(problem) and _reads(problem, n) & set(names))
        self.children = tuple(n for n in _exact(problem) if set(problem.model.parents(n)) & set(names))
        self.by_entry = self._is_by_entry()
        self.windows = {name: window_of(problem, name, widened) for name in names}
        self.totals = {name: constant_of(problem.model, name, "total_count") for name in names}
        self.affine = self.by_entry and is_affine(problem.model, names[0])
        self.ends = {name: constant_bounds(problem.model, name) for name in names}
        self.fixed_noise = set[str]().union(*(_reads(problem, name) for name in self.read_by)) <= set(names)
        """Whether the noise density over the grid depends on nothing that is sampled."""
        self.whole = not np.any(self.log_outside() > -np.inf)
        """Whether the grid holds every value there is, so that nothing beyond it needs a bound."""
        self.span = self._span() if not widened else 0
        """Values in one window for all entries, where these have one law; 0 where sums are not taken so."""
        self.by_powers = self.affine and self.fixed_noise and not widened
        """Whether sums are taken by `powers`: like `span`, not once windows were too narrow."""
        self.width = self._width() if by_ratios and not self.span else 0
        """Values in a table of the noise, where the sum goes by ratios; 0 where it does not."""

    def _is_by_entry(self) -> bool:
        if len(self.names) > 1 or self.read_by != self.names or self.children:
            return False
        (name,) = self.names
        model, item = self.problem.model, self.problem.release[name]
        shape = model.shape(name)
        rows = model.row([name, *item.mechanism.inputs, *model.parents(name)])

        def densities(row: Values) -> tuple[Any, Any]:
            inputs = {other: row[other] for other in item.mechanism.inputs}
            law = entries(self.space.model.law_at(name, row), row[name])
            return law, item.mechanism.log_prob(item.value, row[name], **inputs)

        with double():
            law, eta = jax.eval_shape(jax.vmap(densities), rows)
        return law.shape[1:] == shape and eta.shape[1:] == shape

    def _span(self) -> int:
        """`span`; not used once windows were too narrow, since sums in logs lose nothing below the smallest number."""
        name, window = self.names[0], self.windows[self.names[0]]
        if not self.by_entry or not self.fixed_noise or self.entries < ALIKE:
            return 0
        entries_apart = sketch_of(self.problem.model, name, lambda law: math.prod(peel(law)[0].batch_shape))
        span = ROUNDED * math.ceil((float(window.start.max() - window.start.min()) + window.size) / ROUNDED)
        return span if entries_apart == 1 and span * self.entries <= ratios.MOST else 0

    def _width(self) -> int:
        name = self.names[0]
        if not self.by_entry or self.whole or not self.fixed_noise or self.entries < ALIKE:
            return 0
        if ratios.has_total(self._kind) and self.totals[name] is None:
            return 0
        needed = ratios.width(self._kind, self.problem.release[name].mechanism)
        width = ROUNDED * math.ceil(needed / ROUNDED)
        return width if width * self.entries <= ratios.MOST else 0

    @property
    def _kind(self) -> str:
        return self.problem.model.law(self.names[0]).form.kind

    # Sizes -----------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """Number of separate sums."""
        return int(np.prod(self.problem.model.shape(self.names[0]))) if self.by_entry else 1

    @property
    def points(self) -> int:
        """Values in each sum."""
        if self.by_entry:
            return self.windows[self.names[0]].size
        return math.prod(self._ways(name) for name in self.names)

    @property
    def work(self) -> int:
        """Numbers handled for one value of the sums; products of tables, and powers, are cheap."""
        if self.span:
            return self.span + self.span * self.entries // 16
        return self.points * self.entries // (8 if self.by_powers else 1)

    def _ways(self, name: str) -> int:
        cells = int(np.prod(self.problem.model.shape(name)))
        if self._composed(name):
            total = int(np.asarray(self.totals[name]))
            return math.comb(total + cells - 1, cells - 1)
        return self.windows[name].size ** cells

    def _composed(self, name: str) -> bool:
        """Whether the statistic is one multinomial table with a known total: only tables that add up are listed."""
        total, shape = self.totals[name], self.problem.model.shape(name)
        table = facts_of(self.problem.model.law(name).form.kind).counts_records
        return table and total is not None and np.ndim(total) == 0 and len(shape) == 1

    def excess(self) -> str | None:
        """Why there are too many values to sum over, or None."""
        named = " and ".join(f"'{name}'" for name in self.names)
        if self.by_entry and self.points * self.entries > MOST_CELLS:
            return f"would sum {named} over {self.points} values in each of {self.entries} entries"
        if not self.by_entry and self.points > MOST_POINTS:
            return f"would sum {named} jointly over {float(min(self.points, 10**300)):.3g} values"
        return None

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a compiled program depends on."""
        sizes = tuple(window.size for window in self.windows.values())
        return (
            self.names,
            self.by_entry,
            self.affine,
            self.by_powers,
            self.fixed_noise,
            self.whole,
            sizes,
            self.points,
            self.width,
            self.span,
        )

    # The grid --------------------------------------------------------------------------------------------

    def offsets(self) -> dict[str, Array]:
        """The grid relative to the windows' starts: (points, *shape or ones), by name."""
        model = self.problem.model
        if self.by_entry:
            (name,) = self.names
            return {name: np.arange(self.points).reshape((-1,) + (1,) * len(model.shape(name)))}
        lists = [self._list(name) for name in self.names]
        picked = np.meshgrid(*(np.arange(len(values)) for values in lists), indexing="ij")
        return {name: values[index.ravel()] for name, values, index in zip(self.names, lists, picked, strict=True)}

    def _list(self, name: str) -> Array:
        shape = self.problem.model.shape(name)
        cells = int(np.prod(shape))
        if self._composed(name):
            return compositions(int(np.asarray(self.totals[name])), cells)
        ways = list(product(range(self.windows[name].size), repeat=cells))
        return np.array(ways, dtype=np.int64).reshape(-1, *shape)

    def starts(self) -> dict[str, Array]:
        """Where the windows start, by name."""
        return {
            name: 0 * window.start if self._composed(name) else window.start for name, window in self.windows.items()
        }

    def tables(self) -> dict[str, Any]:
        """What does not depend on the parameters, as arguments of compiled programs."""
        starts = self.starts()
        tables: dict[str, Any] = {"starts": starts, "outside": self.log_outside()}
        if self.span:
            return tables | _different(self._noise_of_all(), tables["outside"])
        if self.fixed_noise:
            grid = {name: starts[name] + offset for name, offset in self.offsets().items()}
            with np.errstate(over="ignore", under="ignore", divide="ignore"):
                tables["log_eta"] = np.stack(self._log_eta_rows(grid)) if self.read_by else np.zeros((self.points, 1))
        if self.width:
            item, total = self.problem.release[self.names[0]], self.totals[self.names[0]]
            released = np.broadcast_to(np.asarray(item.value), self.problem.model.shape(self.names[0]))
            with double():
                tables["ratios"] = ratios.noise_table(
                    self._kind, item.mechanism, released, 0 if total is None else total, self.width
                )
        if self.affine:
            start = starts[self.names[0]]
            tables["share"] = self._share(start)
            tables["log_base"] = self._log_base(start, tables["share"])
        if self.by_powers:
            first, last = self._reached(start)
            tables["skipped"] = (first - start).ravel()
            of_law = partial(powers.powers_of, skipped=tables["skipped"], length=(last - first).ravel())
            tables["law"] = of_law(tables["log_base"])
            tables["terms"] = of_law(tables["log_base"] + tables["log_eta"])
        return tables

    def _noise_of_all(self) -> dict[str, Array]:
        """The noise over the windows of all entries, each as a share of its largest: (span, entries)."""
        item, (start,) = self.problem.release[self.names[0]], self.starts().values()
        shape = (-1,) + (1,) * start.ndim
        values = start.min() + np.arange(self.span).reshape(shape)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            log_noise = np.asarray(
                item.mechanism.log_prob(item.value, np.broadcast_to(values, (self.span, *start.shape)))
            )
            log_noise = log_noise.reshape(self.span, -1)
            top = log_noise.max(axis=0)
            top = np.where(np.isfinite(top), top, 0.0)
            return {"noise": np.exp(log_noise - top), "log_top": top}

    def _log_eta_rows(self, grid: dict[str, Array]) -> list[Array]:
        release = self.problem.release
        total: Any = 0.0
        for name in self.read_by:
            item = release[name]
            extra = {other: grid[other] for other in item.mechanism.inputs}
            logs = np.asarray(item.mechanism.log_prob(item.value, grid[name], **extra)).reshape(self.points, -1)
            total = total + (logs if self.by_entry else logs.sum(axis=1, keepdims=True))
        return list(total)

    def log_outside(self) -> Array:
        """Bound of log eta over the values that the windows leave out, one per sum; -inf where there are none.

        Noise-free children need no bound of their own: `unfit` refuses all but discrete ones, whose laws are at most 1.
        """
        sup = [np.sum(self.problem.log_sup(name)) for name in self.read_by]
        if self.by_entry:
            item = self.problem.release[self.names[0]]
            sups = np.asarray(item.mechanism.log_sup(item.value), dtype=float)
            return np.broadcast_to(sups, self.problem.model.shape(self.names[0])).ravel() + self._beyond()
        return np.array([float(sum(sup)) + self._beyond().max()])

    def _beyond(self) -> Array:
        parts = [
            np.full(1, -np.inf) if self._composed(name) else window.outside.ravel()
            for name, window in self.windows.items()
        ]
        return np.concatenate(parts)

    def _log_base(self, start: Array, share: Array) -> Array:
        """log h(s) over the window, from the law at one value of the parameters: see `_anchored`."""
        (name,) = self.names
        model = self.problem.model

        def build() -> Any:
            def law_at_node(row: Values, node: Any) -> Any:
                return entries(self.space.model.law_at(name, row), node).ravel()

            return jax.vmap(law_at_node, in_axes=(None, 0))

        low, high = self.ends[name]
        nodes = start + self.offsets()[name]
        inside = ((nodes >= low) & (nodes <= high)).reshape(len(nodes), -1)
        whole = np.clip(nodes, low, high).astype(np.int64)
        program = model.compiled.setdefault(("sum", "base", name), Compiled(build))
        for row in _some_rows(model, list(model.parents(name))):
            with looking(), double():
                log_law = np.asarray(program(row, whole))
            if np.all(np.isfinite(log_law[inside])):
                break  # not a law that has all its mass in one place, where log h cannot be read off
        with np.errstate(invalid="ignore"):
            base = log_law - (1.0 - share) * log_law[:1] - share * log_law[-1:]
        return np.where(inside, base, -np.inf)

    def _reached(self, start: Array) -> tuple[Array, Array]:
        """The least and the largest value of every entry's window that lie in its support."""
        low, high = self.ends[self.names[0]]
        return np.clip(start, low, high).astype(np.int64), np.clip(start + self.points - 1, low, high).astype(np.int64)

    def _share(self, start: Array) -> Array:
        """Where each node lies between the window's two ends: (points, entries), or (points, 1) where all are alike."""
        (name,) = self.names
        first, last = self._reached(start)
        nodes = np.clip(start + self.offsets()[name], *self.ends[name])
        share = ((nodes - first) / np.maximum(last - first, 1)).reshape(self.points, -1)
        return share[:, :1] if np.all(share == share[:, :1]) else share

    # Traceable: one value of everything that is sampled ------------------------------------------------------

    def log_terms(self, values: Values, items: Any, tables: Any) -> tuple[Any, Any]:
        """(log law, log noise density and noise-free laws) over the grid: (points, entries) each."""
        grid = {name: tables["starts"][name] + offset for name, offset in self.offsets().items()}
        if self.affine:
            share, (first, last) = tables["share"], self._anchored(values, tables["starts"][self.names[0]])
            law = tables["log_base"] + (1.0 - share) * first + share * last
        else:
            law = jax.vmap(lambda point: self._log_law(values, point))(grid)
        if self.fixed_noise and not self.children:
            return law, tables["log_eta"]
        noise = jax.vmap(lambda point: self._log_noise(values, point, items))(grid)
        return law, noise + (tables["log_eta"] if self.fixed_noise else 0.0)

    def _log_law_of_all(self, values: Values, start: Any) -> Any:
        """The log law that all entries share, over their one window: (span,)."""
        base = peel(self.space.model.law_at(self.names[0], values))[0]
        points = (start + np.arange(self.span)).reshape(-1, *(1,) * max(len(base.batch_shape), 1))
        low, high = bounds(base, points.shape)
        inside = (points >= low) & (points <= high)
        return jnp.where(inside, entries(base, jnp.clip(points, low, high).astype(int)), -jnp.inf).ravel()

    def _of_all(self, values: Values, tables: Any) -> tuple[Any, Any, Any]:
        """(log mass of the law in the one window, each value's share of it, log of the unit of each entry's sum)."""
        law = self._log_law_of_all(values, jnp.min(tables["starts"][self.names[0]]))
        inside = log_sum(law)
        log_mass = jax.lax.stop_gradient(jnp.where(jnp.isfinite(inside), inside, 0.0))
        return inside, jnp.exp(law - log_mass), log_mass + tables["log_top"]

    def _log_bound_of_all(self, values: Values, tables: Any) -> Any:
        """`log_bound` where all entries have one law: what was released more than once is summed once."""
        times, outside = tables.get("times", 1.0), tables["different"]["outside"]
        mass, shares, log_unit = self._of_all(values, tables | tables["different"])
        held = jnp.log(jnp.maximum(shares @ tables["different"]["noise"], SMALLEST)) + log_unit
        bound = held if self.whole else jnp.logaddexp(held, self._log_beyond(mass, outside))
        return jnp.sum(times * bound)

    def _anchored(self, values: Values, start: Any) -> tuple[Any, Any]:
        """The log law at the window's two ends: its affine part goes through both."""
        (name,) = self.names
        low, high = self.ends[name]
        law = self.space.model.law_at(name, values)
        first = entries(law, jnp.clip(start, low, high).astype(int)).ravel()
        last = entries(law, jnp.clip(start + self.points - 1, low, high).astype(int)).ravel()
        return first, last

    def _log_law(self, values: Values, point: Values) -> Any:
        """log probability of one point of the grid; its support is checked first, so that no formula is used off it."""
        seen = {**values, **{name: jnp.asarray(value).astype(int) for name, value in point.items()}}
        if self.by_entry:
            (name,) = self.names
            law = self.space.model.law_at(name, values)
            low, high = bounds(law, self.problem.model.shape(name))
            inside = (seen[name] >= low) & (seen[name] <= high)
            return jnp.where(inside, entries(law, jnp.clip(seen[name], low, high).astype(int)), -jnp.inf).ravel()
        total, possible = jnp.zeros(()), jnp.asarray(True)
        for name in self.problem.model.order:
            if name in self.names:
                law = self.space.model.law_at(name, seen)
                possible &= jnp.all(law.support(seen[name]))
                if not law.event_shape:
                    low, high = bounds(law, self.problem.model.shape(name))
                    seen = {**seen, name: jnp.clip(seen[name], low, high).astype(int)}
                total = total + jnp.sum(entries(law, seen[name]))
        return jnp.where(possible, total, -jnp.inf).reshape(1)

    def _log_noise(self, values: Values, point: Values, items: Any) -> Any:
        seen = {**values, **{name: jnp.asarray(value).astype(int) for name, value in point.items()}}
        total: Any = jnp.zeros(())
        for name in () if self.fixed_noise else self.read_by:
            log_noise = log_eta(items[name], name, seen)
            total = total + (log_noise.ravel() if self.by_entry else jnp.sum(log_noise))
        for name in self.children:
            total = total + log_density(self.space.model.law_at(name, seen), jnp.asarray(values[name], float))
        return total.reshape(self.entries)

    def log_bound(self, values: Values, items: Any, tables: Any) -> Any:
        """log of an upper bound of the whole sum: the sum over the grid, and a bound of what lies beyond it.

        Where the grid holds all that counts, the second is nothing beside the first. Where it does not, the bound draws
        chains there, and `conditional` reports it: a sum cut short would drive them away, unseen.
        """
        if self.width:
            law = peel(self.space.model.law_at(self.names[0], values))[0]
            return jnp.sum(ratios.by_table(unchecked(law), self._kind, tables["ratios"], self.points))
        if self.span:
            return self._log_bound_of_all(values, tables)
        if self.by_powers and not self.by_ratios:
            tilt = powers.tilted(tables["law"], *self._anchored(values, tables["starts"][self.names[0]]))
            held = powers.log_total(tables["terms"], tilt)
            inside = None if self.whole else powers.log_total(tables["law"], tilt, lost=0.0)
        elif self.affine and self.fixed_noise:
            anchored = self._anchored(values, tables["starts"][self.names[0]])
            held = tilted(tables["log_base"] + tables["log_eta"], tables["share"], *anchored)
            inside = None if self.whole else tilted(tables["log_base"], tables["share"], *anchored)
        else:
            law, noise = self.log_terms(values, items, tables)
            held, inside = log_sum(law + noise), None if self.whole else log_sum(law)
        if inside is None:
            return jnp.sum(held)
        return jnp.sum(jnp.logaddexp(held, self._log_beyond(inside, tables["outside"])))

    def _log_beyond(self, inside: Any, outside: Any) -> Any:
        """log of what the sum beyond the grid is at most: the noise's bound there, times the law's mass.

        `inside` is the log of the law's mass on the grid; one minus that mass is known up to rounding.
        """
        largest = max(float(np.max(np.abs(window.start))) + window.size for window in self.windows.values())
        rounding = 2.0**-52 * (8.0 + largest * math.log(largest + 2.0))
        return jnp.log(jnp.maximum(1.0 - jnp.exp(inside), rounding)) + outside

    def conditional(self, values: Values, items: Any, tables: Any, uniform: Any) -> tuple[dict[str, Any], Any, Any]:
        """(a draw of the statistics given the rest, by inversion; `log_bound`; what share of that may be void)."""
        if "times" in tables:
            different = tables["different"]
            held, inside, chosen, sure = self._drawn_of_few(values, tables | different, uniform)
            times, outside = tables["times"], different["outside"]
        else:
            drawn_by = self._drawn_of_all if self.span else self._drawn
            held, inside, chosen, sure = drawn_by(values, items, tables, uniform)
            times, outside = 1.0, tables["outside"]
        beyond = outside if self.whole else self._log_beyond(inside, outside)
        bound = jnp.logaddexp(held, beyond)
        void = jnp.where(beyond > -jnp.inf, jnp.exp(beyond - bound), 0.0)
        return self.values_at(chosen, tables), jnp.sum(times * bound), jnp.sum(times * jnp.where(sure, void, 1.0))

    def values_at(self, numbers: Any, tables: Any) -> dict[str, Any]:
        """The values at positions `numbers` of the grid, which have the shape (..., entries); for NumPy and JAX."""
        xp, lists = namespace(numbers), {} if self.by_entry else self.offsets()
        values = {}
        for name, start in tables["starts"].items():
            shape = numbers.shape[:-1] + self.problem.model.shape(name)
            beyond_start = numbers.reshape(shape) if self.by_entry else xp.asarray(lists[name])[numbers[..., 0]]
            values[name] = ((xp.min(start) if self.span else start) + beyond_start).astype(int)
        return values

    def shares(self, values: Values, items: Any, tables: Any) -> Any:
        """Every value's term as a share of the largest, or of the law's own mass: (values, entries)."""
        if self.span:
            return self._of_all(values, tables)[1][:, None] * tables["noise"]
        law, noise = self.log_terms(values, items, tables)
        top = jnp.max(law + noise, axis=0)
        return jnp.exp(law + noise - jnp.where(jnp.isfinite(top), top, 0.0))

    def _drawn(self, values: Values, items: Any, tables: Any, uniform: Any) -> tuple[Any, Any, Any, Any]:
        """(log of the sum over the grid, log of the law's mass there, a draw's place in it, if digits are left)."""
        if not self.by_powers:
            law, noise = self.log_terms(values, items, tables)
            return log_sum(law + noise), log_sum(law), pick(law + noise, uniform), True
        tilt = powers.tilted(tables["law"], *self._anchored(values, tables["starts"][self.names[0]]))
        held, chosen, sure = powers.drawn_number(tables["terms"], tilt, uniform)
        return held, powers.log_total(tables["law"], tilt, lost=0.0), chosen + tables["skipped"], sure

    def _drawn_of_all(self, values: Values, _: Any, tables: Any, uniform: Any) -> tuple[Any, Any, Any, Any]:
        """`_drawn` where all entries have one law."""
        inside, shares, log_unit = self._of_all(values, tables)
        shares, noise = shares.reshape(-1, ROUNDED), tables["noise"].reshape(-1, ROUNDED, self.entries)
        runs = jnp.einsum("rj,rje->re", shares, noise)

        def term(_: Any, piece: Any, at_run: Any) -> tuple[Any, Any]:
            return None, at_run(piece[0][:, None]) * at_run(piece[1])

        pieces = shares.T, jnp.swapaxes(noise, 0, 1)
        whole, chosen = powers.passed_at(runs, uniform, None, term, pieces)
        return jnp.log(jnp.maximum(whole, SMALLEST)) + log_unit, inside, chosen, whole > SMALLEST

    def _drawn_of_few(self, values: Values, tables: Any, uniform: Any) -> tuple[Any, Any, Any, Any]:
        """`_drawn_of_all` where many entries have the same noise: all but the places are by distinct column."""
        inside, shares, log_unit = self._of_all(values, tables)
        whole, chosen = powers.looked_up(shares, tables["noise"], tables["which"], uniform)
        return jnp.log(jnp.maximum(whole, SMALLEST)) + log_unit, inside, chosen, whole > SMALLEST


def _different(noise: dict[str, Array], outside: Array) -> dict[str, Any]:
    """`noise`, its distinct columns ("different"), padded to a power of two, and how often each occurs ("times").

    "which" has every entry's column among these. The power of two is for programs, which are compiled for each length.
    Where too few columns are alike, all stay.
    """
    columns = np.ascontiguousarray(np.vstack([noise["noise"], noise["log_top"], outside]).T)
    _, first, which, times = np.unique(
        columns.view(f"V{columns.itemsize * columns.shape[1]}").ravel(),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    length = 2 ** math.ceil(math.log2(len(first)))
    if 2 * length > len(columns):
        return noise | {"different": {**noise, "outside": outside}}
    more = length - len(first)
    different = {
        "noise": np.pad(noise["noise"][:, first], ((0, 0), (0, more)), constant_values=1.0),
        "log_top": np.pad(noise["log_top"][first], (0, more)),
        "outside": np.pad(outside[first], (0, more)),
    }
    return noise | {"different": different, "times": np.pad(times, (0, more)) * 1.0, "which": which.astype(np.int32)}


def _some_rows(model: Model, names: list[str]) -> Iterator[dict[str, Array]]:
    """Simulated values of the names, row by row, always the same: one, and more where that one does not serve."""
    for rows in (1, MORE_ROWS):
        drawn = rows_of(model, names, rows)
        yield from ({name: column[row] for name, column in drawn.items()} for row in range(rows))


def _exact(problem: Problem) -> list[str]:
    return [name for name, item in problem.release.items() if isinstance(item.mechanism, Exact)]


def _reads(problem: Problem, name: str) -> set[str]:
    return {name, *problem.release[name].mechanism.inputs}


@jax.custom_vjp
def tilted(table: Any, share: Any, first: Any, last: Any) -> Any:
    """log sum exp of table + (1 - share) first + share last over the first axis.

    Its derivatives in `first` and `last` are one minus the mean share, and the mean share.
    """
    return _tilted_forward(table, share, first, last)[0]


def _tilted_forward(table: Any, share: Any, first: Any, last: Any) -> tuple[Any, Any]:
    terms = table + (1.0 - share) * first + share * last
    top = jnp.max(terms, axis=0)
    weights = jnp.exp(terms - jnp.where(jnp.isfinite(top), top, 0.0))
    total = jnp.sum(weights, axis=0)
    mean = jnp.sum(share * weights, axis=0) / jnp.where(total > 0.0, total, 1.0)
    log_total = jnp.where(total > 0.0, top + jnp.log(jnp.where(total > 0.0, total, 1.0)), -jnp.inf)
    return log_total, (table, share, mean)


def _tilted_backward(residuals: Any, cotangent: Any) -> tuple[Any, ...]:
    table, share, mean = residuals
    return jnp.zeros_like(table), jnp.zeros_like(share), cotangent * (1.0 - mean), cotangent * mean


tilted.defvjp(_tilted_forward, _tilted_backward)


def log_eta(item: Any, name: str, values: Values) -> Any:
    """log noise density of one released value; traceable."""
    mechanism, value = item
    return mechanism.log_prob(value, values[name], **{other: values[other] for other in mechanism.inputs})


def compositions(total: int, cells: int) -> Array:
    """Every table of `cells` whole numbers from 0 on that add up to `total`."""
    if cells == 1:
        return np.array([[total]])
    parts = [
        np.column_stack([np.full(len(rest), first), rest])
        for first in range(total + 1)
        for rest in [compositions(total - first, cells - 1)]
    ]
    return np.concatenate(parts)
