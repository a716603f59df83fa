"""Draws by name where some of them have stayed on an accelerator: each column is fetched when it is asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from noisewise.frozen import FrozenDict
from noisewise.model.on_device.held import Held
from noisewise.model.simulator import read_only
from noisewise.numerics import Array


class Drawn(Mapping[str, Array]):
    """Read-only NumPy arrays by name. A column that stayed on an accelerator comes from there once, and leaves it."""

    def __init__(self, columns: Mapping[str, Array | Held]) -> None:
        self.columns = {name: one if isinstance(one, Held) else read_only(one) for name, one in columns.items()}
        """Where they are: each has the length, shape and kind of an array."""

    def __getitem__(self, name: str) -> Array:
        column = self.columns[name]
        if isinstance(column, Held):
            column = self.columns[name] = read_only(np.asarray(column))
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __or__(self, others: Mapping[str, Array]) -> "Drawn":
        """With others, none of them fetched."""
        return Drawn(self.columns | dict(others))

    def __reduce__(self) -> Any:
        """A pickle, or a deep copy, holds arrays."""
        return FrozenDict, (dict(self),)


def frozen_draws(columns: Mapping[str, Any]) -> Mapping[str, Array]:
    """Columns that cannot be changed; those on an accelerator stay there."""
    if isinstance(columns, Drawn):
        return columns
    if any(isinstance(column, Held) for column in columns.values()):
        return Drawn(columns)
    # Views, so that freezing ours does not freeze an array the caller still holds.
    return FrozenDict({name: read_only(column) for name, column in columns.items()})


def where_they_are(draws: Mapping[str, Array]) -> Mapping[str, Array | Held]:
    """The columns, none of them fetched, for their length, shape and kind."""
    return draws.columns if isinstance(draws, Drawn) else draws
