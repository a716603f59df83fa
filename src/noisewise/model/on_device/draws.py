"""Programs for an accelerator: a whole block is one compiled JAX program, of which only survivors come back.

Prior, model functions, variates, noise density, acceptance and the compaction of survivors run on the device. Blocks
are those of `streams`, each with its own key, so one seed gives one result on one kind of device. See docs/engines.md.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from noisewise.errors import InputError, WrongMechanism, refusal
from noisewise.model.law import KEYS, Law, law_attributes, well_formed
from noisewise.model.on_device.variates import DRAWS, RULES
from noisewise.model.total import BoundTotal
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, double, placement, single

Columns = dict[str, Any]


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
    """Independent draws of one law, one per row of its parents, and which rows' parameters are in order."""
    given = {name: values[name] for name in law.parents}
    form = law.form
    if form.variate is None:
        return _draw_by_lanes(law, key, given, rows)
    kinds: list[str] = []

    def lowered(one: Columns) -> Any:
        made = law.function(**one)
        kinds.append(type(peel(made)[0]).__name__)
        return law_attributes(made)

    found = jax.vmap(lowered)(given) if given else {name: x[None] for name, x in lowered({}).items()}
    shape = (rows, *form.batch)
    good = jnp.ones(rows, bool)
    attributes = {}
    for name, rule in form.variate.rules.items():
        axes = form.variate.axes.get(name, 0)
        value = found[name]
        tail = value.shape[value.ndim - axes :] if axes else ()
        wide = jnp.broadcast_to(value, shape + tail)
        attributes[name] = wide
        obeyed = RULES[rule](wide)
        good &= jnp.all(obeyed.reshape(rows, -1), axis=1)
    drawn = DRAWS[kinds[-1]](key, shape, **attributes)
    if form.transformed:
        drawn = jax.vmap(law.push)(given, drawn)
    return drawn.reshape((rows, *form.shape)), good


def _draw_by_lanes(law: Law, key: Any, given: Columns, rows: int) -> tuple[Any, Any]:
    def one(values: Columns, lane: Any) -> tuple[Any, Any]:
        made = law.function(**values)
        return made.sample(lane), well_formed(made)

    keys = random.split(key, rows)
    return jax.vmap(one)(given, keys) if given else jax.vmap(lambda lane: one({}, lane))(keys)


def draw_total(total: BoundTotal, key: Any, values: Columns, rows: int) -> tuple[Any, Any]:
    """Sums over records, one record of every row at a time: memory does not grow with n."""
    n = values[total.total.n] if isinstance(total.total.n, str) else jnp.full(rows, total.total.n)
    names, fields = total.total.arguments, total.total.record

    def contribution(one: Columns) -> Any:
        return jnp.asarray(total.total.contribution(**one))

    def step(i: Any, state: Any) -> Any:
        summed, good = state
        everything = dict(values)
        for number, (field, law) in enumerate(total.laws.items()):
            lane = random.fold_in(random.fold_in(key, i), number)
            everything[field], fine = draw_law(law, lane, everything, rows)
            good &= fine | (i >= n)
        assert fields
        each = jax.vmap(contribution)({name: everything[name] for name in names})
        keep = (i < n).reshape((rows,) + (1,) * (each.ndim - 1))
        return summed + jnp.where(keep, each, 0).astype(summed.dtype), good

    whole = np.issubdtype(total.struct.dtype, np.integer)
    kind = jnp.zeros((), int).dtype if whole else jnp.zeros((), float).dtype
    start = (jnp.zeros((rows, *total.struct.shape), kind), n >= 0)
    return lax.fori_loop(0, jnp.max(n), step, start)


def draw_names(model: Any, key: Any, names: tuple[str, ...], values: Columns, rows: int) -> tuple[Columns, Any]:
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


def log_etas(releases: Columns, values: Columns, rows: int) -> dict[str, Any]:
    """log eta of each released statistic, row by row; `releases`: {name: (mechanism, value)}, traced."""
    found = {}
    for name, (mechanism, value) in releases.items():
        extra = {other: values[other] for other in mechanism.inputs}
        each = jnp.asarray(mechanism.log_prob(value, values[name], **extra))
        found[name] = jnp.sum(each.reshape(rows, -1), axis=1)
    return found


def log_uniform(key: Any, rows: int) -> Any:
    """log of a uniform with 64 random bits: it is never exactly zero's, and small values keep all their digits."""
    bits = random.bits(key, (2, rows), jnp.uint32).astype(jnp.zeros((), float).dtype)
    return jnp.log(jnp.maximum(bits[0] * 2.0**-32 + (bits[1] + 0.5) * 2.0**-64, 2.0**-65))


def compacted(columns: Columns, accepted: Any, capacity: int) -> tuple[Columns, Any]:
    """Accepted rows in order in arrays of `capacity`, and how many there are (more than fit, perhaps)."""
    rank = jnp.cumsum(accepted) - 1
    place = jnp.where(accepted & (rank < capacity), rank, capacity)

    def moved(column: Any) -> Any:
        room = jnp.zeros((capacity, *column.shape[1:]), column.dtype)
        return room.at[place].set(column, mode="drop")

    return {name: moved(column) for name, column in columns.items()}, rank[-1] + 1


# Blocks: NumPy in, NumPy out ------------------------------------------------------------------------------------------


