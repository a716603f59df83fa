"""Post-processing r = g(x) that keeps the law of a release tractable: what the wrappers of one mechanism share.

Every wrapper's g is monotone, so the values r between two cuts of the line come from the values x between two other
cuts. Wrappers therefore nest: a probability is pulled back, cut by cut, to an interval of the innermost mechanism's
values. That interval does not depend on the confidential value, so the supremum of a probability is the innermost
mechanism's supremum for that interval. Proofs: docs/mechanisms/processed.md.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import Measure, Mechanism, Supremum, check_shapes
from noisewise.mechanisms.packing import MOST_LISTED, plain
from noisewise.mechanisms.wrapper import Wrapper
from noisewise.numerics import namespace

SUPPRESSED = "suppressed"
"""The token for a value that was withheld; NaN inside the library."""

Cut = tuple[Any, Any]
"""(v, after): a cut of the line just before v or, where `after` holds, just after it. Atoms lie on one side."""

STEP, ROUND_OFF = 1e-9, 1e-14
"""Values nearer than this (in steps of a lattice; relative to their size) differ by rounding errors only."""


class Processed(Wrapper):
    """Base of wrappers that change a released value: they release g(x), x released by `base`.

    Post-processing keeps the guarantee of `base` (Dwork and Roth 2014, Proposition 2.1). Values that are withheld
    inside (see `Thresholded`) stay withheld. Suprema are those of `base`: that of a bounded interval is attained where
    the noise attains its own.
    """

    # What follows from the base ----------------------------------------------------------------------------------

    @property
    def inner(self) -> "Processed | Root":
        """The mechanism inside, as wrappers see it."""
        return self.base if isinstance(self.base, Processed) else Root(self.base)

    @property
    def measure(self) -> Measure:
        """Counting where `base` counts; atoms added to its density make it mixed."""
        return "mixed" if self.base.measure in ("density", "mixed") else "atoms"

    @property
    def has_intervals(self) -> bool:
        """Whether probabilities of intervals are tractable."""
        return self.inner.has_intervals

    @property
    def suppresses(self) -> bool:
        """Whether the release may be the token `suppressed`."""
        return self.inner.suppresses

    # What each wrapper says --------------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, value: Any) -> Any:
        """g; keeps NaN."""

    @abstractmethod
    def preimage(self, start: Cut, stop: Cut) -> tuple[Cut, Cut]:
        """The cuts of the base's line that bound all x with g(x) between the given cuts."""

    @abstractmethod
    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """The possible value that `value` is, up to rounding errors and `slack`; `value` itself where there is none."""

    @abstractmethod
    def atomic(self, value: Any) -> Any:
        """Whether `value` has positive probability."""

    @abstractmethod
    def tolerance(self) -> Any:
        """Rounding errors of possible values, beyond those relative to their size."""

    @abstractmethod
    def describe(self) -> str:
        """The possible values, in words."""

    @abstractmethod
    def _log_prob(self, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log density or probability of a number."""

    @abstractmethod
    def _log_sup(self, released: Any) -> Any:
        """Supremum of `_log_prob` over the confidential value; -inf for a number that cannot be released."""

    # The law -----------------------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, confidential: Any, **inputs: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return self.apply(np.asarray(self.base.sample(rng, confidential, **inputs), dtype=float))

    def log_prob(self, released: Any, confidential: Any, **inputs: Any) -> Any:
        """log density, relative to `measure`, or log probability of suppression where `released` is NaN."""
        if not self.suppresses:
            return self._log_prob(released, confidential, inputs)
        xp = namespace(released, confidential, inputs, self)
        hidden = xp.isnan(released)
        number = self._log_prob(xp.where(hidden, 0.0, released), confidential, inputs)
        return xp.where(hidden, self.log_suppressed(confidential, inputs), number)

    def log_sup(self, released: Any) -> Any:
        """Supremum of `log_prob` over the confidential value; -inf where nothing can have given `released`."""
        if not self.suppresses:
            return self._log_sup(released)
        xp = namespace(released, self)
        hidden = xp.isnan(released)
        return xp.where(hidden, self.log_sup_suppressed(), self._log_sup(xp.where(hidden, 0.0, released)))

    def log_interval(self, low: Any, high: Any, confidential: Any, **inputs: Any) -> Any:
        """log P(low <= released < high | confidential)."""
        return self.log_between((low, False), (high, False), confidential, inputs)

    def log_sup_interval(self, low: Any, high: Any) -> Any:
        """Supremum of `log_interval` over the confidential value."""
        return self.log_sup_between((low, False), (high, False))

    def log_between(self, start: Cut, stop: Cut, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log probability of a number between two cuts."""
        return self.inner.log_between(*self.preimage(start, stop), confidential, inputs)

    def log_sup_between(self, start: Cut, stop: Cut) -> Any:
        """Supremum of `log_between` over the confidential value."""
        return self.inner.log_sup_between(*self.preimage(start, stop))

    def log_suppressed(self, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log probability of the token."""
        return self.inner.log_suppressed(confidential, inputs)

    def log_sup_suppressed(self) -> Any:
        """Supremum of `log_suppressed` over the confidential value."""
        return self.inner.log_sup_suppressed()

    def _base_landmarks(self, *values: Any) -> list[tuple[Any, Any]] | None:
        """The landmarks of `base` for several values of its own."""
        landmarks = [self.base.landmarks(value) for value in values]
        return None if None in landmarks else [mark for marks in landmarks if marks is not None for mark in marks]

    # Released values ---------------------------------------------------------------------------------------------

    def check_released(self, value: Any) -> Any:
        """Possible values, free of rounding errors; `suppressed` as NaN where it can occur."""
        who = f"{type(self).__name__}.released"
        original = value
        if self.suppresses:
            value = _without_tokens(value)
        advice = f"Give the published number or array{', or ' + repr(SUPPRESSED) if self.suppresses else ''}."
        try:
            value = checks.numeric(who, "value", value, advice)
        except ValueError:  # show what was given, not what it was turned into
            raise refusal(who, "value", "must be a number or an array of numbers", original, advice) from None
        if np.size(value) == 0:
            raise refusal(who, "value", "must not be empty", original, "Give the published number or array.")
        finite = np.isfinite(value) | (np.isnan(value) & self.suppresses)
        if not np.all(finite):
            raise refusal(who, "value", "must be finite", original, "Check the published file.")
        check_shapes(who, original, shapes(self))
        value = np.asarray(self.nearest(value), dtype=float)
        if not np.all(self.log_sup(value) > -np.inf):
            raise refusal(who, "value", f"must be {self.describe()}", original, "Nothing else can have been released.")
        return checks.numeric(who, "value", value, advice)

    def encode(self, value: Any) -> Any:
        """The values as JSON data, with the token in place of NaN; in a packed array NaN stays."""
        if np.size(value) > MOST_LISTED:
            return plain(value)
        objects = np.array(value, dtype=object)
        return np.where(np.isnan(np.asarray(value, dtype=float)), SUPPRESSED, objects).tolist()


class Root:
    """The innermost mechanism as a wrapper sees it: noise with `log_interval`, or one that only `Affine` may wrap."""

    suppresses = False

    def __init__(self, mechanism: Any) -> None:
        self.mechanism = mechanism
        self.lattice = mechanism.measure == "lattice"
        self.measure: Measure = mechanism.measure
        self.has_intervals: bool = getattr(mechanism, "has_intervals", False)

    def nearest(self, value: Any, slack: Any = 0.0) -> Any:
        """On the lattice, the whole number that `value` is up to rounding errors and `slack`; else `value` itself."""
        if not self.lattice:
            return value
        xp = namespace(value)
        index, near = near_multiple(xp, value, 1.0, STEP + slack)
        return xp.where(near, index, value)

    def atomic(self, value: Any) -> Any:
        """Everywhere on the lattice, nowhere under a density."""
        return namespace(value).full(np.shape(value), self.lattice)

    def tolerance(self) -> float:
        """On the lattice, a small part of its step."""
        return STEP if self.lattice else 0.0

    def describe(self) -> str:
        """The possible values, in words."""
        return "whole numbers" if self.lattice else "numbers"

    def log_prob(self, released: Any, confidential: Any, **inputs: Any) -> Any:
        """The mechanism's own."""
        return self.mechanism.log_prob(released, confidential, **inputs)

    def log_sup(self, released: Any) -> Any:
        """The mechanism's own; -inf off the lattice."""
        xp = namespace(released, self.mechanism)
        log_sup = self.mechanism.log_sup(released)
        return xp.where(xp.floor(released) == released, log_sup, -xp.inf) if self.lattice else log_sup

    def log_between(self, start: Cut, stop: Cut, confidential: Any, inputs: dict[str, Any]) -> Any:
        """log probability of the values between two cuts, never above its supremum."""
        xp = namespace(start, stop, confidential, inputs, self.mechanism)
        low, high, some = self._ends(xp, start, stop)
        with np.errstate(all="ignore"):  # far out, logs of zero probabilities meet: the result is -inf
            log_mass = self.mechanism.log_interval(low, high, confidential, **inputs)
        # A narrow interval far from zero has a width with rounding errors: they must not lift it over the supremum.
        return xp.where(some, xp.minimum(log_mass, self._log_sup_interval(low, high)), -xp.inf)

    def log_sup_between(self, start: Cut, stop: Cut) -> Any:
        """The mechanism's supremum for the interval; -inf if nothing lies between the cuts."""
        xp = namespace(start, stop, self.mechanism)
        low, high, some = self._ends(xp, start, stop)
        return xp.where(some, self._log_sup_interval(low, high), -xp.inf)

    def _log_sup_interval(self, low: Any, high: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.mechanism.log_sup_interval(low, high)

    def log_suppressed(self, confidential: Any, inputs: dict[str, Any]) -> Any:
        """Nothing is withheld."""
        return -np.inf

    def log_sup_suppressed(self) -> Any:
        """Nothing is withheld."""
        return -np.inf

    def _ends(self, xp: Any, start: Cut, stop: Cut) -> tuple[Any, Any, Any]:
        """The half-open interval [low, high) between two cuts, and whether anything can lie in it."""
        low, high = self._end(xp, start), self._end(xp, stop)
        some = low < high
        return xp.where(some, low, 0.0), xp.where(some, high, 1.0), some

    def _end(self, xp: Any, cut: Cut) -> Any:
        value, after = cut
        if not self.lattice:  # a single point has no probability: both sides are the same
            return value
        index, near = near_multiple(xp, value, 1.0, STEP)
        return xp.where(near, index + after, xp.ceil(value))


def near_multiple(xp: Any, value: Any, unit: Any, tolerance: Any) -> tuple[Any, Any]:
    """The index of the multiple of `unit` nearest to `value`, and whether they differ by rounding errors only."""
    finite = xp.isfinite(value)
    number = xp.where(finite, value, 0.0)
    index = xp.round(number / unit)
    slack = xp.minimum(tolerance + ROUND_OFF * xp.abs(number), 0.25 * unit)
    return index, finite & (xp.abs(number - unit * index) <= slack)


def close(xp: Any, value: Any, bound: Any, tolerance: Any) -> Any:
    """Whether `value` and the finite `bound` differ by rounding errors only."""
    return xp.abs(value - bound) <= tolerance + ROUND_OFF * xp.abs(bound)


def weakest(*claims: Supremum) -> Supremum:
    """The weakest of several claims about suprema."""
    order: tuple[Supremum, ...] = ("attained", "approached", "bound")
    return max(claims, key=order.index)


def check_base(who: str, base: Any) -> Any:
    """`base` if rounding, clipping or withholding its values keeps the law tractable; refused with the reason."""
    advice = "Give additive noise such as Laplace, Gaussian or DiscreteLaplace, or a wrapper of it."
    check_entrywise(who, base, advice)
    if not getattr(base, "has_intervals", False):
        rule = "must be noise whose intervals have a known probability (a distribution function that is known)"
        raise refusal(who, "base", rule, base, advice)
    return base


def check_entrywise(who: str, base: Any, advice: str) -> None:
    """Refuse what is not a mechanism acting entry by entry."""
    if not isinstance(base, Mechanism):
        raise refusal(who, "base", "must be a mechanism", base, advice)
    if base.event_dim:
        rule = "must act entry by entry, since joint noise leaves integrals over several dimensions"
        raise refusal(who, "base", rule, base, advice)


def check_range(who: str, low: Any, high: Any, advice: str) -> None:
    """Refuse ends of a range whose shapes do not fit together, or whose `low` is not below `high`."""
    try:
        np.broadcast_shapes(np.shape(low), np.shape(high))
    except ValueError:
        raise refusal(who, "high", "must have the shape of low", high, advice) from None
    if not np.all(low < high):
        raise refusal(who, "low", f"must be below high={high}", low, advice)


def _without_tokens(value: Any) -> Any:
    """`value` with NaN for each token; whatever cannot be read stays, to be refused."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value
    try:
        objects = np.array(value, dtype=object)
        return np.where(objects == SUPPRESSED, np.nan, objects).tolist()
    except ValueError:
        return value


def shapes(mechanism: Mechanism) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the parameters, those of the mechanisms inside included."""
    named_shapes: list[tuple[str, tuple[int, ...]]] = []
    for name in mechanism.fields:
        part = getattr(mechanism, name)
        if isinstance(part, Mechanism):
            named_shapes += shapes(part)
        elif part is not None:
            named_shapes.append((name, np.shape(part)))
    return named_shapes
