"""The 2020 Census noisy measurement files. docs/sources.md has their form and their law."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import DiscreteGaussian, Exact, Released
from noisewise.release import Release
from noisewise.release.tables import arrow
from noisewise.sources.census_codes import LEVELS, PRODUCTS, STATES, Grouping

WHO = "census_nmf"
WHOLE = ("total", "detailed")
"""Queries that are not named by the attributes they group."""
OF_STATE = 3
"""Characters of a state's geocode: one for American Indian areas, and the state's FIPS number."""
SUFFIXES = {"noisy": "_dpq", "constraint": "_con"}


def census_nmf(
    path: Any, *, level: str, query: str | Iterable[str], state: str | int | None = None, areas: Any = None
) -> Release:
    """Noisy counts of a 2020 Census noisy measurement file: one statistic for each query, with one entry an area.

    `path` is a Parquet file or a folder of them, such as `US_Person_PL_PROD`, the redistricting file of persons; also
    that of housing units, and the DHC files of persons, households and units. `level` is "State", "County", "Tract",
    ...; `query` is "total", "hispanic * cenrace", ..., or a list. `state` keeps one state, by FIPS number or
    abbreviation; `areas` is a list of geocodes as the file writes them, or a common prefix. A statistic (`total`,
    `by_hispanic_cenrace`) has the axes `geocode` and those of its query, with labels. Constraints that fix a value,
    such as "total_con", have no noise; those that bound one are refused. Files are read by row groups, and only what
    was asked for is kept.
    """
    wanted = _Wanted(_level(level), _queries(query), _state(state), _areas(areas))
    rows_of: dict[str, dict[str, _Row]] = {name: {} for name in wanted.queries}
    seen: set[str] = set()
    products: set[str] = set()
    for file in _files(path, wanted):
        for row in _rows(file, wanted, seen):
            products.add(row.product)
            if row.geocode in rows_of[row.query]:
                advice = "Give one file, or one folder of one product."
                raise refusal(WHO, "path", f"must measure '{row.query}' once in each area", row.geocode, advice)
            rows_of[row.query][row.geocode] = row
    for name, rows in rows_of.items():
        if not rows:
            rule = f"must have been measured at the level {wanted.level} for the areas asked for"
            elsewhere = name in seen or not seen
            advice = "Check state and areas: there is nothing of them." if elsewhere else checks.nearest(name, seen)
            raise refusal(WHO, "query", rule, name, advice)
        for code in wanted.areas if isinstance(wanted.areas, tuple) else ():
            if code not in rows:
                rule = f"must be geocodes of the level {wanted.level} with '{name}'"
                raise refusal(WHO, "areas", rule, code, checks.nearest(code, rows))
    return _told(Release({_name_of(name): _statistic(name, rows) for name, rows in rows_of.items()}), wanted, products)


def _told(release: Release, wanted: "_Wanted", products: set[str]) -> Release:
    """The release with a description that holds for every such file."""
    [product] = products if len(products) == 1 else [None]
    unit = None if product is None else "a person" if product.endswith("persons") else "a housing unit"
    of = "" if product is None else f": {product}"
    return release.described(
        f"2020 Census noisy measurements{of}",
        description=f"Counts at the level {wanted.level}, with noise and before any adjustment.",
        source="U.S. Census Bureau",
        licence="work of the U.S. government",
        privacy_unit=unit,
    )


@dataclass(frozen=True)
class _Wanted:
    level: str
    queries: dict[str, None]
    state: int | None
    areas: tuple[str, ...] | str | None

    def keeps(self, geocode: str) -> bool:
        """Whether an area was asked for. A geocode starts with 0, or 1 for American Indian areas, and the state."""
        if self.state is not None and geocode[1:3] != f"{self.state:02d}":
            return False
        if isinstance(self.areas, str):
            return geocode.startswith(self.areas)
        return self.areas is None or geocode in self.areas


@dataclass(frozen=True)
class _Row:
    """One query in one area."""

    product: str
    geocode: str
    query: str
    axes: tuple[tuple[str, tuple[str, ...]], ...]
    value: Any
    variance: float
    sign: str | None


# What was asked for ----------------------------------------------------------------------------------------------


def _level(level: Any) -> str:
    known = {name.lower(): name for name in LEVELS}
    word = level.lower().replace(" ", "_") if isinstance(level, str) else level
    return known[checks.choice(WHO, "level", word, known, f"Levels are {', '.join(LEVELS)}.")]


def _queries(query: Any) -> dict[str, None]:
    """Names as the files write them: `hispanic * cenrace_dpq`."""
    queries = [query] if isinstance(query, str) else list(query) if isinstance(query, Iterable) else []
    if not queries or not all(isinstance(name, str) for name in queries):
        raise refusal(WHO, "query", "must be a name, or a list of names", query, 'Give "total", say.')
    names: dict[str, None] = {}
    for name in queries:
        spaced = " * ".join(part.strip() for part in name.split("*"))
        names[spaced if spaced.endswith(tuple(SUFFIXES.values())) else spaced + SUFFIXES["noisy"]] = None
    return names


def _state(state: Any) -> int | None:
    if state is None:
        return None
    number: Any = STATES.get(state.upper()) if isinstance(state, str) and not state.isdigit() else state
    if isinstance(number, str) and number.isdigit():
        number = int(number)
    if isinstance(number, (bool, float)) or number not in STATES.values():
        raise refusal(WHO, "state", "must be a state's FIPS number or abbreviation", state, "Give 'VT' or 50.")
    return int(number)


def _areas(areas: Any) -> tuple[str, ...] | str | None:
    if areas is None or isinstance(areas, str):
        return areas
    codes = tuple(areas) if isinstance(areas, Iterable) else ()
    if not codes or not all(isinstance(code, str) for code in codes):
        advice = "Give geocodes as words, since they start with zeros."
        raise refusal(WHO, "areas", "must be a geocode's beginning, or a list of geocodes", areas, advice)
    return codes


# Files -----------------------------------------------------------------------------------------------------------


def _files(path: Any, wanted: _Wanted) -> list[Path]:
    """The Parquet files of the level and state; folders are laid out as Level.parquet/DPQuery/State=050/..."""
    try:
        root = Path(path).expanduser()
    except TypeError:
        raise refusal(WHO, "path", "must be a file's or folder's path", path, "Check the path.") from None
    if not root.exists():
        raise refusal(WHO, "path", "must be an existing file or folder", str(path), "Check the path.")
    files = [root] if root.is_file() else sorted(file for file in root.rglob("*.parquet") if file.is_file())
    products = {part for file in files for part in file.parts if re.fullmatch(r"[A-Z]+_\w+_PROD", part)}
    if len(products) > 1:
        rule = "must be the folder of one product"
        raise refusal(WHO, "path", rule, sorted(products), "Give the path of one of them.")
    stated = {level for file in files if (level := _level_of(file)) is not None}
    if stated:
        files = [file for file in files if _level_of(file) == wanted.level]
    if not files:
        rule = "must be a level that the folder has"
        raise refusal(WHO, "level", rule, wanted.level, f"It has {', '.join(sorted(stated)) or 'no Parquet file'}.")
    return [file for file in files if wanted.state is None or _state_of(file) in (None, wanted.state)]


def _level_of(file: Path) -> str | None:
    """The level that a folder of the path names."""
    folders = [part.removesuffix(".parquet") for part in file.parts[:-1] if part.endswith(".parquet")]
    stem = file.name.removesuffix(".parquet")
    return next((name for name in (*reversed(folders), stem) if name in LEVELS), None)


def _state_of(file: Path) -> int | None:
    """The state that a folder of the path names; those of American Indian areas have 100 added."""
    numbers = [part.removeprefix("State=") for part in file.parts if part.startswith("State=")]
    return int(numbers[-1]) % 100 if numbers and numbers[-1].isdigit() else None


def _rows(file: Path, wanted: _Wanted, seen: set[str]) -> Iterator[_Row]:
    """The rows asked for, one row group after the other."""
    parquet = arrow(WHO)
    try:
        content = parquet.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise refusal(WHO, "path", f"must hold Parquet files ({error})", str(file), "Check the file.") from None
    product, attributes = _product(file, content.schema_arrow.names)
    columns = ["geocode", "query_name", *attributes, "query_shape", "value", "variance"]
    columns += ["sign"] if "sign" in content.schema_arrow.names else []
    for group in range(content.num_row_groups):
        names = content.read_row_group(group, columns=["query_name", "geocode"]).to_pydict()
        seen.update(names["query_name"])
        pairs = zip(names["query_name"], names["geocode"], strict=True)
        named = [(row, code) for row, (name, code) in enumerate(pairs) if name in wanted.queries]
        for row, code in named:
            if not isinstance(code, str) or not _of_level(code, wanted.level):
                rule = f"must be a geocode of the level {wanted.level}, in row {row} of row group {group}"
                raise refusal(WHO, "level", rule, code, f"Of which level is {file.name}?")
        keep = [row for row, code in named if wanted.keeps(code)]
        if keep:
            for entry in content.read_row_group(group, columns=columns).take(keep).to_pylist():
                yield _row(entry, product, attributes)


def _of_level(geocode: str, level: str) -> bool:
    """Whether a geocode has the length for a level: three for a state, less for the nation, more for finer levels."""
    length = len(geocode)
    return length < OF_STATE if level == "US" else length == OF_STATE if level == "State" else length > OF_STATE


def _product(file: Path, columns: list[str]) -> tuple[str, dict[str, Grouping]]:
    """The product that has the attributes in the file's columns, and their groupings."""
    common = {"geocode", "query_name", "query_shape", "value", "variance"}
    missing = common - set(columns)
    if missing:
        rule = f"must have the columns of a noisy measurement file; {', '.join(sorted(missing))} missing"
        raise refusal(WHO, "path", rule, columns, f"Look at {file}.")
    own = set(columns) - common - {"sign", "plb"}
    for product, attributes in PRODUCTS.items():
        if own == set(attributes):
            return product, attributes
    known = "; ".join(f"{name} ({', '.join(attributes)})" for name, attributes in PRODUCTS.items())
    rule = "must be of a product whose attributes are known"
    raise refusal(WHO, "path", rule, sorted(own), f"Known: {known}.")


