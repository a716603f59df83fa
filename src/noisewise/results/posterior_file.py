"""Checks of a result file before any of it is read: plain arrays of the file itself, no larger than the file.

HDF5 can say that a dataset lies in another file, is put together from others, or is larger than any memory. None of
that is in a file of `Posterior.save`, so none of it is followed. The bytes themselves are parsed by the HDF5 library.
"""

import math
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.numerics import Array

GROUPS = ("posterior", "observed_data", "sample_stats")
KINDS = "biuf"
"""Kinds of numbers that draws and released values may be: booleans, whole numbers, floating point."""
CHARACTER = "S1"
"""What labels are made of: arrays of single characters."""
ROOM = 2**20
"""Bytes that its arrays may declare beyond four times the file's size: axes without values are not stored."""
ENTRIES = 64
"""Most entries of an attribute whose entries are texts, each of any length."""
HEAP, LEAST_HEAP, HEAD = b"GCOL\x01", 4096, 16
"""A global heap stores texts: its first bytes, its least size, and the size of its header and of each object's."""
NUMBER, WHOLE = (int, float, type(None)), (int, type(None))
TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("status", "message", "reason", "release_hash"), str),
    **dict.fromkeys(("acceptance_rate", "seconds", "log_evidence", "log_evidence_se"), NUMBER),
    **dict.fromkeys(("proposals", "chains", "superchains", "islands"), WHOLE),
    "seed": int,
    "diagnostics": dict,
    "versions": dict,
}
"""Types of the metadata's fields."""


def check_structure(path: str | os.PathLike[str]) -> None:
    """Raise `ValueError` where the file holds anything but groups of plain arrays, or arrays larger than itself."""
    import h5py

    _check_heaps(path)
    with h5py.File(Path(path), "r") as file:
        room = 4 * os.stat(path).st_size + ROOM
        _check_attributes(file)
        for name in file:
            if name not in GROUPS or not _is_own(file, name) or not isinstance(file[name], h5py.Group):
                raise ValueError(f"'{name}' is not a group of a posterior")
            _check_attributes(file[name])
            for inner in file[name]:
                room -= _bytes_of(file[name], inner)
                if room < 0:
                    raise ValueError("its arrays are larger than the file")


def check_content(
    draws: Mapping[str, Array], released: Mapping[str, Any], log_weights: Array | None, metadata: Mapping[str, Any]
) -> None:
    """Raise `ValueError` where draws, weights and metadata do not belong together."""
    if any(np.asarray(value).dtype.kind not in KINDS for value in released.values()):
        raise ValueError("released values are numbers")
    columns = [*draws.values(), *([] if log_weights is None else [log_weights])]
    if len({len(column) for column in columns}) > 1 or any(column.dtype.kind not in KINDS for column in columns):
        raise ValueError("draws are numbers, and equally many of each")
    if log_weights is not None and log_weights.ndim != 1:
        raise ValueError("each draw has one weight")
    length = len(columns[0]) if columns else 0
    for name, kinds in TYPES.items():
        value = metadata.get(name)
        huge = isinstance(value, int) and name != "seed" and abs(value) >= 2**63
        if isinstance(value, bool) or not isinstance(value, kinds) or huge:
            raise ValueError(f"'{name}' is {value!r:.50}")
    for name in ("chains", "superchains", "islands"):
        parts = metadata.get(name)
        if parts is not None and (
            parts < 1 or length % parts or (name == "superchains" and not metadata.get("chains"))
        ):
            raise ValueError(f"'{name}' is {parts!r:.50} for {length} draws")
    for kind in ("parameters", "derived"):
        if not all(isinstance(name, str) and name in draws for name in metadata[kind]):
            raise ValueError(f"'{kind}' names what was not drawn")
    if set(metadata["parameters"]) & set(metadata["derived"]):
        raise ValueError("'derived' names a parameter")


def _check_heaps(path: str | os.PathLike[str]) -> None:
    """Refuse texts that do not fit into their heap: HDF5 would look for the next for ever, and no signal ends that."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            left: float = len(data) // HEAD
            at = data.find(HEAP)
            while at >= 0:
                end = at + int.from_bytes(data[at + 8 : at + HEAD], "little")
                if end - at >= LEAST_HEAP and end <= len(data):
                    left -= _objects(data, at + HEAD, end)
                if left < 0:  # heaps do not overlap
                    raise ValueError("its texts do not fit where they stand")
                at = data.find(HEAP, at + 1)


def _objects(data: mmap.mmap, at: int, end: int) -> float:
    """How many objects lie between `at` and the heap's end; infinity where they do not fit. Number 0 is free space."""
    count = 0
    while at + HEAD <= end:
        number, size = struct.unpack_from("<H6xQ", data, at)
        takes = size if number == 0 else HEAD + size + -size % 8
        if not HEAD <= takes <= end - at:
            return math.inf
        count, at = count + 1, at + takes
    return count


def _is_own(group: Any, name: str) -> bool:
    """Whether a name stands for an object of this very file, and not for a link to somewhere."""
    import h5py

    return type(group.get(name, getlink=True)) is h5py.HardLink


def _bytes_of(group: Any, name: str) -> int:
    """The room that reading a plain array takes: its own, or that of a chunk, which is unpacked whole."""
    import h5py

    dataset = group[name] if _is_own(group, name) else None
    if (
        not isinstance(dataset, h5py.Dataset)
        or dataset.external is not None
        or dataset.is_virtual
        or dataset.shape is None
    ):
        raise ValueError(f"'{name}' is not an array of this file")
    if dataset.dtype == CHARACTER:
        _check_attributes(dataset)
        return int(dataset.size)
    if dataset.dtype.kind not in KINDS or h5py.check_enum_dtype(dataset.dtype) not in (None, {"FALSE": 0, "TRUE": 1}):
        raise ValueError(f"'{name}' holds {dataset.dtype}, not numbers")
    _check_attributes(dataset)
    return max(int(dataset.size), math.prod(dataset.chunks or ())) * max(8, dataset.dtype.itemsize)


def _check_attributes(owner: Any) -> None:
    """Refuse attributes of many texts: they may all be one text in the file, which reading copies for each of them."""
    for name in owner.attrs:
        attribute = owner.attrs.get_id(name)
        if attribute.dtype.hasobject and math.prod(attribute.shape or ()) > ENTRIES and attribute.dtype.kind != "V":
            raise ValueError(f"the attribute '{name:.50}' has more than {ENTRIES} texts")
