"""Real releases: OpenDP computes the statistic, chooses the scale for the budget and adds the noise.

OpenDP is an optional dependency, imported where it is used. Messages name files, keys and columns, never confidential
values.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.curator.rounding import as_rounded
from noisewise.errors import InputError, refusal
from noisewise.mechanisms import CATALOGUE, Released
from noisewise.mechanisms.guarantee import NEIGHBOURS
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.release import Release

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ("column", "value")),
    "sum": (("column", "bounds"), ()),
    "mean": (("column", "bounds"), ()),
    "histogram": (("column", "categories"), ()),
    "answers": (("column", "categories"), ()),
}
"""Kinds of statistics: the keys each needs, and those it may have beside `kind`, a budget and `mechanism`."""
_ADDITIVE = {"Laplace": "epsilon", "DiscreteLaplace": "epsilon", "Gaussian": "rho", "DiscreteGaussian": "rho"}
_CONTINUOUS = ("Laplace", "Gaussian")
_ALLOWED = {
    "count": tuple(_ADDITIVE),
    "sum": tuple(_ADDITIVE),
    "mean": _CONTINUOUS,
    "histogram": tuple(_ADDITIVE),
    "answers": ("RandomizedResponse",),
}
LONGEST_FLOAT_SUM = 2**20
"""OpenDP's sum of floats drops records beyond this many where their number is secret."""


@dataclass(frozen=True)
class Query:
    """One statistic of a plan, checked."""

    where: str
    kind: str
    mechanism: str | None
    budget: float
    pure: bool
    """Whether the budget is epsilon (Laplace noise, randomised response) rather than rho (Gaussian noise)."""
    column: str | None = None
    value: str | None = None
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] = ()


def release(
    data: Any, statistics: Mapping[str, Any], *, neighbours: str = "add-remove", where: str = "plan"
) -> Release:
    """Draw a release from confidential `data` with OpenDP.

    `data` is a pandas table or a dict of columns; `statistics` says what to publish, by name, in the form of the
    plan files of docs/curators.md. `neighbours` is the relation the budgets speak of: under "add-remove" the number of
    records is secret, under "replace-one" it is public. Every call draws anew, and spends the budgets again.
    """
    checks.choice(where, "neighbours", neighbours, NEIGHBOURS)
    if not isinstance(statistics, Mapping) or not statistics:
        advice = 'Give {"adults": {"kind": "count", "epsilon": 0.5}}.'
        raise refusal(where, "statistics", "must be a non-empty table", statistics, advice)
    queries = {}
    for name, entry in statistics.items():
        checks.name(where, "statistics", name)
        queries[name] = _query(entry, neighbours, f"{where}: statistics.{name}")
    table = Table(data)
    for query in queries.values():  # every column is looked at before any budget is spent
        table.prepared(query, neighbours)
    dp = _opendp()
    drawn = {name: _drawn(dp, query, table, neighbours) for name, query in queries.items()}
    return Release({name: _told(item, queries[name], queries) for name, item in drawn.items()})


def release_file(data: str | Path, plan: str | Path) -> Release:
    """Draw a release from a CSV file as a TOML plan says; the form of both is in docs/curators.md."""
    import pandas

    content = _read_plan(plan)
    try:
        table = pandas.read_csv(data)
    except FileNotFoundError:
        raise refusal("release", "data", "must be an existing file", str(data), "Check the path.") from None
    except (OSError, ValueError) as error:  # the reader's message may quote the data: name its kind only
        rule = f"must be a CSV file with a header ({type(error).__name__})"
        raise refusal("release", "data", rule, str(data), "Check the file.") from None
    return release(table, content["statistics"], neighbours=content.get("neighbours", "add-remove"), where=str(plan))


def _read_plan(path: str | Path) -> dict[str, Any]:
    where = str(path)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise refusal("release", "plan", "must be an existing file", where, "Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as UTF-8 text: {error}. Check the file.", who=where) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}. Mend it there.", who=where) from None
    for key in content:
        if key not in ("neighbours", "statistics"):
            rule = "is not a key of a plan"
            raise refusal(where, key, rule, content[key], checks.nearest(key, ("neighbours", "statistics")))
    if "statistics" not in content:
        raise refusal(where, "statistics", "is missing", sorted(content), "Add a table such as [statistics.adults].")
    return content


