"""What a release is to be good for: a posterior's width or spread, an interval's power, a decision's error."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import Place, refusal
from noisewise.frozen import FrozenDict
from noisewise.model import Model
from noisewise.numerics import Array

KINDS = {"width": (), "sd": (), "power": ("excludes",), "error": ("above",)}
"""Kinds of targets, and the key that each may have besides its goal and `truth`."""
WORDS = {
    "width": "width of the {level:.3g}% interval of {of}",
    "sd": "posterior standard deviation of {of}",
    "power": "chance that the {level:.3g}% interval of {of} excludes {against:g}",
    "error": "chance of a wrong decision whether {of} is above {against:g}",
}
_ENTRY = re.compile(r"(\w+)(?:\[(\d+(?:, *\d+)*)\])?")
ADVICE = 'Give {"width": "theta", "at_most": 4.0}, say; the others are "sd", "power" and "error".'


@dataclass(frozen=True)
class Goal:
    """A number that says how good a posterior is, and how large or small it has to be."""

    kind: str
    name: str
    index: tuple[int, ...]
    level: float
    goal: float | None = None
    against: float = 0.0
    truth: Mapping[str, Array] | None = None
    """Parameters at which releases are simulated; None: the prior's draws, in turn."""
    called: str = ""
    """What people call the quantity, where that is not its name."""

    @classmethod
    def read(cls, who: str, content: Any, model: Model, level: float, *, needs_goal: bool = True) -> Self:
        """A target from a dict: `{"width": "theta", "at_most": 4.0}`."""
        kinds = [key for key in KINDS if isinstance(content, Mapping) and key in content]
        if len(kinds) != 1:
            raise refusal(who, _part(), f"must name one of {', '.join(KINDS)}", content, ADVICE)
        kind = kinds[0]
        bound = "at_least" if kind == "power" else "at_most"
        known = (kind, bound, "truth", *KINDS[kind])
        for key, value in content.items():
            if key not in known:
                raise refusal(who, _part(key), f"is not a part of '{kind}'", value, checks.nearest(key, known))
        name, index = _quantity(who, Place("target", ("target", kind)), content[kind], model)
        goal = None
        if needs_goal or bound in content:
            if bound not in content:
                raise refusal(who, _part(), f"must say {bound}", dict(content), ADVICE)
            goal = checks.positive_number(who, _part(bound), content[bound], ADVICE)
            if kind in ("power", "error") and goal >= 1.0:
                raise refusal(who, _part(bound), "must be a chance below 1", goal, ADVICE)
        if kind == "error" and "above" not in content:
            raise refusal(who, _part(), "must say above which value", dict(content), ADVICE)
        against = content.get(KINDS[kind][0], 0.0) if KINDS[kind] else 0.0
        if isinstance(against, bool) or not isinstance(against, (int, float)) or not np.isfinite(against):
            raise refusal(who, _part(KINDS[kind][0]), "must be a number", against, ADVICE)
        truth = _truth(who, content["truth"], model) if "truth" in content else None
        if kind == "power" and truth is None:
            advice = f'Add "truth": {{"{model.parameters[0]}": ...}}.' if model.parameters else "The model has none."
            raise refusal(who, _part(), "must say at which truth the power is meant", dict(content), advice)
        return cls(kind, name, index, level, goal, float(against), truth)

    @property
    def of(self) -> str:
        """The quantity by its name."""
        return f"{self.name}[{', '.join(map(str, self.index))}]" if self.index else self.name

    @property
    def falls(self) -> bool:
        """Whether less of it is better."""
        return self.kind != "power"

    @property
    def is_chance(self) -> bool:
        """Whether it lies between 0 and 1."""
        return self.kind in ("power", "error")

    @property
    def is_counted(self) -> bool:
        """Whether each release answers yes or no, so that the target is the share of one answer."""
        return self.kind == "power" or (self.kind == "error" and self.truth is not None)

    @property
    def words(self) -> str:
        """The target in words."""
        return WORDS[self.kind].format(level=100.0 * self.level, of=self.called or self.of, against=self.against)

    def column(self, values: Mapping[str, Array]) -> Array:
        """The quantity at each row."""
        at: Any = (slice(None), *self.index)
        return np.asarray(values[self.name][at], dtype=float)

    def measured(self, ordered: Array, weight: Array, truth: float) -> float:
        """The target of one posterior: `ordered` values of the quantity, ascending, with weights that add up to one."""
        match self.kind:
            case "sd":
                mean = np.sum(weight * ordered)  # a product of vectors would wake the threads of BLAS each time
                return float(np.sqrt(np.sum(weight * (ordered - mean) ** 2)))
            case "error":
                above = float(weight[int(np.searchsorted(ordered, self.against, side="right")) :].sum())
                if self.truth is None:  # given the release, the better decision is wrong with this chance
                    return min(above, 1.0 - above)
                return float((above > 0.5) != (truth > self.against))
        low, high = interval(ordered, weight, self.level)
        return high - low if self.kind == "width" else float(low > self.against or high < self.against)


def interval(ordered: Array, weight: Array, level: float) -> tuple[float, float]:
    """The central interval: the inverse of the weighted distribution function, as for any posterior."""
    cumulative = np.cumsum(weight)
    ends = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0]) * cumulative[-1]
    low, high = ordered[np.minimum(np.searchsorted(cumulative, ends), len(ordered) - 1)]
    return float(low), float(high)


def _part(*keys: str) -> Place:
    """A part of the target, as it is called in messages and as a path."""
    return Place("target" + "".join(f"['{key}']" for key in keys), ("target", *keys))


def _quantity(who: str, place: Place, stated: Any, model: Model) -> tuple[str, tuple[int, ...]]:
    match = _ENTRY.fullmatch(stated) if isinstance(stated, str) else None
    known = [*model.order, *model.derived]
    if match is None or match[1] not in known:
        raise refusal(who, place, "must be of a quantity of the model", stated, checks.nearest(stated, known))
    index = tuple(int(part) for part in match[2].split(",")) if match[2] else ()
    shape = model.shapes[match[1]]
    if len(index) != len(shape) or any(place >= size for place, size in zip(index, shape, strict=True)):
        rule = f"must be of one number; '{match[1]}' has the shape {shape}"
        raise refusal(who, place, rule, stated, f"Name an entry, as '{match[1]}[0]'.")
    return match[1], index


def _truth(who: str, stated: Any, model: Model) -> FrozenDict:
    advice = f"Give a value for each of {', '.join(model.parameters)}."
    if not isinstance(stated, Mapping) or set(stated) != set(model.parameters):
        raise refusal(who, _part("truth"), "must name every parameter", stated, advice)
    truth = {}
    for name, value in stated.items():
        number = np.asarray(checks.numeric(who, _part("truth", name), value, advice))
        if number.shape != model.shape(name):
            raise refusal(who, _part("truth", name), f"must have the shape {model.shape(name)}", value, advice)
        truth[name] = number.astype(model.dtype(name))
    return FrozenDict(truth)
