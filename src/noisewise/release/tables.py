"""A table of noisy values: its columns, from a pandas or polars frame, a dict of columns, a CSV or a Parquet file.

Every refusal names column and row. Rows are counted from 0, as pandas does; a file's header is not counted.
"""

import math
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.axes import iso_form
from noisewise.errors import InputError, refusal
from noisewise.mechanisms.processed import SUPPRESSED

SEPARATORS = {".csv": ",", ".tsv": "\t"}
COUNTED = "Rows are counted from 0."


class Columns:
    """The columns of a table by name; messages begin with `who`, the function that reads them."""

    def __init__(self, who: str, table: Any, *, numbers: Iterable[str], words: Iterable[str]) -> None:
        """Read the columns named; those of `words` are kept as they are written, so that 01001 stays 01001."""
        self.who = who
        frame = _frame(who, table, list(dict.fromkeys(numbers)), list(dict.fromkeys(words)))
        self._columns = {str(name): frame[name] for name in frame.columns}
        for name in dict.fromkeys([*numbers, *words]):
            checks.known_name(who, name, name, self._columns, "must be a column of the table")
        self.rows = len(frame)

    def numbers(self, column: str, *, token: bool = False) -> Any:
        """A column of finite numbers; with `token`, NaN where it has the word "suppressed"."""
        array = self._columns[column].to_numpy()
        if array.dtype.kind in "mM" and len(array):
            raise self.refused(column, 0, "must be a number, not a time", str(array[0]), "Give a number of units.")
        if array.dtype.kind not in "iuf":
            array = self._parsed(column, array, token)
            finite = np.isfinite(array) | (np.isnan(array) & token)
        else:
            finite = np.isfinite(array)
        if not np.all(finite):
            row = int(np.argmin(finite))
            advice = f'Withheld values are the word "{SUPPRESSED}", or rows named in expected=.'
            raise self.refused(column, row, "must be a finite number", array[row].item(), advice)
        return array

    def _parsed(self, column: str, array: Any, token: bool) -> Any:
        """Numbers from text and objects, one by one."""
        numbers = np.empty(len(array))
        for row, entry in enumerate(map(_plain, array.tolist())):
            if token and entry == SUPPRESSED:
                numbers[row] = math.nan
                continue
            try:
                if isinstance(entry, bool) or (isinstance(entry, str) and "_" in entry):
                    raise TypeError
                numbers[row] = float(entry)
            except (TypeError, ValueError):
                numbers[row] = math.nan
            if not math.isfinite(numbers[row]):
                separated = isinstance(entry, str) and entry.replace(",", "").replace(" ", "").isdigit()
                advice = f'Where a threshold is given, a withheld value is the word "{SUPPRESSED}".'
                advice = "Write it without separators of thousands." if separated else advice
                raise self.refused(column, row, "must be a finite number", entry, advice)
        return numbers

    def labels(self, column: str) -> Any:
        """A column of labels, as an array of objects: words, whole numbers; dates become words."""
        series = self._columns[column]
        zoned = getattr(getattr(series, "dtype", None), "time_zone", None)  # polars forgets zones in NumPy arrays
        array = np.array(series.to_list(), dtype=object) if zoned else series.to_numpy()
        if array.dtype.kind == "M":
            array = _dates(array)
        if array.dtype.kind in "iu":
            return array
        entries = list(map(_plain, np.asarray(array, dtype=object).tolist()))
        if set(map(type, entries)) != {str} or "" in entries:
            entries = [self._label(column, row, entry) for row, entry in enumerate(entries)]
        labels = np.empty(len(entries), dtype=object)
        labels[:] = entries
        return labels

    def _label(self, column: str, row: int, entry: Any) -> Any:
        """One label, checked: a word, a whole number, or a date, which becomes a word."""
        if entry is None or entry == "" or (isinstance(entry, float) and math.isnan(entry)):
            raise self.refused(column, row, "must not be empty", entry, "Every row needs its label.")
        if isinstance(entry, date):
            return iso_form(entry)
        if isinstance(entry, (str, int)) and not isinstance(entry, bool):
            return entry
        advice = "Whole numbers: table[column].astype(int)." if isinstance(entry, float) else "Write it as a word."
        raise self.refused(column, row, "must be a word, a whole number or a date", entry, advice)

    def refused(self, column: str, row: int, rule: str, value: Any, advice: str) -> InputError:
        """A refusal of one entry."""
        return refusal(self.who, column, f"in row {row} {rule}", value, f"{advice} {COUNTED}".strip())


