"""From the rows of a table to released values: arranged by their labels, with the noise that each row states."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import CATALOGUE, DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Released
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import Mechanism
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.mechanisms.wrapper import Wrapper
from noisewise.release.tables import Columns

WHO = "Release.from_table"
NOISE = ("scale", "variance", "epsilon", "rho", "sensitivity")
"""The arguments that may state the size of the noise, each a number or a column."""
_ROOT: dict[str, Callable[[Any], Any]] = {"variance": np.sqrt, "rho": lambda rho: 1.0 / np.sqrt(2.0 * rho)}
_SHARE: dict[str, Callable[[Any], Any]] = {"epsilon": lambda epsilon: 1.0 / epsilon}
SCALES: dict[type[Mechanism], dict[str, Callable[[Any], Any]]] = {
    Laplace: _SHARE | {"variance": lambda variance: np.sqrt(0.5 * variance)},
    # 1 / (2 sinh^2(1 / (2 scale))) is the variance.
    DiscreteLaplace: _SHARE | {"variance": lambda variance: 0.5 / np.arcsinh(1.0 / np.sqrt(2.0 * variance))},
    Gaussian: _ROOT,
    DiscreteGaussian: _ROOT,
}
"""The scale, for sensitivity 1, from each other size; for discrete Gaussian noise `variance` is sigma^2."""


@dataclass(frozen=True)
class ColumnPlan:
    """What `Release.from_table` was asked for, checked as far as it can be without the table."""

    value: str
    mechanism: Any
    index: tuple[str, ...]
    statistic: str | None
    threshold: float | str | None
    expected: dict[str, list[Any]] | None
    noise: dict[str, float | str]

    @classmethod
    def of(cls, value: Any, mechanism: Any, index: Any, noise: Mapping[str, Any], **options: Any) -> "ColumnPlan":
        """The plan from the arguments of `Release.from_table`, each checked."""
        listed = isinstance(index, Iterable) and not isinstance(index, str)
        names: tuple[Any, ...] = () if index is None else tuple(index) if listed else (index,)
        for name in (value, *names):
            if not isinstance(name, str):
                raise refusal(WHO, "value and index", "must be names of columns", name, 'Give value="count", say.')
        if len(set(names)) < len(names):
            raise refusal(WHO, "index", "must name each column once", index, "Drop one.")
        if options["statistic"] is not None and not isinstance(options["statistic"], str):
            rule = "must be the column that names the statistics"
            raise refusal(WHO, "statistic", rule, options["statistic"], "Leave it out for a single statistic.")
        expected = _expected(options["expected"], names, options["statistic"])
        threshold = _number_or_column("threshold", options["threshold"])
        kind = _kind(mechanism)
        if (names or options["statistic"]) and isinstance(kind, Mechanism) and _by_entry(kind):
            rule = "must have one number for each of its arguments where rows are arranged by their labels"
            raise refusal(WHO, "mechanism", rule, kind, 'Give mechanism="Laplace" and scale= as a column, say.')
        stated = {key: _number_or_column(key, entry) for key, entry in noise.items() if entry is not None}
        return cls(value, kind, names, options["statistic"], threshold, expected, _noise(kind, stated))

    @property
    def numbers(self) -> list[str]:
        """Columns that must hold numbers."""
        return [self.value, *(entry for entry in (*self.noise.values(), self.threshold) if isinstance(entry, str))]

    @property
    def words(self) -> list[str]:
        """Columns that hold labels."""
        return [*self.index, *([self.statistic] if self.statistic else [])]


def statistics(table: Any, plan: ColumnPlan) -> dict[str, Released]:
    """The released value of each statistic of the table, by name."""
    columns = Columns(WHO, table, numbers=plan.numbers, words=plan.words)
    if not columns.rows and plan.expected is None:
        advice = "If all that was expected was withheld, say so: threshold= and expected=."
        raise refusal(WHO, "table", "must have at least one row", plan.words + plan.numbers, advice)
    withheld = plan.threshold is not None or (isinstance(plan.mechanism, Mechanism) and _withholds(plan.mechanism))
    value = columns.numbers(plan.value, token=withheld)
    numbers = {name: columns.numbers(name) for name in plan.numbers[1:]}
    labels = {name: columns.labels(name) for name in plan.index}
    return {
        name: _Rows(plan, columns, rows, value, numbers, labels).released() for name, rows in _groups(columns, plan)
    }


def _groups(columns: Columns, plan: ColumnPlan) -> Iterator[tuple[str, Any]]:
    """The rows of each statistic, in the order in which they first occur."""
    import pandas

    if plan.statistic is None:
        yield checks.name(WHO, "value", plan.value), np.arange(columns.rows)
        return
    codes, names = pandas.factorize(columns.labels(plan.statistic))
    order = np.argsort(codes, kind="stable")
    groups = dict(zip(names, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=False))
    for name, rows in groups.items():
        if not isinstance(name, str) or not name.isidentifier():
            rule = "must name statistics by words that can be Python names"
            raise columns.refused(str(plan.statistic), int(rows[0]), rule, name, "Rename it, for example 'adults'.")
    expected = (plan.expected or {}).get(plan.statistic)
    for name in expected or ():
        groups.setdefault(name, np.arange(0))
    for name, rows in groups.items():
        if expected is not None and name not in expected:
            rule = "must be one of the expected statistics"
            raise columns.refused(plan.statistic, int(rows[0]), rule, name, "Add it to expected=.")
        yield checks.name(WHO, plan.statistic, name), rows


@dataclass(frozen=True)
class _Rows:
    """The rows of one statistic."""

    plan: ColumnPlan
    columns: Columns
    rows: Any
    value: Any
    numbers: dict[str, Any]
    labels: dict[str, Any]

    def released(self) -> Released:
        """The values of the rows, arranged by label, with their mechanism."""
        shape, cells, coords = self._arranged()
        size = math.prod(shape)
        values = self.value[self.rows]
        absent = size - len(self.rows)
        if absent:
            self._may_be_absent(absent)
            values = np.full(size, np.nan)
        else:
            values = np.empty(size, dtype=values.dtype)
        values[cells] = self.value[self.rows]
        stated = {key: self._by_cell(key, entry, shape, cells, absent) for key, entry in self.plan.noise.items()}
        by_row = any(isinstance(entry, str) for entry in self.plan.noise.values())
        mechanism = _mechanism(self.plan.mechanism, stated, by_row)
        self._check_values(mechanism)
        if self.plan.threshold is not None:
            mechanism = Thresholded(mechanism, self._by_cell("threshold", self.plan.threshold, shape, cells, absent))
        values = values.reshape(shape)
        return mechanism.released(values, coords=coords) if coords else mechanism.released(values)

    def _arranged(self) -> tuple[tuple[int, ...], Any, dict[str, Any]]:
        """The shape, the cell of each row, and the labels along each axis."""
        import pandas

        if not self.plan.index:
            return (len(self.rows),), np.arange(len(self.rows)), {}
        coords: dict[str, Any] = {}
        places = []
        for name in self.plan.index:
            codes, names = pandas.factorize(self.labels[name][self.rows])
            if self.plan.expected is None:
                coords[name] = list(names)
            else:
                coords[name] = self.plan.expected[name]
                known = pandas.Index(coords[name]).get_indexer(pandas.Index(names))
                codes = known[codes]
                self._refuse(codes < 0, name, "must be one of the expected labels", "Add it to expected=.")
            places.append(codes)
        shape = tuple(map(len, coords.values()))
        self._check_full(shape)
        cells = np.ravel_multi_index(places, shape)
        again = pandas.Series(cells).duplicated().to_numpy()
        self._refuse(again, self.plan.index[-1], "must not repeat the labels of an earlier row", "Drop one of the two.")
        return shape, cells, coords

    def _check_full(self, shape: tuple[int, ...]) -> None:
        if self.plan.expected is None and math.prod(shape) > len(self.rows):
            rule = f"must have a row for each of the {math.prod(shape):,} combinations of labels"
            advice = (
                "If the others were withheld, say so: threshold= and expected={column: labels}. "
                "If there are no others, name one column that identifies a row."
            )
            raise refusal(WHO, ", ".join(self.plan.index), rule, f"{len(self.rows):,} rows", advice)

    def _may_be_absent(self, absent: int) -> None:
        """Refuse absent rows unless values may be withheld: only then does their absence have a law."""
        if self.plan.threshold is None and not _withholds(self.plan.mechanism):
            advice = "Absence tells something only if small values are withheld: give threshold=, or expect less."
            rule = f"must not name rows that the table lacks ({absent:,} of them) without a threshold"
            raise refusal(WHO, "expected", rule, self.plan.index, advice)

    def _by_cell(self, key: str, entry: float | str, shape: tuple[int, ...], cells: Any, absent: int) -> Any:
        """`entry` if it is a number, else its column, arranged like the values; one number where all are the same."""
        if not isinstance(entry, str):
            return entry
        numbers = self.numbers[entry][self.rows]
        if not len(numbers):
            advice = f"Give {key} as a number."
            raise refusal(WHO, entry, "must have rows to read it from, where all of a statistic are absent", 0, advice)
        if key != "threshold":
            self._refuse(numbers <= 0, entry, "must be positive", "The noise has no such size.")
        if np.all(numbers == numbers[0]):
            return float(numbers[0])
        if absent:
            rule = "must be the same in all rows where rows are absent, since theirs is unknown"
            advice = f"Give {key} as a number, or read groups with statistic=."
            raise refusal(WHO, entry, rule, f"{numbers.min()} to {numbers.max()}", advice)
        arranged = np.empty(len(numbers))
        arranged[cells] = numbers
        return arranged.reshape(shape)

    def _check_values(self, mechanism: Mechanism) -> None:
        """Refuse values that the mechanism cannot have given: here their row is known."""
        values = self.value[self.rows]
        if mechanism.measure == "lattice":
            self._refuse(
                (values != np.floor(values)) & ~np.isnan(values), self.plan.value, "must be a whole number", ""
            )
        least: Any = self.plan.threshold
        if least is None and isinstance(mechanism, Thresholded) and np.ndim(mechanism.threshold) == 0:
            least = mechanism.threshold
        if least is not None:
            least = self.numbers[least][self.rows] if isinstance(least, str) else least
            advice = "The threshold is the least value that is published."
            self._refuse(values < least, self.plan.value, "must not be below the threshold", advice)

    def _refuse(self, wrong: Any, column: str, rule: str, advice: str) -> None:
        """Refuse the first row that is wrong."""
        if np.any(wrong):
            row = int(self.rows[np.argmax(wrong)])
            shown = self.labels[column] if column in self.labels else self.numbers.get(column, self.value)
            entry = shown[row].item() if hasattr(shown[row], "item") else shown[row]
            named = ", ".join(f"{name} {self.labels[name][row]}" for name in self.plan.index if name != column)
            where = f"{advice} It is the row of {named}." if named else advice
            raise self.columns.refused(column, row, rule, entry, where.strip())


def _withholds(mechanism: Any) -> bool:
    return bool(getattr(mechanism, "suppresses", False))


def _number_or_column(key: str, entry: Any) -> Any:
    """A finite number or a column's name; None stays."""
    if entry is None or isinstance(entry, str):
        return entry
    advice = "Give a number, or the name of a column."
    number = checks.numeric(WHO, key, entry, advice)
    if isinstance(number, np.ndarray) or not math.isfinite(number):
        raise refusal(WHO, key, "must be one finite number, or a column", entry, advice)
    if key != "threshold" and number <= 0:
        raise refusal(WHO, key, "must be positive", entry, advice)
    return number


