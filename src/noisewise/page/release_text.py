"""Puts a release, from a file or from the page's form, into an analysis file's text, and leaves the rest as it is."""

import json
import re
import tomllib
from typing import Any

from noisewise.analysis import toml as toml_text
from noisewise.analysis.release_table import to_table
from noisewise.errors import InputError, refusal
from noisewise.release import Release
from noisewise.release.entries import FORMAT, VERSION, unique_keys
from noisewise.release.schema import current_schema

_HEADER = re.compile(r"\s*\[\[?\s*([\w\"'-]+)")
_KEY = re.compile(r"\s*release\s*[.=]")
DEFINITIONS: dict[str, Any] = current_schema()["$defs"]
MECHANISMS = tuple(entry["$ref"].split("/")[-1] for entry in DEFINITIONS["statistic"]["oneOf"])


def with_release(text: str, release: Release) -> str:
    """`text` with its release replaced; every other line stays, and so does what TOML reads from it."""
    return _replaced(text, {name: _without_none(entry) for name, entry in to_table(release).items()})


def with_statistic(text: str, name: str, entry: dict[str, Any]) -> str:
    """`text` with one released statistic put in or replaced, the others left."""
    present = _parsed(text).get("release")
    tables = dict(present) if isinstance(present, dict) and "file" not in present else {}
    return _replaced(text, tables | {name: entry})


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        cause = "The analysis file cannot be read as it stands: mend it first, then put the release in."
        raise InputError(cause) from None


def _replaced(text: str, tables: dict[str, Any]) -> str:
    before = _parsed(text)
    head, tail = _around_release(text.splitlines())
    new = toml_text.to_toml({"release": tables}).strip("\n").splitlines()
    replaced = "\n".join([*_trimmed(head), "", *new, "", *_trimmed(tail)]).strip("\n") + "\n"
    try:
        after = tomllib.loads(replaced)
    except ValueError:
        after = {}
    if {**after, "release": tables} != {**before, "release": tables} or after.get("release") != tables:
        raise InputError("The release's place in the analysis file is not clear: put it in by hand.")
    return replaced


def _around_release(lines: list[str]) -> tuple[list[str], list[str]]:
    """The lines before the first table of the release, and those after it that belong to other tables."""
    head: list[str] = []
    tail: list[str] = []
    inside: list[str] = []
    table, reached = "", False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            if table == "release" and header[1].strip("\"'") != "release":  # comments above a table belong to it
                tail += _last_comments(inside)
            table, inside = header[1].strip("\"'"), []
        if table == "release":
            reached = True
            inside.append(line)
        elif table or not _KEY.match(line):
            (tail if reached else head).append(line)
    return head, tail


def _last_comments(lines: list[str]) -> list[str]:
    comments: list[str] = []
    for line in reversed(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        comments.insert(0, line)
    return comments


def _trimmed(lines: list[str]) -> list[str]:
    trimmed = list(lines)
    while trimmed and not trimmed[-1].strip():
        trimmed.pop()
    while trimmed and not trimmed[0].strip():
        trimmed.pop(0)
    return trimmed


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def from_upload(content: bytes) -> Release:
    """The release in an uploaded file's bytes."""
    try:
        data = json.loads(content.decode("utf-8"), object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        cause = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}. Mend it there."
        raise InputError(cause, who="release file") from None
    except (ValueError, RecursionError) as error:
        cause = f"cannot be read as JSON: {error}. Is this a release file?"
        raise InputError(cause, who="release file") from None
    return Release.from_dict(data, "release file")


# The form -----------------------------------------------------------------------------------------------------


def alternatives(mechanism: str) -> list[list[str]]:
    """The sets of arguments that suffice for a mechanism."""
    return [entry["required"] for entry in DEFINITIONS[mechanism].get("oneOf", [])]


def optional(mechanism: str) -> list[str]:
    """Arguments that none of the alternatives requires."""
    needed = {name for names in alternatives(mechanism) for name in names} | {"mechanism", "guarantee"}
    return [name for name in DEFINITIONS[mechanism]["properties"] if name not in needed]


def listed_words(mechanism: str, argument: str) -> list[str] | None:
    """The words an argument may take, where they are listed."""
    schema = DEFINITIONS[mechanism]["properties"][argument]
    if schema.get("type") == "boolean":
        return ["true", "false"]
    words = schema.get("enum")
    return None if words is None else [word for word in words if isinstance(word, str)]


def from_form(name: str, value: str, mechanism: str, arguments: dict[str, str]) -> dict[str, Any]:
    """The entry of one released statistic from what was typed; checked as a release file is."""
    entry = {"value": _typed("value", value), "mechanism": mechanism}
    entry |= {key: _typed(key, text) for key, text in arguments.items() if text.strip()}
    Release.from_dict({"format": FORMAT, "version": VERSION, "statistics": {name: entry}}, "form")
    return entry


def _typed(name: str, text: str) -> Any:
    """A number, a list or an object as JSON spells it; anything else is a word."""
    text = text.strip()
    if not text:
        raise refusal("form", name, "must be given", text, "Fill it in.")
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        if text[0] in "[{-+.0123456789":
            advice = 'Write 37.4, or [1, 2, 3], or {"mechanism": "Laplace", "scale": 5}.'
            raise refusal("form", name, "must be a number or a list", text, advice) from None
        return text
