"""Rejection on an accelerator: a whole block is one compiled program, of which only survivors come back.

Besides what `model.on_device.draws` puts there, noise density, acceptance and the compaction of survivors run on the
device. See docs/engines.md.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from noisewise.errors import WrongMechanism
from noisewise.inference.problem import Problem
from noisewise.model import Model
from noisewise.model.law import KEYS
from noisewise.model.on_device.draws import as_inputs, draw_names, key_data, precision, refuse_wrong
from noisewise.model.on_device.held import Held, to_host
from noisewise.numerics import Compiled, placement

Columns = dict[str, Any]


def accept(
    problem: Problem,
    rng: np.random.Generator,
    fresh: tuple[str, ...],
    released: tuple[str, ...],
    inputs: Columns,
    rows: int,
    stay: bool = False,
) -> tuple[Columns, Any]:
    """One block of rejection: survivors by name, which `stay` on the device or are fetched, and their positions."""
    model = problem.model
    log_sups = {name: problem.log_sup(name) for name in released}
    tree = {name: (problem.release[name].mechanism, np.asarray(problem.release[name].value)) for name in released}
    beside: dict[Any, Any] = model.compiled
    room, key = ("device capacity", fresh, released, rows), key_data(rng)
    while True:
        # Room for half of the rows, or for all: compiling for more sizes takes longer than a thousand blocks gain.
        capacity = beside.setdefault(room, rows // 2)
        build = partial(partial, _accept_program, model, fresh, rows, capacity)
        program = model.compiled.setdefault(("device accept", fresh, released, rows, capacity), Compiled(build))
        with precision():
            columns, positions, *excesses = program(key, as_inputs(inputs), tree, log_sups)
            count, worst, wrong = jax.device_get(excesses)
            refuse_wrong(model, wrong)
            _refuse_above(worst, problem)
            if count <= capacity:
                break
        beside[room] = rows
    with precision():
        if stay:
            return _held(columns, int(count)), _held({"positions": positions}, int(count))["positions"]
        columns, positions = _fetched((columns, positions), int(count))
    return {name: column.astype(model.dtype(name), copy=False) for name, column in columns.items()}, positions


def _held(columns: Columns, count: int) -> Columns:
    """The first `count` rows of each, left on the device; arrays are cut to powers of two: few programs serve them."""
    size = 1 << max(count - 1, 1023).bit_length()
    return {name: Held([(column[:size], 0, count)]) for name, column in columns.items()}


def _fetched(columns: Any, count: int) -> Any:
    """The first `count` rows of each array of a tree, as NumPy arrays; arrays are copied in one of sixteen sizes."""
    capacity = len(jax.tree.leaves(columns)[0])
    size = -(-count // (step := max(1024, capacity // 16))) * step
    cut = to_host(jax.tree.map(lambda column: column[:size], columns))
    return jax.tree.map(lambda column: column[:count], cut)


def _accept_program(
    model: Model, fresh: tuple[str, ...], rows: int, capacity: int, key: Any, inputs: Any, tree: Any, log_sups: Any
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
    return *compacted(values, accepted, capacity), worst, wrong


def log_etas(releases: Columns, values: Columns, rows: int) -> dict[str, Any]:
    """log eta of each released statistic, row by row; `releases`: {name: (mechanism, value)}, traced."""
    totals = {}
    for name, (mechanism, value) in releases.items():
        extra = {other: values[other] for other in mechanism.inputs}
        entries = jnp.asarray(mechanism.log_prob(value, values[name], **extra))
        totals[name] = jnp.sum(entries.reshape(rows, -1), axis=1)
    return totals


def log_uniform(key: Any, rows: int) -> Any:
    """log of a uniform made of 64 random bits: never log 0, and small uniforms keep all their digits."""
    bits = random.bits(key, (2, rows), jnp.uint32).astype(jnp.zeros((), float).dtype)
    return jnp.log(jnp.maximum(bits[0] * 2.0**-32 + (bits[1] + 0.5) * 2.0**-64, 2.0**-65))


def compacted(columns: Columns, accepted: Any, capacity: int) -> tuple[Columns, Any, Any]:
    """Accepted rows in order, in arrays of length `capacity`; their positions; and their number, even if larger."""
    rank = jnp.cumsum(accepted, dtype=jnp.int32) - 1
    place = jnp.where(accepted & (rank < capacity), rank, capacity)
    numbers = jnp.arange(len(accepted), dtype=jnp.int32)
    positions = jnp.zeros(capacity, jnp.int32).at[place].set(numbers, mode="drop")
    return {name: column[positions] for name, column in columns.items()}, positions, rank[-1] + 1


def _refuse_above(worst: dict[str, Any], problem: Problem) -> None:
    place = placement()
    allowed = 1e-3 if place is not None and place.single else 1e-9
    for name, value in worst.items():
        if not float(value) <= allowed:
            raise WrongMechanism.exceeding(problem.release[name].mechanism, name, float(value))
