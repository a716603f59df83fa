"""A table of whole numbers measured several ways: exact draws along integer directions, many at once.

    cells <- cells + k d,   k drawn from   pi(cells + k d | theta) prod_j eta_j(r_j | A_j (cells + k d))

among the values of k in a window whose place about the current one, k = 0, is random: Gibbs sampling on (cells, place
of the window), which neglects nothing and leaves the exact law as it is. Directions of one batch touch no cell and no
noisy sum in common, so that they are drawn together. Proof: docs/derivations/measured-tables.md.
"""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, GammaPoisson, Poisson
from numpyro.distributions.distribution import ExpandedDistribution, Independent
from scipy.sparse import csc_array, csr_array, vstack
from scipy.sparse.linalg import lsqr

from noisewise.errors import InferenceError
from noisewise.inference.conditional.laws import constant_bounds, constant_of, fixed_numbers
from noisewise.inference.conditional.marginal import pick
from noisewise.inference.problem import Problem
from noisewise.inference.tables.directions import Family, Sums, families
from noisewise.inference.tables.facts import bounded_fibre, check_room
from noisewise.inference.tables.fibres import Fact, Fibre, Unknown, projected
from noisewise.mechanisms import DiscreteGaussian, Exact, Gaussian, Mechanism, Within
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.linear import Matrix
from noisewise.mechanisms.processed import Processed
from noisewise.model import Model
from noisewise.model.masses import bounds, log_mass
from noisewise.numerics import Array, Compiled, double, placement
from noisewise.numerics.compiled import PLAINLY
from noisewise.numerics.gamma import log_gamma

TABLES = ("MultinomialProbs", "MultinomialLogits")
"""Joint laws of a table whose density, but for a constant, is a product over cells, given their sum."""
NORMAL = (Gaussian, DiscreteGaussian)
"""Noise whose log density is quadratic along a direction: two numbers give it for a whole window."""
MOST_BATCHES, MOST_ALONE = 32, 32
"""Most batches of one family in a sweep, and most where each batch has a single direction."""


def unfit(problem: Problem, name: str) -> str | None:
    """Why a measured statistic of whole numbers cannot be moved, as the end of a sentence; or None."""
    model = problem.model
    others = [other for other in model.statistics if name in model.parents(other) and other not in problem.measured]
    if others or any(name in item.mechanism.inputs for item in problem.release.values()):
        return f"needs nothing but measurements to depend on '{name}'"
    for other, (_, mechanism, _) in problem.measurements_of(name).items():
        if not isinstance(mechanism, (Exact, Within)) and not _understood(mechanism):
            kind = type(mechanism).__name__
            return f"cannot tell which tables '{other}' leaves possible: its noise ({kind}) may rule some out"
    if model.law(name).form.kind not in TABLES and not by_entry(model, name):
        return f"needs the entries of '{name}' to be independent given the parameters, or multinomial"
    try:
        fibre = fibre_for(problem, name)
        projected(fibre, fibre.origin, np.full(fibre.size, np.inf), np.random.default_rng(0))
    except Unknown as reason:
        return str(reason)
    return None


def _understood(mechanism: Mechanism) -> bool:
    """Whether the tables that it leaves possible are known: all, or those whose sums the noise can reach.

    A rounded, clipped or withheld value is possible from every table if the noise beneath it is positive everywhere.
    """
    if isinstance(mechanism, Processed):
        base = mechanism.base
        endless = not isinstance(base, Additive) or bool(np.all(np.isinf(base.noise_bound)))
        return endless and not getattr(mechanism, "absent_when_zero", False) and _understood(base)
    return isinstance(mechanism, Additive) and not mechanism.inputs and not mechanism.event_dim


def by_entry(model: Model, name: str) -> bool:
    """Whether the law treats every entry alone, each with an interval of whole numbers as its support."""
    law = model.law(name)
    if not law.form.kind:
        return False

    def look(values: Any) -> Any:
        base = law_of_entries(law.function(**values))
        return base.log_prob(jnp.zeros(model.shape(name), int)), gathered(base, model.shape(name), jnp.arange(1))

    with double():
        try:
            shape, part = jax.eval_shape(jax.vmap(look, axis_size=1), law.row)
        except (TypeError, ValueError):
            return False
    leaves = [leaf.shape for leaf in jax.tree.leaves(part)]
    return tuple(shape.shape[1:]) == model.shape(name) and all(shape[1:] in ((), (1,)) for shape in leaves)


