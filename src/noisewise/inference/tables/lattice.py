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
from numpyro.distributions import Distribution
from numpyro.distributions.distribution import ExpandedDistribution, Independent
from scipy.sparse import csc_array, csr_array, vstack
from scipy.sparse.linalg import lsqr

from noisewise.inference.conditional.laws import bounds, constant_bounds, constant_of, log_mass
from noisewise.inference.conditional.marginal import pick
from noisewise.inference.problem import Problem
from noisewise.inference.tables.directions import Family, Sums, families
from noisewise.inference.tables.fibres import Fibre, Unknown, fibre_of, projected
from noisewise.mechanisms import Exact, Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.linear import Matrix
from noisewise.mechanisms.processed import Processed
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.model import Model
from noisewise.numerics import Array, Compiled, double
from noisewise.numerics.gamma import log_gamma

TABLES = ("MultinomialProbs", "MultinomialLogits")
"""Joint laws of a table whose density, but for a constant, is a product over cells, given their sum."""
MOST_BATCHES, MOST_ALONE = 32, 32
"""Batches of one family in a sweep, and where each has one direction only."""


def unfit(problem: Problem, name: str) -> str | None:
    """Why a measured statistic of whole numbers cannot be moved, as the end of a sentence."""
    model = problem.model
    others = [other for other in model.statistics if name in model.parents(other) and other not in problem.measured]
    if others or any(name in item.mechanism.inputs for item in problem.release.values()):
        return f"needs nothing but measurements to depend on '{name}'"
    for other, (_, mechanism, _) in problem.measurements_of(name).items():
        if not isinstance(mechanism, Exact) and not _positive(mechanism):
            kind = type(mechanism).__name__
            return f"cannot tell which tables '{other}' leaves possible: its noise ({kind}) may rule some out"
    if model.law(name).form.kind not in TABLES and not _by_entry(model, name):
        return f"needs the entries of '{name}' to be independent given the parameters, or multinomial"
    try:
        fibre_for(problem, name)
    except Unknown as reason:
        return str(reason)
    return None


def _positive(mechanism: Mechanism) -> bool:
    """Whether its noise has a density that is positive everywhere, so that it cuts no table off from the others.

    Rounded, clipped or withheld, a published value is possible wherever the noise beneath it is.
    """
    if isinstance(mechanism, Processed):
        return not getattr(mechanism, "absent_when_zero", False) and _positive(mechanism.base)
    bounded = isinstance(mechanism, TruncatedLaplace) or mechanism.inputs
    return isinstance(mechanism, Additive) and not bounded and not mechanism.event_dim


def _by_entry(model: Model, name: str) -> bool:
    """Whether the law treats every entry alone, each with an interval of whole numbers as its support."""
    law = model.law(name)
    if not law.form.kind:
        return False

    def look(values: Any) -> Any:
        base = entrywise(law.function(**values))
        return base.log_prob(jnp.zeros(model.shape(name), int)), gathered(base, model.shape(name), jnp.arange(1))

    with double():
        try:
            shape, part = jax.eval_shape(jax.vmap(look, axis_size=1), law.row)
        except (TypeError, ValueError):
            return False
    leaves = [leaf.shape for leaf in jax.tree.leaves(part)]
    return tuple(shape.shape[1:]) == model.shape(name) and all(shape[1:] in ((), (1,)) for shape in leaves)


def entrywise(law: Distribution) -> Distribution:
    """The law of the entries, without what makes one law of them."""
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
        logs = law.logits if hasattr(law, "logits") and "logits" in vars(law) else jnp.log(law.probs)
        logs = jnp.broadcast_to(logs, shape).reshape(-1)[cells]
        counted = jnp.maximum(counts, 0.0)
        terms = jnp.where(counted > 0.0, counted * logs, 0.0) - log_gamma(counted + 1.0)
        return jnp.where(counts >= 0.0, terms, -jnp.inf)
    part = gathered(law, shape, cells)
    low, high = bounds(part, jnp.shape(counts))
    terms = log_mass(part, jnp.clip(counts, low, high))
    return jnp.where((counts >= low) & (counts <= high) & ~jnp.isnan(terms), terms, -jnp.inf)


