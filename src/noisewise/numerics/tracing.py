"""What the trace of a JAX program tells: which inputs its outputs depend on, and how (entry by entry, by degree)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np

from noisewise.numerics.precision import double

# fmt: off
ENTRYWISE = frozenset({
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos", "cosh", "digamma",
    "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite",
    "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or",
    "pow", "rem", "round", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub",
    "tan", "tanh", "xor",
})
# fmt: on
"""Operations of which each entry of the result depends on the same entry of the arguments alone."""


def in_rows(structs: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """One row of each, in shape and type: programs are traced as they will run."""
    return {name: jax.ShapeDtypeStruct((1, *one.shape), one.dtype) for name, one in structs.items()}


def seen(look: Callable[[Any], Any], rows: Mapping[str, jax.ShapeDtypeStruct]) -> Any:
    """The answer of `look(row)` about shapes and types: it is traced for one row, and nothing is computed."""
    answers: list[Any] = []

    def traced(row: Any) -> float:
        answers.append(look(row))
        return 0.0

    with double():
        jax.eval_shape(jax.vmap(traced, axis_size=1), dict(rows))
    return answers[-1]


def depending(program: Any) -> set[int]:
    """The variables of a traced program that depend on its inputs, by `id`.

    Every output of a step counts as depending on every input of that step.
    """
    moving = {id(variable) for variable in program.invars}
    for step in program.eqns:
        if any(id(variable) in moving for variable in step.invars):
            moving.update(id(variable) for variable in step.outvars)
    return moving


def depends(program: Any) -> bool:
    """Whether any output may depend on any input, by the rule of `depending`."""
    moving = depending(program)
    return any(id(variable) in moving for variable in program.outvars)


def sources(program: Any) -> list[set[int]]:
    """For each output, the numbers of the inputs that it may depend on, by the rule of `depending`."""
    reached = {id(variable): {index} for index, variable in enumerate(program.invars)}
    for step in program.eqns:
        entering = set[int]().union(*(reached.get(id(variable), set()) for variable in step.invars))
        for variable in step.outvars:
            reached[id(variable)] = entering
    return [reached.get(id(variable), set()) for variable in program.outvars]


def entrywise(program: Any, shape: tuple[int, ...], moving: list[bool]) -> bool:
    """Whether each entry of outputs of this shape depends on the same entry of the `moving` inputs alone.

    Told from the operations, so that it is never true by chance; an operation that is not known counts against it.
    """
    after = _moving_entrywise(program, shape, moving)
    outputs = [variable.aval.shape for variable in program.outvars]
    return after is not None and all(own == shape for own in outputs)


def _moving_entrywise(program: Any, shape: tuple[int, ...], moving: list[bool]) -> list[bool] | None:
    """Which outputs depend on the moving inputs; None where one does in another way than entry by entry."""
    reached = {id(variable) for variable, moves in zip(program.invars, moving, strict=True) if moves}
    if any(variable.aval.shape != shape for variable in program.invars if id(variable) in reached):
        return None
    for step in program.eqns:
        entering = [id(variable) in reached for variable in step.invars]
        if not any(entering):
            continue
        inner = next((step.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in step.params), None)
        if inner is not None:
            inner = getattr(inner, "jaxpr", inner)
            if len(inner.invars) != len(entering) or len(inner.outvars) != len(step.outvars):
                return None
            leaving = _moving_entrywise(inner, shape, entering)
            if leaving is None:
                return None
        elif step.primitive.name in ENTRYWISE:
            leaving = [True] * len(step.outvars)
        else:
            return None
        for variable, moves in zip(step.outvars, leaving, strict=True):
            if moves and variable.aval.shape != shape:
                return None
            reached |= {id(variable)} if moves else set()
    return [id(variable) in reached for variable in program.outvars]


WITH_ONE = frozenset({
    "broadcast_in_dim", "copy", "cumsum", "dynamic_slice", "expand_dims", "gather", "neg", "reduce_sum", "reshape",
    "rev", "slice", "squeeze", "transpose",
})  # fmt: skip
"""Operations that move, negate or add up the numbers of their first argument."""
SIDE_BY_SIDE = frozenset({"add", "add_any", "concatenate", "stack", "sub"})
CALLS = frozenset({"jit", "pjit", "closed_call"})


def degrees(program: Any, entering: Sequence[float]) -> list[float]:
    """For each output its degree, at most, as a polynomial of the inputs; infinite where it may not be a polynomial.

    `entering` is the degree of each input: 1 for a variable of the polynomials, 0 for an input that counts as known.
    Told from the operations, so that it is never true by chance; an operation that is not known gives infinity.
    """
    by_variable = dict(zip(program.invars, entering, strict=True))

    def degree(variable: Any) -> float:
        return by_variable.get(variable, 0.0) if isinstance(variable, jax.extend.core.Var) else 0.0

    for step in program.eqns:
        given = [degree(variable) for variable in step.invars]
        if step.primitive.name in CALLS and "jaxpr" in step.params:
            by_variable.update(zip(step.outvars, degrees(step.params["jaxpr"].jaxpr, given), strict=True))
        elif any(given):
            by_variable.update(dict.fromkeys(step.outvars, _degree(step, given)))
    return [degree(variable) for variable in program.outvars]


def _degree(step: Any, given: list[float]) -> float:
    """The degree of one step's result; infinite where whole numbers are divided, or numbers rounded to another type."""
    name, first, rest = step.primitive.name, given[0], given[1:]
    taken, kind = step.invars[0].aval.dtype, step.outvars[0].aval.dtype
    if kind not in (np.float64, np.int64) or (taken.kind == "f" and kind.kind == "i"):
        return math.inf
    if name in SIDE_BY_SIDE:
        return max(given)
    if name in ("mul", "dot_general"):
        return sum(given)
    if name == "square" or (name == "integer_pow" and step.params["y"] >= 0):
        return first * (2 if name == "square" else step.params["y"])
    if name == "select_n" and not first:
        return max(rest)
    alone = name in WITH_ONE or name == "convert_element_type" or (name == "div" and kind == np.float64)
    return first if alone and not any(rest) else math.inf
