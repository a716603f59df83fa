"""Weighted clouds: values of the confidential statistic that stand for its law given the release.

A cloud holds, for every entry of a part, values s_k and weights w_k with sum_k w_k g(s_k) close to
E(g(s) | s_dp, theta). Enumeration and quadrature make clouds whose error is bounded (EM); simulation makes clouds with
Monte Carlo error (MCEM). The M-step and Louis's identity see only the cloud.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import logsumexp, roots_legendre

from noisewise.errors import InputError, Place, refusal
from noisewise.inference.conditional.row_blocks import noise_scale
from noisewise.likelihood.e_step import streamed
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.streamed import Condensed, Sweep
from noisewise.likelihood.instead import MCEM
from noisewise.mechanisms import Clamped
from noisewise.mechanisms.additive import Additive
from noisewise.numerics import Array, Values

NEGLECTED = streamed.NEGLECTED
"""Most mass that a window may leave out, relative to the likelihood it keeps."""
TOLERATED = 1e-6
"""Most error that an entry's likelihood may have: it may move the maximum by 2e-3 standard errors."""
TOLERATED_IN_ALL = 1e-4
"""Most that the errors of all entries may add up to: that may move the maximum by 0.02 standard errors."""
LARGE = 2**18
"""Numbers in a cloud above which it is streamed, or its nodes are chosen more sparingly. Such programs take longer to
compile, and a tenth of the time to run."""
MOST = 2**26
"""Numbers that a cloud may hold."""
WIDEST = 1e7
"""Half the width of the widest window, times the entries."""


@dataclass(frozen=True)
class Cloud:
    """`values`: (K, *shape); `weights`: (K, entries), each column summing to one; log likelihoods of the entries.

    A streamed cloud holds r + 1 points per entry in which b(s) has affine coordinates. `weights` are the means of these
    (they may be negative) and `spread`, (r, r, entries), the covariance of all but the first, given the release.

    Values of one Markov chain depend on each other: value k is of group k modulo `groups`, and only groups are
    independent. Their log likelihoods are relative to the place where the chains ran.
    """

    values: Array
    weights: Array
    log_likelihoods: Array
    neglected: Array = field(default_factory=lambda: np.zeros(1))
    """Bound on the relative error of every entry's sum or integral."""
    spread: Array | None = None
    groups: int = 0
    """Independent groups of values; none where values are independent by themselves."""
    worth: float = 1.0
    """Independent values that one value is worth."""
    at_rest: bool = True
    """Whether chains show no trace of where they began."""

    @property
    def log_likelihood(self) -> float:
        """The log likelihood of the whole part."""
        return float(np.sum(self.log_likelihoods))

    @property
    def sizes(self) -> Array:
        """Kish's effective number of values of every entry; none where one value, or sums, are all there is."""
        few = len(self.values) == 1 or self.spread is not None
        return np.empty(0) if few else self.worth / np.sum(self.weights**2, axis=0)

    def variance(self, terms: Array) -> float:
        """Variance of a sum over values and entries, from its centred terms, (K, entries): by independent groups."""
        if not self.groups:
            return float(np.sum(terms**2))
        sums = terms.reshape(-1, self.groups, terms.shape[1]).sum(axis=0)
        return float(np.sum(sums**2)) * self.groups / (self.groups - 1)

    def again(self, new: "Cloud") -> "Cloud":
        """`new` with this cloud's groups: it has the same values reweighted, or equally many of each group."""
        return replace(new, groups=self.groups, worth=self.worth, at_rest=self.at_rest)


class Clouds:
    """The clouds of all parts, held where that is asked for, else made anew for every pass over them."""

    def __init__(self, parts: Sequence[Part], make: Callable[[int], Cloud], held: bool) -> None:
        self.parts, self.held = parts, held
        self._make = cache(make) if held else make
        self._seen: dict[int, tuple[float, Array, float, float]] = {}
        """Log likelihood, effective sizes, what is neglected in the worst entry and in all: from the first pass."""

    def __getitem__(self, index: int) -> Cloud:
        cloud = self._make(index)
        if index not in self._seen:
            neglected = float(np.max(cloud.neglected)), float(np.sum(cloud.neglected))
            self._seen[index] = cloud.log_likelihood, cloud.sizes, *neglected
        return cloud

    def __iter__(self) -> Iterator[Cloud]:
        return (self[index] for index in range(len(self.parts)))

    def changed(self, change: Callable[[Part, Cloud], Cloud], held: bool | None = None) -> "Clouds":
        """The clouds that `change(part, cloud)` makes of these."""
        return Clouds(self.parts, lambda i: change(self.parts[i], self[i]), self.held if held is None else held)

    def moved(self, before: Values, after: Values) -> "Clouds":
        """All clouds reweighted from one value of the parameters to another."""
        return self.changed(lambda part, cloud: moved(part, cloud, before, after))

    def _all_seen(self) -> list[tuple[float, Array, float, float]]:
        for index in range(len(self.parts)):
            if index not in self._seen:
                self[index]
        return [self._seen[index] for index in range(len(self.parts))]

    @property
    def log_likelihood(self) -> float:
        """The log likelihood of the whole release."""
        return sum(height for height, *_ in self._all_seen())

    @property
    def neglected(self) -> tuple[float, float]:
        """The most that sums or integrals may be off: of an entry's likelihood, and in the log of all together."""
        worst, total = zip(*(neglected for _, _, *neglected in self._all_seen()), strict=True)
        return max(worst), sum(total)

    @property
    def sizes(self) -> dict[str, Array]:
        """Kish's effective numbers of values, by statistic and entry; nothing of what is known exactly."""
        numbers: dict[str, list[Array]] = {}
        for part, (_, sizes, *_) in zip(self.parts, self._all_seen(), strict=True):
            if sizes.size:
                numbers.setdefault(part.name, []).append(sizes)
        return {name: np.concatenate(pieces) for name, pieces in numbers.items()}


