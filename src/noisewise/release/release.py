"""What a curator published: named values, each with its mechanism; read from and written to a file."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import InputError, Place, refusal
from noisewise.mechanisms import CATALOGUE, Exact, Guarantee, Product, Released
from noisewise.mechanisms.base import Mechanism, mechanism_from_dict
from noisewise.mechanisms.guarantee import ZERO
from noisewise.mechanisms.processed import Processed

FORMAT = "noisewise-release"
VERSION = 1
LARGEST = 2**26
"""Most bytes of a release file: some three million numbers."""
MOST_WORDS = 2**27
"""Most characters that the words of one entry may take as an array."""


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

    def __getitem__(self, name: str) -> Released:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release) or self._values != other._values:
            return False
        return (self._groups, self._public_groups) == (other._groups, other._public_groups)

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
            if name not in self._values:
                raise refusal(who, "groups", "must name released statistics", name, checks.nearest(name, self._values))
        release = type(self)(self._values)
        release._groups, release._public_groups = named_groups, bool(public)
        return release

    @property
    def guarantee(self) -> Guarantee | None:
        """What publishing all of it guarantees; None where some statistic states nothing (a bare scale, `Exact`).

        Statistics compose sequentially, declared disjoint groups in parallel; see `Guarantee.compose`.
        """
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
        """What publishing all entries of one statistic guarantees; None where it states nothing."""
        return _of_all_entries(self[name].mechanism, self[name].shape)

    def naive(self) -> "Release":
        """The same values as if they carried no noise: the mistaken analysis, for comparison."""
        for name, item in self.items():
            if np.any(np.isnan(item.value)):
                raise refusal(
                    "Release.naive", name, "must not be suppressed", "suppressed", "It has no naive analysis."
                )
        return Release({name: Exact().released(item.value) for name, item in self.items()})

    @property
    def hash(self) -> str:
        """SHA-256 of the file's content, whatever the order of its names."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The file's content as plain data; numbers are such that JSON gives them back bit by bit."""
        statistics = {
            name: {"value": item.mechanism.encode(item.value), **item.mechanism.to_dict()}
            for name, item in self._values.items()
        }
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "statistics": statistics}
        if self._groups:
            content["disjoint"] = {"groups": [list(group) for group in self._groups], "public": self._public_groups}
        return content

    @classmethod
    def from_dict(cls, content: Any, where: str = "release") -> Self:
        """A release from plain data; `where` names the source in messages."""
        if not isinstance(content, dict):
            raise refusal(where, "content", "must be a JSON object", content, f'Start with "format": "{FORMAT}".')
        for key in content:
            if key not in ("format", "version", "statistics", "disjoint"):
                advice = "Only format, version, statistics and disjoint belong in a release."
                raise refusal(where, key, "is not a field of a release", content[key], advice)
        if content.get("format") != FORMAT:
            raise refusal(where, "format", f"must be '{FORMAT}'", content.get("format"), "Is this a release file?")
        if content.get("version") != VERSION or isinstance(content.get("version"), bool):
            advice = "A newer version needs a newer noisewise; see the release file documentation."
            raise refusal(where, "version", f"must be {VERSION}", content.get("version"), advice)
        statistics = content.get("statistics")
        if not isinstance(statistics, dict) or not statistics:
            advice = 'Give {"count": {"value": 37.4, "mechanism": "Laplace", "scale": 5.0}}.'
            raise refusal(where, "statistics", "must be a non-empty object", statistics, advice)
        release = cls({name: _restored(entry, _place(where, name)) for name, entry in statistics.items()})
        return release if "disjoint" not in content else release._with_stated_groups(content["disjoint"], where)

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
        """Write the release as JSON, in the format of `noisewise.release.schema()`."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            advice = "Check that the folder exists and can be written to."
            raise refusal("Release.save", "path", f"must be writable ({error})", str(path), advice) from None

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
            raise _unreadable(where, f"cannot be read as UTF-8 text: {error}") from None
        except json.JSONDecodeError as error:
            cause = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
            raise _unreadable(where, cause, "Mend it there.") from None
        except (RecursionError, ValueError) as error:
            raise _unreadable(where, f"cannot be read as JSON: {error}") from None
        return cls.from_dict(content, where)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={item.mechanism!r}.released({item.value!r})" for name, item in self.items())
        return f"Release({inside})"


def schema() -> dict[str, Any]:
    """The published JSON schema of release files."""
    text = resources.files("noisewise.release").joinpath("release.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


REFERENCE = "#/$defs/"


def current_schema() -> dict[str, Any]:
    """The schema as the catalogue of mechanisms makes it; `make schema` writes it to the published file."""
    mechanisms = {name: kind.schema() for name, kind in sorted(CATALOGUE.items())}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "noisewise release, version 1",
        "description": "Statistics published with privacy noise, each with the exact law of that noise. "
        "Holds nothing confidential.",
        "type": "object",
        "required": ["format", "version", "statistics"],
        "additionalProperties": False,
        "properties": {
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "statistics": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": r"^[^\W\d]\w*$"},
                "additionalProperties": {"$ref": REFERENCE + "statistic"},
            },
            "disjoint": _disjoint_schema(),
        },
        "$defs": _entry_schemas(list(mechanisms))
        | _number_schemas()
        | {"guarantee": _guarantee_schema(), **mechanisms},
    }