def _row(entry: dict[str, Any], product: str, attributes: dict[str, Grouping]) -> _Row:
    geocode, query = entry["geocode"], entry["query_name"]
    where = f"'{query}' in area {geocode}"
    axes = []
    for attribute, groupings in attributes.items():
        word = entry[attribute]
        if word == "*":
            continue
        if word not in groupings:
            rule = f"must group by {attribute} in a way that is known for {product}, for {where}"
            raise refusal(WHO, "query", rule, word, checks.nearest(word, groupings))
        axes.append((attribute, groupings[word]))
    value = np.asarray(entry["value"])
    lengths = [len(labels) for _, labels in axes]
    if value.ndim != 1 or value.size != math.prod(lengths) or value.size != math.prod(entry["query_shape"]):
        rule = f"must have {math.prod(lengths)} counts for {where}, as its groupings and its query_shape say"
        raise refusal(
            WHO, "value", rule, {"counts": value.size, "query_shape": entry["query_shape"]}, "Check the file."
        )
    if value.dtype.kind not in "iu":
        raise refusal(WHO, "value", f"must be whole numbers for {where}", value, "Check the file.")
    variance, sign = entry["variance"], entry.get("sign")
    if sign is not None and sign != "=":
        advice = "It is no published value: put it in the model, as a bound of a parameter."
        raise refusal(WHO, "query", f"must not be a bound; {where} is one", f"{sign} {entry['value'][:4]}", advice)
    noisy = sign is None
    if variance is None or not math.isfinite(variance) or (variance <= 0 if noisy else variance != 0):
        rule = f"must be {'positive' if noisy else '0 for a constraint'}, for {where}"
        raise refusal(WHO, "variance", rule, variance, "Check the file.")
    return _Row(product, geocode, query, tuple(axes), value.reshape(lengths), float(variance), sign)


