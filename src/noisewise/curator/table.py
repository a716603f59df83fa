"""Confidential records: columns of a table or of a CSV file, checked against what a plan asks of them.

Messages name files, lines, keys of the plan and columns that the plan names; never a value, nor the header of a file,
which is a record where somebody forgot it.
"""

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.curator.plan import CONTINUOUS, Query, word
from noisewise.errors import refusal

_WHOLE = re.compile(r" *[+-]?[0-9]+ *")
_NUMBER = re.compile(r" *(?:[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[nN]a[nN]|) *")
"""Numbers as files have them; empty text is a missing value."""
LONGEST_FLOAT_SUM = 2**20
"""OpenDP's sum of floats drops records beyond this many where their number is secret."""


class Table:
    """Confidential columns of equal length. A table given in Python prints as its column names, nothing else."""

    from_file = False
    """Whether the columns are a file's words, and the header may be a record."""

    def __init__(self, data: Any) -> None:
        names = list(data.columns) if hasattr(data, "columns") else list(data) if isinstance(data, Mapping) else None
        if not names:
            kind = type(data).__name__
            raise refusal("curator", "data", "must be a pandas table or a dict of columns", kind, "Name the columns.")
        repeated = len(names) - len({str(name) for name in names})
        if repeated:
            advice = "Rename the others."
            raise refusal("curator", "data", "must have a name of its own for each column", f"{repeated} more", advice)
        for name in names:
            if isinstance(data[name], np.ma.MaskedArray):
                advice = "Its mask would be lost: drop or impute those records, and tell the analysts."
                raise refusal("curator", "data", "must not hold masked arrays", str(name), advice)
        self._columns = {str(name): np.asarray(data[name]) for name in names}
        shapes = {column.shape for column in self._columns.values()}
        if len(shapes) != 1 or len(shapes.pop()) != 1:
            raise refusal("curator", "data", "must have columns of one length", sorted(self._columns), "Check them.")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The columns of a CSV file with a header, as words; refused by line, never by content."""
        rows = _rows_of(path)
        header = rows[0]
        repeated = [number for number, name in enumerate(header, 1) if name in header[: number - 1]]
        if repeated:
            problem, advice = f"column {repeated[0]} named like one before it", "Rename one of them."
            raise refusal("release", "data", "must have a name of its own for each column", problem, advice)
        columns = zip(*rows[1:], strict=True) if len(rows) > 1 else ([] for _ in header)
        table = cls({name: np.array(column, dtype=object) for name, column in zip(header, columns, strict=True)})
        table.from_file = True
        return table

    def __repr__(self) -> str:
        return f"Table({'a file' if self.from_file else ', '.join(self._columns)})"

    @property
    def size(self) -> int:
        """The number of records."""
        return len(next(iter(self._columns.values())))

    def prepared(self, query: Query, neighbours: str) -> Any:
        """The column that OpenDP is given for a query: whole numbers, floats or words; refused if it does not fit."""
        if query.column is None:
            return np.zeros(self.size, dtype=np.int64)
        if query.column not in self._columns:
            advice = "Check the header." if self.from_file else checks.nearest(query.column, self._columns)
            raise refusal(query.where, "column", "must be a column of the data", query.column, advice)
        column = self._columns[query.column]
        if query.kind in ("sum", "mean"):
            return self._as_numbers(self.numbers(query), query, neighbours)
        words = np.array([word(entry) for entry in column.tolist()], dtype=object)
        self._check_words(set(words.tolist()), query)
        if query.kind != "count":
            return words
        return self._as_numbers((words == query.value).astype(np.int64), query, neighbours)

    def numbers(self, query: Query) -> Any:
        """The column of a sum or a mean; a file's words as whole numbers where all are, else as floats."""
        column = self._columns[str(query.column)]
        if not self.from_file:
            return column
        words = column.tolist()
        if not all(map(_NUMBER.fullmatch, words)):
            return column  # refused later, as not numeric
        if all(map(_WHOLE.fullmatch, words)):
            whole = [int(each) for each in words]
            if all(abs(each) < 2**63 for each in whole):
                return np.array(whole, dtype=np.int64)
        return np.array([float(each.strip() or "nan") for each in words], dtype=np.float64)

    def _check_words(self, words: set[str], query: Query) -> None:
        """Refuse values that are not listed, and listed ones that do not occur, without saying which."""
        listed = {query.value} if query.kind == "count" else set(query.categories)
        if query.kind != "count" and not words <= listed and "unlisted" not in query.allow:
            rule, advice = "must hold every value of the column", "List them all, or recode the column"
            if query.kind == "answers":
                advice = f"Everyone answers, so every value needs its category. {advice}."
            else:
                advice = f'{advice}; or say allow = ["unlisted"], and such records are not counted.'
            raise refusal(query.where, "categories", rule, query.categories, advice)
        if words and not listed <= words and "empty" not in query.allow:
            argument, named = ("value", query.value) if query.kind == "count" else ("categories", query.categories)
            rule = "must occur in the column" if query.kind == "count" else "must each occur in the column"
            advice = 'Look for a slip in the plan; or say allow = ["empty"] if none is meant to be possible.'
            raise refusal(query.where, argument, rule, named, advice)

    def _as_numbers(self, column: Any, query: Query, neighbours: str) -> Any:
        """A column to be added up, as int64 for noise on the integers, else as float64."""
        if column.dtype.kind not in "iufb":
            advice = "Recode it, or publish a histogram."
            raise refusal(query.where, "column", "must hold numbers", query.column, advice)
        if column.dtype.kind == "f" and np.isnan(column).any():
            advice = "Impute or drop them, and tell the analysts."
            raise refusal(query.where, "column", "must have no missing values", query.column, advice)
        whole = column.dtype.kind != "f" and all(bound == math.floor(bound) for bound in query.bounds or ())
        discrete = whole and query.kind != "mean" and query.mechanism not in CONTINUOUS
        if not whole and query.mechanism not in (None, *CONTINUOUS):
            rule = "must be Laplace or Gaussian unless column and bounds are whole numbers"
            raise refusal(query.where, "mechanism", rule, query.mechanism, "Or leave it out.")
        if not discrete and neighbours == "add-remove" and self.size > LONGEST_FLOAT_SUM:
            rule = f"must be whole numbers where more than {LONGEST_FLOAT_SUM} are added up under add-remove"
            advice = "OpenDP would drop records: round the column, or use replace-one neighbours."
            raise refusal(query.where, "column", rule, query.column, advice)
        return column.astype(np.int64 if discrete else np.float64)


def _rows_of(path: str | Path) -> list[list[str]]:
    """Header and records of a CSV file, all of one length."""
    name = str(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            rows, lines = [], []
            for row in reader:
                rows.append(row)
                lines.append(reader.line_num)
    except FileNotFoundError:
        raise refusal("release", "data", "must be an existing file", name, "Check the path.") from None
    except (OSError, ValueError, csv.Error) as error:  # the reader's message may quote the data: name its kind only
        rule = f"must be a CSV file with a header ({type(error).__name__})"
        raise refusal("release", "data", rule, name, "Check the file.") from None
    while rows and not rows[-1]:  # empty lines at the end
        rows.pop()
    if not rows or not rows[0]:
        rule = "must be a CSV file with a header (nothing in its first line)"
        raise refusal("release", "data", rule, name, "Check the file.")
    for line, row in zip(lines, rows, strict=False):
        if len(row) != len(rows[0]):
            problem = f"{len(row)} in line {line}"
            rule = f"must have as many entries in every line as the header, {len(rows[0])}"
            raise refusal("release", "data", rule, problem, f"Mend {name} there.")
    return rows
