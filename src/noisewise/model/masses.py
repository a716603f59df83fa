"""log densities entry by entry, with formulas of our own where NumPyro's lose digits, or miss a law that is a point."""

from typing import Any

import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy
from numpyro.distributions import BetaBinomial, DiscreteUniform, Distribution, GammaPoisson, GeometricProbs, Poisson
from numpyro.distributions.distribution import Independent

from noisewise.model.supports import declared_ends
from noisewise.model.wrappers import kind_of, peel, unchecked
from noisewise.numerics.gamma import log_gamma, log_rising

OWN = (GammaPoisson, BetaBinomial, GeometricProbs)
"""Laws whose formula in NumPyro is not used.

Two have JAX's beta function in it, which has but seven digits; the third calls zero impossible where it is certain.
"""


def entries(law: Distribution, value: Any) -> Any:
    """log density entry by entry where the law's entries are independent."""
    if not _is_own(law):
        return _each(law).log_prob(value)
    low, high = bounds(law, jnp.shape(value))
    return jnp.where((value >= low) & (value <= high), formula(law, value), -jnp.inf)


def formula(law: Distribution, value: Any) -> Any:
    """`entries` by its formula alone: anything off the support, for sums that leave out what is not in it."""
    if not _is_own(law):
        return unchecked(_each(law)).log_prob(value)
    inside = jnp.clip(value, *bounds(law, jnp.shape(value)))
    return log_mass(peel(_each(law))[0], inside * 1.0)


def _is_own(law: Distribution) -> bool:
    return isinstance(peel(_each(law))[0], OWN) and bool(kind_of(law))


def _each(law: Distribution) -> Distribution:
    """The law of the entries."""
    while isinstance(law, Independent):
        law = law.base_dist
    return law


def log_mass(law: Any, k: Any) -> Any:
    """log probability of k, in the support."""
    if isinstance(law, Poisson):
        return xlogy(k, law.rate) - law.rate - log_gamma(k + 1.0)
    if isinstance(law, GammaPoisson):
        small = law.rate < 1.0  # log(1 + 1/rate), where 1/rate may be infinite, and where it is next to nothing
        over, under = jnp.where(small, 1.0, law.rate), jnp.where(small, law.rate, 1.0)
        none = jnp.where(small, jnp.log1p(under) - jnp.log(under), jnp.log1p(1.0 / over))
        log_count = log_rising(law.concentration, k) - log_gamma(k + 1.0)
        return log_count - law.concentration * none - xlog1py(k, law.rate)
    if isinstance(law, BetaBinomial):
        first, second, n = law.concentration1, law.concentration0, law.total_count
        fewer = jnp.minimum(k, n - k)
        log_count = log_rising(n - fewer + 1.0, fewer) - log_gamma(fewer + 1.0)
        return log_count + log_rising(first, k) + log_rising(second, n - k) - log_rising(first + second, n)
    if isinstance(law, GeometricProbs):
        return xlog1py(k, -law.probs) + jnp.log(law.probs)
    if isinstance(law, DiscreteUniform):  # NumPyro's own asks for the shape that the law was made with
        return jnp.broadcast_to(-jnp.log(law.high - law.low + 1.0), jnp.shape(k))
    return law.log_prob(k.astype(int))


def bounds(law: Distribution, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Ends of every entry's support; infinite where there are none."""
    low, high = declared_ends(law.support)
    return jnp.broadcast_to(jnp.asarray(low, float), shape), jnp.broadcast_to(jnp.asarray(high, float), shape)
