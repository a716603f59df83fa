"""What laws on categories, counts and indices share: whole numbers, sums in logs, loops, blocks of rows.

The loops read the same in NumPy and in JAX.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from noisewise import checks
from noisewise.errors import refusal

CELLS = 2**19
"""Most numbers in a temporary array while one block of rows is computed."""


def by_rows(xp: Any, function: Callable[..., Any], arrays: tuple[Any, ...], cells: int) -> Any:
    """`function(*arrays)`, one number per row, taken a few rows at a time; a row needs `cells` numbers."""
    size = max(1, CELLS // max(cells, 1))
    rows = len(arrays[0])
    if rows <= size:
        return function(*arrays)
    if xp is np:
        parts = [function(*(array[start : start + size] for array in arrays)) for start in range(0, rows, size)]
        return np.concatenate(parts)
    return jax.lax.map(lambda row: function(*(part[None] for part in row))[0], arrays, batch_size=size)


def repeat(xp: Any, steps: int, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """The state after `state = body(step, state)` for each step; a compiled loop in JAX."""
    if xp is not np:
        return jax.lax.fori_loop(0, steps, body, state)
    for step in range(steps):
        state = body(step, state)
    return state


def log_sum(xp: Any, terms: Any, axis: Any) -> Any:
    """log(sum(exp(terms))) along an axis, in NumPy and JAX alike; -inf where all terms are, without a warning."""
    top = xp.max(terms, axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0.0)
    return log(xp, xp.sum(xp.exp(terms - top), axis=axis)) + xp.squeeze(top, axis=axis)


def log(xp: Any, value: Any) -> Any:
    """log, with -inf at zero and no warning."""
    return xp.where(value > 0, xp.log(xp.where(value > 0, value, 1.0)), -xp.inf)


def times(xp: Any, count: Any, log_weight: Any) -> Any:
    """count * log_weight, with 0 * (-inf) = 0."""
    return xp.where(count == 0, 0.0, count * xp.where(count == 0, 0.0, log_weight))


def whole_numbers(who: str, argument: str, value: Any) -> Any:
    """`value` (numbers or booleans) as an int64 array; refused where not whole."""
    array = np.asarray(value)
    array = array.astype(np.int64) if array.dtype.kind == "b" else array
    if array.size == 0:
        raise refusal(who, argument, "must not be empty", value, "Give at least one number.")
    numbers = np.asarray(checks.numeric(who, argument, array, "Give whole numbers."))
    if not np.all(np.isfinite(numbers)) or not np.all(numbers == np.floor(numbers)) or np.any(abs(numbers) > 2.0**53):
        raise refusal(who, argument, "must be whole numbers", value, "Number the categories from 0.")
    return numbers.astype(np.int64)
