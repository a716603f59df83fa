"""Small programs of plain arithmetic, run by NumPy in the calling thread.

XLA hands every program to threads of its own, and costs a compilation. For `mu + tau` over a block of rows that is more
than the work itself, and it keeps two threads of blocks from running at twice the speed of one. Only operations that
IEEE 754 rounds correctly are taken, so both give the same numbers, except where XLA fuses a product with a sum.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np

from noisewise.numerics.tracing import CALLS

Operation = Callable[..., Any]
"""(arguments, number of rows) -> result; the number matters only to programs that serve any number of rows."""
Place = object
"""Stands for a number that a program makes or takes."""
Step = tuple[Operation, list[Any], Any]
"""An operation, the variables or numbers that it takes, and the variable that holds its result."""

ROWS = 1_000_003
"""The number of rows in a trace. It stands for any number of rows, and no other axis may have this size."""

MOST_STEPS = 12
"""Programs of more steps are worth compiling: XLA goes through the rows once, NumPy once for each step."""
ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
}
"""Operations that NumPy and XLA agree on for real and for whole numbers."""
COMPARISONS = {
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}
"""Operations on truth values."""
REAL_ONLY = {"div": np.divide, "sqrt": np.sqrt}
"""Operations on real numbers only."""
PRODUCTS = {2: lambda x: x * x, 3: lambda x: x * x * x, -1: lambda x: 1.0 / x}


def in_numpy(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
    """`function` of arrays shaped like `arguments`, in NumPy; None where it is more than a little arithmetic.

    The first axis of every argument is that of rows, which `function` treats alike: any number of rows will do.
    """
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((ROWS, *leaf.shape[1:]), leaf.dtype), arguments)
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*rows)
    program = traced.jaxpr
    steps = _needed(program, program.outvars)
    if len(steps) > MOST_STEPS or any(
        ROWS in np.shape(known)[1:] for known in [*jax.tree.leaves(rows), *traced.consts]
    ):
        return None
    constants = dict(zip(map(id, program.constvars), map(np.array, traced.consts), strict=True))  # copies, as XLA's are
    calls: list[Step] = []
    for step in steps:
        operation = operation_of(step)
        if operation is None:
            return None
        calls.append((operation, [_name(variable) for variable in step.invars], id(step.outvars[0])))
    inputs, outputs = [id(variable) for variable in program.invars], [_name(variable) for variable in program.outvars]
    tree = jax.tree.structure(shapes)
    overwriting = _overwriting(steps, outputs)

    def run(*values: Any) -> Any:
        leaves = jax.tree.leaves(values)
        computed = constants | dict(zip(inputs, map(np.asarray, leaves), strict=True))
        count = len(leaves[0])

        def value(name: Any) -> Any:
            return computed[name] if isinstance(name, int) else name.number

        with np.errstate(all="ignore"):
            for operation, names, result in calls:
                given = [value(name) for name in names]
                ufunc, place = overwriting.get(result, (None, 0))
                computed[result] = operation(given, count) if ufunc is None else ufunc(*given, out=given[place])
        return jax.tree.unflatten(tree, [value(name) for name in outputs])

    return run


def fixed_outputs(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The outputs of `function` that depend on none of its arguments, as NumPy's arrays; None for the others.

    It is traced, and only what these outputs need is computed: by NumPy where it can, else step by step by JAX.
    """
    traced = jax.make_jaxpr(function)(*arguments)
    computed: dict[Place, Any] = {}
    entering: list[Place] = [object() for _ in traced.jaxpr.invars]
    steps, outputs = _without_calls(traced, entering, computed)
    moving = set(entering)
    for _, taken, made in steps:
        if not moving.isdisjoint(taken):
            moving.update(made)
    needed = {place for place in outputs if place not in moving}
    wanted = []
    for step in reversed(steps):
        if not needed.isdisjoint(step[2]):
            needed.update(step[1])
            wanted.append(step)
    with np.errstate(all="ignore"):
        for step, taken, made in reversed(wanted):
            computed.update(zip(made, _results(step, [computed[place] for place in taken]), strict=True))
    return [None if place in moving else np.asarray(computed[place]) for place in outputs]


def _results(step: Any, given: list[Any]) -> Sequence[Any]:
    """The results of one step: by NumPy where it can, else by JAX."""
    operation = operation_of(step)
    if operation is not None:
        return [operation([np.asarray(number) for number in given])]
    taken = {
        variable: number
        for variable, number in zip(step.invars, given, strict=True)
        if not isinstance(variable, jax.extend.core.Literal)
    }
    names, results_names = ("",) * len(taken), ("",) * len(step.outvars)
    about = jax.extend.core.DebugInfo("jit", step.primitive.name, names, results_names)
    alone = jax.extend.core.Jaxpr([], list(taken), step.outvars, [step], step.effects, about)
    results: Sequence[Any] = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(alone, []))(*taken.values())
    return results