def _plain(entry: Any) -> Any:
    """pandas' NA and NaT as None, other entries as they are: NA cannot be compared."""
    return None if type(entry).__name__ in ("NAType", "NaTType") else entry


def _dates(array: Any) -> Any:
    """Dates in ISO form, as in labels everywhere; missing ones as None."""
    days = array.astype("datetime64[D]")
    if np.all((days == array) | np.isnat(array)):
        words = np.datetime_as_string(days, unit="D").astype(object)
    else:
        words = np.array([entry and iso_form(entry) for entry in array.astype("datetime64[us]").tolist()], dtype=object)
    return np.where(np.isnat(array), None, words)


def _frame(who: str, table: Any, numbers: list[str], words: list[str]) -> Any:
    if isinstance(table, (str, os.PathLike)) and isinstance(os.fspath(table), str):
        return _read(who, Path(table).expanduser(), numbers, words)
    if type(table).__module__.startswith("pyarrow"):
        table = table.to_pandas()
    if isinstance(table, Mapping):
        import pandas

        try:
            return pandas.DataFrame(dict(table))
        except ValueError as error:
            raise refusal(
                who, "table", f"must have columns of one length ({error})", list(table), "Check it."
            ) from None
    if not hasattr(table, "columns") or not hasattr(table, "__getitem__") or not hasattr(table, "__len__"):
        advice = "Give a pandas or polars frame, a dict of columns, or the path of a CSV or Parquet file."
        raise refusal(who, "table", "must be a table", type(table).__name__, advice)
    names = [str(name) for name in table.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refusal(who, "table", "must not have two columns of one name", twice, "Rename one.")
    return table


def _read(who: str, path: Path, numbers: list[str], words: list[str]) -> Any:
    suffix = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    if suffix not in (*SEPARATORS, ".parquet"):
        advice = "Read other files with pandas, and give the frame."
        raise refusal(who, "table", "must end in .csv, .tsv (or these with .gz) or .parquet", str(path), advice)
    if not path.exists():
        raise refusal(who, "table", "must be an existing file", str(path), "Check the path.")
    try:
        return _parquet(who, path, numbers + words) if suffix == ".parquet" else _csv(who, path, suffix, words)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, UnicodeDecodeError, zlib.error, Warning) as error:
        raise refusal(who, "table", f"cannot be read ({error})", str(path), "Check the file.") from None


def _csv(who: str, path: Path, suffix: str, words: list[str]) -> Any:
    """All columns of a CSV file: where only some are asked for, pandas does not count the fields of a line."""
    import pandas

    # Empty entries stay text, to be refused with their row; a label may be the word NA.
    how: dict[str, Any] = {"sep": SEPARATORS[suffix], "keep_default_na": False, "index_col": False}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # from 3.1 on numbers are always read exactly
        how["float_precision"] = "round_trip"
    header = pandas.read_csv(path, header=None, nrows=1, dtype=str, **how).iloc[0].tolist()
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise refusal(who, "table", "must not have two columns of one name", twice, f"Rename one in {path}.")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # lines longer than the header would be cut
        return pandas.read_csv(path, dtype=dict.fromkeys(words, object), low_memory=False, **how)


def _parquet(who: str, path: Path, wanted: list[str]) -> Any:
    import pandas

    parquet = arrow(who)
    present = parquet.ParquetFile(path).schema_arrow.names
    return pandas.read_parquet(path, engine="pyarrow", columns=[name for name in present if name in wanted])


def arrow(who: str) -> Any:
    """pyarrow's Parquet module; refused with the extra's name where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        advice = "Install noisewise[parquet]."
        raise refusal(who, "table", "needs the package pyarrow to be read", "a Parquet file", advice) from None
    return pyarrow.parquet
