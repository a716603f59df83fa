"""The model's draws on an accelerator: a whole block is one compiled JAX program.

Prior, model functions and variates run on the device. Each block has a key of its own, so one seed gives one result on
one kind of device. See docs/engines.md.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from noisewise.errors import InputError, refusal
from noisewise.model.law import KEYS, Law, law_attributes, well_formed
from noisewise.model.on_device.held import Held
from noisewise.model.on_device.sums import draw_known
from noisewise.model.on_device.variates import DRAWS, RULES
from noisewise.model.total import BoundTotal
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, Values, double, placement, single

Columns = dict[str, Any]


class Nodes(Protocol):
    """What is needed of a model: its nodes, by name, and a place for compiled programs."""

    compiled: dict[Any, Any]

    def node(self, name: str) -> Any:
        """Its law, total or simulator."""

    def parents(self, name: str) -> tuple[str, ...]:
        """The names that it depends on."""

    def dtype(self, name: str) -> Any:
        """The number type of its values."""

    def place(self, name: str) -> str:
        """Where the user wrote it."""


def on_accelerator() -> bool:
    """Whether the calling thread's work is placed on an accelerator."""
    return placement() is not None


def precision() -> Any:
    """The context in which simulation programs are built and run."""
    where = placement()
    return single() if where is not None and where.single else double()


def key_data(rng: np.random.Generator) -> Array:
    """A JAX key from a block's own NumPy stream."""
    return rng.integers(0, 2**32, size=2, dtype=np.uint32)


# Programs: traceable functions of a whole batch --------------------------------------------------------------------


def draw_law(law: Law, key: Any, values: Columns, rows: int) -> tuple[Any, Any]:
    """Independent draws of one law, one per row of its parents, and in which rows all parameters obey their rules."""
    parents = {name: values[name] for name in law.parents}
    form = law.form
    if form.variate is None:
        return _draw_by_lanes(law, key, parents, rows)
    kinds: list[str] = []

    def lower(row: Columns) -> Any:
        distribution = law.function(**row)
        kinds.append(type(peel(distribution)[0]).__name__)
        return law_attributes(distribution)

    lowered = jax.vmap(lower)(parents) if parents else {name: x[None] for name, x in lower({}).items()}
    shape = (rows, *form.batch)
    good = jnp.ones(rows, bool)
    attributes = {}
    for name, rule in form.variate.rules.items():
        axes = form.variate.axes.get(name, 0)
        value = lowered[name]
        tail = value.shape[value.ndim - axes :] if axes else ()
        wide = jnp.broadcast_to(value, shape + tail)
        attributes[name] = wide
        obeyed = RULES[rule](wide)
        good &= jnp.all(obeyed.reshape(rows, -1), axis=1)
    drawn = DRAWS[kinds[-1]](key, shape, **attributes)
    if form.transformed:
        drawn = jax.vmap(law.push)(parents, drawn)
    return drawn.reshape((rows, *form.shape)), good


def _draw_by_lanes(law: Law, key: Any, parents: Columns, rows: int) -> tuple[Any, Any]:
    def draw_row(values: Columns, lane: Any) -> tuple[Any, Any]:
        distribution = law.function(**values)
        return distribution.sample(lane), well_formed(distribution)

    keys = random.split(key, rows)
    return jax.vmap(draw_row)(parents, keys) if parents else jax.vmap(lambda lane: draw_row({}, lane))(keys)


