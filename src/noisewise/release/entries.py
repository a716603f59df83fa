"""One released statistic as a file's plain data, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from noisewise.axes import coordinates
from noisewise.errors import InputError, Place, refusal
from noisewise.frozen import FrozenDict
from noisewise.mechanisms import Released
from noisewise.mechanisms.about import OF_STATISTIC, Check, about, plain
from noisewise.mechanisms.base import Mechanism, mechanism_from_dict
from noisewise.mechanisms.linear import Linear
from noisewise.mechanisms.packing import holds_packed, is_packed, unpacked

FORMAT = "noisewise-release"
VERSION = 2
VERSIONS = (1, VERSION)
"""Versions that are read. A file that says nothing beyond version 1 is written as version 1."""
SINCE_2 = {"axes", "about", "of"}
"""Fields of a statistic that version 1 does not know."""
MOST_WORDS = 2**27
"""Most characters that the words of one entry may take up in an array; see `_room_of_words`."""


def entry_of(item: Released) -> dict[str, Any]:
    """A released value as plain data."""
    entry = {"value": encoded(item.mechanism, item.value), **item.mechanism.to_dict()}
    if item.coords:
        entry["axes"] = [{"name": axis, "labels": list(labels)} for axis, labels in item.coords.items()]
    if item.about:
        entry["about"] = plain(item.about)
    if item.of is not None:
        entry["of"] = item.of.to_dict()
    return entry


def encoded(mechanism: Mechanism, value: Any) -> Any:
    """A published value as a file holds it."""
    return mechanism.encode(value)


def decoded(mechanism: Mechanism, content: Any, where: str) -> Any:
    """What `Mechanism.released` takes, from a file's value."""
    return mechanism.decode(unpacked(content, where))


def needs_version(entry: dict[str, Any]) -> int:
    """The least version whose readers understand the entry."""
    return 2 if SINCE_2 & set(entry) or holds_packed(entry) else 1


def unreadable(where: str, cause: str, advice: str = "Check the file.") -> InputError:
    """The error for something that cannot be read, with the cause."""
    return InputError(f"{cause}. {advice}", who=where, advice=advice)


def restored(entry: Any, where: str, version: int = VERSION) -> Released:
    """A released value from a file's entry; an entry that NumPy cannot make an array of is refused too."""
    arrays = {key: part for key, part in entry.items() if key not in SINCE_2} if isinstance(entry, dict) else entry
    if _room_of_words(arrays) > MOST_WORDS:
        rule = "has words too long for so many entries"
        raise unreadable(where, rule, "Write numbers, and the words that the mechanism defines.")
    try:
        return _released(entry, where, version)
    except InputError:
        raise
    except (ValueError, OverflowError, RuntimeError) as error:  # NumPy, and nesting too deep
        raise unreadable(where, f"cannot be read: {error}", "Check its numbers and lists.") from None


def _room_of_words(entry: Any) -> int:
    """Characters that the words of an entry would take up in an array, where each has the room of the longest."""
    pending: list[Any] = [[entry]]
    entries = longest = 0
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            longest = max(longest, len(item))
        elif not is_packed(item):
            inner = item.values() if isinstance(item, dict) else item
            entries += len(inner)
            pending += [part for part in inner if isinstance(part, (str, list, dict))]
    return entries * longest


def _released(entry: Any, where: str, version: int) -> Released:
    if not isinstance(entry, dict):
        raise refusal(
            where, "entry", "must be an object", entry, "Give value, mechanism and the mechanism's arguments."
        )
    arguments = dict(entry)
    if "value" not in arguments:
        raise refusal(where, "value", "is missing", sorted(arguments), 'Add "value".')
    for key in SINCE_2 & set(arguments):
        if version < 2:
            raise refusal(where, key, "belongs to version 2", arguments[key], 'Say "version": 2.')
    if version < 2 and holds_packed(arguments):
        raise refusal(where, "packed", "belongs to version 2", version, 'Say "version": 2.')
    value, axes, stated = arguments.pop("value"), arguments.pop("axes", None), arguments.pop("about", {})
    of = arguments.pop("of", None)
    mechanism = mechanism_from_dict(arguments, where)
    try:
        item = mechanism.released(decoded(mechanism, value, Place.below(where, "value")))
    except InputError as error:
        raise error.within(Place.below(where, "value")) from None
    if of is not None:
        item = _measured(item, of, Place.below(where, "of"))
    if axes is None and not stated and isinstance(stated, dict):
        return item
    labels = {} if axes is None else _labels(axes, item.shape, Place.below(where, "axes"))
    return replace(item, coords=labels, about=about_from(stated, OF_STATISTIC, Place.below(where, "about")))


def _measured(item: Released, content: Any, where: str) -> Released:
    """The released value as a measurement of the statistic that a file's object names."""
    linear = Linear.from_dict(content, where)
    try:
        item.mechanism.of(linear.statistic)  # refuses what does not act entry by entry
    except InputError as error:
        raise error.within(where) from None
    return replace(item, of=linear)


def about_from(content: Any, fields: Mapping[str, Check], where: str) -> FrozenDict:
    """A description from a file's object."""
    if not isinstance(content, dict):
        raise refusal(where, "about", "must be an object", content, f"Give any of {', '.join(fields)}.")
    return about(where, fields, content)


def _labels(content: Any, shape: tuple[int, ...], where: str) -> dict[str, Any]:
    """Labels by axis, from a file's list of axes."""
    advice = 'Give [{"name": "county", "labels": ["Bronx", "Kings"]}], one for each axis, in order.'
    if not isinstance(content, list) or not all(
        isinstance(axis, dict) and set(axis) == {"name", "labels"} and isinstance(axis["name"], str) for axis in content
    ):
        raise refusal(where, "axes", "must be a list of axes, each with name and labels", content, advice)
    names = [axis["name"] for axis in content]
    if len(set(names)) < len(names):
        raise refusal(where, "axes", "must have a name of its own for each", names, advice)
    return dict(coordinates(where, {axis["name"]: axis["labels"] for axis in content}, shape))


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's content, for `json.loads`; a key that stands twice is refused."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key '{key}' stands twice in one object")
        content[key] = value
    return content
