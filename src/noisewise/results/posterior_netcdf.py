"""Writing groups of labelled arrays as NetCDF, in the layout in which xarray and ArviZ write and read them.

xarray could write them, too. But it loads whatever array libraries are installed before it writes a number, which takes
longer than most analyses.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.numerics import Array


@dataclass(frozen=True)
class Variable:
    """An array, the names of its axes, and its attributes."""

    dims: tuple[str, ...]
    values: Array
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Variables by name, and the labels of those axes that have any."""

    variables: dict[str, Variable]
    labels: dict[str, Any] = field(default_factory=dict)


def write(path: str | os.PathLike[str], groups: Mapping[str, Group], attributes: Mapping[str, str]) -> None:
    """Write a file of these groups; the `attributes` describe the file and its first group."""
    import h5netcdf

    with h5netcdf.File(Path(path), "w") as file:
        file.attrs.update(attributes)
        for number, (name, content) in enumerate(groups.items()):
            group = file.create_group(name)
            if number == 0:
                group.attrs.update(attributes)
            for variable in content.variables.values():
                for axis, size in zip(variable.dims, variable.values.shape, strict=True):
                    if axis not in group.dimensions:
                        group.dimensions[axis] = size
            for key, variable in content.variables.items():
                _add(group, key, variable)
            for axis, labels in content.labels.items():
                _add(group, axis, _as_characters(group, axis, np.asarray(labels)))


def _add(group: Any, name: str, variable: Variable) -> None:
    values, attributes = np.asarray(variable.values), dict(variable.attributes)
    if values.dtype.kind == "b":  # NetCDF has no truth values; xarray reads these as such
        values, attributes = values.astype(np.int8), attributes | {"dtype": "bool"}
    absent = np.nan if values.dtype.kind == "f" else None
    stored = group.create_variable(name, variable.dims, values.dtype, fillvalue=absent)
    stored[...] = values
    stored.attrs.update(attributes)


def _as_characters(group: Any, axis: str, labels: Array) -> Variable:
    """Labels of an axis; texts as arrays of single characters: see posterior_file."""
    if labels.dtype.kind != "U":
        return Variable((axis,), labels)
    encoded = np.array([label.encode("utf-8") for label in labels.tolist()])
    length = encoded.dtype.itemsize
    inner = f"string{length}"
    if inner not in group.dimensions:
        group.dimensions[inner] = length
    return Variable((axis, inner), encoded.view("S1").reshape(len(labels), length), {"_Encoding": "utf-8"})
