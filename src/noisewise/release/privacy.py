"""The privacy guarantees of all entries of one statistic, and of the whole release that a part was taken from."""

import math
from dataclasses import dataclass
from typing import Any, Self

from noisewise.errors import refusal
from noisewise.mechanisms import Guarantee, Product
from noisewise.mechanisms.base import Mechanism
from noisewise.mechanisms.wrapper import Wrapper


@dataclass(frozen=True)
class Whole:
    """The release that a part was taken from: the names of all its statistics, and their guarantee together."""

    statistics: tuple[str, ...]
    guarantee: Guarantee | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file."""
        guarantee = {} if self.guarantee is None else {"guarantee": self.guarantee.to_dict()}
        return {"statistics": list(self.statistics), **guarantee}

    @classmethod
    def from_dict(cls, content: Any, part: list[str], where: str) -> Self:
        """The whole that the statistics `part` were taken from, from a file's object."""
        advice = 'Give {"statistics": ["smokers", "drinkers"], "guarantee": {"epsilon": 1.0}}.'
        names: Any = content.get("statistics") if isinstance(content, dict) else None
        listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not listed or not set(content) <= {"statistics", "guarantee"} or not set(part) < set(names):
            raise refusal(where, "part_of", "must name these statistics and others, and a guarantee", content, advice)
        stated = content.get("guarantee")
        return cls(tuple(names), None if stated is None else Guarantee.from_dict(stated, where))


def of_all_entries(mechanism: Mechanism, shape: tuple[int, ...]) -> Guarantee | None:
    """The guarantee of all entries of one released value, composed over the parts that one record may move."""
    guarantee = mechanism.guarantee
    if isinstance(mechanism, Wrapper) and guarantee == mechanism.base.guarantee:
        return of_all_entries(mechanism.base, shape)
    if isinstance(mechanism, Product):
        inside = [of_all_entries(part, shape[:-1]) for part in mechanism.parts]
        stated = [inner for inner in inside if inner is not None]
        if len(stated) == len(inside):
            return Guarantee.compose(stated)
    if guarantee is None or guarantee.kind == "none":
        return None
    if guarantee.dimension is not None and math.prod(shape) > guarantee.dimension:
        return None  # calibrated for fewer entries than were released
    parts = mechanism.record_parts(shape)
    return Guarantee.compose([guarantee] * parts) if parts > 1 else guarantee
