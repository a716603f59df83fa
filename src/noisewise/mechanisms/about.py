"""Descriptions of a release and its statistics, for people: titles, units, sources; no law depends on them."""

import datetime
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from noisewise import checks
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict

Check = Callable[[str, str, Any], Any]


def about(who: str, fields: Mapping[str, Check], given: Mapping[str, Any]) -> FrozenDict:
    """The fields in `given`, each checked; a field that is None is left out, one that is not among `fields` refused."""
    for key, value in given.items():
        if key not in fields:
            advice = checks.nearest(key, fields) + " What has no field of its own goes under 'extra'."
            raise refusal(who, key, "is not a field of a description", value, advice)
    stated = {key: check(who, key, given[key]) for key, check in fields.items() if given.get(key) is not None}
    return FrozenDict(stated)


def _text(who: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refusal(who, key, "must be words", value, "Write a sentence, or leave it out.")
    text = " ".join(value.split())  # on one line: printed descriptions have line breaks of their own
    if not text.isprintable():
        raise refusal(who, key, "must be words that can be printed", value, "Leave control characters out.")
    return text


def _date(who: str, key: str, value: Any) -> str:
    """A day as YYYY-MM-DD."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    day = value.isoformat() if isinstance(value, datetime.date) else value
    try:
        return datetime.datetime.strptime(day, "%Y-%m-%d").date().isoformat()
    except (TypeError, ValueError):
        raise refusal(who, key, "must be a day as YYYY-MM-DD", value, "Write 2026-03-01.") from None


def _bounds(who: str, key: str, value: Any) -> tuple[float, float]:
    """The two numbers between which each record's value was clamped."""
    numbers = isinstance(value, (list, tuple)) and len(value) == 2
    if not numbers or not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in value):
        raise refusal(who, key, "must be two numbers, low and high", value, "Give (0, 100).")
    low, high = (float(end) for end in value)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise refusal(who, key, "must be finite, the first below the second", value, "Give (0, 100).")
    return low, high


def _records(who: str, key: str, value: Any) -> int:
    return checks.integer(who, key, value, least=1, advice="Leave it out where it is confidential.")


def _extra(who: str, key: str, value: Any) -> FrozenDict:
    """Anything else that JSON can hold: it is kept, and nothing in the library reads it."""
    advice = 'Give a dict of words, numbers, lists and dicts: {"survey": "health"}.'
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise refusal(who, key, "must be a dict", value, advice)
    try:
        return FrozenDict(json.loads(json.dumps(dict(value), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(who, key, f"must hold what JSON can ({error})", value, advice) from None


OF_STATISTIC: Mapping[str, Check] = {
    "description": _text,
    "unit": _text,
    "bounds": _bounds,
    "records": _records,
    "extra": _extra,
}
OF_RELEASE: Mapping[str, Check] = {
    "title": _text,
    "description": _text,
    "source": _text,
    "date": _date,
    "licence": _text,
    "contact": _text,
    "privacy_unit": _text,
    "extra": _extra,
}


def plain(stated: Mapping[str, Any]) -> dict[str, Any]:
    """A description as plain data for a file."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in stated.items()}
