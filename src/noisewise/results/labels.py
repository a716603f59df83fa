"""Named values as one vector of scalars: what each scalar is called (`theta`, `rate[2]`), and back to names."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def label_of(name: str, index: Sequence[int]) -> str:
    """The entry of `name` at `index`; the name itself where it is a single number."""
    return f"{name}[{','.join(map(str, index))}]" if len(index) else name


def labels_of(name: str, shape: Sequence[int]) -> list[str]:
    """Every entry of `name`, in the order in which its values are flattened."""
    return [label_of(name, index) for index in np.ndindex(*shape)]


def by_name(flat: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Values by name from the vector of all their scalars; traceable."""
    values, start = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        values[name] = flat[start : start + size].reshape(tuple(shape))
        start += size
    return values
