"""The release as the table [release] of an analysis file, and back to what a release file holds."""

import json
from collections.abc import Mapping
from typing import Any

from noisewise.mechanisms.packing import is_packed
from noisewise.release import Release
from noisewise.release.entries import FORMAT, VERSION

BESIDE = {"disjoint": "groups", "part_of": "statistics"}
"""Tables of [release] that are no statistics, each with the key by which it is recognised."""


def to_table(release: Release) -> dict[str, Any]:
    """The table [release]: labels as `names`, what is under `extra` as JSON text (TOML has no null)."""
    content = release.to_dict()
    stated = {name: _entry_to_table(entry) for name, entry in content["statistics"].items()}
    stated |= {key: content[key] for key in BESIDE if key in content}
    return stated | ({"about": _about_to_table(content["about"])} if "about" in content else {})


def entries_and_tables(stated: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(entries of statistics, the other tables), of the table [release] without `file` and `use`."""
    beside = {key for key, sign in BESIDE.items() if isinstance(stated.get(key), dict) and sign in stated[key]}
    if isinstance(stated.get("about"), dict) and not {"value", "mechanism"} & set(stated["about"]):
        beside.add("about")
    entries = {name: entry for name, entry in stated.items() if name not in beside and name != "use"}
    return entries, {name: stated[name] for name in beside}


def to_content(entries: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """What a release file holds, as `Release.from_dict` takes it."""
    content = {"format": FORMAT, "version": VERSION, **beside}
    if "about" in content:
        content["about"] = _about_from_table(content["about"])
    return content | {"statistics": {name: _entry_from_table(name, entry) for name, entry in entries.items()}}


def _entry_to_table(entry: Mapping[str, Any]) -> dict[str, Any]:
    stated = {key: value for key, value in entry.items() if key != "axes"}
    if "axes" in entry:
        stated["names"] = {axis["name"]: axis["labels"] for axis in entry["axes"]}
    return stated | ({"about": _about_to_table(entry["about"])} if "about" in entry else {})


def _entry_from_table(name: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    stated = _counted(_spelt_out(stated))
    entry = {key: value for key, value in stated.items() if key != "names"}
    if "names" in stated:
        names = stated["names"]
        by_axis = names if isinstance(names, dict) else {f"{name}_entry": names}
        entry["axes"] = [{"name": axis, "labels": labels} for axis, labels in by_axis.items()]
    return entry | ({"about": _about_from_table(entry["about"])} if "about" in entry else {})


def _spelt_out(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values by category, { bus = 210, car = 540 }, as a list with names."""
    value = stated.get("value")
    if not isinstance(value, dict) or "names" in stated or is_packed(value):
        return stated
    return {**stated, "value": list(value.values()), "names": list(value)}


def _counted(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """Counted randomised answers of n people; adds `on`: whether those who said yes are counted, or each answer."""
    if stated.get("mechanism") != "RandomizedResponse" or "n" not in stated or "on" in stated:
        return stated
    value = stated.get("value")
    if not isinstance(value, list):
        return {**stated, "on": "ones"}
    given = {} if "channel" in stated or "categories" in stated else {"categories": len(value)}
    return {**stated, "on": "counts", **given}


def _about_to_table(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: json.dumps(value) if key == "extra" else value for key, value in about.items()}


def _about_from_table(about: Any) -> Any:
    if not isinstance(about, dict) or not isinstance(about.get("extra"), str):
        return about
    try:
        return {**about, "extra": json.loads(about["extra"])}
    except (ValueError, RecursionError):
        return about  # refused where descriptions are read
