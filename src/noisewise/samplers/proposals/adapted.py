"""The adapted proposal: a share of the prior, and laws fitted to pilot draws.

Free coordinates follow a mixture of Student laws. Whole-numbered parameters follow the prior given the others, and
those of few values a table as well, so that none of them is passed over. Derivation: docs/derivations/importance.md.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.inference.conditional.laws import constant_bounds
from noisewise.model import Model
from noisewise.model.coordinates import Space
from noisewise.model.law import log_density
from noisewise.model.masses import bounds, entries
from noisewise.numerics import Array, Compiled, double
from noisewise.samplers.proposals.mixture import StudentMixture, mixed_evenly
from noisewise.samplers.proposals.parts import parts
from noisewise.samplers.proposals.proposal import Poll, blend, made_once, mixed_with_prior

TABLED = 0.5
"""Share of a whole number's draws that come from its table; the others follow the prior given their parents."""
MOST_VALUES, MOST_TABLED = 1024, 4
"""Most values of a whole number, and most whole numbers, that tables are made for."""
FLOOR = 0.2
"""Share of a fitted table that is uniform."""
SEARCH_SHARE = 0.5
"""Share of the prior in the search."""
REACHES = (3.0, 10.0)
"""How many times as wide as the prior the search is."""
LEAST_OF_PART = 8
"""Rows of the prior that a part of it must have to be searched by itself."""
MOST_SEARCHED = 8
"""Free coordinates up to which a search reaches beyond the prior: in more, hardly a row of it would be of use."""


@dataclass(frozen=True, eq=False)
class ValueTable:
    """Probabilities of the values low, low + 1, ... of a parameter's entries: (entries, values)."""

    low: Array
    chances: Array

    def draw(self, rng: np.random.Generator, rows: int) -> Array:
        """Values of every entry: (rows, entries)."""
        uniform = rng.random((rows, len(self.low), 1))
        index = np.sum(uniform >= np.cumsum(self.chances, axis=1)[None, :, :-1], axis=2)
        values: Array = self.low + index
        return values

    def log_chance(self, values: Array) -> Array:
        """log probability of each entry: (rows, entries)."""
        index = (values - self.low).astype(int)
        with np.errstate(divide="ignore"):
            return np.log(self.chances[np.arange(len(self.low)), index])

    def fitted(self, values: Array, weights: Array) -> "ValueTable":
        """The table of the values' own shares, by normalised weights, and of a uniform floor."""
        entries, count = self.chances.shape
        chances = np.full((entries, count), FLOOR / count)
        for entry in range(entries):
            index = (values[:, entry] - self.low[entry]).astype(int)
            chances[entry] += (1.0 - FLOOR) * np.bincount(index, weights, minlength=count)
        return ValueTable(self.low, chances / chances.sum(axis=1, keepdims=True))


def uniform_tables(model: Model) -> dict[str, ValueTable]:
    """Uniform tables of the whole-numbered parameters whose entries are independent and have few values."""
    tables: dict[str, ValueTable] = made_once(model, "tables", lambda: _uniform_tables(model))
    return tables


def _uniform_tables(model: Model) -> dict[str, ValueTable]:
    tables: dict[str, ValueTable] = {}
    for name in model.parameters:
        if model.is_discrete(name) and _entry_by_entry(model, name):
            low, high = (np.ravel(end) for end in constant_bounds(model, name))
            if np.all(np.isfinite(high - low)) and np.max(high - low) < MOST_VALUES:
                count = (high - low + 1).astype(int)
                possible = np.arange(count.max()) < count[:, None]
                tables[name] = ValueTable(low.astype(np.int64), possible / count[:, None])
    return tables if sum(len(table.low) for table in tables.values()) <= MOST_TABLED else {}


def _entry_by_entry(model: Model, name: str) -> bool:
    """Whether the law has one probability for each entry."""
    rows = model.row([name, *model.parents(name)])
    with double():
        law = jax.eval_shape(jax.vmap(lambda row: entries(model.law_at(name, row), row[name])), rows)
    return law.shape[1:] == model.shape(name)