# Plans ---------------------------------------------------------------------------------------------------------


def _query(entry: Any, neighbours: str, where: str) -> Query:
    if not isinstance(entry, Mapping):
        raise refusal(where, "entry", "must be a table", entry, "Give kind, a budget and what the kind needs.")
    if "kind" not in entry:
        raise refusal(where, "kind", "is missing", sorted(entry), f"Give one of {', '.join(KINDS)}.")
    kind = checks.choice(where, "kind", entry["kind"], KINDS)
    needed, optional = KINDS[kind]
    known = ("kind", "epsilon", "rho", "mechanism", *needed, *optional)
    for key, value in entry.items():
        if key not in known:
            raise refusal(where, key, f"is not a key of a {kind}", value, checks.nearest(key, known))
    for key in needed:
        if key not in entry:
            raise refusal(where, key, f"is missing for a {kind}", sorted(entry), f"A {kind} needs {', '.join(needed)}.")
    if kind == "count" and ("column" in entry) != ("value" in entry):
        raise refusal(where, "value", "must come together with column", sorted(entry), "Count where column is value.")
    if kind == "count" and "column" not in entry and neighbours == "replace-one":
        rule = "must name a column and a value under replace-one neighbours"
        raise refusal(where, "kind", rule, "count", "The number of records is public there.")
    if kind == "mean" and neighbours != "replace-one":
        rule = "must be used with neighbours = 'replace-one', since a mean divides by the number of records"
        raise refusal(where, "kind", rule, "mean", "Or publish a sum and a count.")
    if kind == "answers" and neighbours != "replace-one":
        rule = "must be used with neighbours = 'replace-one', since every record gives an answer"
        raise refusal(where, "kind", rule, "answers", "Their number shows how many records there are.")
    mechanism, budget, pure = _budget(entry, kind, where)
    return Query(
        where,
        kind,
        mechanism,
        budget,
        pure,
        column=_text(entry, "column", where),
        value=_word(entry["value"]) if "value" in entry else None,
        bounds=_bounds(entry["bounds"], where) if "bounds" in entry else None,
        categories=_categories(entry["categories"], where) if "categories" in entry else (),
    )


def _budget(entry: Mapping[str, Any], kind: str, where: str) -> tuple[str | None, float, bool]:
    """The mechanism's name, if given; the budget; and whether it is epsilon."""
    budgets = [key for key in ("epsilon", "rho") if key in entry]
    if len(budgets) != 1:
        advice = "epsilon is for Laplace noise and answers, rho for Gaussian noise."
        raise refusal(where, "epsilon", "or rho must be given, exactly one of them", budgets, advice)
    budget = checks.positive_number(where, budgets[0], entry[budgets[0]], "Give one positive number.")
    name = entry.get("mechanism")
    if name is not None:
        checks.choice(
            where, "mechanism", name, _ALLOWED[kind], f"These are for a {kind}; leave it out to let us choose."
        )
    wanted = "epsilon" if kind == "answers" else _ADDITIVE.get(name or "", budgets[0])
    if budgets[0] != wanted:
        raise refusal(where, budgets[0], f"must be {wanted} for {name or kind}", budget, f"Give {wanted}.")
    return name, budget, budgets[0] == "epsilon"


def _text(entry: Mapping[str, Any], key: str, where: str) -> str | None:
    if key not in entry:
        return None
    if not isinstance(entry[key], str):
        raise refusal(where, key, "must be a column's name", entry[key], "Give it in quotes.")
    return str(entry[key])


def _bounds(value: Any, where: str) -> tuple[float, float]:
    rule, advice = "must be two numbers, the lower first", "Records are clamped to them, for example [0, 100]."
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise refusal(where, "bounds", rule, value, advice)
    low, high = (checks.numeric(where, "bounds", bound, advice) for bound in value)
    if not (isinstance(low, float) and isinstance(high, float) and math.isfinite(high - low) and low < high):
        raise refusal(where, "bounds", rule, value, advice)
    return low, high


