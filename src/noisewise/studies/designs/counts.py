"""Statistics of whole numbers summed out of a design's posteriors, in the places that the question depends on.

    m(r | theta) = product over places of sum over k of pi(k | theta) eta(r | k)

The probabilities of the values are tabulated once for each of a batch's rows, and serve every release and budget.
docs/derivations/design.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from noisewise.inference.tables.lattice import by_entry, cell_log_prob, law_of_entries
from noisewise.mechanisms import Exact, Mechanism
from noisewise.model import Model
from noisewise.model.law import Law, law_attributes
from noisewise.model.masses import entries
from noisewise.numerics import Array, Compiled, double, tracing
from noisewise.results.goal import Goal

CELLS, FEWEST_ROWS = 2**20, 2**10
"""Most probabilities, by row and value, that a batch holds for one place; fewest rows of a batch."""
PLACES = 8
"""Places that may each have `CELLS` probabilities; more places share the room of this many."""
LOST = 1e-10
"""Most probability of the values that are left out, for each row and place."""
WIDENINGS = 6
ROUNDED = 32, 1024
"""Values and rows are padded to multiples of these, since every new number of them compiles a program."""

Table = tuple[Array, Array]
"""Values that an entry may have, and the probability of each, by row and value."""
Mechanisms = Mapping[str, Mechanism]


@dataclass(frozen=True)
class Counted:
    """A statistic that is summed out."""

    model: Model
    name: str
    places: tuple[int, ...]
    """Places (flat indices) of the entries that matter; the others tell nothing of the target's quantity."""

    def serves(self, mechanisms: Mechanisms, place: int | None) -> bool:
        """Whether its noise acts on every entry alone; where only one `place` matters, the noise of all statistics."""
        among = [self.name] if place is None else list(mechanisms)
        return self.name in mechanisms and all(is_by_entry(mechanisms[name]) for name in among)

    # Probabilities of the values ----------------------------------------------------------------------------------

    def tables(self, values: Mapping[str, Array]) -> list[Table] | None:
        """One table for each place, for as many rows as there is room; None where few rows would be left."""
        tables = []
        limit = CELLS * min(len(self.places), PLACES) // len(self.places)
        for place in self.places:
            column = values[self.name].reshape(len(values[self.name]), -1)[:, place]
            table = _widened(column, partial(self._chances, values, place), limit)
            if table is None:
                return None
            tables.append(table)
        rows = min(len(chance) for _, chance in tables)
        return [(each, chance[:rows]) for each, chance in tables]

    def _chances(self, values: Mapping[str, Array], place: int, each: Array, rows: int) -> Array:
        """The probability of each value in one place, one column each, at the first rows."""
        model, name = self.model, self.name
        if model.shape(name) == ():
            parents = {parent: np.repeat(values[parent][:rows], len(each), axis=0) for parent in model.parents(name)}
            stated = np.tile(each, rows).astype(values[name].dtype)
            return np.exp(log_prob(model, name, stated, parents)).reshape(rows, len(each))
        program = model.compiled.setdefault(("design", "chances", name), Compiled(lambda: self._at_rows))
        own = {parent: _filled(values[parent][:rows], ROUNDED[1]) for parent in model.parents(name)}
        with double():
            logs = np.asarray(program(own, _filled(each.astype(float), ROUNDED[0]), np.array([place])))
        return np.exp(logs[:rows, : len(each)])

    def _at_rows(self, rows: Any, each: Any, place: Any) -> Any:
        def at_row(row: Any) -> Any:
            law = law_of_entries(self.model.law_at(self.name, row))
            return cell_log_prob(law, self.model.shape(self.name), place, each[:, None])[:, 0]

        return jax.vmap(at_row)(rows)

    # Densities of releases ----------------------------------------------------------------------------------------

    def log_density(
        self, tables: list[Table], plans: list[Mechanisms], noisy: list[dict[str, Array]]
    ) -> tuple[Array, Array]:
        """log density of the releases at each row, plan and replicate; and its bound over all rows.

        For a single number the bound is the largest eta(r | k). For arrays it would be far too large, and is infinite.
        """
        total: Any = 0.0
        for place, (each, chance) in zip(self.places, tables, strict=True):
            of_release = partial(log_eta_at, each=each, place=place)
            summed, top = log_summed(chance, by_release(plans, noisy, self.name, of_release))
            total = total + summed
        return total, top if self.model.shape(self.name) == () else np.full_like(top, np.inf)


def by_release(
    plans: list[Mechanisms], noisy: list[dict[str, Array]], name: str, of: Callable[[Mechanism, Array], Array]
) -> Array:
    """`of(mechanism, value)` for every release of a statistic, by plan and replicate."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.array(
            [[of(plan[name], value) for value in released[name]] for plan, released in zip(plans, noisy, strict=True)]
        )


def log_summed(chance: Array, log_eta: Array) -> tuple[Array, Array]:
    """log of the sum over k of pi(k) eta(r | k), by row, plan and replicate; and the largest log eta by release."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        top = np.max(log_eta, axis=-1)
        eta = np.exp(log_eta - np.where(np.isfinite(top), top, 0.0)[..., None])
        return np.log(np.tensordot(chance, eta, axes=(1, 2))) + top, top


