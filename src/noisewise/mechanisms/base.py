"""The mechanism contract: the law of a released value given the confidential one.

A mechanism knows nothing of parameters, priors or samplers. It states its density, how to draw from it,
and a certified bound of the density over the confidential value: all that exact inference needs.
"""

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import jax
import numpy as np

from noisewise import axes, checks
from noisewise.errors import InputError, Place, refusal
from noisewise.frozen import FrozenDict
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.linear import Linear
from noisewise.mechanisms.packing import MOST_LISTED, plain, unpacked
from noisewise.mechanisms.released import Measurement, Released

CATALOGUE: dict[str, type["Mechanism"]] = {}
"""Every mechanism by its name, as files spell it."""

Measure = Literal["density", "lattice", "atoms", "mixed"]
Supremum = Literal["attained", "approached", "bound"]

NUMBERS = {"$ref": "#/$defs/number_or_array"}
POSITIVE = {"$ref": "#/$defs/positive"}
BUDGET = {"$ref": "#/$defs/budget"}
MECHANISM = {"$ref": "#/$defs/mechanism"}
"""Fragments for `Mechanism.arguments`, the mechanism's part of the release file's JSON schema."""


class Mechanism(ABC):
    """Base of all mechanisms. Frozen, compared by value, and a JAX pytree whose leaves are `fields`.

    Subclasses set the class attributes, call `_freeze` in `__init__`, and define `sample`, `log_prob`
    and `log_sup`; CONTRIBUTING.md lists the files to touch.
    """

    fields: ClassVar[tuple[str, ...]] = ("scale",)
    """Parameters of the law that are numbers, arrays or mechanisms: stored in files, traced by JAX."""
    static: ClassVar[tuple[str, ...]] = ()
    """Parameters that decide the form of the law (a norm's name, a statistic's name): stored, never traced."""
    arguments: ClassVar[dict[str, Any]] = {"scale": POSITIVE}
    """JSON schema of each constructor argument, as files spell them."""
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("scale",),)
    """Sets of arguments that suffice; an entry of a file gives one of them."""
    did: ClassVar[str] = ""
    """What it did to a value, for the report: a sentence without its subject, parameters of the law in braces."""

    guarantee: Guarantee | None

    if TYPE_CHECKING:  # for type checkers, so that a mechanism may set or compute these; at run time plain attributes

        @property
        def event_dim(self) -> int:
            """0: it acts entry by entry; 1: on the last axis jointly. `log_prob` gives one number per such part."""

        @property
        def measure(self) -> Measure:
            """The measure that `log_prob` is relative to; it has no default.

            "density": Lebesgue measure; "lattice": counting on the integers; "atoms": counting on the possible values;
            "mixed": Lebesgue measure with added atoms.
            """

        @property
        def supremum(self) -> Supremum:
            """Whether the density attains `log_sup`, only approaches it, or is bounded by it; it has no default."""

        @property
        def inputs(self) -> tuple[str, ...]:
            """Names of confidential values that it reads beside the statistic's own (a latent scale, say).

            They are passed to `log_prob` and `sample` as keyword arguments.
            """

        @property
        def integers(self) -> bool:
            """Whether the confidential values must be whole numbers."""
    else:
        event_dim, inputs, integers = 0, (), False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls):
            namesake = CATALOGUE.get(cls.__name__)
            home = "" if namesake is None else namesake.__module__
            if home.startswith("noisewise.") and cls.__module__ != home:
                raise refusal(cls.__name__, "name", "must not be that of a mechanism here", namesake, "Choose another.")
            CATALOGUE[cls.__name__] = cls
            jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def _freeze(self, guarantee: Guarantee | None = None, **parameters: Any) -> None:
        for name, value in parameters.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "guarantee", guarantee)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one instead of setting '{name}'.")

    @classmethod
    def _flatten(cls, mechanism: "Mechanism") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        # The guarantee is left out: it is no part of the law, and a change of it must not cause a new compilation.
        leaves = tuple(getattr(mechanism, name) for name in cls.fields)
        return leaves, tuple(getattr(mechanism, name) for name in cls.static)

    @classmethod
    def _unflatten(cls, static: tuple[Any, ...], leaves: Any) -> Self:
        # JAX passes tracers and placeholders here, so nothing may be checked.
        mechanism = object.__new__(cls)
        names = (*cls.fields, *cls.static)
        mechanism._freeze(None, **dict(zip(names, (*leaves, *static), strict=True)))
        return mechanism

    # The law ------------------------------------------------------------------------------------------

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

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Confidential values about which the density changes, each with the distance over which it does.

        They are the tops, kinks, jumps and ends of the density as a function of the confidential value, entry by entry.
        Between them the density is smooth, on a scale that grows with the distance from the nearest. None where they
        are not known: then the statistic cannot be integrated out by quadrature.
        """
        return None

    def record_parts(self, shape: tuple[int, ...]) -> int:
        """How many parts of a release of this shape one record may move, each at the cost of `guarantee`.

        A sensitivity in the l1 or l2 norm is that of the whole value, for mechanisms that act entry by entry; a
        guarantee without any sensitivity is that of the whole too. Otherwise the guarantee is that of one part (a
        staircase's entry, one of several selections, one row of vectors), and a record may move all of them.
        """
        guarantee = self.guarantee
        if guarantee is None or guarantee.sensitivity is None:
            return 1
        if guarantee.norm in ("l1", "l2") and self.event_dim == 0:
            return 1
        return math.prod(shape[: len(shape) - self.event_dim])

    def under(self, neighbours: str) -> Self:
        """The same mechanism, its guarantee stated for "add-remove" or "replace-one" neighbours."""
        who, advice = f"{type(self).__name__}.under", "Give a budget, or set the guarantee in the release file."
        checks.choice(who, "neighbours", neighbours, ["add-remove", "replace-one"])
        if self.guarantee is None:
            raise refusal(who, "neighbours", "needs a guarantee to speak of", self, advice)
        mechanism = copy.copy(self)
        object.__setattr__(mechanism, "guarantee", replace(self.guarantee, neighbours=neighbours))
        return mechanism

    # Released values ------------------------------------------------------------------------------------

    def released(self, value: Any, coords: axes.Coords | None = None) -> "Released":
        """`value` as published by this mechanism.

        `coords` labels its entries: `{"county": ["Bronx", "Kings"]}`, one list for each axis, in order. A pandas Series
        or DataFrame with named axes, or an xarray DataArray, brings its own labels.
        """
        return Released(self, value, FrozenDict() if coords is None else coords)

    def of(self, statistic: str, *, matrix: Any = None, axes: Any = None, sum: bool = False) -> Measurement:
        """A measurement of the entries of a statistic, or of sums of them, released under a name other than its own.

        `matrix` has a row of whole numbers for each value measured and a column for each entry of the statistic, row
        by row; it may be sparse, as SciPy's are. `axes` names (or numbers) the axes to sum over; `sum=True` sums all.
        A statistic may be measured any number of times: `nw.Exact().of("cells", sum=True).released(1774)`.
        """
        if self.event_dim:
            who, rule = f"{type(self).__name__}.of", "must be measured by a mechanism that acts entry by entry"
            raise refusal(who, "statistic", rule, statistic, "Release it under its own name.")
        return Measurement(self, Linear.of(f"{type(self).__name__}.of", statistic, matrix, axes, sum))

    def check_released(self, value: Any) -> Any:
        """`value` as this mechanism can have released it: a number or read-only array; refused otherwise."""
        who = f"{type(self).__name__}.released"
        value = finite(who, value, "Give the published number or array.")
        check_shapes(who, value, [(name, np.shape(getattr(self, name))) for name in self.fields])
        return value

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """The rule that a confidential statistic's shape breaks for a release of the given shape, or None."""
        return None if released == confidential else f"must have the shape {released} of its release"

    def beyond(self, released: Any, confidential: tuple[int, ...]) -> str | None:
        """The rule that a released value breaks for a confidential statistic of the given shape, or None."""
        return None

    def impossible(self, confidential: Any) -> str | None:
        """The rule that simulated confidential values, rows first, break for this mechanism, or None."""
        return None

    def encode(self, value: Any) -> Any:
        """A released value as JSON data."""
        return plain(value)

    def decode(self, entry: Any) -> Any:
        """What `released` takes, from JSON data."""
        return entry

    # Files ----------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file: the name, the law's parameters, the guarantee."""
        entry: dict[str, Any] = {"mechanism": type(self).__name__}
        entry |= {name: _plain(getattr(self, name)) for name in (*self.fields, *self.static)}
        if self.guarantee is not None:
            entry["guarantee"] = self.guarantee.to_dict()
        return entry

    @classmethod
    def from_dict(cls, entry: dict[str, Any], where: str) -> Self:
        """A mechanism from a file's arguments: the law's parameters, or a budget. `where` locates them in messages."""
        arguments = dict(entry)
        content = arguments.pop("guarantee", None)
        for key, value in arguments.items():
            if key not in cls.arguments:
                rule = f"is not an argument of {cls.__name__}"
                raise refusal(where, key, rule, value, checks.nearest(key, cls.arguments))
            arguments[key] = _restored(value, Place.below(where, key), cls.arguments[key])
        for name, parameter in inspect.signature(cls).parameters.items():
            if parameter.default is parameter.empty and name not in arguments:
                raise refusal(where, name, f"is missing for {cls.__name__}", sorted(arguments), f'Add "{name}".')
        try:
            mechanism = cls(**arguments)
        except InputError as error:
            raise error.within(where) from None
        if content is not None:
            guarantee = Guarantee.from_dict(content, Place.below(where, "guarantee"))
            if mechanism.guarantee is not None:
                own = mechanism.guarantee.to_dict()
                for key in ("epsilon", "delta", "rho", "mu"):
                    if key in own and key in content and not math.isclose(own[key], content[key], rel_tol=1e-9):
                        rule = f"must agree with the budget, {key}={own[key]}"
                        raise refusal(Place.below(where, "guarantee"), key, rule, content[key], "Drop one of the two.")
            object.__setattr__(mechanism, "guarantee", guarantee)
        return mechanism

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The JSON schema of this mechanism's entry in a release file, without the value."""
        properties = {"mechanism": {"const": cls.__name__}, **cls.arguments}
        properties["guarantee"] = {"$ref": "#/$defs/guarantee"}
        choices = [{"required": list(names)} for names in cls.alternatives if names]
        entry: dict[str, Any] = {"properties": properties, "required": ["mechanism"]}
        return entry | ({"oneOf": choices} if choices else {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))

    def __repr__(self) -> str:
        parameters = {name: getattr(self, name) for name in (*self.fields, *self.static)}
        as_it_is = {
            name: isinstance(value, Mechanism) or np.size(value) > MOST_LISTED for name, value in parameters.items()
        }
        shown = [f"{name}={value if as_it_is[name] else _plain(value)!r}" for name, value in parameters.items()]
        return f"{type(self).__name__}({', '.join(shown)})"


def mechanism_from_dict(entry: Any, where: str) -> Mechanism:
    """Any mechanism of the catalogue from a file's object."""
    if not isinstance(entry, dict):
        raise refusal(where, "entry", "must be an object", entry, "Give the mechanism and its arguments.")
    arguments = dict(entry)
    if "mechanism" not in arguments:
        raise refusal(where, "mechanism", "is missing", sorted(arguments), 'Add "mechanism".')
    kind = arguments.pop("mechanism")
    if not isinstance(kind, str) or kind not in CATALOGUE:
        raise refusal(where, "mechanism", "must be a known mechanism", kind, checks.nearest(kind, CATALOGUE))
    return CATALOGUE[kind].from_dict(arguments, where)


def _plain(value: Any) -> Any:
    if isinstance(value, Mechanism):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (str, bool, jax.core.Tracer)):
        return value
    return plain(value)