def _expected(expected: Any, index: tuple[str, ...], statistic: str | None) -> dict[str, list[Any]] | None:
    """The expected labels by column, checked; the column of statistics may be among them."""
    if expected is None:
        return None
    advice = "Give a list of labels, or with several index columns a dict of lists, one per column."
    if not index:
        raise refusal(WHO, "expected", "must come with index", expected, "Name the column of the labels.")
    by_column = expected if isinstance(expected, Mapping) else {index[0]: expected}
    if set(by_column) - {statistic} != set(index):
        raise refusal(WHO, "expected", f"must have labels for {', '.join(index)}", list(by_column), advice)
    lists = {}
    for name in by_column:
        labels = by_column[name]
        if isinstance(labels, (str, Set)) or not isinstance(labels, Iterable):
            raise refusal(WHO, "expected", "must be lists of labels", labels, advice)
        stated = Columns(WHO, {name: list(labels)}, numbers=(), words=(name,)).labels(name).tolist()
        if not stated:
            raise refusal(WHO, "expected", "must hold at least one label", labels, advice)
        if len(set(stated)) < len(stated):
            twice = Counter(stated).most_common(1)[0][0]
            raise refusal(WHO, "expected", "must not hold a label twice", twice, "Drop one.")
        lists[name] = stated
    return lists