@dataclass(frozen=True, eq=False)
class Adapted:
    """share * prior + (1 - share) * (mixture of the free coordinates, tables and prior of whole numbers)."""

    space: Space
    mixture: StudentMixture | None
    """None where every parameter is a whole number."""
    share: float
    tables: dict[str, ValueTable] = field(default_factory=dict)

    def __call__(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Draws of the defensive mixture with their density ratios."""
        model = self.space.model
        chosen, prior = blend(rng, model, rows, self.share, poll)
        free, tabled = self._fitted(rng, rows)
        prior_free = self.space.free_from(prior)[: len(chosen)]
        free[chosen] = prior_free
        whole = self._whole(rng, free, tabled, prior, chosen, poll)
        values, log_prior, log_chances = points_given_whole(self.space, free, whole, tuple(self.tables))
        log_gain = self.log_gain(free, whole, log_prior, log_chances)
        # A draw of the prior at the edge of floating point has no free coordinates: the mixture never goes there.
        edge = ~(np.isfinite(prior_free).all(axis=1) & np.isfinite(log_prior[chosen]))
        log_gain[chosen[edge]] = -np.inf
        return mixed_with_prior({**values, **whole}, prior, chosen, log_gain, self.share)

    def _fitted(self, rng: np.random.Generator, rows: int) -> tuple[Array, Columns]:
        """Free coordinates, and those whole numbers that are drawn with them."""
        return self.mixture.draw(rng, rows) if self.mixture else np.zeros((rows, 0)), {}

    def log_gain(self, free: Array, whole: Columns, log_prior: Array, log_chances: Columns) -> Array:
        """log q - log pi0 of each row, for the part q that is not the prior; infinite off the prior's support.

        `log_prior` and `log_chances` as `points_given_whole` gives them.
        """
        with np.errstate(invalid="ignore"):
            log_gain: Array = (self.mixture.log_density(free) if self.mixture else 0.0) - log_prior
        for name, table in self.tables.items():
            log_gain = log_gain + self._log_tabled(table, whole[name].reshape(len(free), -1), log_chances[name])
        log_gain[np.isnan(log_gain)] = np.inf  # both densities are zero there
        return log_gain

    def log_over_prior(self, free: Array, whole: Columns, log_prior: Array, log_chances: Columns) -> Array:
        """log of the proposal's density over the prior's, g / pi0, of each row."""
        log_gain = self.log_gain(free, whole, log_prior, log_chances)
        return np.logaddexp(math.log(self.share), math.log1p(-self.share) + log_gain)

    def _log_tabled(self, table: ValueTable, values: Array, log_prior: Array) -> Array:
        """log of (what whole numbers are drawn from) / prior, added up over the entries."""
        with np.errstate(invalid="ignore", over="ignore"):
            log_q = np.logaddexp(math.log1p(-TABLED) + log_prior, math.log(TABLED) + table.log_chance(values))
            total: Array = (log_q - log_prior).sum(axis=1)
        return total

    def _whole(
        self, rng: np.random.Generator, free: Array, tabled: Columns, prior: Columns, chosen: Array, poll: Poll
    ) -> Columns:
        """Whole-numbered parameters, drawn from the prior given what they depend on, or from their table.

        Those in `tabled` are drawn already.
        """
        model, rows = self.space.model, len(free)
        whole = {name: np.broadcast_to(prior[name][:1], (rows, *model.shape(name))) for name in self.space.discrete}
        for name, column in tabled.items():
            whole[name] = column
            whole[name][chosen] = prior[name][: len(chosen)]
        for name in (name for name in self.space.discrete if name not in tabled):
            parents: Columns = {}
            if model.parents(name):
                reached = points_given_whole(self.space, free, whole)[0] | whole
                # A value beyond range has no weight, whatever is drawn with it.
                parents = {
                    parent: np.where(np.isfinite(reached[parent]), reached[parent], prior[parent][:1])
                    for parent in model.parents(name)
                }
            whole[name] = np.array(model.draw(rng, [name], rows, parents, poll)[name])
            if name in self.tables:
                own = self.tables[name].draw(rng, rows).reshape(whole[name].shape)
                whole[name] = np.where(rng.random(whole[name].shape) < TABLED, own, whole[name])
            whole[name][chosen] = prior[name][: len(chosen)]
        return whole


def points_given_whole(
    space: Space, free: Array, whole: Columns, tabled: tuple[str, ...] = ()
) -> tuple[Columns, Array, Columns]:
    """Parameter values with two log prior densities, row by row.

    The first is that of the free coordinates given the whole-numbered parameters; the second, by name, the log prior
    probability of each entry of the whole-numbered parameters that have tables.
    """

    def point(free: Any, whole: Any) -> Any:
        values, total = space.point(free, whole)
        log_chances = {}
        for name in space.discrete:
            law = space.model.law_at(name, values)
            log_prior = log_density(law, whole[name])
            total = total - jnp.where(jnp.isfinite(log_prior), log_prior, 0.0)
            if name in tabled:
                low, high = bounds(law, space.model.shape(name))
                inside = (whole[name] >= low) & (whole[name] <= high)
                inner = jnp.clip(whole[name], low, high).astype(whole[name].dtype)
                log_chances[name] = jnp.where(inside, entries(law, inner), -jnp.inf).ravel()
        return values, total, log_chances

    program = space.model.compiled.setdefault(("proposal", "points", tabled), Compiled(lambda: jax.vmap(point)))
    with double():
        values, density, log_chances = program(free, {name: np.asarray(whole[name]) for name in space.discrete})
        columns = {name: np.asarray(value) for name, value in values.items()}
        return columns, np.array(density), {name: np.asarray(value) for name, value in log_chances.items()}


def search(space: Space, prior: Columns) -> Adapted | None:
    """Half prior, half a law that reaches far beyond it: a pilot begins with this. None where it is of no use.

    Rows of the `prior` tell where its free coordinates lie, and how widely. Where the release speaks against the prior,
    its draws hardly ever come, and a proposal fitted to them would never learn of it.
    """
    tables = uniform_tables(space.model)
    if space.size > MOST_SEARCHED or not (space.size or tables):
        return None
    mixture = None
    if space.size:
        free, part = space.free_from(prior), parts(space.model, prior)
        known = np.isfinite(free).all(axis=1)
        if not known.any():
            return None
        counts = np.bincount(part[known])
        searched = np.flatnonzero(counts >= min(LEAST_OF_PART, counts.max()))
        mixture = mixed_evenly(*[_wide(free[known & (part == one)]) for one in searched])
    return Adapted(space, mixture, SEARCH_SHARE, tables)


def _wide(free: Array) -> StudentMixture:
    """A law that reaches far beyond these rows."""
    low, centre, high = np.quantile(free, [0.16, 0.5, 0.84], axis=0)
    width = 0.5 * (high - low)
    width = np.where(width > 0.0, width, np.maximum(1e-3 * np.abs(centre), 1e-12))
    factors = np.stack([np.diag(reach * width) for reach in REACHES])
    count = len(REACHES)
    return StudentMixture(np.full(count, 1.0 / count), np.stack([centre] * count), factors)
