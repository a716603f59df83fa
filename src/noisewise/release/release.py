"""What a curator published: named values, each with its mechanism; read from and written to a file."""

import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import InputError, Place, refusal, writable
from noisewise.frozen import FrozenDict
from noisewise.mechanisms import Exact, Guarantee, Released, Within
from noisewise.mechanisms.about import OF_RELEASE, about, plain
from noisewise.mechanisms.packing import MOST_LISTED
from noisewise.notebook import html_table
from noisewise.release.entries import (
    FORMAT,
    VERSION,
    VERSIONS,
    about_from,
    entry_of,
    needs_version,
    restored,
    unique_keys,
    unreadable,
)
from noisewise.release.privacy import Whole, of_all_entries
from noisewise.release.rows import ColumnPlan
from noisewise.release.rows import statistics as statistics_of

LARGEST = 2**26
"""Most bytes of a release file: some three million numbers."""


FIELDS = ("format", "version", "statistics", "disjoint", "about", "part_of")


MOST_SHOWN = 8
"""Most values of a statistic that a notebook lists; of more it shows the number only."""


class Release(Mapping[str, Released]):
    """Published values by name: `Release(count=Laplace(scale=5.0).released(37.4))`, or a dict of the same.

    It holds what was published and the noise's law, and nothing else: no confidential value can be put in.
    """

    sent_once = True
    """Sent to another process once: one copy serves all blocks."""

    def __init__(self, values: Mapping[str, Released] | None = None, /, **named: Released) -> None:
        if values is not None and not isinstance(values, Mapping):
            advice = "Give Release(count=mechanism.released(37.4)) or a dict of the same."
            raise refusal("Release", "values", "must be a dict of released values", values, advice)
        merged = dict(values or {})
        for name, value in named.items():
            if name in merged:
                raise refusal("Release", name, "must be given once", name, "Drop one of the two.")
            merged[name] = value
        if not merged:
            advice = "Give Release(count=mechanism.released(37.4))."
            raise refusal("Release", "values", "must name at least one released value", merged, advice)
        for name, value in merged.items():
            checks.name("Release", "values", name)
            if not isinstance(value, Released):
                advice = f"Write {name}=nw.Laplace(scale=5.0).released(...) with the mechanism that was used."
                raise refusal("Release", name, "must be a mechanism's released value", value, advice)
        self._values = merged
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._public_groups = False
        self._whole: Whole | None = None
        self.about: Mapping[str, Any] = FrozenDict()
        """Its description for people: title, source, date and more; see `described`."""

    def _with(self, values: Mapping[str, Released] | None = None, **changes: Any) -> "Release":
        """A copy with other released values, or with other attributes."""
        release = type(self)(self._values if values is None else values)
        fields = {name: item for name, item in vars(self).items() if name != "_values"}
        vars(release).update(fields | changes)
        return release

    def __getitem__(self, name: str) -> Released:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release) or self._values != other._values:
            return False
        own, its = ({**vars(release), "_values": None} for release in (self, other))
        return own == its

    def __hash__(self) -> int:
        return hash(self.hash)

    def with_disjoint(self, *groups: Iterable[str], public: bool = False) -> "Release":
        """The same release, declaring that each group's statistics were computed from records of their own.

        Groups share no records, so their guarantees compose in parallel. `public` says that everybody's group is public
        and cannot change, which parallel composition needs under replace-one neighbours.
        """
        who, advice = "Release.with_disjoint", 'Give lists of names: with_disjoint(["north"], ["south"]).'
        named_groups = tuple(() if isinstance(group, str) else tuple(group) for group in groups)
        members = [name for group in named_groups for name in group]
        if len(named_groups) < 2 or not all(named_groups) or len(set(members)) < len(members):
            rule = "must be at least two lists of names without repetition"
            raise refusal(who, "groups", rule, groups, advice)
        for name in members:
            checks.known_name(who, "groups", name, self._values, "must name released statistics")
        return self._with(_groups=named_groups, _public_groups=bool(public))

    def described(
        self,
        title: str | None = None,
        *,
        description: str | None = None,
        source: str | None = None,
        date: str | datetime.date | None = None,
        licence: str | None = None,
        contact: str | None = None,
        privacy_unit: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> "Release":
        """The same release with a description for people; fields that are left out stay as they were.

        `source`: who published it, or where it was found. `date`: of publication. `privacy_unit`: whose record the
        guarantee protects, such as "a person" or "a household in a month". `extra`: anything else, kept in the file.
        """
        given: dict[str, Any] = {"title": title, "description": description, "source": source}
        given |= {"date": date, "licence": licence, "contact": contact, "privacy_unit": privacy_unit, "extra": extra}
        stated = {key: value for key, value in given.items() if value is not None}
        return self._with(about=about("Release.described", OF_RELEASE, {**self.about, **stated}))

    # Parts --------------------------------------------------------------------------------------------------------

    def select(self, *names: str) -> "Release":
        """A release of these statistics only; inference ignores the others.

        The whole was published, so `guarantee` stays that of the whole, and `left_out` names the other statistics.
        """
        names = self._listed("Release.select", names)
        if not names:
            advice = f'Give release.select("{next(iter(self))}").'
            raise refusal("Release.select", "names", "must name at least one statistic", names, advice)
        if set(names) == set(self._values):
            return self
        selected = {name: item for name, item in self._values.items() if name in names}
        groups = [tuple(name for name in group if name in selected) for group in self._groups]
        groups = [group for group in groups if group]
        whole = self._whole or Whole(tuple(self._values), self._guarantee_or_none())
        return self._with(selected, _groups=tuple(groups) if len(groups) > 1 else (), _whole=whole)

    def drop(self, *names: str) -> "Release":
        """A release of all statistics but these; see `select`."""
        names = self._listed("Release.drop", names)
        if len(set(names)) == len(self):
            raise refusal("Release.drop", "names", "must leave at least one statistic", names, "Drop fewer.")
        return self.select(*(name for name in self if name not in names))

    def _listed(self, who: str, names: tuple[Any, ...]) -> tuple[str, ...]:
        """Names of statistics, given one by one or as a list."""
        if len(names) == 1 and isinstance(names[0], (list, tuple)):
            names = tuple(names[0])
        for name in names:
            if not isinstance(name, str) or name not in self._values:
                advice = checks.nearest(str(name), self._values)
                raise refusal(who, "names", "must be of released statistics", name, advice)
        return names

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the statistics that were published with these but are not in this part; () for a whole release."""
        return () if self._whole is None else tuple(name for name in self._whole.statistics if name not in self)

    def _guarantee_or_none(self) -> Guarantee | None:
        try:
            return self.guarantee
        except InputError:  # guarantees that do not compose
            return None

    @property
    def guarantee(self) -> Guarantee | None:
        """The privacy guarantee of publishing all of it; None where some statistic states none (a bare scale, `Exact`).

        Statistics compose sequentially, declared disjoint groups in parallel; see `Guarantee.compose`. A part of a
        release has the guarantee of the whole, since the whole was published.
        """
        if self._whole is not None:
            return self._whole.guarantee
        by_name: dict[str, Guarantee] = {}
        for name in self._values:
            guarantee = self.guarantee_of(name)
            if guarantee is None:
                return None
            by_name[name] = guarantee
        grouped = [Guarantee.compose(by_name.pop(name) for name in group) for group in self._groups]
        parts = list(by_name.values())
        if grouped:
            parts.append(Guarantee.parallel(grouped, public_groups=self._public_groups))
        return Guarantee.compose(parts)

    def guarantee_of(self, name: str) -> Guarantee | None:
        """The privacy guarantee of publishing all entries of one statistic; None where none is stated for them."""
        return of_all_entries(self[name].mechanism, self[name].shape)

    def naive(self) -> "Release":
        """The same values as if they carried no noise: the mistaken analysis, for comparison."""
        for name, item in self.items():
            if item.of is not None:
                advice = "Leave it out, or fit the model by hand."
                rule = f"measures '{item.of.statistic}' beside others, and without noise they contradict each other"
                raise refusal("Release.naive", name, rule, item.mechanism, advice)
            if np.any(np.isnan(item.value)):
                raise refusal(
                    "Release.naive", name, "must not be suppressed", "suppressed", "It has no naive analysis."
                )
        mechanisms = {
            name: item.mechanism if isinstance(item.mechanism, Within) else Exact() for name, item in self.items()
        }
        return Release({name: replace(item, mechanism=mechanisms[name]) for name, item in self.items()})

    @property
    def hash(self) -> str:
        """SHA-256 of the file's content, whatever the order of its names."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The file's content as plain data; numbers are such that JSON gives them back bit by bit."""
        statistics = {name: entry_of(item) for name, item in self._values.items()}
        version = max(map(needs_version, statistics.values()))
        content: dict[str, Any] = {"format": FORMAT, "version": version, "statistics": statistics}
        if self.about:
            content["about"] = plain(self.about)
        if self._whole is not None:
            content["part_of"] = self._whole.to_dict()
        if "about" in content or "part_of" in content:
            content["version"] = VERSION
        if self._groups:
            content["disjoint"] = {"groups": [list(group) for group in self._groups], "public": self._public_groups}
        return content

    @classmethod
    def from_dict(cls, content: Any, where: str = "release") -> Self:
        """A release from plain data; `where` names the source in messages."""
        if not isinstance(content, dict):
            raise refusal(where, "content", "must be a JSON object", content, f'Start with "format": "{FORMAT}".')
        for key in content:
            if key not in FIELDS:
                advice = f"Only {', '.join(FIELDS)} belong in a release; other things go under about.extra."
                raise refusal(where, key, "is not a field of a release", content[key], advice)
        if content.get("format") != FORMAT:
            raise refusal(where, "format", f"must be '{FORMAT}'", content.get("format"), "Is this a release file?")
        if content.get("version") not in VERSIONS or isinstance(content.get("version"), bool):
            advice = "A newer version needs a newer noisewise; see the release file documentation."
            raise refusal(where, "version", "must be 1 or 2", content.get("version"), advice)
        statistics = content.get("statistics")
        if not isinstance(statistics, dict) or not statistics:
            advice = 'Give {"count": {"value": 37.4, "mechanism": "Laplace", "scale": 5.0}}.'
            raise refusal(where, "statistics", "must be a non-empty object", statistics, advice)
        for name in statistics:
            checks.name(where, "statistics", name)
        release: Any = cls(
            {name: restored(entry, _place(where, name), content["version"]) for name, entry in statistics.items()}
        )
        if "disjoint" in content:
            release = release._with_stated_groups(content["disjoint"], where)
        for key in ("about", "part_of"):
            if key in content and content["version"] < 2:
                raise refusal(where, key, "belongs to version 2", content[key], 'Say "version": 2.')
        if "about" in content:
            release = release._with(about=about_from(content["about"], OF_RELEASE, Place.below(where, "about")))
        if "part_of" in content:
            place = Place.below(where, "part_of")
            release = release._with(_whole=Whole.from_dict(content["part_of"], list(release), place))
        return release

    def _with_stated_groups(self, entry: Any, where: str) -> Any:
        lists: Any = entry.get("groups") if isinstance(entry, dict) and set(entry) <= {"groups", "public"} else None
        named = isinstance(lists, list) and all(
            isinstance(group, list) and all(isinstance(name, str) for name in group) for group in lists
        )
        if not named or not isinstance(entry.get("public", False), bool):
            advice = 'Give {"groups": [["north"], ["south"]], "public": false}.'
            raise refusal(where, "disjoint", "must hold groups of names, and public", entry, advice)
        try:
            return self.with_disjoint(*lists, public=entry.get("public", False))
        except InputError as error:
            raise error.within("disjoint").within(Place(where, ("disjoint",))) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the release as JSON, in the format of `noisewise.release.schema.schema()`."""
        large = any(np.size(item.value) > MOST_LISTED for item in self._values.values())
        text = json.dumps(self.to_dict(), indent=None if large else 2, allow_nan=False) + "\n"
        if len(text) > LARGEST:
            advice = "Save its statistics in several files."
            raise refusal("Release.save", "path", f"cannot take more than {LARGEST:,} bytes", len(text), advice)
        with writable("Release.save", path):
            Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a release; every refusal says where in the file and what to do."""
        if not isinstance(path, (str, os.PathLike)):
            raise refusal("Release.load", "path", "must be a file's path", path, "Give 'release.json', say.")
        where = str(path)
        try:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST + 1)
            if len(raw) > LARGEST:
                raise ValueError(f"it is longer than {LARGEST:,} bytes")
            content = json.loads(raw.decode("utf-8"), object_pairs_hook=unique_keys)
        except FileNotFoundError:
            raise refusal("Release.load", "path", "must be an existing file", where, "Check the path.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(where, f"cannot be read as UTF-8 text: {error}") from None
        except json.JSONDecodeError as error:
            cause = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
            advice = "Mend it there."
            if where.lower().endswith(".toml"):
                advice = "It looks like an analysis or a plan: give the release file that it names (.json)."
            raise unreadable(where, cause, advice) from None
        except (RecursionError, ValueError) as error:
            raise unreadable(where, f"cannot be read as JSON: {error}") from None
        return cls.from_dict(content, where)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        value: str,
        mechanism: Any,
        index: str | Iterable[str] | None = None,
        statistic: str | None = None,
        threshold: Any = None,
        expected: Any = None,
        **noise: Any,
    ) -> Self:
        """A release from a table with one noisy value a row: a pandas or polars frame, or a CSV or Parquet file's path.

        `value` is the column of the noisy values. `mechanism` is the law of their noise: a whole mechanism, or the name
        or class of one, with the size of its noise in `scale`, in `variance`, in `epsilon` with `sensitivity`, or in
        `rho` with `sensitivity`, each a number or the name of a column. `index` names the columns of labels, one for
        each axis. `statistic` is a column that names statistics, where the table has several.

        `threshold` is the least value that is published, a number or a column. `expected` names the rows that could be
        published, by a list of labels or a dict of such lists. Expected rows that the table lacks were withheld, and
        stay as evidence. Without `expected` a row that is absent means nothing. See docs/tables.md.
        """
        plan = ColumnPlan.of(
            value, mechanism, index, noise, statistic=statistic, threshold=threshold, expected=expected
        )
        return cls(statistics_of(table, plan))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={item.mechanism!r}.released({item.value!r})" for name, item in self.items())
        return f"Release({inside})"

    def _repr_html_(self) -> str:
        rows = []
        for name, item in self.items():
            value = np.asarray(item.value)
            shown = f"{value.size:,} values" if value.size > MOST_SHOWN else str(value.tolist())
            stated = {} if item.mechanism.guarantee is None else item.mechanism.guarantee.to_dict()
            promised = ", ".join(f"{key} {part}" for key, part in stated.items())
            rows.append((name, shown, repr(item.mechanism), promised))
        table = html_table(("statistic", "published", "mechanism", "promised"), rows)
        return f"<div><p><strong>Release</strong></p>{table}</div>"


def _place(where: str, name: str) -> Place:
    return Place(f"{where}: statistics.{name}", ("statistics", name))


__all__ = ["Guarantee", "Release", "Released"]