def law_of_entries(law: Distribution) -> Distribution:
    """The law of the entries, without the wrappers that make one joint law of them."""
    while isinstance(law, (Independent, ExpandedDistribution)):
        law = law.base_dist
    return law


def gathered(law: Distribution, shape: tuple[int, ...], cells: Any) -> Distribution:
    """The law of some of the entries, its parameters one for each; traceable."""

    def take(leaf: Any) -> Any:
        return leaf if jnp.ndim(leaf) == 0 else jnp.broadcast_to(leaf, shape).reshape(-1)[cells]

    return jax.tree.map(take, law)


def cell_log_prob(law: Distribution, shape: tuple[int, ...], cells: Any, counts: Any) -> Any:
    """log density of `counts` in some cells, but for a constant; -inf off the support; traceable."""
    if type(law).__name__ in TABLES:
        logs = _logits(law, shape)[cells]
        counted = jnp.maximum(counts, 0.0)
        terms = jnp.where(counted > 0.0, counted * logs, 0.0) - log_gamma(counted + 1.0)
        return jnp.where(counts >= 0.0, terms, -jnp.inf)
    part = gathered(law, shape, cells)
    low, high = bounds(part, jnp.shape(counts))
    terms = log_mass(part, jnp.clip(counts, low, high))
    return jnp.where((counts >= low) & (counts <= high) & ~jnp.isnan(terms), terms, -jnp.inf)


def _log_law_along(law: Distribution, shape: tuple[int, ...], cells: Any, counts: Any, gains: Any) -> Any:
    """log density of the counts along each direction, but for a constant of the direction; traceable.

    For the commonest laws by ratios of neighbouring probabilities, one logarithm for each of them, summed up from the
    window's beginning; for others by the densities themselves.
    """
    if type(law).__name__ in TABLES:
        log_rate, more = _logits(law, shape)[cells], None
    elif isinstance(law, Poisson):
        log_rate, more = jnp.log(gathered(law, shape, cells).rate), None
    elif isinstance(law, GammaPoisson):
        part = gathered(law, shape, cells)
        log_rate, more = -jnp.log1p(part.rate), part.concentration
    else:
        return jnp.sum(cell_log_prob(law, shape, cells, counts), axis=-1)
    possible = (counts >= 0.0) & ((counts == 0.0) | (log_rate > -jnp.inf))
    lower = jnp.maximum(jnp.where(gains > 0, counts, counts - 1.0), 0.0)
    ratio = (1.0 if more is None else lower + more) / (lower + 1.0)
    log_ratio = jnp.where(log_rate > -jnp.inf, log_rate, 0.0) + jnp.log(ratio)
    rises = jnp.sum(jnp.where(gains == 0, 0.0, gains * log_ratio), axis=-1)
    heights = jnp.tensordot(jnp.tri(len(counts), k=-1, dtype=rises.dtype), rises, axes=1)
    return jnp.where(jnp.all(possible, axis=-1), heights, -jnp.inf)


def _logits(law: Any, shape: tuple[int, ...]) -> Any:
    """log probabilities of the cells of a multinomial law, but for a constant."""
    return jnp.broadcast_to(law.logits if "logits" in vars(law) else jnp.log(law.probs), shape).reshape(-1)


def fibre_for(problem: Problem, name: str) -> Fibre:
    """The tables that exact measurements, declared bounds and a law of tables with a known sum leave possible."""
    model, shape = problem.model, problem.model.shape(name)
    rows: list[Any] = []
    facts: list[Fact] = []
    for other, (matrix, mechanism, value) in problem.measurements_of(name).items():
        starts = np.searchsorted(matrix.rows, np.arange(matrix.shape[0] + 1))
        sums = [(matrix.columns[a:b], matrix.entries[a:b]) for a, b in itertools.pairwise(starts)]
        if isinstance(mechanism, Exact):
            if np.any(np.asarray(value) != np.floor(value)):
                raise Unknown("has exact measurements that no table of counts obeys")
            rows += [(*own, int(total)) for own, total in zip(sums, np.ravel(value), strict=True)]
        ends = _declared(other, mechanism, value) if isinstance(mechanism, Within) else _reached(mechanism, value)
        if ends is not None:
            pairs = zip(sums, *(np.ravel(end) for end in ends), strict=True)
            facts += [Fact(cells, by, float(low), float(high)) for (cells, by), low, high in pairs]
    size = int(np.prod(shape))
    least, most = np.zeros(size), np.full(size, np.inf)
    if model.law(name).form.kind in TABLES:
        totals = constant_of(model, name, "total_count")
        if totals is None:
            raise Unknown(f"needs '{name}' to have a fixed total")
        tables, width = np.arange(size).reshape(-1, shape[-1]), np.ones(shape[-1], dtype=np.int64)
        numbers = np.broadcast_to(totals, shape[:-1]).ravel().astype(np.int64)
        rows += [(cells, width, int(total)) for cells, total in zip(tables, numbers, strict=True)]
    else:
        least, most = (np.ravel(end) for end in constant_bounds(model, name))
    fibre = bounded_fibre(rows, facts, least, most)
    if fibre.crossed or not fibre.paired_all:
        check_room(fibre, _room(problem, name, fibre))
    return fibre


