"""What each mechanism did to a number, in a sentence that needs no statistics to read."""

from collections.abc import Callable
from functools import singledispatch
from string import Formatter
from typing import Any

import numpy as np

from noisewise import mechanisms as catalogue
from noisewise.mechanisms import Mechanism, Released
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.mechanisms.selection import Selection
from noisewise.mechanisms.typical_error import typical_error
from noisewise.numerics import Array
from noisewise.report.markup import listed, number, whole

SHOWN = 6
"""Numbers listed one by one; more are given by their range."""


def sentence(name: str, item: Released) -> str:
    """How `name` came to be published."""
    mechanism, size = item.mechanism, int(np.prod(item.shape))
    alone = size == 1 or mechanism.event_dim > 0 or not isinstance(mechanism, (Additive, catalogue.LatentScale, _WRAPS))
    name = name if item.of is None or item.of.whole else f"{name} (sums over {item.of.statistic})"
    subject = name if alone else f"Each of the {size:,} entries of {name}"
    return f"{subject} {described(mechanism, item.shape)}."


def described(mechanism: Mechanism, shape: tuple[int, ...]) -> str:
    """The predicate of that sentence: 'got Laplace noise of scale 5: half of the time less than 3.5 off, ...'."""
    error = typical_error(mechanism, shape) if isinstance(mechanism, Additive) else None
    return what_was_done(mechanism, shape) + (f": {off(error, mechanism)}" if error is not None else "")


def off(error: tuple[Array, Array], mechanism: Mechanism) -> str:
    """How far off the noise puts a value, half of the time and 19 times out of 20."""
    half, most = error
    if isinstance(mechanism, Lattice):
        first = (
            "half of the time or more exactly right"
            if np.all(half == 0)
            else f"half of the time at most {_n(half)} off"
        )
        return f"{first}, 19 times out of 20 at most {_n(most)}"
    return f"half of the time less than {_n(half)} off, 19 times out of 20 less than {_n(most)}"


def _n(values: Any) -> str:
    """A number, a few of them, or their range."""
    shown = [whole(value, 2) if float(value).is_integer() else number(value, 2) for value in np.ravel(values)]
    if len(set(shown)) == 1:
        return shown[0]
    if len(shown) <= SHOWN:
        return f"{listed(shown, 'or')} (entry by entry)"
    low, high = np.ravel(values).min(), np.ravel(values).max()
    return f"{number(low, 2)} to {number(high, 2)}, depending on the entry,"


def _p(values: Any) -> str:
    """A parameter of a law, with more digits than `_n` shows: a number, a few of them, or their range."""
    shown = [whole(value) for value in np.ravel(values)]
    if len(set(shown)) == 1:
        return shown[0]
    return listed(shown) if len(shown) <= SHOWN else f"{whole(np.min(values))} to {whole(np.max(values))}"


# Mechanisms that one template cannot describe -------------------------------------------------------------------------


@singledispatch
def what_was_done(mechanism: Any, shape: tuple[int, ...]) -> str:
    """What the mechanism did, without how far off it puts a value: its own `did`, or a function below."""
    if not mechanism.did:
        return f"was made noisy by {mechanism!r}"
    named = {name: getattr(mechanism, name) for _, name, _, _ in Formatter().parse(mechanism.did) if name}
    return mechanism.did.format_map({name: v if isinstance(v, str) else _p(v) for name, v in named.items()})


