"""What a scalar is called in tables, pictures and messages: `theta`, `rate[2]`, `table[0,1]`."""

from collections.abc import Sequence

import numpy as np


def label_of(name: str, index: Sequence[int]) -> str:
    """The entry of `name` at `index`; the name itself where it is a single number."""
    return f"{name}[{','.join(map(str, index))}]" if len(index) else name


def labels_of(name: str, shape: Sequence[int]) -> list[str]:
    """Every entry of `name`, in the order in which its values are flattened."""
    return [label_of(name, index) for index in np.ndindex(*shape)]