def _kind(mechanism: Any) -> Any:
    """A mechanism as it is, or a class of mechanisms, which may be given by its name."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    if isinstance(mechanism, str):
        if mechanism not in CATALOGUE:
            advice = checks.nearest(mechanism, CATALOGUE)
            raise refusal(WHO, "mechanism", "must be a known mechanism", mechanism, advice)
        return CATALOGUE[mechanism]
    if not inspect.isclass(mechanism) or not issubclass(mechanism, Mechanism):
        advice = 'Give "Laplace" or nw.Laplace with scale=, or a whole mechanism such as nw.Laplace(scale=5.0).'
        raise refusal(WHO, "mechanism", "must be a mechanism, its class or its name", mechanism, advice)
    return mechanism


def _by_entry(mechanism: Any) -> bool:
    """Whether additive noise, or a wrapper, has an array of numbers among its arguments, or a mechanism inside has."""
    arguments: list[Any] = [getattr(mechanism, name, None) for name in (*mechanism.fields, *mechanism.static)]
    noise = isinstance(mechanism, (Additive, Wrapper))
    if noise and any(np.ndim(entry) for entry in arguments if _numeric(entry)):
        return True
    return any(_by_entry(inner) for inner in arguments if isinstance(inner, Mechanism))


def _numeric(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) or hasattr(entry, "__array__")


def _noise(kind: Any, stated: dict[str, Any]) -> dict[str, Any]:
    """The arguments that state the size of the noise, `stated`, if they are exactly what `kind` needs."""
    for key in stated:
        if key not in NOISE:
            raise refusal(WHO, key, "is not an argument", stated[key], checks.nearest(key, NOISE))
    if isinstance(kind, Mechanism):
        if stated:
            rule = "must not come with a whole mechanism, which has its noise"
            raise refusal(WHO, ", ".join(stated), rule, kind, f"Give mechanism={type(kind).__name__!r} instead.")
        return {}
    sizes = [key for key in stated if key != "sensitivity"]
    known = ["scale", *SCALES.get(kind, {})] if ("scale",) in kind.alternatives else []
    advice = f"For {kind.__name__} give {' or '.join(known)}." if known else "Give a whole mechanism, with its numbers."
    if len(sizes) != 1 or sizes[0] not in known:
        raise refusal(WHO, "mechanism", "must come with one size of its noise", sizes, advice)
    if (sizes[0] in ("epsilon", "rho")) != ("sensitivity" in stated):
        rule = "must come with a budget, and a budget with it"
        raise refusal(WHO, "sensitivity", rule, stated, "How far can one person move a value?")
    return stated


def _mechanism(kind: Any, stated: dict[str, Any], by_row: bool) -> Mechanism:
    """The mechanism with the stated size of its noise.

    A budget given as a number is that of the whole table, and becomes its guarantee. A column states the budget of each
    row by itself, which gives no guarantee of all rows together.
    """
    if isinstance(kind, Mechanism):
        return kind
    [size] = [key for key in stated if key != "sensitivity"]
    if size == "scale" or (size != "variance" and not by_row):
        return kind(**stated)
    return kind(scale=SCALES[kind][size](stated[size]) * stated.get("sensitivity", 1.0))
