"""Where the density of a law changes, and over what distance: all that quadrature must know of it beforehand.

Derivation: docs/derivations/conditional.md.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from numpyro.distributions import Distribution

from noisewise.mechanisms import Clamped, Clipped, GeneralizedCauchy, Mechanism, Thresholded
from noisewise.mechanisms.processed import Processed
from noisewise.model.wrappers import kind_of

Landmarks = list[tuple[Any, Any, Any]]
"""Points of the line, each with the distance over which the density changes about it, and a power a.

The density behaves there like the power a - 1 of the distance from the point; a is 1 where it does not."""

LOCATED = ("Normal", "Laplace", "Cauchy", "StudentT", "Logistic", "Gumbel")
"""Laws on the whole line with one landmark, their location."""
MIXTURE = "MixtureSameFamily"
DEEP = 1e-9
"""Distance of change at an end with a pole, as a share of the law's width."""


def _located(law: Any) -> Landmarks:
    return [(law.loc, law.scale, 1.0)]


def _truncated(law: Any) -> Landmarks:
    ends = [getattr(law, name) for name in ("low", "high") if hasattr(law, name)]
    return [*_located(law.base_dist), *((end, law.base_dist.scale, 1.0) for end in ends)]


def _from_zero(law: Any) -> Landmarks:
    return [(0.0, law.scale, 1.0)]


def _gamma(law: Any) -> Landmarks:
    shape = law.concentration
    return [(0.0, DEEP / law.rate, shape), (shape / law.rate, jnp.sqrt(shape) / law.rate, 1.0)]


def _inverse_gamma(law: Any) -> Landmarks:
    top = law.rate / (law.concentration + 1.0)
    return [(0.0, 1e-3 * top, 1.0), (top, top / jnp.sqrt(law.concentration + 1.0), 1.0)]


def _log_normal(law: Any) -> Landmarks:
    top = jnp.exp(law.loc)
    return [
        (0.0, top * jnp.exp(-jnp.minimum(9.0 * law.scale, 60.0)), 1.0),
        (top, top * jnp.minimum(law.scale, 1.0), 1.0),
    ]


def _beta(law: Any) -> Landmarks:
    first, second = law.concentration1, law.concentration0
    total = first + second
    spread = jnp.sqrt(first * second / (total + 1.0)) / total
    return [(0.0, DEEP, first), (first / total, spread, 1.0), (1.0, DEEP, second)]


def _weibull(law: Any) -> Landmarks:
    shape = law.concentration
    return [(0.0, DEEP * law.scale, shape), (law.scale, law.scale / jnp.maximum(shape, 1.0), 1.0)]


def _mixture(law: Any) -> Landmarks:
    part = law.component_distribution
    loc, scale = (jnp.broadcast_to(one, part.batch_shape) for one in (part.loc, part.scale))
    return [(loc[..., index], scale[..., index], 1.0) for index in range(part.batch_shape[-1])]


_KNOWN: dict[str, Callable[[Any], Landmarks]] = {
    **dict.fromkeys(LOCATED, _located),
    MIXTURE: _mixture,
    **dict.fromkeys(
        ("TwoSidedTruncatedDistribution", "LeftTruncatedDistribution", "RightTruncatedDistribution"), _truncated
    ),
    **dict.fromkeys(("HalfNormal", "HalfCauchy"), _from_zero),
    "Exponential": lambda law: [(0.0, 1.0 / law.rate, 1.0)],
    "Gamma": _gamma,
    "Chi2": _gamma,
    "InverseGamma": _inverse_gamma,
    "LogNormal": _log_normal,
    "Beta": _beta,
    "Weibull": _weibull,
    "Pareto": lambda law: [(law.scale, law.scale / jnp.maximum(law.alpha, 1.0), 1.0)],
    "Uniform": lambda law: [(end, law.high - law.low, 1.0) for end in (law.low, law.high)],
}
"""By the name of the class."""


def known(law: Distribution, kind: str) -> bool:
    """Whether the landmarks of a law of one entry are known: of its class, or of what it mixes."""
    return kind in _KNOWN and (kind != MIXTURE or kind_of(law.component_distribution) in LOCATED)


def landmarks(law: Distribution, kind: str) -> Landmarks:
    """The landmarks of the innermost law of one entry, finite ends of its support included; traceable."""
    return _KNOWN[kind](law)


def is_heavy_noise(mechanism: Mechanism) -> bool:
    """Whether noise may fall no faster than a power, whatever is done to it, as a function of the confidential value.

    Where values are clamped before it, or releases clipped or withheld after it, it need not fall at all to one side.
    """
    while isinstance(mechanism, Processed):
        if isinstance(mechanism, (Clipped, Thresholded)):
            return True
        mechanism = mechanism.base
    return isinstance(mechanism, (GeneralizedCauchy, Clamped))