def _says(kind: Any) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Registers a sentence that does not need the shape."""

    def register(function: Callable[[Any], str]) -> Callable[[Any], str]:
        what_was_done.register(kind, lambda mechanism, shape: function(mechanism))
        return function

    return register


@_says(catalogue.MultivariateGaussian)
def _joint_normal(mechanism: Any) -> str:
    spread = np.sqrt(np.diagonal(mechanism.covariance, axis1=-2, axis2=-1))
    return f"got correlated normal noise, of standard deviation {_p(np.round(spread, 6))}"


@_says(catalogue.Projected)
def _projected(mechanism: Any) -> str:
    totals = "totals that were" if len(np.atleast_2d(mechanism.matrix)) > 1 else "a total that was"
    noise = f"normal noise of standard deviation {_p(mechanism.scale)}"
    return f"got {noise}, adjusted to agree with {totals} published exactly"


@what_was_done.register(catalogue.LatentScale)
def _latent(mechanism: Any, shape: tuple[int, ...]) -> str:
    least = f"never less than {_p(mechanism.bound)} times"
    inner = what_was_done(mechanism.base, shape).removeprefix("got ")
    return f"got noise whose size depends on the confidential {mechanism.statistic}: {least} {inner}"


@_says(catalogue.RandomizedResponse)
def _response(mechanism: Any) -> str:
    channel = np.asarray(mechanism.channel)
    counted = f"counts answers of {mechanism.n:,} people that were randomised one by one" if mechanism.n else ""
    what = counted or "holds randomised answers"
    if channel.shape[0] == channel.shape[1]:
        return f"{what}: a true answer was kept with probability {_p(np.round(np.diag(channel), 6))}"
    return f"{what}: {channel.shape[0]} true answers became {channel.shape[1]} possible reports"


@_says(catalogue.UnaryEncoding)
def _unary(mechanism: Any) -> str:
    yes_stays, no_turns = _p(np.round(mechanism.keep, 6)), _p(np.round(mechanism.add, 6))
    return (
        f"holds a yes or no for each of {mechanism.categories} categories, randomised: a yes stayed with probability "
        f"{yes_stays}, a no became a yes with probability {no_turns}"
    )


@_says(Selection)
def _selection(mechanism: Any) -> str:
    ways = {
        "ExponentialMechanism": "the exponential mechanism",
        "ReportNoisyMax": f"the largest score after {getattr(mechanism, 'noise', 'random')} noise",
        "PermuteAndFlip": "permute-and-flip",
    }
    way = ways.get(type(mechanism).__name__, type(mechanism).__name__)
    return (
        f"names a candidate, chosen at random with better scores more likely ({way}, scale {_p(mechanism.scale)}); "
        "the scores were not published"
    )


@what_was_done.register(catalogue.TopSelection)
def _top(mechanism: Any, shape: tuple[int, ...]) -> str:
    inner = what_was_done(mechanism.selection, shape).removeprefix("names a candidate, ")
    return f"names {mechanism.top} candidates in order, each {inner}"


@what_was_done.register(catalogue.Product)
def _product(mechanism: Any, shape: tuple[int, ...]) -> str:
    parts = [described(part, shape[:-1]) for part in mechanism.parts]
    if len(set(parts)) == 1:
        return f"has {len(parts)} entries, each of which {parts[0]}"
    shown = [f"entry {index} {predicate}" for index, predicate in enumerate(parts[:SHOWN])]
    rest = f"; and so on for {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return f"was published entry by entry: {'; '.join(shown)}{rest}"


@_says(catalogue.Within)
def _within_range(mechanism: Any) -> str:
    low, high = (None if end is None else _p(end) for end in (mechanism.low, mechanism.high))
    if low is None or high is None:
        range_ = f"at least {low}" if high is None else f"at most {high}"
    else:
        range_ = f"from {low} to {high}"
    return f"says whether the confidential value is {range_}, and nothing more"


# Post-processing ----------------------------------------------------------------------------------------------------

_WRAPS = (catalogue.Rounded, catalogue.Clipped, catalogue.Thresholded, catalogue.Affine, catalogue.Clamped)


def _inside(mechanism: Any, shape: tuple[int, ...]) -> str:
    base = mechanism.base
    error = f" ({off(typical_error(base, shape), base)})" if isinstance(base, Additive) else ""
    return what_was_done(base, shape) + error


@what_was_done.register(catalogue.Clamped)
def _clamped(mechanism: Any, shape: tuple[int, ...]) -> str:
    return f"was clamped to between {_p(mechanism.low)} and {_p(mechanism.high)}, and then {_inside(mechanism, shape)}"


@what_was_done.register(catalogue.Rounded)
def _rounded(mechanism: Any, shape: tuple[int, ...]) -> str:
    return f"{_inside(mechanism, shape)}, and was then rounded to multiples of {_p(mechanism.step)}"


@what_was_done.register(catalogue.Clipped)
def _clipped(mechanism: Any, shape: tuple[int, ...]) -> str:
    ends = []
    for value, side in ((mechanism.low, "below"), (mechanism.high, "above")):
        if value is not None and np.any(np.isfinite(value)):
            ends.append(f"at {_p(value)} {side}")
    return f"{_inside(mechanism, shape)}, and was then cut off {listed(ends)}"


@what_was_done.register(catalogue.Thresholded)
def _thresholded(mechanism: Any, shape: tuple[int, ...]) -> str:
    zero = " or if the confidential value was zero" if mechanism.absent_when_zero else ""
    return f"{_inside(mechanism, shape)}, and was then withheld if below {_p(mechanism.threshold)}{zero}"


@what_was_done.register(catalogue.Affine)
def _affine(mechanism: Any, shape: tuple[int, ...]) -> str:
    moved = f" and {_p(mechanism.shift)} added" if np.any(np.asarray(mechanism.shift) != 0) else ""
    return f"{_inside(mechanism, shape)}, and was then multiplied by {_p(mechanism.factor)}{moved}"
