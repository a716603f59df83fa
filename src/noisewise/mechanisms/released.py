"""One published value with the mechanism that made it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise import axes
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.mechanisms.about import OF_STATISTIC, about
from noisewise.mechanisms.linear import Linear

if TYPE_CHECKING:
    from noisewise.mechanisms.base import Mechanism


@dataclass(frozen=True, eq=False)
class Released:
    """One published value together with the mechanism that made it."""

    mechanism: "Mechanism"
    value: Any
    coords: axes.Coords = field(default_factory=FrozenDict)
    """Labels along each axis, by the axis's name and in the order of axes; empty where it has none."""
    about: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Its description for people: what it counts, in which unit and more; see `described`."""
    of: Linear | None = None
    """The linear measurement that it is; None where it is all of the statistic of its own name."""

    def __post_init__(self) -> None:
        who = f"{type(self.mechanism).__name__}.released"
        if isinstance(self.value, np.ma.MaskedArray):
            advice = "What its mask hides would be published: give the entries that were, by a plain array."
            raise refusal(who, "value", "must not be a masked array", self.value, advice)
        value, coords = axes.apart(who, self.value, self.coords)
        object.__setattr__(self, "value", self.mechanism.check_released(value))
        object.__setattr__(self, "coords", axes.coordinates(who, coords, self.shape) if coords else FrozenDict())

        object.__setattr__(self, "about", about(who, OF_STATISTIC, self.about))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the published value; () for a number."""
        return np.shape(self.value)

    def with_coords(self, coords: axes.Coords) -> "Released":
        """The same published value with these labels."""
        return replace(self, coords=coords)

    def described(
        self,
        description: str | None = None,
        *,
        unit: str | None = None,
        bounds: tuple[float, float] | None = None,
        records: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> "Released":
        """The same published value with a description for people; fields that are left out stay as they were.

        `bounds` are those that each record's value was clamped to; `records` how many records there were, where that
        is public; `extra` anything else. The noise and the guarantee are stated by the mechanism.
        """
        given = {"description": description, "unit": unit, "bounds": bounds, "records": records, "extra": extra}
        return replace(self, about={**self.about, **{key: value for key, value in given.items() if value is not None}})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Released):
            return NotImplemented
        same = self.mechanism == other.mechanism and np.array_equal(self.value, other.value, equal_nan=True)
        same = same and list(self.coords.items()) == list(other.coords.items()) and self.about == other.about
        return same and self.of == other.of

    def __hash__(self) -> int:
        return hash((self.mechanism, np.asarray(self.value).tobytes()))


@dataclass(frozen=True)
class Measurement:
    """A mechanism about to release a linear measurement of a statistic; `Mechanism.of` makes it."""

    mechanism: "Mechanism"
    of: Linear

    def released(self, value: Any, coords: axes.Coords | None = None) -> Released:
        """`value` as published by this measurement; `coords` as in `Mechanism.released`."""
        return replace(self.mechanism.released(value, coords), of=self.of)