def fibre_for(problem: Problem, name: str) -> Fibre:
    """The tables that exact measurements, and a law of tables with a known sum, leave possible."""
    model, shape = problem.model, problem.model.shape(name)
    rows = []
    for matrix, mechanism, value in problem.measurements_of(name).values():
        if isinstance(mechanism, Exact):
            if np.any(np.asarray(value) != np.floor(value)):
                raise Unknown("has exact measurements that no table of counts obeys")
            starts = np.searchsorted(matrix.rows, np.arange(matrix.shape[0] + 1))
            parts = [slice(a, b) for a, b in itertools.pairwise(starts)]
            pairs = zip(parts, np.ravel(value).astype(np.int64), strict=True)
            rows += [(matrix.columns[part], matrix.entries[part], int(total)) for part, total in pairs]
    size = int(np.prod(shape))
    if model.law(name).form.kind in TABLES:
        totals = constant_of(model, name, "total_count")
        if totals is None:
            raise Unknown(f"needs '{name}' to have a fixed total")
        tables, width = np.arange(size).reshape(-1, shape[-1]), np.ones(shape[-1], dtype=np.int64)
        numbers = np.broadcast_to(totals, shape[:-1]).ravel().astype(np.int64)
        rows += [(cells, width, int(total)) for cells, total in zip(tables, numbers, strict=True)]
    fibre = fibre_of(rows, size)
    if fibre.bound and model.law(name).form.kind not in TABLES:
        low, high = constant_bounds(model, name)
        if np.any(low != 0.0) or (fibre.crossed and np.any(high < np.inf)):
            raise Unknown(f"has exact measurements of '{name}', whose law has other bounds than zero")
    if (fibre.crossed or not fibre.paired_all) and _may_be_empty(problem, name):
        raise Unknown(f"has exact measurements of '{name}', cells of which the model leaves empty")
    return fibre


