"""Tables of exact covariates: one row for each entry of a released vector, matched by labels where both have them."""

from collections.abc import Mapping
from typing import Any

from noisewise.errors import refusal
from noisewise.everyday.formula import WHO
from noisewise.mechanisms import Released


def table(data: Any, length: int) -> Any:
    """`data` as a pandas table with one row for each of `length` entries."""
    import pandas as pd

    advice = "Give a pandas table, or a dict of columns."
    if isinstance(data, Mapping):
        try:
            data = pd.DataFrame(dict(data))
        except ValueError as error:
            raise refusal(WHO, "data", "must have columns of one length", str(error), advice) from None
    if not isinstance(data, pd.DataFrame):
        raise refusal(WHO, "data", "must be a table of covariates", data, advice)
    if len(data) != length:
        rule = f"must have one row for each entry of the outcome, {length} in number"
        raise refusal(WHO, "data", rule, len(data), "Give the rows that the entries belong to.")
    return data.reset_index(drop=data.index.name is None or data.index.name in data.columns)


def in_order_of(item: Released, frame: Any) -> Any:
    """Rows in the order of the entries' labels, where the table has a column of these; else as they are."""
    for axis, labels in item.coords.items():
        if axis not in frame.columns:
            continue
        found = frame[axis].tolist() if isinstance(labels[0], int) else frame[axis].astype(str).tolist()
        if sorted(found) != sorted(labels):
            odd = next((label for label in labels if label not in found), found[0])
            rule = f"must have in its column '{axis}' each label of the outcome once"
            raise refusal(WHO, "data", rule, odd, "Give one row for each entry.")
        place = {label: row for row, label in enumerate(found)}
        return frame.iloc[[place[label] for label in labels]].reset_index(drop=True)
    return frame
