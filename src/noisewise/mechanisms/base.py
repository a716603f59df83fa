"""The mechanism contract: the law of a released value given the confidential one.

A mechanism knows nothing of parameters, priors or samplers. It states its density, how to draw from it,
and a certified bound of the density over the confidential value: all that exact inference needs.
"""

import inspect
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

import jax
import numpy as np

from noisewise import checks
from noisewise.errors import InputError, refusal

CATALOGUE: dict[str, type["Mechanism"]] = {}
"""Every mechanism by its name, as files spell it."""


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee a mechanism was calibrated to; None where a field was not stated."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    sensitivity: float | None = None
    norm: str | None = None

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
            if key == "norm":
                checks.choice(where, key, value, ["l1", "l2", "linf"], "Name the sensitivity's norm.")
            else:
                checks.positive_number(where, key, value, "Leave it out if it is not known.")
        return cls(**entry)


class Mechanism(ABC):
    """Base of all mechanisms. Frozen, compared by value, and a JAX pytree whose leaves are `fields`.

    Subclasses set the class attributes, call `_freeze` in `__init__`, and define `sample`, `log_prob`
    and `log_sup`; CONTRIBUTING.md lists the files to touch.
    """

    fields: ClassVar[tuple[str, ...]] = ("scale",)
    """Numeric parameters of the law: what a file stores and JAX traces."""
    event_dim: ClassVar[int] = 0
    """0: acts entry by entry; 1: the last axis jointly. `log_prob` gives one number per independent part."""
    inputs: tuple[str, ...] = ()
    """Names of further confidential values it reads beyond the statistic's own (a latent scale, say);
    they are passed to `log_prob` as keyword arguments."""
    measure: ClassVar[Literal["density", "lattice", "atoms"]]
    """What `log_prob` is relative to: Lebesgue measure, counting on the integers, or the given atoms."""
    supremum: ClassVar[Literal["attained", "approached", "bound"]]
    """How `log_sup` relates to the density over the confidential value."""

    guarantee: Guarantee | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls):
            CATALOGUE[cls.__name__] = cls
            jax.tree_util.register_pytree_node(cls, _flatten, cls._unflatten)

    def _freeze(self, guarantee: Guarantee | None = None, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "guarantee", guarantee)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one instead of setting '{name}'.")

    @classmethod
    def _unflatten(cls, guarantee: Guarantee | None, leaves: Any) -> Self:
        # JAX passes tracers and placeholders here, so nothing may be checked.
        made = object.__new__(cls)
        made._freeze(guarantee, **dict(zip(cls.fields, leaves, strict=True)))
        return made

    @abstractmethod
    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """A noisy value for each confidential one, in floating point.

        For simulation and calibration only, never for publishing: floating-point noise leaks through its
        low bits (Mironov 2012). Publish with a vetted library such as OpenDP.
        """

    @abstractmethod
    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log density of `released` given each row of `confidential`; -inf off the support."""

    @abstractmethod
    def log_sup(self, released: Any) -> Any:
        """A certified upper bound of `log_prob(released, ...)` over the confidential value and any other `inputs`."""

    def released(self, value: Any) -> "Released":
        """`value` as published by this mechanism."""
        return Released(self, value)

    def check_released(self, value: Any) -> Any:
        """`value` as this mechanism can have released it: a number or read-only array; refused otherwise."""
        who = type(self).__name__
        value = checks.numeric(f"{who}.released", "value", value, "Give the published number or array.")
        if not np.all(np.isfinite(value)):
            raise refusal(f"{who}.released", "value", "must be finite", value, "Check the published file.")
        for name in self.fields:
            shape = np.shape(getattr(self, name))
            if not _broadcasts(shape, np.shape(value)):
                rule = f"must have a shape that '{name}' of shape {shape} broadcasts to"
                raise refusal(f"{who}.released", "value", rule, value, f"Give one {name}, or one per entry.")
        return value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file: the name, the law's parameters, the guarantee."""
        entry: dict[str, Any] = {"mechanism": type(self).__name__}
        entry |= {name: np.asarray(getattr(self, name)).tolist() for name in self.fields}
        if self.guarantee is not None:
            entry["guarantee"] = self.guarantee.to_dict()
        return entry

    @classmethod
    def from_dict(cls, entry: dict[str, Any], where: str) -> Self:
        """A mechanism from a file's arguments (either the law's parameters or a budget)."""
        arguments = dict(entry)
        stated = arguments.pop("guarantee", None)
        known = list(inspect.signature(cls).parameters)
        for key, value in arguments.items():
            if key not in known:
                raise refusal(where, key, f"is not an argument of {cls.__name__}", value, checks.nearest(key, known))
        try:
            made = cls(**arguments)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if stated is not None:
            guarantee = Guarantee.from_dict(stated, f"{where}.guarantee")
            object.__setattr__(made, "guarantee", guarantee)
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Mechanism) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))

    def __repr__(self) -> str:
        shown = [f"{name}={np.asarray(getattr(self, name)).tolist()}" for name in self.fields]
        return f"{type(self).__name__}({', '.join(shown)})"


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _flatten(mechanism: Mechanism) -> tuple[tuple[Any, ...], Guarantee | None]:
    return tuple(getattr(mechanism, name) for name in mechanism.fields), mechanism.guarantee


class Lattice(Mechanism):
    """Mechanisms on the integers: both sides are whole numbers, the density is a probability."""

    measure = "lattice"

    def check_released(self, value: Any) -> Any:
        """Whole numbers, kept as int64."""
        who = f"{type(self).__name__}.released"
        given, value = value, super().check_released(value)
        if not np.all(np.asarray(value) == np.floor(value)):
            raise refusal(who, "value", "must be whole numbers", value, "Integer noise gives integer releases.")
        if np.any(np.abs(value) > 2.0**53):
            advice = "Beyond that, differences are not exact in floating point."
            raise refusal(who, "value", "must be at most 2**53 in size", value, advice)
        whole = np.asarray(given).astype(np.int64)  # not by way of floats
        whole.flags.writeable = False
        return int(whole) if whole.ndim == 0 else whole


@dataclass(frozen=True, eq=False)
class Released:
    """One published value together with the mechanism that made it."""

    mechanism: Mechanism
    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.mechanism.check_released(self.value))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the published value; () for a number."""
        return np.shape(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Released):
            return NotImplemented
        return self.mechanism == other.mechanism and np.array_equal(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.mechanism, np.asarray(self.value).tobytes()))


def scale_from_budget(
    who: str, scale: Any, sensitivity: Any, budget: dict[str, Any]
) -> tuple[Any, float, dict[str, float]]:
    """Sort out `scale` against `sensitivity` plus a budget: exactly one way must be given.

    Returns (scale or None, sensitivity, budget as floats).
    """
    names = " and ".join([*budget, "sensitivity"])
    given = {key: value for key, value in budget.items() if value is not None}
    advice = f"Give scale, or {names}."
    if scale is not None:
        if given or sensitivity is not None:
            raise refusal(who, "scale", "must not come together with a budget", scale, advice)
        return checks.positive(who, "scale", scale, advice), float("nan"), {}
    if not given:
        raise refusal(who, "scale", "must be given when there is no budget", scale, advice)
    budget_numbers = {key: checks.positive_number(who, key, value, advice) for key, value in given.items()}
    if sensitivity is None:
        raise refusal(who, "sensitivity", "must come with a budget", sensitivity, advice)
    return None, checks.positive_number(who, "sensitivity", sensitivity, advice), budget_numbers