def _declared(name: str, mechanism: Within, value: Any) -> tuple[Array, Array]:
    """The ends that a declared bound gives each measured value."""
    low, high = mechanism.ends(value)
    if np.any(np.isinf(low) & np.isinf(high)):
        raise Unknown(
            f"has '{name}' outside of a range with two ends, and may not get from one side of it to the other"
        )
    return low, high


def _reached(mechanism: Mechanism, value: Any) -> tuple[Array, Array] | None:
    """The least and the largest whole numbers from which bounded noise gives each value; None for unbounded noise."""
    if not isinstance(mechanism, Additive) or np.all(np.isinf(mechanism.noise_bound)):
        return None
    ends = []
    for outward in (-1.0, 1.0):
        near = np.asarray(value) + outward * np.asarray(mechanism.noise_bound)
        whole = outward * np.floor(outward * np.where(np.isinf(near), value, near))
        tried = np.stack([whole + outward * step for step in (1.0, 0.0, -1.0)])  # rounding errors decide between these
        possible = np.asarray(mechanism.log_prob(value, tried)) > -np.inf
        end = np.take_along_axis(tried, np.argmax(possible, axis=0)[None], axis=0)[0]
        ends.append(np.where(np.isinf(near), near, np.where(np.any(possible, axis=0), end, -outward * np.inf)))
    return ends[0], ends[1]


def _room(problem: Problem, name: str, fibre: Fibre) -> Array:
    """How much each cell may hold beyond its least at every one of some simulated parameters."""
    model, shape, size = problem.model, problem.model.shape(name), fibre.size
    given = model.sketched(model.ancestors(name), 64)

    def one(values: Mapping[str, Any]) -> Any:
        law = law_of_entries(model.law_at(name, values))
        more = cell_log_prob(law, shape, jnp.arange(size), jnp.asarray(fibre.origin + 1.0))
        end = jnp.inf if type(law).__name__ in TABLES else bounds(law, shape)[1].reshape(-1) - fibre.origin
        return jnp.where(jnp.isneginf(more), 0.0, jnp.broadcast_to(end, (size,)))

    with double():
        own = jax.device_put({parent: given[parent] for parent in model.parents(name)})
        rooms = np.asarray(jax.vmap(one)(own) if own else one({})[None])
    return np.minimum(fibre.room, rooms.min(axis=0))


def csc_of(matrix: Matrix) -> csc_array:
    """A matrix as SciPy's."""
    return csc_array((matrix.entries, (matrix.rows, matrix.columns)), shape=matrix.shape)


