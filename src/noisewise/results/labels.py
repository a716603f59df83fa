"""Named values as one vector of scalars: what each is called (`theta`, `rate[2]`, `rate[Bronx]`), and back to names."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisewise.axes import Axes

NUMBERED = Axes()
"""Axes without names: entries go by their number."""


def label_of(name: str, index: Sequence[int], axes: Axes = NUMBERED) -> str:
    """The entry of `name` at `index`, by its labels; the name itself where it is a single number."""
    place = [str(label) for label in axes.place(name, index)]
    if len(place) > 1:  # a comma inside a label is not one between two
        place = [repr(label) if "," in label else label for label in place]
    return f"{name}[{','.join(place)}]" if place else name


def labels_of(name: str, shape: Sequence[int], axes: Axes = NUMBERED) -> list[str]:
    """Every entry of `name`, in the order in which its values are flattened."""
    return [label_of(name, index, axes) for index in np.ndindex(*shape)]


def owner_of(label: str) -> str:
    """The name whose entry a label is: `rate` of `rate[Bronx]`, and of `rate`."""
    return label.partition("[")[0]


def place_of(label: str) -> str:
    """Which entry of its owner a label is: `Bronx` of `rate[Bronx]`; nothing where it is a single number's."""
    return label.partition("[")[2].removesuffix("]")


def by_name(flat: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Values by name from the vector of all their scalars; traceable."""
    values, start = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        values[name] = flat[start : start + size].reshape(tuple(shape))
        start += size
    return values
