"""Made-up rows with the columns that a plan asks for, from which a rehearsal is drawn."""

from typing import Any

import numpy as np

from noisewise.curator.plan import Plan, Query
from noisewise.curator.table import Table

ROWS = 1_000
"""Records that are made up where their number is secret."""


def made_up(plan: Plan, table: Table) -> Table:
    """Records with the plan's columns: its categories in turn, numbers evenly spread between its bounds.

    Only this is used of the confidential records: whether a column holds whole numbers, and their number where it is
    public.
    """
    size = max(table.size if plan.neighbours == "replace-one" else ROWS, 1)
    columns: dict[str, Any] = {"row": np.arange(size)}
    for query in plan.queries.values():
        if query.column is not None:
            columns[query.column] = _column(query, table, size, columns.get(query.column))
    return _Unchecked(columns)


class _Unchecked(Table):
    """Words are not checked: a column that several statistics ask for holds the values of only one of them."""

    def _check_words(self, words: set[str], query: Query) -> None:
        pass


def _column(query: Query, table: Table, size: int, before: Any) -> Any:
    if query.bounds is None:
        words = query.categories or (query.value,)
        return np.resize(np.array(words, dtype=object), size) if before is None else before
    whole = table.numbers(query).dtype.kind != "f"
    spread = np.linspace(*query.bounds, size)
    return spread.round().astype(np.int64) if whole else spread