class LatticeMoves:
    """A table of whole numbers, moved along integer directions given its parameters and all its measurements."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name, self.model = problem, name, problem.model
        self.shape = problem.model.shape(name)
        self.fibre = fibre_for(problem, name)
        self.measurements = problem.measurements_of(name)
        self.noisy = [n for n, (_, mechanism, _) in self.measurements.items() if not isinstance(mechanism, Exact)]
        parts = [self.measurements[other] for other in self.noisy]
        scale = np.concatenate([np.zeros(0), *(_spread(mechanism, value) for _, mechanism, value in parts)])
        sums = Sums([csc_of(matrix) for matrix, _, _ in parts], scale)
        self.families = families(self.fibre, sums, np.random.default_rng(0))
        self.counts = [self._batches(family) for family in self.families]
        self.placed: dict[Any, Any] = {}

    def _batches(self, family: Family) -> int:
        """Batches in a sweep: enough for every cell to move about once."""
        most = MOST_ALONE if family.cells.shape[1] == 1 else MOST_BATCHES
        return int(min(family.batches, most, np.ceil(2.0 * self.fibre.size / family.sizes.mean())))

    def sweep(
        self, rng: np.random.Generator, tables: Array, given: Mapping[str, Array], release: Any = None, axes: Any = None
    ) -> Array:
        """The tables of all chains, moved given their parameters along some batches of every family in turn.

        With `axes` every chain explains a release of its own; `axes` are the chains' axes in the values of `release`.
        """
        noise, given = self._noise(release), self._given(given)
        for family, count in zip(self.families, self.counts, strict=True):
            chosen = rng.permutation(family.batches)[:count]
            place = (len(tables), count, family.cells.shape[1])
            offset, uniform = rng.integers(0, family.length, place), rng.random(place)
            with double():
                program = self._program_of(family, axes)
                moved = np.asarray(program(given, tables, noise, self._placed(family), chosen, offset, uniform))
            tables = moved.reshape(tables.shape).astype(tables.dtype)
        return tables

    def prepare(self, tables: Any, given: Mapping[str, Any], release: Any = None, axes: Any = None) -> None:
        """Begin to compile the programs that `sweep` will use, those of all families side by side."""
        for family, count in zip(self.families, self.counts, strict=True):
            place = (len(tables), count, family.cells.shape[1])
            chosen = jax.ShapeDtypeStruct((count,), np.int64)
            offset, uniform = (jax.ShapeDtypeStruct(place, kind) for kind in (np.int64, np.float64))
            with double():
                placed = self._placed(family)
            program = self._program_of(family, axes)
            program.prepare(self._given(given), tables, self._noise(release), placed, chosen, offset, uniform)

    def _noise(self, release: Any) -> dict[str, Any]:
        return {n: (self.measurements[n][1:] if release is None else release[n]) for n in self.noisy}

    def _given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {parent: values[parent] for parent in self.model.parents(self.name)}

    def _program_of(self, family: Family, axes: Any) -> Compiled:
        own = None if axes is None else {n: axes[n] for n in self.noisy}
        key = ("lattice", self.name, tuple(self.noisy), family.length, axes is None)
        made = Compiled(partial(self._program, family.length, own), options=PLAINLY)
        program: Compiled = self.model.compiled.setdefault(key, made)
        return program

    def _placed(self, family: Family) -> Any:
        """All batches of a family, where the programs run: an accelerator gets them once."""
        key = (id(family), placement())
        if key not in self.placed:
            self.placed[key] = jax.device_put(family.arrays)
        return self.placed[key]

    def _program(self, length: int, axes: Any) -> Any:
        return jax.vmap(self._sweep(length), in_axes=(0, 0, axes, None, None, 0, 0))

    def _sweep(self, length: int) -> Any:
        """One chain's moves along several batches; traceable."""
        matrices = [self.measurements[other][0] for other in self.noisy]

        def sweep(given: Any, table: Any, released: Any, family: Any, chosen: Any, offset: Any, uniform: Any) -> Any:
            law = law_of_entries(self.model.law_at(self.name, given))
            cells = jnp.ravel(table)
            sums = [matrix.times(cells) for matrix in matrices]

            def move(carry: Any, batch: Any) -> tuple[Any, None]:
                cells, sums = carry
                number, shift, u = batch
                at, gains, rows, changes = jax.tree.map(lambda part: part[number], family)
                steps = jnp.arange(length)[:, None] - shift
                counts = cells[at] + steps[..., None] * gains
                weights = _log_law_along(law, self.shape, at, counts * 1.0, gains)
                for other, values, row, change in zip(self.noisy, sums, rows, changes, strict=True):
                    if row is not None and type(released[other][0]) in NORMAL:
                        slope, curvature = _parabola(released[other], row, values[row], change)
                        weights += steps * (slope - 0.5 * curvature * steps)
                    elif row is not None:
                        at_row = values[row] + steps[..., None] * change
                        weights += jnp.sum(_log_noise(released[other], row, at_row), axis=-1)
                weights = jnp.where(weights < jnp.inf, weights, -jnp.inf)  # NaN, or a formula beyond its range
                k = pick(weights, u) - shift
                cells = cells.at[at].add(k[:, None] * gains)
                sums = [
                    values if row is None else values.at[row].add(k[:, None] * change)
                    for values, row, change in zip(sums, rows, changes, strict=True)
                ]
                return (cells, sums), None

            return jax.lax.scan(move, (cells, sums), (chosen, offset, uniform))[0][0]

        return sweep

    # A start ------------------------------------------------------------------------------------------------------

    def settled(self, rng: np.random.Generator, guesses: Array, given: Mapping[str, Array]) -> Array:
        """Starts: tables that exact measurements allow, each near the noisy measurements with fresh noise added."""
        rows, scales, values = [csr_array((0, self.fibre.size))], [np.zeros(0)], [np.zeros(0)]
        for matrix, mechanism, value in self.measurements.values():
            if isinstance(mechanism, Within):
                continue
            rows.append(csr_array(csc_of(matrix)))
            scales.append(np.full(matrix.shape[0], 0.05) if isinstance(mechanism, Exact) else _spread(mechanism, value))
            values.append(np.ravel(value).astype(float))
        scale, wanted = np.concatenate(scales), np.concatenate(values)
        design = csr_array(vstack(rows))
        weighted = csr_array(design.multiply(1.0 / scale[:, None]))
        low, high = self._ends(given, len(guesses))
        tables = np.array(guesses).reshape(len(guesses), -1)
        for chain in range(len(tables)):
            guess = np.clip(tables[chain].astype(float), low[chain], high[chain])
            aim = wanted + np.where(scale > 0.05, scale, 0.0) * rng.standard_normal(len(wanted))
            off = np.nan_to_num((aim - design @ guess) / scale)  # what was withheld says nothing here
            guess = guess + (lsqr(weighted, off, iter_lim=60)[0] if len(off) else 0.0)
            whole = np.clip(np.round(guess), low[chain], high[chain])
            try:
                tables[chain] = projected(self.fibre, whole, high[chain], rng)
            except Unknown as reason:
                raise InferenceError(
                    f"it {reason}, for '{self.name}' at simulated parameters.", who="Augmentation"
                ) from None
        return tables.reshape(guesses.shape)

    def _ends(self, given: Mapping[str, Array], chains: int) -> tuple[Array, Array]:
        """Ends of every cell's support, chain by chain."""
        size = self.fibre.size
        if self.model.law(self.name).form.kind in TABLES:
            return np.zeros((chains, size)), np.full((chains, size), np.inf)

        def ends(law: Any) -> list[Any]:
            return [end.reshape(-1) for end in bounds(law_of_entries(law), self.shape)]

        low, high = fixed_numbers(self.model, self.name, ends)
        if low is None or high is None:  # they differ from chain to chain
            with double():
                own = jax.device_put(self._given(given))
                low, high = jax.vmap(lambda row: ends(self.model.law_at(self.name, row)), axis_size=chains)(own)
        return np.broadcast_to(low, (chains, size)), np.broadcast_to(high, (chains, size))


