"""Tables of exact covariates: one row for each entry of a released vector, matched by labels where both have them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from noisewise.errors import refusal
from noisewise.everyday.formula import WHO
from noisewise.mechanisms import Released
from noisewise.numerics import Array


def frame_of(data: Any, item: Released) -> Any:
    """`data` as a pandas table with one row for each entry of `item`; an index that has a meaning is a column."""
    import pandas as pd

    advice = "Give a pandas table, or a dict of columns."
    if isinstance(data, Mapping):
        try:
            data = pd.DataFrame(dict(data))
        except ValueError as error:
            raise refusal(WHO, "data", "must have columns of one length", str(error), advice) from None
    if not isinstance(data, pd.DataFrame):
        raise refusal(WHO, "data", "must be a table of covariates", data, advice)
    if len(data) != item.shape[0]:
        rule = f"must have one row for each entry of the outcome, {item.shape[0]} in number"
        raise refusal(WHO, "data", rule, len(data), "Give the rows that the entries belong to.")
    if data.index.name is None and _holds_labels(data.index, item):
        data = data.rename_axis(next(iter(item.coords)))
    return data.reset_index(drop=data.index.name is None or data.index.name in data.columns)


def _holds_labels(index: Any, item: Released) -> bool:
    """Whether an index without a name says which row belongs to which entry: by words, or by the entries' own labels.

    The numbers 0, 1, ... say nothing.
    """
    if not item.coords or index.nlevels > 1:
        return False
    if index.dtype.kind not in "iuf":
        return True
    [labels] = item.coords.values()
    return not np.array_equal(index, np.arange(len(index))) and Counter(index.tolist()) == Counter(labels)


def in_order_of(item: Released, frame: Any) -> Array:
    """The rows in the order of the entries' labels, where the table has a column of these; else as they are."""
    for axis, labels in item.coords.items():
        if axis not in frame.columns:
            continue
        given = frame[axis].tolist() if isinstance(labels[0], int) else frame[axis].astype(str).tolist()
        if Counter(given) != Counter(labels):
            odd = next((label for label in labels if label not in given), given[0])
            rule = f"must have in its column '{axis}' each label of the outcome once"
            raise refusal(WHO, "data", rule, odd, "Give one row for each entry.")
        place = {label: row for row, label in enumerate(given)}
        return np.array([place[label] for label in labels])
    return np.arange(len(frame))