def log_eta_at(mechanism: Mechanism, value: Array, each: Array, place: int) -> Array:
    """log density of a release for each confidential value in one place; without noise, 0 at the released one."""
    shape = np.shape(value)
    if isinstance(mechanism, Exact):
        return np.where(each == np.ravel(value)[place], 0.0, -np.inf)
    stated = np.broadcast_to(each.astype(float).reshape(-1, *(1 for _ in shape)), (len(each), *shape))
    return np.asarray(mechanism.log_prob(value, stated)).reshape(len(each), -1)[:, place]


def counted(model: Model, targets: tuple[Goal, ...], place: int | None) -> list[Counted]:
    """The statistics that can be summed out: in the one `place` that the targets are about, or (None) in all."""
    quantities = []
    for name in model.statistics:
        if not _is_free(model, name, targets):
            continue
        size = int(np.prod(model.shape(name)))
        if model.shape(name) == () or by_entry(model, name):
            quantities.append(Counted(model, name, tuple(range(size)) if place is None else (place,)))
    return quantities


def common_place(model: Model, targets: tuple[Goal, ...]) -> int | None:
    """The place that all targets are about, if entries in different places are independent; else None.

    Then the posterior in that place depends on the entries released there alone.
    """
    asked = {target.index if target.name in model.order else () for target in targets}
    shape = model.shapes[targets[0].name]
    if len(asked) != 1 or () in asked or not all(_is_apart(model, name, shape) for name in model.order):
        return None
    return int(np.ravel_multi_index(targets[0].index, shape))


def is_by_entry(mechanism: Mechanism) -> bool:
    """Whether each released number depends on the confidential number in its place alone."""
    return not mechanism.inputs and not mechanism.event_dim


def log_prob(model: Model, name: str, stated: Array, values: Mapping[str, Array]) -> Array:
    """log density at each row. Rows are padded to a power of two: a program is compiled for every number of rows."""
    size = len(stated)
    whole = 1 << (size - 1).bit_length()
    parents = {parent: _filled(values[parent], whole) for parent in model.parents(name)}
    return model.log_prob(name, _filled(stated, whole), parents)[:size]


def _filled(column: Array, multiple: int) -> Array:
    """The column with its last row repeated, until its length is a multiple of `multiple`."""
    return np.concatenate([column, np.repeat(column[-1:], -len(column) % multiple, axis=0)])


def _widened(column: Array, chances: Callable[[Array, int], Array], limit: int) -> Table | None:
    """All values that an entry may have, and their probabilities, for as many rows as `limit` allows.

    None where so many values would have to be tabulated that too few rows are left, or where `WIDENINGS` are too few.
    """
    low, high = int(column.min()), int(column.max())
    first, last, chance = low, low, np.empty((len(column), 0))  # there are columns from first to before last
    for _ in range(WIDENINGS):
        wider = (high - low) // 4 + 1
        low, high = low - wider, high + wider
        rows = min(limit // (high + 1 - low), len(column))
        if rows < FEWEST_ROWS:
            return None
        new = np.concatenate([np.arange(low, first), np.arange(last, high + 1)])
        widened = chances(new, rows)
        chance = np.hstack([widened[:, : first - low], chance[:rows], widened[:, first - low :]])
        first, last = low, high + 1
        if np.max(1.0 - chance.sum(axis=1)) < LOST:
            possible = chance.max(axis=0) > 0.0
            return np.arange(first, last)[possible], chance[:, possible]
    return None


def _is_free(model: Model, name: str, targets: tuple[Goal, ...]) -> bool:
    """Whether a discrete statistic has a density, depends on parameters alone, and is used by its release alone."""
    used = {other for each in (*model.order, *model.derived) for other in takes(model, each)}
    asked = any(target.name == name for target in targets)
    alone = name not in used and not asked and set(model.parents(name)) <= set(model.parameters)
    return alone and model.has_density(name) and model.is_discrete(name)


def takes(model: Model, name: str) -> tuple[str, ...]:
    """Names that a quantity of the model, or a derived one, is computed from."""
    return model.derived_from[name] if name in model.derived else model.parents(name)


def _is_apart(model: Model, name: str, shape: tuple[int, ...]) -> bool:
    """Whether a law has this shape and independent entries, each with parameters that come from its place alone.

    This is read from the traced operations that compute the law's parameters from its parents.
    """
    law = model.node(name)
    if not isinstance(law, Law) or law.form.shape != shape:
        return False
    structs = {each: jax.ShapeDtypeStruct((1, *shape), model.dtype(each)) for each in (name, *law.parents)}
    with double():
        density = jax.eval_shape(jax.vmap(lambda row: entries(model.law_at(name, row), row[name])), structs)
        if density.shape[1:] != shape or not law.parents:
            return density.shape[1:] == shape
        made = jax.make_jaxpr(jax.vmap(lambda row: _moving(law, model.law_at(name, row))))(structs).jaxpr
    plain = bool(law.form.kind) and not law.form.transformed
    return plain and tracing.entrywise(made, (1, *shape), [True] * len(made.invars))


def _moving(law: Law, at: Distribution) -> list[Any]:
    """The law's parameters that depend on its parents."""
    return [value for name, value in law_attributes(at).items() if name not in law.form.fixed]
