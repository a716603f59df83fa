"""The JSON schema of release files, made from the catalogue of mechanisms."""

import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from noisewise.mechanisms import CATALOGUE, Guarantee
from noisewise.mechanisms.about import OF_RELEASE, OF_STATISTIC
from noisewise.mechanisms.guarantee import ZERO
from noisewise.mechanisms.packing import KINDS
from noisewise.release.entries import FORMAT, VERSIONS


def schema() -> dict[str, Any]:
    """The published JSON schema of release files."""
    text = resources.files("noisewise.release").joinpath("release.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


NAME = r"^[^\W\d]\w*$"
"""A name of a statistic or of an axis."""


def current_schema() -> dict[str, Any]:
    """The schema as the catalogue of mechanisms makes it; `make catalogue` writes it to the published file."""
    mechanisms = {name: kind.schema() for name, kind in sorted(CATALOGUE.items())}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "noisewise release, versions 1 and 2",
    }
    properties = {
        "format": {"const": FORMAT},
        "version": {"enum": list(VERSIONS)},
        "statistics": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": NAME},
            "additionalProperties": _reference("statistic"),
        },
        "disjoint": _disjoint_schema(),
        "about": _about_schema("For people: where it comes from. Version 2.", OF_RELEASE),
        "part_of": _whole_schema(),
    }
    whole = _object(
        properties,
        "Statistics published with privacy noise, each with the exact law of that noise. Holds nothing confidential.",
        required=["format", "version", "statistics"],
    )
    parts = _entry_schemas(list(mechanisms)) | _number_schemas()
    return head | whole | {"$defs": parts | {"guarantee": _guarantee_schema(), **mechanisms}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: dict[str, Any], description: str = "", required: Sequence[str] = ()) -> dict[str, Any]:
    """An object that has these properties and no others."""
    said = {"description": description} if description else {}
    needed = {"required": list(required)} if required else {}
    return said | {"type": "object"} | needed | {"additionalProperties": False, "properties": properties}


def _list_of(items: Any, **limits: Any) -> dict[str, Any]:
    return {"type": "array", **limits, "items": items}


def _disjoint_schema() -> dict[str, Any]:
    groups = _list_of(_list_of({"type": "string"}, minItems=1), minItems=2)
    description = "Groups of statistics computed from disjoint records; public: nobody's group is secret."
    return _object({"groups": groups, "public": {"type": "boolean"}}, description, required=["groups"])


def _entry_schemas(mechanisms: list[str]) -> dict[str, Any]:
    """A released statistic, and a mechanism alone."""
    one_of = {"oneOf": [_reference(name) for name in mechanisms], "unevaluatedProperties": False}
    about = _about_schema("For people: what it is. Version 2.", OF_STATISTIC)
    properties = {"value": _reference("value"), "axes": _axes_schema(), "about": about, "of": _of_schema()}
    value = {"required": ["value", "mechanism"], "properties": properties}
    return {"statistic": {"type": "object", **value, **one_of}, "mechanism": {"type": "object", **one_of}}


def _about_schema(description: str, fields: Iterable[str]) -> dict[str, Any]:
    words = {"type": "string", "minLength": 1}
    others: dict[str, Any] = {
        "date": {"type": "string", "format": "date"},
        "bounds": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "records": {"type": "integer", "minimum": 1},
        "extra": {"description": "Anything; kept as it is.", "type": "object"},
    }
    return _object({name: others.get(name, words) for name in fields}, description)


def _whole_schema() -> dict[str, Any]:
    statistics = _list_of({"type": "string"}, minItems=2)
    description = "Where this is part of a release: all its statistics, and their guarantee together. Version 2."
    return _object({"statistics": statistics, "guarantee": _reference("guarantee")}, description, ["statistics"])


def _axes_schema() -> dict[str, Any]:
    labels = {
        "oneOf": [{"type": "array", "items": {"type": kind}, "uniqueItems": True} for kind in ("string", "integer")]
    }
    properties = {"name": {"type": "string", "pattern": NAME}, "labels": labels}
    description = "The axes of the value, in order, with a label for each entry along them. Version 2."
    return {"description": description} | _list_of(_object(properties, required=["name", "labels"]))


def _of_schema() -> dict[str, Any]:
    """The schema of a measurement: of which statistic, and of which of its entries or sums."""
    whole = {"oneOf": [_list_of({"type": "integer"}), _reference("packed")]}
    shape = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}
    parts = {"shape": shape, "rows": whole, "columns": whole, "entries": whole}
    description = "Its entries that are not zero, each by row and column; a column for each entry, row by row."
    properties = {
        "statistic": {"type": "string", "pattern": NAME},
        "matrix": _object(parts, description, required=list(parts)),
        "axes": _list_of({"type": ["string", "integer"]}, minItems=1, uniqueItems=True),
        "sum": {"type": "boolean"},
    }
    description = (
        "The statistic that was measured, under another name than this: its entries, their sum, sums over axes, or a "
        "matrix of whole numbers times them. Version 2."
    )
    return _object(properties, description, required=["statistic"])


def _number_schemas() -> dict[str, Any]:
    """Numbers and arrays of them."""
    parts = {
        "packed": {"enum": list(KINDS)},
        "shape": _list_of({"type": "integer", "minimum": 1}, minItems=1),
        "data": {"type": "string", "contentEncoding": "base64"},
    }
    packed = (
        "A long array: its numbers row by row, eight bytes each, little-endian, in base64; NaN is a value that was "
        "withheld. Version 2."
    )
    numbers = "A number, or nested arrays of numbers, row by row. Values are IEEE doubles."
    values = "Numbers, or a word that the mechanism defines, such as 'suppressed'."
    positive = {"type": "number", "exclusiveMinimum": 0}
    return {
        "packed": _object(parts, packed, required=list(parts)),
        "number_or_array": _nested("number_or_array", numbers, {"type": "number"}),
        "value": _nested("value", values, {"type": ["number", "string"]}),
        "positive": _nested("positive", "One positive number, or one per entry.", positive, minItems=1),
        "budget": positive,
    }


def _nested(name: str, description: str, single: dict[str, Any], **limits: Any) -> dict[str, Any]:
    """The schema of a `single` value, of arrays of what is defined under this `name`, or of a packed array."""
    array = _list_of(_reference(name), **limits)
    return {"description": description, "oneOf": [single, array, _reference("packed")]}


def _guarantee_schema() -> dict[str, Any]:
    properties: dict[str, Any] = {name: _reference("budget") for name in Guarantee.__dataclass_fields__}
    properties |= {name: {"type": "number", "minimum": 0} for name in ZERO}
    properties |= {name: {"enum": choices} for name, choices in Guarantee.choices.items()}
    return _object(properties, "What the noise was calibrated to. Information only: the law is in the other fields.")
