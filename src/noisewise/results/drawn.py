"""Draws by name where some of them have stayed on an accelerator: each column is fetched when it is asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from noisewise.frozen import FrozenDict
from noisewise.model.on_device.held import Held
from noisewise.model.simulator import read_only
from noisewise.numerics import Array


class Drawn(FrozenDict):
    """Read-only NumPy arrays by name. A column that stayed on an accelerator is fetched once, and leaves it."""

    def __init__(self, columns: Mapping[str, Array | Held]) -> None:
        super().__init__({name: one if isinstance(one, Held) else read_only(one) for name, one in columns.items()})

    @property
    def columns(self) -> dict[str, Array | Held]:
        """The columns where they are, none of them fetched: each has the length, shape and kind of an array."""
        return dict(super().items())

    def __getitem__(self, name: str) -> Array:
        column = super().__getitem__(name)
        if isinstance(column, Held):
            column = read_only(np.asarray(column))
            dict.__setitem__(self, name, column)
        return column

    # Every method that hands columns out fetches them. With an __iter__ here, `dict(...)` asks for them one by one.

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """The column, fetched, or else the default."""
        return self[name] if super().__contains__(name) else default

    def values(self) -> Any:
        """All columns, fetched."""
        return {name: self[name] for name in self}.values()

    def items(self) -> Any:
        """Names and columns, fetched."""
        return {name: self[name] for name in self}.items()

    def copy(self) -> dict[str, Array]:
        """A dict of one's own, all columns fetched."""
        return {name: self[name] for name in self}

    def __or__(self, others: Mapping[str, Array]) -> "Drawn":  # type: ignore[override]  # a dict gives a dict
        """These columns with others, none of them fetched."""
        return Drawn(self.columns | (others.columns if isinstance(others, Drawn) else dict(others)))

    def __ror__(self, others: Mapping[str, Array]) -> dict[str, Any]:  # type: ignore[override]  # see above
        return {**others, **self.copy()}

    def __repr__(self) -> str:
        there = [name for name, column in self.columns.items() if isinstance(column, Held)]
        return f"<draws of {', '.join(self)}; on the accelerator: {', '.join(there) or 'none'}>"

    def __reduce__(self) -> Any:
        """A pickle, or a deep copy, holds arrays."""
        return FrozenDict, (self.copy(),)


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
