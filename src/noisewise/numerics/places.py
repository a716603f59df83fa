"""Which entry of an input each entry of a result reads, and whether entries of a result differ: told from the trace.

Both are told from the operations, so that they are never true by chance; an operation that is not known counts against.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from noisewise.numerics import Array
from noisewise.numerics.precision import double
from noisewise.numerics.tracing import ENTRYWISE

MOVES = frozenset({"broadcast_in_dim", "copy", "expand_dims", "reshape", "rev", "slice", "squeeze", "transpose"})
"""Operations that move the numbers of their argument."""
REDUCES = frozenset({"argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum"})
"""Operations that make one number of those along some axes."""
NOTHING = -1
"""The place read by an entry that reads none."""
UNKNOWN = "unknown"
"""Stands for a result some entry of which may read several places."""


def places_read(function: Callable[..., Any], read: jax.ShapeDtypeStruct, *others: Any) -> Array | None:
    """For each entry of `function(read, *others)`, the number of the entry of `read` that it depends on, or NOTHING.

    None where an entry may depend on several.
    """
    with double():
        traced = jax.make_jaxpr(function)(read, *others)
    own = np.arange(int(np.prod(read.shape))).reshape(read.shape)
    inputs = [own, *[None] * (len(traced.jaxpr.invars) - 1)]
    with double(), np.errstate(all="ignore"):  # what is known is computed, and may be no number
        (places,) = _places(traced.jaxpr, inputs, dict(zip(traced.jaxpr.constvars, traced.consts, strict=True)))
    if places is None:
        return np.full(traced.out_avals[0].shape, NOTHING)
    return None if isinstance(places, str) else places


def _places(program: Any, entering: Sequence[Any], known: dict[Any, Any]) -> list[Any]:
    """For each output the places that its entries read: an array, None where it reads none, or UNKNOWN.

    `known` are the values of variables that depend on no input.
    """
    places = dict(zip(program.invars, entering, strict=True))

    def value(variable: Any) -> Any:
        return variable.val if isinstance(variable, jax.extend.core.Literal) else known.get(variable)

    def place(variable: Any) -> Any:
        return None if isinstance(variable, jax.extend.core.Literal) else places.get(variable)

    for step in program.eqns:
        given, values = [place(variable) for variable in step.invars], [value(variable) for variable in step.invars]
        inner = _inner(step)
        if all(one is None for one in given):
            if all(one is not None for one in values):
                results = step.primitive.bind(*values, **step.params) if inner is None else _run(inner, values)
                results = results if isinstance(results, (list, tuple)) else [results]
                known.update(zip(step.outvars, results, strict=True))
            continue
        if inner is not None and len(inner.jaxpr.invars) == len(given):
            own = dict(zip(inner.jaxpr.constvars, inner.consts, strict=True))
            own |= {v: one for v, one in zip(inner.jaxpr.invars, values, strict=True) if one is not None}
            results = _places(inner.jaxpr, given, own)
        elif any(isinstance(one, str) for one in given):
            results = [UNKNOWN] * len(step.outvars)
        else:
            results = [_after(step, given, values)] * len(step.outvars)
        places.update(zip(step.outvars, results, strict=True))
    return [place(variable) for variable in program.outvars]


def _inner(step: Any) -> Any:
    """The closed program that a step calls, or None."""
    program = next((step.params[key] for key in ("jaxpr", "call_jaxpr") if key in step.params), None)
    called = step.primitive.name in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
    if program is None or not called:
        return None
    return program if hasattr(program, "consts") else jax.extend.core.ClosedJaxpr(program, ())


def _run(program: Any, values: list[Any]) -> Any:
    return jax.extend.core.jaxpr_as_fun(program)(*values)


def _after(step: Any, given: list[Any], values: list[Any]) -> Any:
    """The places that the result of one step reads."""
    name, shape = step.primitive.name, step.outvars[0].aval.shape
    if name in ENTRYWISE:
        return _together([np.broadcast_to(one, shape) for one in given if one is not None])
    if name in MOVES and len(given) == 1:
        return np.asarray(step.primitive.bind(jnp.asarray(given[0]), **step.params))
    if name == "concatenate":
        filled = zip(given, step.invars, strict=True)
        parts = [np.full(v.aval.shape, NOTHING) if one is None else one for one, v in filled]
        return np.concatenate(parts, axis=step.params["dimension"])
    if name in REDUCES and len(given) == 1:
        axes = step.params["axes"]
        return _together(list(np.moveaxis(given[0], axes, range(len(axes))).reshape(-1, *shape)))
    if name == "gather" and given[0] is None:
        return _looked_up(step, given[1], shape)
    if name in ("gather", "dynamic_slice") and all(one is None for one in given[1:]):
        if any(one is None for one in values[1:]):  # not known which, but the same is read wherever that is
            searched = range(given[0].ndim)
            if name == "gather":
                searched = step.params["dimension_numbers"].start_index_map
            if any(np.any(given[0] != np.take(given[0], [0], axis=axis)) for axis in searched):
                return UNKNOWN
            values = [None, *(jnp.zeros(v.aval.shape, v.aval.dtype) for v in step.invars[1:])]
        settings = dict(step.params)
        if name == "gather":
            settings["fill_value"] = NOTHING  # beyond the end, nothing is read
        return np.asarray(step.primitive.bind(jnp.asarray(given[0]), *values[1:], **settings))
    return UNKNOWN


def _together(places: list[Array]) -> Any:
    """The places that an entry reads which reads all of these; UNKNOWN where some entry reads two."""
    both = np.max(places, axis=0)
    return both if all(np.all((one == both) | (one == NOTHING)) for one in places) else UNKNOWN


def _looked_up(step: Any, indices: Array, shape: tuple[int, ...]) -> Any:
    """The places read by what is looked up in a table that reads none: those of the indices."""
    batch = _together(list(np.moveaxis(indices, -1, 0)))
    if isinstance(batch, str):
        return UNKNOWN
    return np.broadcast_to(np.expand_dims(batch, tuple(step.params["dimension_numbers"].offset_dims)), shape)


def all_alike(function: Callable[..., Any], alike: Sequence[bool], *inputs: Any) -> bool:
    """Whether all entries of `function(*inputs)` are equal, given whether all entries of each input are."""
    with double():
        traced = jax.make_jaxpr(function)(*inputs)
        leaves = [flag for flag, one in zip(alike, inputs, strict=True) for _ in jax.tree.leaves(one)]
        return _alike(traced, leaves)[0]


def _alike(program: Any, entering: list[bool]) -> list[bool]:
    flags = {v: flag or _single(v) for v, flag in zip(program.jaxpr.invars, entering, strict=True)}
    for variable, constant in zip(program.jaxpr.constvars, program.consts, strict=True):
        flags[variable] = _is_even(constant)

    def alike(variable: Any) -> bool:
        if isinstance(variable, jax.extend.core.Literal):
            return _is_even(variable.val)
        return flags[variable] or _single(variable)

    for step in program.jaxpr.eqns:
        given, inner = [alike(variable) for variable in step.invars], _inner(step)
        if inner is not None and len(inner.jaxpr.invars) == len(given):
            results = _alike(inner, given)
        else:
            results = [_stays_alike(step, given)] * len(step.outvars)
        flags.update(zip(step.outvars, results, strict=True))
    return [alike(variable) for variable in program.jaxpr.outvars]


def _stays_alike(step: Any, given: list[bool]) -> bool:
    name = step.primitive.name
    if name in ENTRYWISE or name in MOVES:
        return all(given)
    numbers = step.params.get("dimension_numbers")
    if name == "gather" and all(given[1:]) and not numbers.operand_batching_dims:  # one row of the table, for all
        sizes = step.params["slice_sizes"]
        kept = [size for axis, size in enumerate(sizes) if axis not in numbers.collapsed_slice_dims]
        return given[0] or int(np.prod(kept)) == 1
    if name == "gather" and given[0]:  # any rows, unless what is beyond the end reads as another number
        return step.params["mode"] in (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS)
    return name in REDUCES and all(given)


def _is_even(number: Any) -> bool:
    return bool(np.all(np.asarray(number) == np.ravel(np.asarray(number))[:1]))


def _single(variable: Any) -> bool:
    return int(np.prod(variable.aval.shape)) == 1
