"""The values that a discrete statistic is summed over: around its release, as far as the noise reaches.

Derivation: docs/derivations/nuts.md.
"""

import math
from dataclasses import dataclass

import numpy as np

from noisewise.errors import InputError
from noisewise.inference.conditional.laws import constant_bounds
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Affine, Mechanism, Released, Thresholded
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.processed import Processed
from noisewise.model.variates import MOST
from noisewise.numerics import Array
from noisewise.numerics.compiled import looking

FALL = 40.0
"""A window reaches to where the noise density has fallen by this much, in logs: exp(-40) is 4e-18."""
LOOKED_AT, ENOUGH = 2**14, 64
"""Simulations among which some near the release are looked for, and how many of these tell how far values go."""
WIDE = 2.0**20
"""Reach of simulated values from which on they do not tell how far a window should go."""
ROUNDED = 16
"""Windows are multiples of this long, so that another release seldom needs another program."""


@dataclass(frozen=True)
class Window:
    """Values start, start + 1, ..., start + size - 1 of every entry; `outside` bounds log eta/sup beyond them."""

    start: Array
    size: int
    outside: Array
    """One per entry, at most 0; -inf where the window holds the whole support."""


def window_of(problem: Problem, name: str, widened: int) -> Window:
    """The values of `name` to sum over: its whole support where that is known and no longer than a window need be."""
    shape = problem.model.shape(name)
    low, high = constant_bounds(problem.model, name)
    item = problem.release.get(name)
    additive = item is not None and isinstance(item.mechanism, Additive) and item.mechanism.event_dim == 0
    sample = _sample(problem, name)
    if item is not None and not additive and unimodal(item.mechanism):
        window = _about_the_release(item, shape, low, high, sample, widened)
        if window is not None:
            return window
    if additive:
        assert item is not None
        centre = np.broadcast_to(np.round(np.asarray(item.value, dtype=float)), shape)
        most = 2.0 * float(np.max(np.abs(sample - centre))) + 10.0
        reach = min(_fall(item, shape, centre), most) * 2.0**widened
    else:
        centre = np.round(0.5 * (sample.min(axis=0) + sample.max(axis=0)))
        reach = float(np.max(sample.max(axis=0) - sample.min(axis=0)) + 10.0) * 2.0**widened
    size = ROUNDED * math.ceil((2.0 * reach + 1.0) / ROUNDED)
    if np.all(np.isfinite(high - low)) and np.max(high - low) + 1 <= size:
        return Window(low.astype(np.int64), int(np.max(high - low)) + 1, np.full(shape, -np.inf))
    start = np.maximum(np.minimum(centre - reach, high - size + 1), low)
    end = start + size - 1
    if not additive:
        outside = np.where((start > low) | (end < high), 0.0, -np.inf)
        return Window(start.astype(np.int64), size, outside)
    assert item is not None
    with np.errstate(over="ignore", divide="ignore"):
        left, right = (np.asarray(item.mechanism.log_prob(item.value, edge.astype(np.int64))) for edge in (start, end))
    sup = np.asarray(item.mechanism.log_sup(item.value))
    outside = np.maximum(np.where(start > low, left, -np.inf), np.where(end < high, right, -np.inf)) - sup
    return Window(start.astype(np.int64), size, outside)


def _sample(problem: Problem, name: str) -> Array:
    """Values of `name`, to know how far they go; where some are too large to be drawn, zero and the largest.

    If it is not released and they go very far, those near the release of what reads it: nothing else bounds the window.
    """
    model = problem.model
    try:
        with looking():
            drawn = model.draw(np.random.default_rng(0), [*model.ancestors(name), name], 512)[name].astype(float)
    except InputError as error:
        if not error.beyond_range:
            raise
        drawn = np.stack([np.zeros(model.shape(name)), np.full(model.shape(name), MOST)])
    if name in problem.release or np.max(drawn.max(axis=0) - drawn.min(axis=0)) < WIDE:
        return drawn
    likely = _with_release(problem, name)
    return drawn if likely is None else likely


def _with_release(problem: Problem, name: str) -> Array | None:
    """Values of `name` in simulations near the released values that depend on it; None where there are too few."""
    model = problem.model
    read = [n for n, item in problem.release.items() if n in model.statistics and name in model.ancestors(n)]
    wanted = {*read, *model.ancestors(*read), *(other for n in read for other in problem.release[n].mechanism.inputs)}
    if not read or any(n not in model.order for n in wanted):
        return None
    try:
        with looking():
            rng, names = np.random.default_rng(0), [n for n in model.order if n in wanted]
            values, _ = model.drawable(rng, names, LOOKED_AT)
    except InputError as error:
        if not error.beyond_range:
            raise
        return None
    near = sum((problem.log_eta(n, values) - problem.log_sup(n) for n in read), start=np.zeros(LOOKED_AT)) > -FALL
    return values[name][near].astype(float) if np.sum(near) >= ENOUGH else None