def _may_be_empty(problem: Problem, name: str) -> bool:
    """Whether some cell can hold nothing at some simulated parameters: then units may not pass through it."""
    model, shape = problem.model, problem.model.shape(name)
    given = model.draw(np.random.default_rng(0), model.ancestors(name), 64)

    def one(values: Mapping[str, Any]) -> Any:
        law = entrywise(model.law_at(name, values))
        return cell_log_prob(law, shape, jnp.arange(int(np.prod(shape))), jnp.ones(int(np.prod(shape))))

    with double():
        logs = (
            jax.vmap(one)({parent: jnp.asarray(given[parent]) for parent in model.parents(name)}) if given else one({})
        )
        return bool(np.any(np.isneginf(np.asarray(logs))))


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

    def _batches(self, family: Family) -> int:
        """Batches in a sweep: enough for every cell to move about once."""
        most = MOST_ALONE if family.cells.shape[1] == 1 else MOST_BATCHES
        return int(min(family.batches, most, np.ceil(2.0 * self.fibre.size / family.sizes.mean())))

    def sweep(
        self, rng: np.random.Generator, tables: Array, given: Mapping[str, Array], release: Any = None, axes: Any = None
    ) -> Array:
        """Some batches of every family, one after the other: the tables of all chains, moved given their parameters.

        With `axes` every chain explains a release of its own: the axes of the released values in `release`.
        """
        noise = {n: (self.measurements[n][1:] if release is None else release[n]) for n in self.noisy}
        own = None if axes is None else {n: axes[n] for n in self.noisy}
        given = {parent: given[parent] for parent in self.model.parents(self.name)}
        for family, count in zip(self.families, self.counts, strict=True):
            chosen = rng.permutation(family.batches)[:count]
            batches = jax.tree.map(lambda part, at=chosen: part[at], family.arrays)
            place = (len(tables), count, family.cells.shape[1])
            offset, uniform = rng.integers(0, family.length, place), rng.random(place)
            key = ("lattice", self.name, tuple(self.noisy), family.length, axes is None)
            program = self.model.compiled.setdefault(key, Compiled(partial(self._program, family.length, own)))
            with double():
                moved = np.asarray(program(given, tables, noise, batches, offset, uniform))
            tables = moved.reshape(tables.shape).astype(tables.dtype)
        return tables

    def _program(self, length: int, axes: Any) -> Any:
        return jax.vmap(self._sweep(length), in_axes=(0, 0, axes, None, 0, 0))

    def _sweep(self, length: int) -> Any:
        """One chain's moves along several batches; traceable."""
        matrices = [self.measurements[other][0] for other in self.noisy]

        def sweep(given: Any, table: Any, released: Any, batches: Any, offset: Any, uniform: Any) -> Any:
            law = entrywise(self.model.law_at(self.name, given))
            cells = jnp.ravel(table)
            sums = [matrix.times(cells) for matrix in matrices]

            def move(carry: Any, batch: Any) -> tuple[Any, None]:
                cells, sums = carry
                (at, gains, rows, changes), shift, u = batch
                steps = jnp.arange(length)[:, None] - shift
                counts = cells[at] + steps[..., None] * gains
                weights = jnp.sum(cell_log_prob(law, self.shape, at, counts * 1.0), axis=-1)
                for other, values, row, change in zip(self.noisy, sums, rows, changes, strict=True):
                    if row is not None:
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

            return jax.lax.scan(move, (cells, sums), (batches, offset, uniform))[0][0]

        return sweep

    # A start ------------------------------------------------------------------------------------------------------

    def settled(self, rng: np.random.Generator, guesses: Array, given: Mapping[str, Array]) -> Array:
        """Tables that exact measurements allow, near what the noisy ones say, each with noise of its own."""
        rows, scales, values = [], [], []
        for matrix, mechanism, value in self.measurements.values():
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
            guess = guess + lsqr(weighted, off, iter_lim=60)[0]
            whole = np.clip(np.round(guess), low[chain], high[chain])
            tables[chain] = projected(self.fibre, whole, high[chain], rng)
        return tables.reshape(guesses.shape)

    def _ends(self, given: Mapping[str, Array], chains: int) -> tuple[Array, Array]:
        """Ends of every cell's support, chain by chain."""
        size = self.fibre.size
        if self.model.law(self.name).form.kind in TABLES:
            return np.zeros((chains, size)), np.full((chains, size), np.inf)

        def ends(given: Any) -> Any:
            return [end.reshape(-1) for end in bounds(entrywise(self.model.law_at(self.name, given)), self.shape)]

        with double():
            own = {parent: jnp.asarray(given[parent]) for parent in self.model.parents(self.name)}
            low, high = jax.vmap(ends, axis_size=chains)(own)
            return np.array(low), np.array(high)


def _spread(mechanism: Mechanism, value: Any) -> Array:
    """The noise's scale, one for each entry of the released value."""
    scale = np.asarray(getattr(mechanism, "scale", 8.0), dtype=float)
    return np.broadcast_to(scale, np.shape(value)).reshape(-1).copy()


def _log_noise(released: tuple[Mechanism, Any], rows: Any, measured: Any) -> Any:
    """log noise density of some entries of a released value; traceable."""
    mechanism, value = released
    shape = jnp.shape(value)

    def take(leaf: Any) -> Any:
        return leaf if jnp.ndim(leaf) == 0 else jnp.broadcast_to(leaf, shape).reshape(-1)[rows]

    return jax.tree.map(take, mechanism).log_prob(jnp.reshape(jnp.asarray(value), -1)[rows], measured)