def weighted(values: Array, log_weights: Array, neglected: Array | None = None) -> Cloud:
    """A cloud from log weights whose sum over values is the likelihood.

    Values without weight are replaced by their entry's heaviest value: a density's derivatives at them may be NaN.
    """
    top = np.max(log_weights, axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(log_weights - top)
    total = np.sum(weights, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights /= total
        missing = np.zeros(1) if neglected is None else neglected
        return Cloud(_settled(values, weights), weights, top + np.log(total), missing)


def inexact(worst: float, total: float) -> str:
    """A message about sums or integrals that are not good enough to build on; empty for good ones."""
    if worst <= TOLERATED and total <= TOLERATED_IN_ALL:
        return ""
    off = f"{worst:.1g} of an entry's likelihood" if worst > TOLERATED else f"{total:.1g} in the log likelihood"
    return (
        f"the sums or integrals over the confidential statistic may be off by {off} (a law with a narrow peak, or with "
        "a kink that is not known?). Use nw.MCEM(), or nw.sample."
    )


def _settled(values: Array, weights: Array) -> Array:
    idle = weights == 0
    if not idle.any():
        return values
    flat = values.reshape(*weights.shape, -1)  # a value per entry, or one whole value
    heaviest = np.take_along_axis(flat, np.argmax(weights, axis=0)[None, :, None], axis=0)
    return np.where(idle[..., None], heaviest, flat).reshape(values.shape)


def moved(part: Part, cloud: Cloud, before: Values, after: Values) -> Cloud:
    """The cloud reweighted from one value of the parameters to another (Quintana et al. 1999)."""
    if cloud.spread is not None:  # sums over nodes that are gone
        return exact_cloud(part, after)
    ratio = part.log_prob_many(after, cloud.values) - part.log_prob_many(before, cloud.values)
    with np.errstate(divide="ignore"):
        log_weights = np.where(cloud.weights > 0, np.log(cloud.weights) + ratio, -np.inf)
    new = weighted(cloud.values, log_weights)
    return cloud.again(replace(new, log_likelihoods=new.log_likelihoods + cloud.log_likelihoods))


def exact_cloud(part: Part, values: Values, widest: float = WIDEST) -> Cloud:
    """Sum or integral over s, entry by entry, to a relative error below `NEGLECTED`.

    Sums whose half width times the entries would have to be beyond `widest` are refused.
    """
    if part.exact:
        value = np.broadcast_to(np.asarray(part.item.value, float), part.shape)[None]
        return weighted(value, part.log_prob_many(values, value))
    if not part.by_entry:
        rule = "must have independent entries and noise for an exact E-step"
        raise refusal("EM", Place.of("release", part.name), rule, part.mechanism, "Use nw.MCEM().", instead=(MCEM,))
    if part.discrete:
        return _enumerated(part, values, widest)
    large = part.entries * PANELS * FINE > LARGE
    if not streamed.applies(part) or (part.chart == "real" and not large):
        _refuse_beyond(part, PANELS * FINE)
        return _integrated(part, values)
    if large and part.kind in streamed.FAMILIES:
        return _from_sums(part, *_sweep(part).condense(values))
    cloud, error = _sweep(part).nodes(values, lambda nodes: _refuse_beyond(part, nodes), weighted)
    return replace(cloud, neglected=error)


def nodes_of(part: Part) -> int:
    """About how many nodes per entry an exact cloud holds; one where sums are all that is kept."""
    if part.exact or not part.by_entry:
        return 1
    if part.discrete:
        nodes = int(2.0 * _first_reach(part)) + 1
        return 1 if part.entries * nodes > LARGE and streamed.applies(part) else nodes
    if not streamed.applies(part):
        return PANELS * FINE
    return 1 if part.kind in streamed.FAMILIES else 256  # eight panels, of 32 nodes


def _first_reach(part: Part) -> float:
    """Half the width of the first window of whole numbers."""
    scale = np.asarray(getattr(part.mechanism, "scale", 1.0), dtype=np.float64)
    return float(np.ceil(30.0 * scale.max())) + 10.0


def _sweep(part: Part) -> Sweep:
    """The part's own sweep, which keeps its windows from one step to the next."""
    if part.sweep is None:
        part.sweep = Sweep(part)
    sweep: Sweep = part.sweep
    return sweep


def _refuse_beyond(part: Part, nodes: int) -> None:
    most = MOST // nodes
    if part.entries > most:
        rule = f"must have at most {most} entries for an exact E-step of such a law and mechanism"
        advice = "Use nw.MCEM(), or an exponential family such as dist.Normal, whose sums can be streamed."
        raise refusal("EM", Place.of("statistics", part.name), rule, part.entries, advice, instead=(MCEM,))


def _from_sums(part: Part, sums: Condensed, neglected: Array) -> Cloud:
    points = sums.points.reshape(-1, *part.shape)
    return Cloud(points, sums.weights, sums.log_likelihoods, neglected, sums.spread)


def _enumerated(part: Part, values: Values, widest: float) -> Cloud:
    """All whole numbers in a window that widens until what lies outside is negligible beside the likelihood kept.

    Outside, the noise density is at most its value at the window's edge (additive noise falls from the release), or
    its supremum (other mechanisms), and the law has at most the mass that the window lacks.
    """
    released = np.broadcast_to(np.asarray(part.item.value, dtype=np.float64), part.shape)
    additive = isinstance(part.mechanism, Additive)
    centre = np.round(released) if additive else np.zeros(part.shape)
    reach = _first_reach(part)
    if part.entries * (2.0 * reach + 1.0) > LARGE and streamed.applies(part):
        return _streamed_whole(part, values, centre, reach, widest)
    low, high = part.bounds(values)
    farthest = float(np.max(np.maximum(high - centre, centre - low)))
    if not additive and part.entries * (2.0 * farthest + 1.0) <= LARGE:  # all there is, at once
        reach = farthest
    while True:
        _refuse_beyond(part, int(2.0 * reach) + 1)
        nodes = centre + _upright(np.arange(-reach, reach + 1.0), part)
        inside = ((nodes >= low) & (nodes <= high)).reshape(len(nodes), -1)
        log_law = part.log_prob_many(values, nodes)
        log_law = np.where(inside & ~np.isnan(log_law), log_law, -np.inf)  # formulas go on beyond the support
        log_weights = log_law + _noise_at(part, reach, nodes)
        mass = np.exp(logsumexp(log_law, axis=0))
        neglected = _left_out(part, values, centre, reach, mass, logsumexp(log_weights, axis=0))
        if neglected.max() <= NEGLECTED:
            return weighted(nodes, log_weights, neglected)
        if reach * part.entries > widest or (reach > 1e5 and _hopeless(part, values, centre)):
            raise _unlikely(part, values)
        reach *= 2.0


def _unlikely(part: Part, values: Values) -> InputError:
    rule, advice = "must be likelier where the fit stands", "Start nearer to the release, or use nw.MCEM()."
    return refusal("EM", Place.of("release", part.name), rule, values, advice, instead=(MCEM,))


def _noise_at(part: Part, reach: float, nodes: Array) -> Array:
    """log eta at the nodes of a window: the same at every step, and kept where it is small, since it may cost much."""
    if reach in part.noise_at:
        return part.noise_at[reach]
    log_eta = part.log_eta(nodes)
    if log_eta.size <= LARGE:
        part.noise_at[reach] = log_eta
    return log_eta


def _hopeless(part: Part, values: Values, centre: Array) -> bool:
    """Whether some entry's law lies beyond the widest window: known before that is filled."""
    away = np.min(np.abs(_sample(part, values) - centre), axis=0)
    return bool(np.any(away * part.entries > WIDEST))


def _left_out(part: Part, values: Values, centre: Array, reach: float, mass: Array, log_likelihoods: Array) -> Array:
    """Bound on what lies outside centre - reach, ..., centre + reach, relative to the likelihood inside.

    Nothing does where the law's whole support lies inside, however small the likelihood is there.
    """
    low, high = part.bounds(values)
    whole = ((centre - reach <= low) & (high <= centre + reach)).reshape(-1)
    if whole.all():
        return np.zeros(part.entries)
    if isinstance(part.mechanism, Additive):
        outside = part.log_eta(centre + _upright(reach * np.array([-1.0, 1.0]), part)).max(axis=0)
    else:
        outside = np.broadcast_to(np.asarray(part.mechanism.log_sup(part.item.value)).reshape(-1), part.entries)
    missing = np.maximum(1.0 - mass, 1e-15)
    with np.errstate(over="ignore"):
        return np.where(whole, 0.0, missing * np.exp(outside - log_likelihoods))


def _streamed_whole(part: Part, values: Values, centre: Array, reach: float, widest: float) -> Cloud:
    """As `_enumerated`, without holding the nodes."""
    while True:
        low, high = (0.0, 1.0) if part.kind.startswith("Bernoulli") and not centre.any() else (-reach, reach)
        sums = _sweep(part).condense_whole(values, centre, low, high)
        neglected = _left_out(part, values, centre, reach, sums.mass, sums.log_likelihoods)
        if neglected.max() <= NEGLECTED:
            return _from_sums(part, sums, neglected)
        if reach > 1e5 or reach * part.entries > 1e3 * widest:
            raise _unlikely(part, values)
        reach *= 2.0


def _sample(part: Part, values: Values) -> Array:
    """A few values of s, to know where it lies; nothing else rests on them."""
    return part.draw(np.random.default_rng(0), values, 512)


def _upright(numbers: Array, part: Part) -> Array:
    """Numbers along a new first axis."""
    return numbers.reshape((-1,) + (1,) * len(part.shape))


def _integrated(part: Part, values: Values) -> Cloud:
    """Composite Gauss-Legendre over panels that grow geometrically from the release and from the law's centre."""
    order, before = FINE, np.inf
    cloud = _panels(part, values, order // 2)
    while True:
        finer = _panels(part, values, order)
        errors = np.maximum(np.abs(np.expm1(finer.log_likelihoods - cloud.log_likelihoods)), finer.neglected)
        error = float(errors.max())
        rounding = error <= TOLERATED and error > 0.5 * before  # more nodes do not help: digits cancel
        if error <= NEGLECTED or rounding or order > 200:
            return replace(finer, neglected=errors)
        cloud, before, order = finer, error, 2 * order


POWERS = np.concatenate([[0.0], 2.0 ** np.arange(-3, 12)])
PANELS = 4 * len(POWERS) - 1
FINE = 24
"""Nodes per panel, at least."""


def _panels(part: Part, values: Values, order: int) -> Cloud:
    nodes, quadrature = roots_legendre(order)
    sample = _sample(part, values)
    kink = part.kink(values)
    centre = np.median(sample, axis=0) if kink is None else kink
    spread = np.quantile(sample, 0.84, axis=0) - np.quantile(sample, 0.16, axis=0) + 1e-300
    scale = np.broadcast_to(noise_scale(part.mechanism, spread), part.shape)
    released = np.broadcast_to(np.asarray(part.item.value, dtype=np.float64), part.shape)
    cuts = [c + s * side * p for c, s in ((released, scale), (centre, spread)) for side in (-1.0, 1.0) for p in POWERS]
    cuts += [np.broadcast_to(end, part.shape) for end in _bounds(part.mechanism)]
    edges = np.clip(np.sort(np.stack(cuts), axis=0), *part.bounds(values))
    half = 0.5 * np.diff(edges, axis=0)
    points = (edges[:-1] + half)[:, None] + half[:, None] * _upright(nodes, part)[None]
    points = points.reshape(-1, *part.shape)
    with np.errstate(divide="ignore"):
        log_half = np.log(half)[:, None] + _upright(np.log(quadrature), part)[None]
    log_law = part.log_prob_many(values, points) + log_half.reshape(len(points), -1)
    log_law = np.where(np.isnan(log_law), -np.inf, log_law)
    missed = _missed(np.exp(log_law).sum(axis=0), (sample < edges[0]) | (sample > edges[-1]))
    return weighted(points, log_law + part.log_eta(points), missed)


def _bounds(mechanism: Any) -> tuple[Any, ...]:
    """Where values were clamped before the noise, at which its density has a kink."""
    return (mechanism.low, mechanism.high) if isinstance(mechanism, Clamped) else ()


def _missed(mass: Array, outside: Array) -> Array:
    """Mass of every entry's law that the nodes do not see, such as a narrow peak between them.

    What lies beyond all panels does not count; its share is known from a few values. If none of 512 lies there, it is
    below 0.01 except with probability 0.99^512 = 0.6%.
    """
    beyond = outside.mean(axis=0).reshape(-1)
    missing = np.abs(1.0 - mass) - beyond - 4.0 * np.sqrt(beyond / len(outside))
    return np.where(missing > 0.01, missing, 0.0)