def _restored(value: Any, where: str, schema: dict[str, Any]) -> Any:
    if schema == MECHANISM:
        return mechanism_from_dict(value, where)
    if schema.get("items") == MECHANISM and isinstance(value, list):
        return [mechanism_from_dict(part, Place.below(where, index)) for index, part in enumerate(value)]
    return unpacked(value, where)


def finite(who: str, value: Any, advice: str) -> Any:
    """A released value as one or more finite numbers."""
    value = checks.numeric(who, "value", value, advice)
    if np.size(value) == 0:
        raise refusal(who, "value", "must not be empty", value, advice)
    if not np.all(np.isfinite(value)):
        raise refusal(who, "value", "must be finite", value, "Check the published file.")
    return value


def check_shapes(who: str, value: Any, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """Refuse a released value that parameters of these names and shapes do not fit."""
    for name, shape in shapes:
        if not broadcasts(shape, np.shape(value)):
            rule = f"must have a shape that '{name}' of shape {shape} broadcasts to"
            raise refusal(who, "value", rule, value, f"Give one {name}, or one per entry.")


def kept_whole(values: Any) -> Any:
    """Whole numbers as they are kept: one int, or a read-only array of int64."""
    integers = np.asarray(values).astype(np.int64)
    integers.flags.writeable = False
    return int(integers) if integers.ndim == 0 else integers


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False