# Statistics ------------------------------------------------------------------------------------------------------


def _name_of(query: str) -> str:
    """`hispanic * cenrace_dpq` as by_hispanic_cenrace, since axes are named by attributes; constraints as they are."""
    stem = query.removesuffix(SUFFIXES["noisy"]).replace(" * ", "_")
    return stem if stem in WHOLE or query.endswith(SUFFIXES["constraint"]) else f"by_{stem}"


def _statistic(query: str, rows: dict[str, _Row]) -> Released:
    """One query's counts in all areas, in the order of their geocodes."""
    geocodes = sorted(rows)
    first = rows[geocodes[0]]
    for code in geocodes:
        if rows[code].axes != first.axes or rows[code].sign != first.sign:
            rule = "must be grouped alike in all areas, and either noisy or a constraint in all of them"
            raise refusal(WHO, "query", rule, [name for name, _ in rows[code].axes], f"Look at area {code}.")
    value = np.stack([rows[code].value for code in geocodes])
    coords = {"geocode": geocodes, **{name: list(labels) for name, labels in first.axes}}
    variance = np.array([rows[code].variance for code in geocodes])
    mechanism: Any = Exact()
    if first.sign is None:
        scale = np.sqrt(variance).reshape(-1, *[1] * (value.ndim - 1))
        mechanism = DiscreteGaussian(scale=float(scale.flat[0]) if np.all(scale == scale.flat[0]) else scale)
    of = first.product.rpartition(", ")[2]
    return mechanism.released(value, coords=coords).described(f"Query {query}", unit=of)


__all__ = ["census_nmf"]
