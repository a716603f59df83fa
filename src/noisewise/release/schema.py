"""The JSON schema of release files, made from the catalogue of mechanisms."""

import json
from collections.abc import Iterable
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


REFERENCE = "#/$defs/"


def current_schema() -> dict[str, Any]:
    """The schema as the catalogue of mechanisms makes it; `make catalogue` writes it to the published file."""
    mechanisms = {name: kind.schema() for name, kind in sorted(CATALOGUE.items())}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "noisewise release, versions 1 and 2",
        "description": "Statistics published with privacy noise, each with the exact law of that noise. "
        "Holds nothing confidential.",
        "type": "object",
        "required": ["format", "version", "statistics"],
        "additionalProperties": False,
        "properties": {
            "format": {"const": FORMAT},
            "version": {"enum": list(VERSIONS)},
            "statistics": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": r"^[^\W\d]\w*$"},
                "additionalProperties": {"$ref": REFERENCE + "statistic"},
            },
            "disjoint": _disjoint_schema(),
            "about": {"description": "For people: where it comes from. Version 2.", **_about_schema(OF_RELEASE)},
            "part_of": _whole_schema(),
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
    about = {"description": "For people: what it is. Version 2.", **_about_schema(OF_STATISTIC)}
    properties = {"value": {"$ref": REFERENCE + "value"}, "axes": _axes_schema(), "about": about, "of": _of_schema()}
    value = {"required": ["value", "mechanism"], "properties": properties}
    return {"statistic": {"type": "object", **value, **one_of}, "mechanism": {"type": "object", **one_of}}


def _about_schema(fields: Iterable[str]) -> dict[str, Any]:
    words = {"type": "string", "minLength": 1}
    others: dict[str, Any] = {
        "date": {"type": "string", "format": "date"},
        "bounds": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "records": {"type": "integer", "minimum": 1},
        "extra": {"description": "Anything; kept as it is.", "type": "object"},
    }
    properties = {name: others.get(name, words) for name in fields}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _whole_schema() -> dict[str, Any]:
    return {
        "description": "Where this is part of a release: all its statistics, and their guarantee together. Version 2.",
        "type": "object",
        "required": ["statistics"],
        "additionalProperties": False,
        "properties": {
            "statistics": {"type": "array", "minItems": 2, "items": {"type": "string"}},
            "guarantee": {"$ref": REFERENCE + "guarantee"},
        },
    }


def _axes_schema() -> dict[str, Any]:
    labels = {
        "oneOf": [{"type": "array", "items": {"type": kind}, "uniqueItems": True} for kind in ("string", "integer")]
    }
    return {
        "description": "The axes of the value, in order, with a label for each entry along them. Version 2.",
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "labels"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string", "pattern": r"^[^\W\d]\w*$"}, "labels": labels},
        },
    }


def _of_schema() -> dict[str, Any]:
    """What of which statistic was measured."""
    whole = {"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"$ref": REFERENCE + "packed"}]}
    shape = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}
    matrix = {
        "description": "Its entries that are not zero, each by row and column; a column for each entry, row by row.",
        "type": "object",
        "required": ["shape", "rows", "columns", "entries"],
        "additionalProperties": False,
        "properties": {"shape": shape, "rows": whole, "columns": whole, "entries": whole},
    }
    axes = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": ["string", "integer"]}}
    return {
        "description": "The statistic that was measured, under another name than this: its entries, their sum, sums "
        "over axes, or a matrix of whole numbers times them. Version 2.",
        "type": "object",
        "required": ["statistic"],
        "additionalProperties": False,
        "properties": {
            "statistic": {"type": "string", "pattern": r"^[^\W\d]\w*$"},
            "matrix": matrix,
            "axes": axes,
            "sum": {"type": "boolean"},
        },
    }


def _number_schemas() -> dict[str, Any]:
    """Numbers and arrays of them."""
    packed = {"$ref": REFERENCE + "packed"}
    return {
        "packed": {
            "description": "A long array: its numbers row by row, eight bytes each, little-endian, in base64; NaN is a "
            "value that was withheld. Version 2.",
            "type": "object",
            "required": ["packed", "shape", "data"],
            "additionalProperties": False,
            "properties": {
                "packed": {"enum": list(KINDS)},
                "shape": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}},
                "data": {"type": "string", "contentEncoding": "base64"},
            },
        },
        "number_or_array": {
            "description": "A number, or nested arrays of numbers, row by row. Values are IEEE doubles.",
            "oneOf": [
                {"type": "number"},
                {"type": "array", "items": {"$ref": REFERENCE + "number_or_array"}},
                packed,
            ],
        },
        "value": {
            "description": "Numbers, or a word that the mechanism defines, such as 'suppressed'.",
            "oneOf": [
                {"type": ["number", "string"]},
                {"type": "array", "items": {"$ref": REFERENCE + "value"}},
                packed,
            ],
        },
        "positive": {
            "description": "One positive number, or one per entry.",
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "array", "minItems": 1, "items": {"$ref": REFERENCE + "positive"}},
                packed,
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