def _disjoint_schema() -> dict[str, Any]:
    return {
        "description": "Groups of statistics computed from disjoint records; public: nobody's group is secret.",
        "type": "object",
        "required": ["groups"],
        "additionalProperties": False,
        "properties": {
            "groups": {
                "type": "array",
                "minItems": 2,
                "items": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            },
            "public": {"type": "boolean"},
        },
    }


def _entry_schemas(mechanisms: list[str]) -> dict[str, Any]:
    """A released statistic, and a mechanism alone."""
    one_of = {"oneOf": [{"$ref": REFERENCE + name} for name in mechanisms], "unevaluatedProperties": False}
    value = {"required": ["value", "mechanism"], "properties": {"value": {"$ref": REFERENCE + "value"}}}
    return {"statistic": {"type": "object", **value, **one_of}, "mechanism": {"type": "object", **one_of}}


def _number_schemas() -> dict[str, Any]:
    """Numbers and arrays of them."""
    return {
        "number_or_array": {
            "description": "A number, or nested arrays of numbers, row by row. Values are IEEE doubles.",
            "oneOf": [{"type": "number"}, {"type": "array", "items": {"$ref": REFERENCE + "number_or_array"}}],
        },
        "value": {
            "description": "Numbers, or a word that the mechanism defines, such as 'suppressed'.",
            "oneOf": [
                {"type": ["number", "string"]},
                {"type": "array", "items": {"$ref": REFERENCE + "value"}},
            ],
        },
        "positive": {
            "description": "One positive number, or one per entry.",
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "array", "minItems": 1, "items": {"$ref": REFERENCE + "positive"}},
            ],
        },
        "budget": {"type": "number", "exclusiveMinimum": 0},
    }


def _guarantee_schema() -> dict[str, Any]:
    properties: dict[str, Any] = {name: {"$ref": REFERENCE + "budget"} for name in Guarantee.__dataclass_fields__}
    properties |= {name: {"type": "number", "minimum": 0} for name in ZERO}
    properties |= {name: {"enum": choices} for name, choices in Guarantee.choices.items()}
    return {
        "description": "What the noise was calibrated to. Information only: the law is in the other fields.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _of_all_entries(mechanism: Mechanism, shape: tuple[int, ...]) -> Guarantee | None:
    """The guarantee of all entries of one released value, composed over the parts that one record may move."""
    guarantee = mechanism.guarantee
    if isinstance(mechanism, Processed) and guarantee == mechanism.base.guarantee:
        return _of_all_entries(mechanism.base, shape)
    if isinstance(mechanism, Product):
        inside = [_of_all_entries(part, shape[:-1]) for part in mechanism.parts]
        stated = [inner for inner in inside if inner is not None]
        if len(stated) == len(inside):
            return Guarantee.compose(stated)
    if guarantee is None or guarantee.kind == "none":
        return None
    if guarantee.dimension is not None and math.prod(shape) > guarantee.dimension:
        return None  # calibrated for fewer entries than were released
    parts = mechanism.record_parts(shape)
    return Guarantee.compose([guarantee] * parts) if parts > 1 else guarantee


def _place(where: str, name: str) -> Place:
    return Place(f"{where}: statistics.{name}", ("statistics", name))


def _unreadable(where: str, cause: str, advice: str = "Check the file.") -> InputError:
    return InputError(f"{cause}. {advice}", who=where, advice=advice)


def _restored(entry: Any, where: str) -> Released:
    """A released value from a file's entry; one that NumPy cannot make an array of is refused too."""
    if _room_of_words(entry) > MOST_WORDS:
        rule = "has words too long for so many entries"
        raise _unreadable(where, rule, "Write numbers, and the words that the mechanism defines.")
    try:
        return _released(entry, where)
    except InputError:
        raise
    except (ValueError, OverflowError, RuntimeError) as error:  # NumPy, and nesting too deep
        raise _unreadable(where, f"cannot be read: {error}", "Check its numbers and lists.") from None


def _room_of_words(entry: Any) -> int:
    """Characters that its words would take in an array of words, where each has the room of the longest."""
    pending: list[Any] = [[entry]]
    entries = longest = 0
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            longest = max(longest, len(item))
        else:
            inner = item.values() if isinstance(item, dict) else item
            entries += len(inner)
            pending += [part for part in inner if isinstance(part, (str, list, dict))]
    return entries * longest


def _released(entry: Any, where: str) -> Released:
    if not isinstance(entry, dict):
        raise refusal(
            where, "entry", "must be an object", entry, "Give value, mechanism and the mechanism's arguments."
        )
    arguments = dict(entry)
    if "value" not in arguments:
        raise refusal(where, "value", "is missing", sorted(arguments), 'Add "value".')
    value = arguments.pop("value")
    mechanism = mechanism_from_dict(arguments, where)
    try:
        return mechanism.released(mechanism.decode(value))
    except InputError as error:
        raise error.within(Place.below(where, "value")) from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's content, for `json.loads`; a key that stands twice is refused."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key '{key}' stands twice in one object")
        content[key] = value
    return content


__all__ = ["FORMAT", "VERSION", "Guarantee", "Release", "Released", "schema"]
