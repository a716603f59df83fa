"""Weighted clouds: values of the confidential statistic that stand for its law given the release.

A cloud holds, for every entry of a part, values s_k and weights w_k with sum_k w_k g(s_k) close to
E(g(s) | s_dp, theta). Enumeration and quadrature make clouds whose error is bounded (EM); simulation makes clouds with
Monte Carlo error (MCEM). The M-step and Louis's identity see only the cloud.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp, roots_legendre

from noisewise.errors import refusal
from noisewise.likelihood.parts import Part
from noisewise.mechanisms.additive import Additive

Array = np.ndarray[Any, Any]
Values = dict[str, Any]

NEGLECTED = 1e-10
"""Most mass that a window may leave out, relative to the likelihood it keeps."""


@dataclass(frozen=True)
class Cloud:
    """`values`: (K, *shape); `weights`: (K, entries), each column summing to one; log likelihoods of the entries."""

    values: Array
    weights: Array
    log_likelihoods: Array
    neglected: float = 0.0

    @property
    def log_likelihood(self) -> float:
        """Of the whole part."""
        return float(np.sum(self.log_likelihoods))

    @property
    def ess(self) -> float:
        """Kish's effective number of values, for the entry that has fewest."""
        return float(np.min(1.0 / np.sum(self.weights**2, axis=0)))


def weighted(values: Array, log_weights: Array, neglected: float = 0.0) -> Cloud:
    """A cloud from log weights whose sum over values is the likelihood."""
    log_sum = logsumexp(log_weights, axis=0)
    return Cloud(values, np.exp(log_weights - log_sum), log_sum, neglected)


def moved(part: Part, cloud: Cloud, before: Values, after: Values) -> Cloud:
    """The cloud reweighted from one value of the parameters to another (Quintana et al. 1999)."""
    ratio = part.log_prob_many(after, cloud.values) - part.log_prob_many(before, cloud.values)
    with np.errstate(divide="ignore"):
        log_weights = np.where(cloud.weights > 0, np.log(cloud.weights) + ratio, -np.inf)
    new = weighted(cloud.values, log_weights)
    return Cloud(new.values, new.weights, new.log_likelihoods + cloud.log_likelihoods)


def exact_cloud(part: Part, values: Values) -> Cloud:
    """Sum or integral over s, entry by entry, to a relative error below `NEGLECTED`."""
    if part.exact:
        value = np.broadcast_to(np.asarray(part.item.value, float), part.shape)[None]
        return weighted(value, part.log_prob_many(values, value))
    if not part.by_entry:
        rule = "must have independent entries and noise for an exact E-step"
        raise refusal("EM", f"release['{part.name}']", rule, part.mechanism, "Use nw.MCEM().")
    return _enumerated(part, values) if part.discrete else _integrated(part, values)


def _enumerated(part: Part, values: Values) -> Cloud:
    """All whole numbers in a window that widens until what lies outside is negligible beside the likelihood kept.

    Outside, the noise density is at most its value at the window's edge (additive noise falls from the release), or
    its supremum (other mechanisms), and the law has at most the mass that the window lacks.
    """
    released = np.broadcast_to(np.asarray(part.item.value, dtype=np.float64), part.shape)
    additive = isinstance(part.mechanism, Additive)
    centre = np.round(released) if additive else np.zeros(part.shape)
    scale = np.asarray(getattr(part.mechanism, "scale", 1.0), dtype=np.float64)
    reach = float(np.ceil(30.0 * scale.max())) + 10.0
    while True:
        nodes = centre + _upright(np.arange(-reach, reach + 1.0), part)
        log_law = part.log_prob_many(values, nodes)
        log_law = np.where(np.isnan(log_law), -np.inf, log_law)  # formulas off the support
        log_weights = log_law + part.log_eta(nodes)
        if additive:
            outside = part.log_eta(centre + _upright(reach * np.array([-1.0, 1.0]), part)).max(axis=0)
        else:
            outside = np.broadcast_to(np.asarray(part.mechanism.log_sup(part.item.value)).reshape(-1), part.entries)
        missing = np.maximum(1.0 - np.exp(logsumexp(log_law, axis=0)), 1e-15)
        with np.errstate(over="ignore"):
            neglected = float(np.max(missing * np.exp(outside - logsumexp(log_weights, axis=0))))
        if neglected <= NEGLECTED:
            return weighted(nodes, log_weights, neglected)
        if reach * part.entries > 1e7:
            advice = "Start nearer to the release, or use nw.MCEM()."
            raise refusal("EM", f"release['{part.name}']", "must be likelier where the fit stands", values, advice)
        reach *= 2.0


def _upright(numbers: Array, part: Part) -> Array:
    """Numbers along a new first axis."""
    return numbers.reshape((-1,) + (1,) * len(part.shape))


def _integrated(part: Part, values: Values) -> Cloud:
    """Composite Gauss-Legendre over panels that grow geometrically from the release and from the law's centre."""
    cloud = _panels(part, values, 12)
    while True:
        finer = _panels(part, values, 2 * (len(cloud.values) // PANELS))
        error = abs(np.expm1(finer.log_likelihood - cloud.log_likelihood))
        if error <= NEGLECTED or len(finer.values) // PANELS > 200:
            return Cloud(finer.values, finer.weights, finer.log_likelihoods, float(error))
        cloud = finer


POWERS = np.concatenate([[0.0], 2.0 ** np.arange(-3, 12)])
PANELS = 4 * len(POWERS) - 1


def _panels(part: Part, values: Values, order: int) -> Cloud:
    nodes, quadrature = roots_legendre(order)
    parents = {name: np.repeat(np.asarray(values[name])[None], 512, axis=0) for name in part.law.parents}
    sample = part.law.draw(np.random.default_rng(0), parents, 512)
    centre = np.median(sample, axis=0)
    spread = np.quantile(sample, 0.84, axis=0) - np.quantile(sample, 0.16, axis=0) + 1e-300
    scale = np.broadcast_to(np.asarray(getattr(part.mechanism, "scale", 1.0), dtype=np.float64), part.shape)
    released = np.broadcast_to(np.asarray(part.item.value, dtype=np.float64), part.shape)
    cuts = [c + s * side * p for c, s in ((released, scale), (centre, spread)) for side in (-1.0, 1.0) for p in POWERS]
    edges = np.sort(np.stack(cuts), axis=0)
    half = 0.5 * np.diff(edges, axis=0)
    points = (edges[:-1] + half)[:, None] + half[:, None] * _upright(nodes, part)[None]
    points = points.reshape(-1, *part.shape)
    with np.errstate(divide="ignore"):
        log_half = np.log(half)[:, None] + _upright(np.log(quadrature), part)[None]
    log_weights = part.log_prob_many(values, points) + part.log_eta(points)
    log_weights = log_weights + log_half.reshape(len(points), -1)
    return weighted(points, np.where(np.isnan(log_weights), -np.inf, log_weights))