def _without_calls(
    traced: Any, entering: Sequence[Place], known: dict[Place, Any]
) -> tuple[list[tuple[Any, list[Place], list[Place]]], list[Place]]:
    """Steps of a traced program, each with the places of its arguments and results; and the places of the outputs.

    A program that it calls is taken apart into its steps: its outputs may depend on different arguments. Literals and
    constants go to `known`.
    """
    places = dict(zip(traced.jaxpr.invars, entering, strict=True))

    def written(number: Any) -> Place:
        place = object()
        known[place] = number
        return place

    def place_of(variable: Any) -> Place:
        return written(variable.val) if isinstance(variable, jax.extend.core.Literal) else places[variable]

    places |= dict(zip(traced.jaxpr.constvars, map(written, traced.consts), strict=True))
    steps: list[tuple[Any, list[Place], list[Place]]] = []
    for step in traced.jaxpr.eqns:
        taken = [place_of(variable) for variable in step.invars]
        if step.primitive.name in CALLS and "jaxpr" in step.params:
            within, made = _without_calls(step.params["jaxpr"], taken, known)
            steps += within
        else:
            made = [object() for _ in step.outvars]
            steps.append((step, taken, made))
        places |= dict(zip(step.outvars, made, strict=True))
    return steps, [place_of(variable) for variable in traced.jaxpr.outvars]


def _overwriting(steps: Sequence[Any], outputs: Sequence[Any]) -> dict[int, tuple[Any, int]]:
    """For each result of a ufunc that may overwrite an argument: the ufunc, and the number of that argument.

    Nothing else reads the argument, and a ufunc made it: a reshaped or broadcast array may be a view of another. New
    memory would cost more than the arithmetic.
    """
    readers = [id(variable) for step in steps for variable in step.invars] + list(outputs)
    made: dict[int, Any] = {}
    targets = {}
    for step in steps:
        ufunc = ARITHMETIC.get(step.primitive.name, REAL_ONLY.get(step.primitive.name))
        own = step.outvars[0]
        if ufunc is None or not own.aval.shape:  # of single numbers NumPy makes no arrays
            continue
        for place, variable in enumerate(step.invars):
            if made.get(id(variable)) == (own.aval.shape, own.aval.dtype) and readers.count(id(variable)) == 1:
                targets[id(own)] = (ufunc, place)
                break
        made[id(own)] = (own.aval.shape, own.aval.dtype)
    return targets


class _Number:
    """A number written into the program."""

    def __init__(self, number: Any) -> None:
        self.number = np.asarray(number)


def _name(variable: Any) -> Any:
    return _Number(variable.val) if isinstance(variable, jax.extend.core.Literal) else id(variable)


def _needed(program: Any, outputs: Sequence[Any]) -> list[Any]:
    """The steps that these outputs depend on, in order: steps that only check parameters are left out."""
    needed, steps = {id(variable) for variable in outputs}, []
    for step in reversed(program.eqns):
        if any(id(variable) in needed for variable in step.outvars):
            needed |= {id(variable) for variable in step.invars}
            steps.append(step)
    return steps[::-1]


def operation_of(step: Any) -> Operation | None:
    """A step as a function of the list of its arguments; None for all but plain arithmetic, reshapes and broadcasts."""
    name, params = step.primitive.name, step.params
    kinds = {getattr(variable.aval.dtype, "kind", "") for variable in step.invars}  # keys of random numbers have none
    if name in ARITHMETIC and kinds <= {"f", "i"}:
        return lambda values, _=0: ARITHMETIC[name](*values)
    if name in COMPARISONS and (kinds == {"f"} or kinds == {"i"}):
        return lambda values, _=0: COMPARISONS[name](*values)
    if name in LOGIC and kinds == {"b"}:
        return lambda values, _=0: LOGIC[name](*values)
    if name in REAL_ONLY and kinds == {"f"}:
        return lambda values, _=0: REAL_ONLY[name](*values)
    if name == "integer_pow" and kinds == {"f"} and params["y"] in PRODUCTS:
        return lambda values, _=0: PRODUCTS[params["y"]](*values)
    if name == "convert_element_type" and np.dtype(params["new_dtype"]) == np.float64 and kinds <= {"f", "i"}:
        return lambda values, _=0: np.asarray(values[0], dtype=np.float64)
    if name == "reshape" and params["dimensions"] is None:
        return lambda values, count=0: np.reshape(values[0], _sized(params["new_sizes"], count))
    if name == "broadcast_in_dim" and len(step.invars) == 1:
        shape, axes = params["shape"], params["broadcast_dimensions"]
        lead = [1] * len(shape)
        for axis, size in zip(axes, step.invars[0].aval.shape, strict=True):
            lead[axis] = size
        return lambda values, count=0: np.broadcast_to(np.reshape(values[0], _sized(lead, count)), _sized(shape, count))
    return None


def _sized(shape: Sequence[int], count: int) -> list[int]:
    """A traced shape with `count` rows."""
    return [count if size == ROWS else size for size in shape]
