"""Small programs of plain arithmetic, run by NumPy in the calling thread.

XLA hands every program to threads of its own, and costs a compilation. For `mu + tau` over a block of rows that is more
than the work itself, and it keeps two threads of blocks from running at twice the speed of one. Only operations that
IEEE 754 rounds correctly are taken, so both give the same numbers, but where XLA fuses a product with a sum.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np

Step = tuple[Callable[[list[Any]], Any], list[Any], Any]
"""What to do, to which variables or numbers, and the variable that it gives."""

MOST_STEPS = 12
"""More are worth compiling: XLA goes through the rows once, NumPy once for each."""
WHOLE = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
}
"""Operations that NumPy and XLA agree on for real and for whole numbers."""
REAL = {"div": np.divide, "sqrt": np.sqrt}
"""Those for real numbers only."""
PRODUCTS = {2: lambda x: x * x, 3: lambda x: x * x * x, -1: lambda x: 1.0 / x}


def in_numpy(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
    """`function` of arrays shaped like `arguments`, in NumPy; None where it is more than a little arithmetic."""
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    program = traced.jaxpr
    steps = _needed(program)
    if len(steps) > MOST_STEPS:
        return None
    given = dict(zip(map(id, program.constvars), map(np.array, traced.consts), strict=True))  # copies, as XLA's are
    listed: list[Step] = []
    for step in steps:
        operation = _operation(step)
        if operation is None:
            return None
        listed.append((operation, [_name(each) for each in step.invars], id(step.outvars[0])))
    inputs, outputs = [id(each) for each in program.invars], [_name(each) for each in program.outvars]
    tree = jax.tree.structure(shapes)

    def run(*values: Any) -> Any:
        known = given | dict(zip(inputs, map(np.asarray, jax.tree.leaves(values)), strict=True))

        def value(name: Any) -> Any:
            return known[name] if isinstance(name, int) else name.number

        with np.errstate(all="ignore"):
            for operation, names, result in listed:
                known[result] = operation([value(name) for name in names])
        return jax.tree.unflatten(tree, [value(name) for name in outputs])

    return run


class _Number:
    """A number written into the program."""

    def __init__(self, number: Any) -> None:
        self.number = np.asarray(number)


def _name(variable: Any) -> Any:
    return _Number(variable.val) if isinstance(variable, jax.extend.core.Literal) else id(variable)


def _needed(program: Any) -> list[Any]:
    """The steps that outputs depend on, in order: what only checks parameters is left out."""
    wanted, steps = {id(each) for each in program.outvars}, []
    for step in reversed(program.eqns):
        if any(id(each) in wanted for each in step.outvars):
            wanted |= {id(each) for each in step.invars}
            steps.append(step)
    return steps[::-1]


def _operation(step: Any) -> Callable[[list[Any]], Any] | None:
    """A step as a function of the list of its arguments; None for all but plain arithmetic and moves."""
    name, params = step.primitive.name, step.params
    kinds = {each.aval.dtype.kind for each in step.invars}
    if name in WHOLE and kinds <= {"f", "i"}:
        return lambda values: WHOLE[name](*values)
    if name in REAL and kinds == {"f"}:
        return lambda values: REAL[name](*values)
    if name == "integer_pow" and kinds == {"f"} and params["y"] in PRODUCTS:
        return lambda values: PRODUCTS[params["y"]](*values)
    if name == "convert_element_type" and np.dtype(params["new_dtype"]) == np.float64 and kinds <= {"f", "i"}:
        return lambda values: np.asarray(values[0], dtype=np.float64)
    if name == "reshape" and params["dimensions"] is None:
        return lambda values: np.reshape(values[0], params["new_sizes"])
    if name == "broadcast_in_dim" and len(step.invars) == 1:
        shape, axes = params["shape"], params["broadcast_dimensions"]
        lead = [1] * len(shape)
        for axis, size in zip(axes, step.invars[0].aval.shape, strict=True):
            lead[axis] = size
        return lambda values: np.broadcast_to(np.reshape(values[0], lead), shape)
    return None
