"""Privacy guarantees: what a mechanism was calibrated to."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from noisewise import checks
from noisewise.errors import refusal


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee a mechanism was calibrated to; None where a field was not stated."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    sensitivity: float | None = None
    norm: str | None = None

    choices: ClassVar[dict[str, list[str]]] = {"norm": ["l1", "l2", "linf"]}

    def to_dict(self) -> dict[str, Any]:
        """The stated fields only."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Any, where: str) -> Self:
        """A guarantee from a file's object; `where` locates it for the message."""
        known = list(cls.__dataclass_fields__)
        if not isinstance(entry, dict):
            raise refusal(where, "guarantee", "must be an object", entry, f"Give any of {', '.join(known)}.")
        for key, value in entry.items():
            if key not in known:
                raise refusal(where, key, "is not a field of a guarantee", value, checks.nearest(key, known))
            if key in cls.choices:
                checks.choice(where, key, value, cls.choices[key])
            else:
                checks.positive_number(where, key, value, "Leave it out if it is not known.")
        return cls(**entry)
