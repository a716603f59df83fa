"""Sufficient statistics: an exponential family's cloud, however large, becomes one or two values per entry.

For an exponential family log pi(s | theta) = eta(theta) . b(s) - A(theta) + h(s), so Q depends on the cloud through
E b(s) alone. One value (b linear in s) or two equally weighted values are found that have the same E b(s); evaluating
the density formula there gives Q up to a constant. Derivation: docs/derivations/likelihood.md.
"""

from collections.abc import Callable

import numpy as np

from noisewise.likelihood.e_step.cloud import Cloud
from noisewise.likelihood.e_step.released_law import Part
from noisewise.model.families import FACTS
from noisewise.numerics import Array

Mean = Callable[[Callable[[Array], Array]], Array]


def _mean(mean: Mean) -> list[Array]:
    """b = s."""
    return [mean(lambda s: s)]


def _normal(mean: Mean) -> list[Array]:
    """b = (s, s^2): the mean, give or take the standard deviation."""
    centre = mean(lambda s: s)
    spread = np.sqrt(np.maximum(mean(lambda s: (s - centre) ** 2), 0.0))
    return [centre - spread, centre + spread]


def _log_normal(mean: Mean) -> list[Array]:
    """b = (log s, log^2 s)."""
    return [np.exp(value) for value in _normal(lambda f: mean(lambda s: f(np.log(s))))]


def _gamma(mean: Mean) -> list[Array]:
    """b = (log s, s): the roots of x^2 - 2 m x + e^(2 g), real since the geometric mean is at most the mean."""
    m, g = mean(lambda s: s), mean(np.log)
    root = np.sqrt(np.maximum(m * m - np.exp(2.0 * g), 0.0))
    return [np.exp(2.0 * g) / (m + root), m + root]


def _inverse_gamma(mean: Mean) -> list[Array]:
    """b = (log s, 1/s)."""
    return [1.0 / value for value in _gamma(lambda f: mean(lambda s: f(1.0 / s)))]


def _log(mean: Mean) -> list[Array]:
    """b = log s."""
    return [np.exp(mean(np.log))]


def _beta(mean: Mean) -> list[Array]:
    """b = (log s, log(1 - s)): x y = G1 and (1 - x)(1 - y) = G0, so x and y solve a quadratic."""
    product, complement = np.exp(2.0 * mean(np.log)), np.exp(2.0 * mean(lambda s: np.log1p(-s)))
    total = 1.0 + product - complement
    root = np.sqrt(np.maximum(total * total - 4.0 * product, 0.0))
    high = 0.5 * (total + root)
    return [product / high, high]


POINTS: dict[tuple[str, ...], Callable[[Mean], list[Array]]] = {
    ("s",): _mean,
    ("s", "s^2"): _normal,
    ("log s", "log^2 s"): _log_normal,
    ("log s", "s"): _gamma,
    ("log s", "1/s"): _inverse_gamma,
    ("log s",): _log,
    ("log s", "log(1-s)"): _beta,
}
"""By what b(s) consists of: (function that averages over the cloud) -> points."""
FAMILIES = {kind: POINTS[facts.statistics] for kind, facts in FACTS.items() if facts.statistics}
"""`POINTS` by class of law. Where a size must be known for the family, `Part.kind` names the law only then."""


def is_family(part: Part) -> bool:
    """Whether the cloud's sufficient statistics are known."""
    return part.kind in FAMILIES


def condensed(part: Part, cloud: Cloud) -> Cloud:
    """A family's cloud as one or two values per entry with the same sufficient statistics; other clouds unchanged."""
    family = FAMILIES.get(part.kind)
    if family is None or cloud.spread is not None or len(cloud.values) <= 2:
        return cloud
    shape = cloud.values.shape[1:]
    weight = cloud.weights.reshape((len(cloud.weights), *(shape if part.by_entry else (1,) * len(shape))))

    def mean(function: Callable[[Array], Array]) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = function(cloud.values)
        return np.sum(np.where(weight > 0, weight * terms, 0.0), axis=0)

    values = np.stack(family(mean))
    weights = np.full((len(values), cloud.weights.shape[1]), 1.0 / len(values))
    return Cloud(values, weights, cloud.log_likelihoods, cloud.neglected)
