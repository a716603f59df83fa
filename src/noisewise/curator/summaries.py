"""OpenDP's own summaries of Context queries, read into a `Release`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from noisewise.curator.rounding import as_rounded
from noisewise.errors import refusal
from noisewise.mechanisms import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, Laplace, Released
from noisewise.mechanisms.base import Mechanism
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.release import Release

_DISTRIBUTIONS: dict[str, Callable[..., Mechanism]] = {
    "Integer Laplace": DiscreteLaplace,
    "Float Laplace": Laplace,
    "Integer Gaussian": DiscreteGaussian,
    "Float Gaussian": Gaussian,
}
_COUNTS = ("Frame Length", "Length", "Count", "Null Count", "N Unique")


def from_opendp_summary(summary: Any, values: Any, *, signed: bool | None = None) -> Release:
    """A release from `query.summarize()` and the published values of an OpenDP Context query.

    `summary` is the table as a polars or pandas frame, or a list of dicts, with the columns `column`, `aggregate`,
    `distribution`, `scale` and, where OpenDP gives it, `threshold`. `values` is the frame from
    `query.release().collect()`, or a dict from column to a number or array; a threshold's column may hold the word
    "suppressed" for groups that could have been shown. `signed` says whether counts may be negative: by default as
    the frame's column types say, and where there are none they may not, as in OpenDP 0.16, which sets negative counts
    to zero although the summary does not say so.
    """
    who = "from_opendp_summary"
    rows = _rows(who, summary)
    names = [row["column"] for row in rows]
    released = {}
    for row in rows:
        name = row["column"]
        if names.count(name) > 1:
            rule = "must be made of one noisy value; this one combines several, and has no tractable law"
            advice = "Publish the sum and the length instead of the mean."
            raise refusal(who, name, rule, [part["aggregate"] for part in rows if part["column"] == name], advice)
        value, unsigned = _published(who, values, name)
        clamped = row["aggregate"] in _COUNTS and (not signed if signed is not None else unsigned is not False)
        released[name] = _described(who, row, value, clamped)
    return Release(released)


def _rows(who: str, summary: Any) -> list[dict[str, Any]]:
    if hasattr(summary, "to_dicts"):  # polars
        summary = summary.to_dicts()
    elif hasattr(summary, "to_dict"):  # pandas
        summary = summary.to_dict("records")
    advice = "Give query.summarize()."
    if not isinstance(summary, (list, tuple)) or not summary:
        raise refusal(who, "summary", "must be a table with at least one row", summary, advice)
    for row in summary:
        for key in ("column", "aggregate", "distribution", "scale"):
            if not isinstance(row, Mapping) or key not in row:
                raise refusal(who, "summary", f"must have the column '{key}'", row, advice)
    return [{key: None if _missing(value) else value for key, value in row.items()} for row in summary]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _published(who: str, values: Any, name: str) -> tuple[Any, bool | None]:
    """The published value of a column, and whether its type is unsigned (None where the type does not say)."""
    try:
        value = values[name]
    except Exception:
        known = list(values.columns) if hasattr(values, "columns") else list(values)
        raise refusal(who, "values", "must have every column of the summary", known, f"'{name}' is missing.") from None
    kind = str(getattr(value, "dtype", "")).lower()
    if hasattr(value, "to_list") and hasattr(values, "columns"):  # a frame's column: one row is a number
        value = np.asarray(value.to_list(), dtype=np.float32 if kind == "float32" else None)
        value = value.reshape(()) if value.size == 1 else value
    unsigned = True if kind.startswith("uint") else False if kind.startswith("int") else None
    return value, unsigned


def _described(who: str, row: dict[str, Any], value: Any, clamped: bool) -> Released:
    name, distribution, threshold = row["column"], row["distribution"], row.get("threshold")
    if distribution is None or row["scale"] == 0:
        return Exact().released(value)
    if distribution not in _DISTRIBUTIONS:
        rule = f"must have one of the distributions {', '.join(_DISTRIBUTIONS)}"
        advice = "A quantile's law needs its candidates, which the summary does not hold: describe it by hand."
        raise refusal(who, name, rule, distribution, advice)
    base = _DISTRIBUTIONS[distribution](scale=row["scale"])
    if threshold is not None:
        # Groups are shown where the noisy length is above the threshold; groups without records never.
        return Thresholded(base, threshold + 1, absent_when_zero=True).released(value)
    if clamped:
        return Clipped(base, low=0).released(value)
    return as_rounded(base, value).released(value)