def _spread(mechanism: Mechanism, value: Any) -> Array:
    """The noise's scale for each entry of the released value: infinite for a declared bound, 8 where none is stated."""
    scale = np.asarray(getattr(mechanism, "scale", np.inf if isinstance(mechanism, Within) else 8.0), dtype=float)
    return np.broadcast_to(scale, np.shape(value)).reshape(-1).copy()


def _parabola(released: tuple[Any, Any], rows: Any, measured: Any, change: Any) -> tuple[Any, Any]:
    """(b, a) of the log noise density along k, but for a constant: b k - a k^2 / 2 for each direction; traceable."""
    mechanism, value = released
    value = jnp.asarray(value)
    weight = jnp.broadcast_to(1.0 / jnp.asarray(mechanism.scale) ** 2, value.shape).reshape(-1)[rows]
    off = value.reshape(-1)[rows] - measured
    return jnp.sum(weight * change * off, axis=-1), jnp.sum(weight * change * change, axis=-1)


def _log_noise(released: tuple[Mechanism, Any], rows: Any, measured: Any) -> Any:
    """log noise density of some entries of a released value; traceable."""
    mechanism, value = released
    shape = jnp.shape(value)

    def take(leaf: Any) -> Any:
        return leaf if jnp.ndim(leaf) == 0 else jnp.broadcast_to(leaf, shape).reshape(-1)[rows]

    return jax.tree.map(take, mechanism).log_prob(jnp.reshape(jnp.asarray(value), -1)[rows], measured)
