"""Arrays in files: short ones as lists, which people read; long ones as their bytes, in base64."""

import base64
import binascii
import math
from typing import Any

import numpy as np

from noisewise.errors import refusal

MOST_LISTED = 4096
"""Most numbers that are written as a list."""
KINDS = {"float64": "<f8", "int64": "<i8"}
"""The types of numbers by the names that files give them, with their little-endian bytes in NumPy's notation."""


def plain(value: Any) -> Any:
    """A number or an array as JSON data, such that the same bits come back."""
    array = np.asarray(value)
    if array.size <= MOST_LISTED or array.dtype.name not in KINDS:
        return array.tolist()
    raw = np.ascontiguousarray(array, dtype=KINDS[array.dtype.name]).tobytes()
    return {"packed": array.dtype.name, "shape": list(array.shape), "data": base64.b64encode(raw).decode("ascii")}


def is_packed(entry: Any) -> bool:
    """Whether a file's entry is an array written as bytes."""
    return isinstance(entry, dict) and "packed" in entry


def holds_packed(entry: Any) -> bool:
    """Whether a file's entry is packed, or holds an object that is."""
    return isinstance(entry, dict) and (is_packed(entry) or any(map(holds_packed, entry.values())))


def unpacked(entry: Any, where: str) -> Any:
    """The array of a packed entry; other entries as they are. `where` locates it in messages."""
    if not is_packed(entry):
        return entry
    advice = 'Give {"packed": "float64", "shape": [5000], "data": "..."}, the data in base64.'
    kind, shape, data = entry["packed"], entry.get("shape"), entry.get("data")
    if set(entry) != {"packed", "shape", "data"} or not isinstance(kind, str) or kind not in KINDS:
        rule = f"must have packed ({' or '.join(KINDS)}), shape and data"
        raise refusal(where, "packed", rule, {key: entry[key] for key in entry if key != "data"}, advice)
    whole = isinstance(shape, list) and all(type(length) is int and length > 0 for length in shape)
    if not whole or len(shape) > 32:
        raise refusal(where, "shape", "must be a list of positive whole numbers", shape, advice)
    try:
        raw = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise refusal(where, "data", f"must be base64 ({error})", str(data)[:40], advice) from None
    if len(raw) != 8 * math.prod(shape):
        rule = f"must have {8 * math.prod(shape)} bytes, eight for each number of the shape {shape}"
        raise refusal(where, "data", rule, len(raw), advice)
    return np.frombuffer(raw, dtype=KINDS[kind]).reshape(shape).astype(kind, copy=False)
