"""How a value enters the attributes of a law that reads it, told by the law's traced program."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.extend.core
import numpy as np

from noisewise.model.law import Law, law_attributes
from noisewise.numerics import double

IN_PLACE = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy"},
)
"""Operations that leave the entries in their order."""
FAITHFUL = IN_PLACE | {"transpose", "rev", "slice", "dynamic_slice", "gather"}
"""Operations after which every number is still one entry of their argument."""
CALLS = {"pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call"}


def entering(law: Law, name: str, straight: frozenset[str], *, in_place: bool = False) -> dict[str, str]:
    """By attribute of the law: "none" where `name` does not enter, "linear" where it does entry by entry, or "bent".

    `straight` are the operations with other numbers that count as linear. With `in_place`, entries must also keep their
    order: each entry of an attribute of the same size then reads the entry in its own place.
    """
    rest = {other: struct for other, struct in law.row.items() if other != name}

    def look(value: Any, others: Mapping[str, Any]) -> Any:
        return law_attributes(law.function(**{**others, name: value}))

    with double():
        traced, shapes = jax.make_jaxpr(jax.vmap(look), return_shape=True)(law.row[name], rest)
    ways = _ways(traced.jaxpr, {traced.jaxpr.invars[0]: "linear"}, straight, in_place)
    return dict(zip(sorted(shapes), ways, strict=True))


def _ways(program: Any, marks: dict[Any, str], straight: frozenset[str], in_place: bool) -> list[str]:
    """How each output depends on the marked inputs."""

    def mark(variable: Any) -> str:
        return marks.get(variable, "none") if isinstance(variable, jax.extend.core.Var) else "none"

    for step in program.eqns:
        ways = [mark(variable) for variable in step.invars]
        if all(way == "none" for way in ways):
            continue
        inner = next((step.params[key] for key in ("jaxpr", "call_jaxpr") if key in step.params), None)
        if step.primitive.name in CALLS and inner is not None:
            inner = getattr(inner, "jaxpr", inner)
            results = _ways(inner, dict(zip(inner.invars, ways, strict=True)), straight, in_place)
        else:
            results = [_after(step, ways, straight, in_place)] * len(step.outvars)
        marks.update(zip(step.outvars, results, strict=True))
    return [mark(variable) for variable in program.outvars]


def _after(step: Any, ways: list[str], straight: frozenset[str], in_place: bool) -> str:
    """How the result of one step depends on the marked inputs, given how its arguments do."""
    name, marked = step.primitive.name, [way for way in ways if way != "none"]
    moves = name in (IN_PLACE if in_place else FAITHFUL)
    first = ways[0] != "none" or not (moves or name == "div")
    if len(marked) != 1 or not first or not (moves or name in straight):
        return "bent"
    taken, given = step.invars[ways.index(marked[0])].aval, step.outvars[0].aval
    rounded = np.issubdtype(taken.dtype, np.inexact) and not np.issubdtype(given.dtype, np.inexact)
    return "bent" if rounded else marked[0]
