"""Checks of arguments: each returns the value as the library works with it, or refuses it in one form of message."""

import difflib
import keyword
import operator
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from noisewise.errors import refusal

NO_ARGUMENT = "must be names that can be Python arguments"
"""The rule broken by a keyword of Python, and by a string that is not an identifier."""
_ARVIZ_DIMENSION = re.compile(r"chain|draw|.*_dim_\d+")
_RESERVED = {"rng", "log_weight", "log_weights"}


def integer(who: str, argument: str, value: Any, *, least: int, advice: str) -> int:
    """`value` as an int that is at least `least`; a bool or a float is refused."""
    if isinstance(value, (bool, np.bool_)):
        raise refusal(who, argument, f"must be a whole number, at least {least}", value, advice)
    try:
        number = operator.index(value)
    except TypeError:
        raise refusal(who, argument, f"must be a whole number, at least {least}", value, advice) from None
    if number < least:
        raise refusal(who, argument, f"must be a whole number, at least {least}", value, advice)
    return number


def positive(who: str, argument: str, value: Any, advice: str) -> Any:
    """`value` as a positive finite float, or a read-only array of them."""
    array = numeric(who, argument, value, advice)
    if not (np.all(np.isfinite(array)) and np.all(array > 0)):
        raise refusal(who, argument, "must be positive and finite", value, advice)
    return array


def positive_number(who: str, argument: str, value: Any, advice: str) -> float:
    """`value` as one positive finite float."""
    number = positive(who, argument, value, advice)
    if isinstance(number, np.ndarray):
        raise refusal(who, argument, "must be a single number", value, advice)
    return float(number)


def is_level(value: Any) -> bool:
    """Whether `value` can be the level of an interval: one number between 0 and 1, both excluded."""
    return isinstance(value, (int, float, np.floating)) and bool(0 < value < 1)


def level(who: str, value: Any) -> float:
    """`value` if it can be the level of an interval."""
    if not is_level(value):
        raise refusal(who, "level", "must lie between 0 and 1", value, "Give 0.95 for a 95% interval.")
    return float(value)


def numeric(who: str, argument: str, value: Any, advice: str) -> Any:
    """`value` as a float (scalars) or a read-only float64 array."""
    rule = "must be a number or an array of numbers"
    if isinstance(value, jax.core.Tracer):
        how = "Make it outside of the traced function; jax.tree.map(lambda x: x[index], it) picks entries inside."
        raise refusal(who, argument, f"{rule} that are known while JAX traces", "a traced value", how)
    try:
        array = np.asarray(value)
    except ValueError:
        raise refusal(who, argument, rule, value, advice) from None
    if array.dtype.kind not in "iuf":
        raise refusal(who, argument, rule, value, advice)
    array = np.array(array, dtype=np.float64)
    if array.ndim == 0:
        return float(array)
    array.flags.writeable = False
    return array


def choice(who: str, argument: str, value: Any, allowed: Iterable[str], advice: str = "Choose one.") -> str:
    """`value` if it is one of `allowed`."""
    options = list(allowed)
    if not isinstance(value, str) or value not in options:
        raise refusal(who, argument, "must be one of " + ", ".join(map(repr, options)), value, advice)
    return str(value)


def name(who: str, argument: str, value: Any) -> str:
    """`value` if it can name a parameter or statistic (it becomes an argument and an ArviZ variable)."""
    advice = "Rename it, for example to 'theta' or 'count'."
    if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value):
        raise refusal(who, argument, NO_ARGUMENT, value, advice)
    if unicodedata.normalize("NFKC", value) != value:  # Python would read the argument as another name
        raise refusal(
            who,
            argument,
            "must be written as Python reads them",
            value,
            f"Write {unicodedata.normalize('NFKC', value)!r}.",
        )
    if _ARVIZ_DIMENSION.fullmatch(value) or value in _RESERVED:
        rule = "must not use the reserved names 'chain', 'draw', '*_dim_0', 'rng', 'log_weight', 'log_weights'"
        raise refusal(who, argument, rule, value, advice)
    return value


def known_name(who: str, argument: str, name: Any, names: Iterable[Any], rule: str) -> None:
    """Refuse a name that is none of `names`, and say which of them is nearest."""
    if name not in names:
        raise refusal(who, argument, rule, name, nearest(name, names))


def nearest(word: Any, known: Iterable[str]) -> str:
    """Sentences naming the known word nearest to `word`, if one is near, and the first twenty known words."""
    words = sorted(known)
    close = difflib.get_close_matches(str(word), words, n=1)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    return hint + f"Known: {', '.join(words[:20]) or 'none'}."