def unimodal(mechanism: Mechanism) -> bool:
    """Whether the probability of any released value rises and then falls in the confidential one, entry by entry.

    It does where it is the noise's probability of an interval that moves against the confidential value, if the noise
    density falls to both sides of zero. `Affine` is left out: there the released value is on another scale.
    """
    while isinstance(mechanism, Processed):
        if isinstance(mechanism, Affine) or (isinstance(mechanism, Thresholded) and mechanism.absent_when_zero):
            return False
        mechanism = mechanism.base
    return isinstance(mechanism, Additive) and mechanism.event_dim == 0


def _about_the_release(
    item: Released, shape: tuple[int, ...], low: Array, high: Array, sample: Array, widened: int
) -> Window | None:
    """The window as far as the release's probability reaches to either side, but no farther than the law may go.

    A withheld value may have come from any small one: its window begins at the support's least value. None where the
    support has no least value.
    """
    value = np.broadcast_to(np.asarray(item.value, dtype=float), shape)
    centre = np.clip(np.where(np.isfinite(value), np.round(value), low), low, high)
    if not np.all(np.isfinite(centre)):
        return None
    reaches = []
    for sign, end, farthest in ((-1.0, low, sample.min(axis=0)), (1.0, high, sample.max(axis=0))):
        most = np.maximum(2.0 * sign * (farthest - centre), 0.0) + 10.0
        reach = np.minimum(_reach(item, centre, sign), most) * 2.0**widened
        reaches.append(np.minimum(reach, sign * (end - centre)))
    size = ROUNDED * math.ceil((float(np.max(reaches[0] + reaches[1])) + 1.0) / ROUNDED)
    if np.all(np.isfinite(high - low)) and np.max(high - low) + 1 <= size:
        return Window(low.astype(np.int64), int(np.max(high - low)) + 1, np.full(shape, -np.inf))
    start = np.maximum(np.minimum(centre - reaches[0], high - size + 1), low)
    end = start + size - 1
    sup = np.asarray(item.mechanism.log_sup(item.value))
    with np.errstate(over="ignore", divide="ignore"):
        logs = [np.asarray(item.mechanism.log_prob(item.value, at)) for at in (start, start + 1, end, end - 1)]
    # Where the probability still rises at an edge, values beyond may reach the supremum.
    left, right = (np.where(at >= inner, sup, at) for at, inner in ((logs[0], logs[1]), (logs[2], logs[3])))
    outside = np.maximum(np.where(start > low, left, -np.inf), np.where(end < high, right, -np.inf))
    return Window(start.astype(np.int64), size, outside - sup)


def _reach(item: Released, centre: Array, sign: float) -> Array:
    """How far from the centre to one side the probability has fallen by FALL from its supremum, entry by entry."""
    sup = np.asarray(item.mechanism.log_sup(item.value))

    def fallen(reach: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore"):
            return np.asarray(item.mechanism.log_prob(item.value, centre + sign * reach)) - sup <= -FALL

    far = np.ones_like(centre)
    while np.any(~fallen(far) & (far < 2.0**40)):
        far = np.where(fallen(far), far, 2.0 * far)
    near = np.floor(0.5 * far)
    while np.any(far - near > 1.0):
        middle = np.floor(0.5 * (near + far))
        down = fallen(middle)
        near, far = np.where(down, near, middle), np.where(down, middle, far)
    return far


def _fall(item: Released, shape: tuple[int, ...], centre: Array) -> float:
    """Distance at which the noise density has fallen by FALL from its supremum, in every entry."""
    sup = np.asarray(item.mechanism.log_sup(item.value))

    def far(reach: float) -> bool:
        with np.errstate(over="ignore", divide="ignore"):
            edges = [np.asarray(item.mechanism.log_prob(item.value, centre + sign * reach)) for sign in (-1.0, 1.0)]
        return bool(np.all(np.maximum(*edges) - sup <= -FALL))

    reach = 1.0
    while not far(reach) and reach < 2.0**40:
        reach *= 2.0
    low = reach / 2.0
    while reach - low > 1.0:
        middle = np.floor(0.5 * (low + reach))
        low, reach = (low, middle) if far(middle) else (middle, reach)
    return reach