def _categories(value: Any, where: str) -> tuple[str, ...]:
    words = tuple(map(_word, value)) if isinstance(value, (list, tuple)) else ()
    if len(words) < 2 or len(set(words)) < len(words):
        advice = "They decide the order of the release; list all that are public knowledge."
        raise refusal(where, "categories", "must list at least two different values", value, advice)
    return words


def _word(value: Any) -> str:
    """A category as text; 2.0 is 2, as a column of whole numbers with gaps is read."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# Data ----------------------------------------------------------------------------------------------------------


class Table:
    """Confidential columns of equal length. It prints as its column names, nothing else."""

    def __init__(self, data: Any) -> None:
        names = list(data.columns) if hasattr(data, "columns") else list(data) if isinstance(data, Mapping) else None
        if not names:
            kind = type(data).__name__
            raise refusal("curator", "data", "must be a pandas table or a dict of columns", kind, "Name the columns.")
        for name in names:
            if isinstance(data[name], np.ma.MaskedArray):
                advice = "Its mask would be lost: drop or impute those records, and tell the analysts."
                raise refusal("curator", "data", "must not hold masked arrays", str(name), advice)
        self._columns = {str(name): np.asarray(data[name]) for name in names}
        shapes = {column.shape for column in self._columns.values()}
        if len(shapes) != 1 or len(shapes.pop()) != 1:
            raise refusal("curator", "data", "must have columns of one length", sorted(self._columns), "Check them.")

    def __repr__(self) -> str:
        return f"Table({', '.join(self._columns)})"

    @property
    def size(self) -> int:
        """The number of records."""
        return len(next(iter(self._columns.values())))

    def prepared(self, query: Query, neighbours: str) -> Any:
        """What OpenDP is given for a query: whole numbers, floats or words; refused where it cannot be."""
        if query.column is None:
            return np.zeros(self.size, dtype=np.int64)
        if query.column not in self._columns:
            advice = checks.nearest(query.column, self._columns)
            raise refusal(query.where, "column", "must be a column of the data", query.column, advice)
        column = self._columns[query.column]
        if query.kind in ("sum", "mean"):
            return self._as_numbers(column, query, neighbours)
        words = np.array([_word(entry) for entry in column.tolist()], dtype=object)
        if query.kind == "answers" and not set(words.tolist()) <= set(query.categories):
            advice = "Everyone answers, so every value needs its category: list them all, or recode the column."
            raise refusal(query.where, "categories", "must hold every value of the column", query.categories, advice)
        if query.kind != "count":
            return words
        return self._as_numbers((words == query.value).astype(np.int64), query, neighbours)

    def _as_numbers(self, column: Any, query: Query, neighbours: str) -> Any:
        """A column to be added up, as int64 for noise on the integers, else as float64."""
        if column.dtype.kind not in "iufb":
            advice = "Recode it, or publish a histogram."
            raise refusal(query.where, "column", "must hold numbers", query.column, advice)
        if column.dtype.kind == "f" and np.isnan(column).any():
            advice = "Impute or drop them, and tell the analysts."
            raise refusal(query.where, "column", "must have no missing values", query.column, advice)
        whole = column.dtype.kind != "f" and all(bound == math.floor(bound) for bound in query.bounds or ())
        discrete = whole and query.kind != "mean" and query.mechanism not in _CONTINUOUS
        if not whole and query.mechanism not in (None, *_CONTINUOUS):
            rule = "must be Laplace or Gaussian unless column and bounds are whole numbers"
            raise refusal(query.where, "mechanism", rule, query.mechanism, "Or leave it out.")
        if not discrete and neighbours == "add-remove" and self.size > LONGEST_FLOAT_SUM:
            rule = f"must be whole numbers where more than {LONGEST_FLOAT_SUM} are added up under add-remove"
            advice = "OpenDP would drop records: round the column, or use replace-one neighbours."
            raise refusal(query.where, "column", rule, query.column, advice)
        return column.astype(np.int64 if discrete else np.float64)


# Drawing -------------------------------------------------------------------------------------------------------


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        advice = "Install it: python -m pip install 'noisewise[opendp]'."
        raise refusal("curator", "opendp", "must be installed to draw releases", "no module opendp", advice) from None
    dp.enable_features("contrib")
    return dp


def _drawn(dp: Any, query: Query, table: Table, neighbours: str) -> Released:
    data = table.prepared(query, neighbours)
    try:
        return _answers(dp, query, data) if query.kind == "answers" else _noisy(dp, query, data, neighbours)
    except dp.OpenDPException as error:  # its text may quote what it was given: name its kind only
        advice = "Check bounds and budget."
        raise refusal(query.where, "entry", "was refused by OpenDP", str(error.variant), advice) from None


def _told(item: Released, query: Query, queries: Mapping[str, Query]) -> Released:
    """With what the plan says of it: the bounds, and the categories as labels where the column can name an axis."""
    if query.bounds is not None:
        item = item.described(bounds=query.bounds)
    along = {
        other.categories for other in queries.values() if (other.kind, other.column) == ("histogram", query.column)
    }
    if query.kind != "histogram" or query.column in queries or len(along) > 1:
        return item
    try:
        return item.with_coords({str(query.column): query.categories})
    except InputError:  # a column such as "home town", or a category that is no word
        return item


def _noisy(dp: Any, query: Query, data: Any, neighbours: str) -> Released:
    statistic = _statistic(dp, query, data, neighbours)
    noise = dp.m.then_laplace if query.pure else dp.m.then_gaussian
    # Distances count added and removed records: a replaced one is two.
    distance = 1 if neighbours == "add-remove" else 2
    scale = dp.binary_search_param(lambda scale: statistic >> noise(scale=scale), d_in=distance, d_out=query.budget)
    value = (statistic >> noise(scale=scale))(data.tolist())
    floats = data.dtype.kind == "f" or query.mechanism in _CONTINUOUS
    name = ("" if floats else "Discrete") + ("Laplace" if query.pure else "Gaussian")
    guarantee = {
        "epsilon" if query.pure else "rho": query.budget,
        "sensitivity": float(statistic.map(distance)),
        "norm": "l1" if query.pure else "l2",
        "neighbours": neighbours,
    }
    mechanism = CATALOGUE[name].from_dict({"scale": float(scale), "guarantee": guarantee}, query.where)
    return as_rounded(mechanism, value).released(value)


def _statistic(dp: Any, query: Query, data: Any, neighbours: str) -> Any:
    """OpenDP's transformation from records to the exact statistic; it knows the sensitivity."""
    size = {"size": len(data)} if neighbours == "replace-one" else {}
    to = "f64" if query.mechanism in _CONTINUOUS else "i64"
    if query.kind == "histogram":
        space = dp.vector_domain(dp.atom_domain(T=str), **size), dp.symmetric_distance()
        norm = f"L1Distance<{to}>" if query.pure else "L2Distance<f64>"
        return space >> dp.t.then_count_by_categories(list(query.categories), null_category=False, MO=norm, TOA=to)
    if query.column is None:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
        return space >> dp.t.then_count(TO=to)
    number = int if data.dtype.kind == "i" else float
    low, high = (0.0, 1.0) if query.bounds is None else query.bounds
    atoms = dp.atom_domain(T="i64") if number is int else dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(atoms, **size), dp.symmetric_distance()
    clamped = space >> dp.t.then_clamp((number(low), number(high)))
    return clamped >> (dp.t.then_mean() if query.kind == "mean" else dp.t.then_sum())


def _answers(dp: Any, query: Query, data: Any) -> Released:
    """Randomised response, record by record, in the order of the table."""
    others = len(query.categories) - 1
    keep = 1.0 / (1.0 + others * math.exp(-query.budget))

    def make(share: float) -> Any:
        return dp.m.make_randomized_response(list(query.categories), share)

    while make(keep).map(1) > query.budget:  # OpenDP rounds its epsilon up
        keep = math.nextafter(keep, 0.0)
    answer = make(keep)
    place = {word: index for index, word in enumerate(query.categories)}
    value = np.array([place[answer(entry)] for entry in data.tolist()], dtype=np.int64)
    return RandomizedResponse(keep=keep, categories=others + 1).released(value)
