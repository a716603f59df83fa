"""Quantities computed from others: functions of one value of each argument, by name, applied to every row of draws."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise import checks
from noisewise.axes import Axes
from noisewise.errors import InputError, in_a_line, refusal
from noisewise.model.graph import dependencies, ordered
from noisewise.numerics import Array, Compiled, double

Functions = Mapping[str, Callable[..., Any]]
UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises at functions of NumPy, and at control flow on values."""
ADVICE = "Give a function of parameters, statistics or derived quantities by name: lambda p1, p2: p1 - p2."
SAME = 1e-6
"""Two evaluations at the same values differ by less, relatively: compiled programs round in another order."""


def arguments(who: str, functions: Any, known: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What each function takes, in an order in which all can be computed; refused where a name is not known."""
    if not isinstance(functions, Mapping) or not functions:
        raise refusal(who, "derived", "must name at least one function", functions, ADVICE)
    takes: dict[str, tuple[str, ...]] = {}
    for name, function in functions.items():
        checks.name(who, "derived", name)
        if name in known:
            raise refusal(who, name, "must be a new name", name, "Rename it.")
        if not callable(function):
            raise refusal(who, name, "must be a function", function, ADVICE)
        takes[name] = dependencies(who, function)
        for argument in takes[name]:
            if argument not in known and argument not in functions:
                rule = "must take what is known by name"
                raise refusal(who, name, rule, argument, checks.nearest(argument, [*known, *functions]))
    return {name: takes[name] for name in ordered(who, takes)}


def evaluated(who: str, functions: Functions, rows: Mapping[str, Array]) -> dict[str, Array]:
    """Every function at each row of its arguments' values: one value for each row.

    Values that are not finite, not numbers, or not the same when computed again are refused.
    """
    columns: dict[str, Array] = {}
    takes = arguments(who, functions, rows)
    for name, needed in takes.items():  # columns that no function takes are not fetched
        given = {argument: columns[argument] if argument in columns else rows[argument] for argument in needed}
        count = len(next(iter((given or rows).values())))
        columns[name] = column(who, name, functions[name], given, count)
        refuse_infinite(who, name, columns[name], given)
    return {name: columns[name] for name in functions}


def column(who: str, name: str, function: Callable[..., Any], given: Mapping[str, Array], count: int) -> Array:
    """One function at each row of its arguments: compiled where JAX can trace it, else called row by row."""
    first = value_at(who, name, function, {key: values[0] for key, values in given.items()})
    if not given:
        return np.broadcast_to(first, (count, *first.shape))
    try:
        with double():
            program = Compiled(lambda: jax.vmap(lambda row: jnp.asarray(function(**row))), small=True)
            derived = np.asarray(program(dict(given)))
    except UNTRACEABLE:
        derived = _row_by_row(who, name, function, given, count)
    if derived.shape[1:] != first.shape or not np.allclose(derived[0], first, rtol=SAME, atol=0.0, equal_nan=True):
        rule = "must give the same value at the same arguments"
        advice = "Leave out random numbers: draws are random already."
        raise refusal(who, name, rule, f"{first.tolist()!r}, then {derived[0].tolist()!r}", advice)
    return derived.astype(first.dtype if first.dtype.kind == "b" else derived.dtype)


def value_at(who: str, name: str, function: Callable[..., Any], row: Mapping[str, Any]) -> Array:
    """A function's value at one row: a number, a truth value, or an array of them."""
    try:
        with double(), np.errstate(all="ignore"):
            value = np.asarray(function(**row))
    except InputError:
        raise
    except Exception as error:
        cause = f"the function of '{name}' fails: {in_a_line(error)}"
        advice = "It is given one value of each argument."
        raise InputError(f"{cause} {advice}", who=who, argument=name, advice=advice) from error
    if value.dtype.kind not in "biuf":
        rule = "must give a number, a truth value or an array of them"
        raise refusal(who, name, rule, value.tolist(), ADVICE)
    return value


def _row_by_row(who: str, name: str, function: Callable[..., Any], given: Mapping[str, Array], count: int) -> Array:
    values = [value_at(who, name, function, {key: each[row] for key, each in given.items()}) for row in range(count)]
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        rule = "must give values of one shape"
        raise refusal(who, name, rule, sorted(shapes), "Return an array of the same length for every draw.")
    return np.stack(values)


def refuse_infinite(who: str, name: str, values: Array, given: Mapping[str, Array]) -> None:
    """Refuse values that are infinite or not numbers, with the first row that gives one."""
    bad: Array = np.any(~np.isfinite(values).reshape(len(values), -1), axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        at = ", ".join(f"{key}={np.asarray(column[row]).tolist()}" for key, column in given.items())
        rule = f"must be finite at every draw; {int(bad.sum())} of {len(bad)} are not, the first at {at}"
        advice = "Write the function so that it is finite wherever the posterior can be."
        raise refusal(who, name, rule, np.asarray(values[row]).tolist(), advice)


def axes_of(
    who: str, takes: Mapping[str, tuple[str, ...]], shapes: Mapping[str, tuple[int, ...]], axes: Axes, dims: Any
) -> Axes:
    """`axes` with those of derived quantities: as given in `dims`, else as of an argument of the same shape.

    Where arguments of that shape have axes of different names, none is taken.
    """
    named = dict(axes.dims)
    for name, needed in takes.items():
        alike = {tuple(named[one]) for one in needed if one in named and shapes[one] == shapes[name]}
        if shapes[name] and len(alike) == 1 and name not in named:
            named[name] = alike.pop()
    return Axes.of(who, named | dict(dims or {}), axes.coords, shapes)