def draw_total(total: BoundTotal, key: Any, values: Columns, rows: int) -> tuple[Any, Any]:
    """Totals by their own law where that is known; else sums over records, one record of every row at a time.

    Memory does not grow with n.
    """
    n = values[total.total.n] if isinstance(total.total.n, str) else jnp.full(rows, total.total.n)
    if total.known is not None and n.dtype == np.int64:
        return draw_known(total.known, key, values, n)
    names = total.total.arguments

    def contribution(row: Columns) -> Any:
        return jnp.asarray(total.total.contribution(**row))

    def step(i: Any, state: Any) -> Any:
        summed, good = state
        everything = dict(values)
        for number, (field, law) in enumerate(total.laws.items()):
            lane = random.fold_in(random.fold_in(key, i), number)
            everything[field], fine = draw_law(law, lane, everything, rows)
            good &= fine | (i >= n)
        contributions = jax.vmap(contribution)({name: everything[name] for name in names})
        keep = (i < n).reshape((rows,) + (1,) * (contributions.ndim - 1))
        return summed + jnp.where(keep, contributions, 0).astype(summed.dtype), good

    discrete = np.issubdtype(total.struct.dtype, np.integer)
    kind = jnp.zeros((), int).dtype if discrete else jnp.zeros((), float).dtype
    start = (jnp.zeros((rows, *total.struct.shape), kind), n >= 0)
    return lax.fori_loop(0, jnp.max(n), step, start)


def draw_names(model: Nodes, key: Any, names: tuple[str, ...], values: Columns, rows: int) -> tuple[Columns, Any]:
    """All of `names`, each after its parents; and per name how many rows could not be drawn."""
    values = dict(values)
    wrong = {}
    for number, name in enumerate(names):
        node = model.node(name)
        lane = random.fold_in(key, number)
        if isinstance(node, Law):
            values[name], good = draw_law(node, lane, values, rows)
        elif isinstance(node, BoundTotal):
            values[name], good = draw_total(node, lane, values, rows)
        else:
            raise refusal("Device", name, "must not be a Simulator", "Python code", "Use nw.Threads().")
        bad = ~good
        if jnp.issubdtype(values[name].dtype, jnp.floating):
            bad |= jnp.any(jnp.isnan(values[name]).reshape(rows, -1), axis=1)
        wrong[name] = jnp.sum(bad)
    return values, wrong


# Blocks: NumPy in, NumPy out ------------------------------------------------------------------------------------------


def simulate(
    model: Nodes, rng: np.random.Generator, names: list[str], rows: int, given: Values, poll: Callable[[], None]
) -> dict[str, Array]:
    """`Model.draw` on the accelerator."""
    poll()
    used = {name: given[name] for name in _parents(model, names) if name in given}

    def draw(key: Any, inputs: Columns) -> Any:
        values, wrong = draw_names(model, random.wrap_key_data(key, impl=KEYS), tuple(names), inputs, rows)
        return {name: values[name] for name in names}, wrong

    program = model.compiled.setdefault(("device draw", tuple(names), rows), Compiled(lambda: draw))
    with precision():
        drawn, wrong = jax.tree.map(np.asarray, program(key_data(rng), as_inputs(used)))
    refuse_wrong(model, wrong)
    # Copies: callers write into what they drew, and what JAX hands out cannot be written to.
    return {**given, **{name: np.array(column, dtype=model.dtype(name)) for name, column in drawn.items()}}


def _parents(model: Nodes, names: list[str]) -> list[str]:
    return list(dict.fromkeys(parent for name in names for parent in model.parents(name)))


def as_inputs(columns: Columns) -> Columns:
    """Columns in the precision of the program; those that stayed on the device have it already."""
    kinds = {"f": jnp.zeros((), float).dtype, "i": jnp.zeros((), int).dtype}
    return {
        name: column.joined() if isinstance(column, Held) else np.asarray(column, kinds[column.dtype.kind])
        for name, column in columns.items()
    }


def refuse_wrong(model: Nodes, wrong: dict[str, Any]) -> None:
    """Refuse a block in which `draw_names` found rows that cannot be drawn."""
    for name, count in wrong.items():
        if int(count):
            cause = "a parameter of the law is out of its domain, or the draw is NaN."
            advice = "Run it with nw.Threads(), which names the parameter's value."
            cause = f"{int(count)} rows of a block cannot be drawn: {cause} {advice}"
            raise InputError(cause, who=model.place(name), advice=advice)