def simulate(
    model: Any, rng: np.random.Generator, names: list[str], rows: int, given: Any, poll: Callable[[], None]
) -> dict[str, Array]:
    """`Model.draw` on the accelerator."""
    poll()
    used = {name: given[name] for name in _parents(model, names) if name in given}

    def build() -> Any:
        def program(key: Any, inputs: Columns) -> Any:
            values, wrong = draw_names(model, random.wrap_key_data(key, impl=KEYS), tuple(names), inputs, rows)
            return {name: values[name] for name in names}, wrong

        return program

    program = model.compiled.setdefault(("device draw", tuple(names), rows), Compiled(build))
    with precision():
        found, wrong = jax.tree.map(np.asarray, program(key_data(rng), _inputs(used)))
    _refuse_wrong(model, wrong)
    # Copies: callers write into what they drew, and what JAX hands out cannot be written to.
    return {**given, **{name: np.array(column, dtype=model.dtype(name)) for name, column in found.items()}}


def accept(
    problem: Any,
    rng: np.random.Generator,
    fresh: tuple[str, ...],
    released: tuple[str, ...],
    inputs: Columns,
    rows: int,
) -> tuple[dict[str, Array], Array]:
    """One block of rejection: survivors by name, and their positions."""
    model = problem.model
    log_sups = {name: problem.log_sup(name) for name in released}
    tree = {name: (problem.release[name].mechanism, np.asarray(problem.release[name].value)) for name in released}
    guess = model.compiled.setdefault(("device capacity", fresh, released, rows), _Capacity(rows))
    key = key_data(rng)
    while True:
        capacity = guess.capacity

        def build(capacity: int = capacity) -> Any:
            return lambda *arguments: _accept_program(model, fresh, rows, capacity, *arguments)

        name = ("device accept", fresh, released, rows, capacity)
        program = model.compiled.setdefault(name, Compiled(build))
        with precision():
            columns, count, worst, wrong = program(key, _inputs(inputs), tree, log_sups)
            _refuse_wrong(model, jax.tree.map(np.asarray, wrong))
            _refuse_above(worst, problem)
            count = int(count)
            if count <= capacity:
                # Fetch only what is there, in steps that few programs serve.
                kept = {key: np.asarray(column[: _step(count, capacity)])[:count] for key, column in columns.items()}
                break
        guess.grow(count)
    positions = kept.pop("__positions")
    return {name: _host(model, name, column) for name, column in kept.items()}, positions


def _accept_program(
    model: Any, fresh: tuple[str, ...], rows: int, capacity: int, key: Any, inputs: Any, tree: Any, log_sups: Any
) -> Any:
    drawing, accepting = random.split(random.wrap_key_data(key, impl=KEYS))
    values, wrong = draw_names(model, drawing, fresh, inputs, rows)
    ratio = jnp.zeros(rows)
    worst = {}
    for name, log_eta in log_etas(tree, values, rows).items():
        part = log_eta - log_sups[name]
        worst[name] = jnp.max(jnp.where(jnp.isnan(part), jnp.inf, part))
        ratio = ratio + part
    accepted = log_uniform(accepting, rows) <= ratio
    columns, count = compacted({**values, "__positions": jnp.arange(rows)}, accepted, capacity)
    return columns, count, worst, wrong


def weigh(problem: Any, rng: np.random.Generator, names: tuple[str, ...], rows: int) -> tuple[dict[str, Array], Array]:
    """One block of draws from the prior with log eta of each: what importance sampling keeps."""
    model = problem.model
    tree = {name: (item.mechanism, np.asarray(item.value)) for name, item in problem.release.items()}

    def build() -> Any:
        def program(key: Any, releases: Any) -> Any:
            values, wrong = draw_names(model, random.wrap_key_data(key, impl=KEYS), names, {}, rows)
            return values, sum(log_etas(releases, values, rows).values()), wrong

        return program

    program = model.compiled.setdefault(("device weigh", names, tuple(tree), rows), Compiled(build))
    with precision():
        values, total, wrong = jax.tree.map(np.asarray, program(key_data(rng), tree))
    _refuse_wrong(model, wrong)
    return {name: _host(model, name, column) for name, column in values.items()}, np.asarray(total, dtype=np.float64)


class _Capacity:
    """Room for survivors: what was needed so far and half as much again, a power of two."""

    def __init__(self, rows: int) -> None:
        self.rows, self.capacity = rows, max(1024, rows // 64)

    def grow(self, count: int) -> None:
        self.capacity = min(self.rows, 1 << (int(1.25 * count)).bit_length())


def _step(count: int, capacity: int) -> int:
    return min(capacity, max(1024, 1 << max(count - 1, 1).bit_length()))


def _parents(model: Any, names: list[str]) -> list[str]:
    return list(dict.fromkeys(parent for name in names for parent in model.parents(name)))


def _inputs(columns: Columns) -> Columns:
    """Host columns in the precision of the program."""
    kinds = {"f": jnp.zeros((), float).dtype, "i": jnp.zeros((), int).dtype}
    return {name: np.asarray(column).astype(kinds[np.asarray(column).dtype.kind]) for name, column in columns.items()}


def _host(model: Any, name: str, column: Array) -> Array:
    return np.asarray(column).astype(model.dtype(name), copy=False)


def _refuse_wrong(model: Any, wrong: dict[str, Any]) -> None:
    for name, count in wrong.items():
        if int(count):
            cause = "a parameter of the law is out of its domain, or the draw is NaN."
            advice = "Run it with nw.Threads(), which names the parameter's value."
            cause = f"{int(count)} rows of a block cannot be drawn: {cause} {advice}"
            raise InputError(cause, who=model.place(name), advice=advice)


def _refuse_above(worst: dict[str, Any], problem: Any) -> None:
    allowed = 1e-3 if placement() is not None and placement().single else 1e-9  # type: ignore[union-attr]
    for name, value in worst.items():
        if not float(value) <= allowed:
            raise WrongMechanism.exceeding(problem.release[name].mechanism, name, float(value))
