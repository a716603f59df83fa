"""A mixture of normal laws given its release, by the closed form that each component has: Gaussian and Laplace noise.

    log m(r) = log sum_k w_k m_k(r),  and s given r is of component k with probability w_k m_k(r) / m(r).

Derivation: docs/derivations/conditional.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, MixtureSameFamily

from noisewise.inference.conditional import normal
from noisewise.mechanisms import Mechanism
from noisewise.model.wrappers import kind_of, peel


def applies(law: Distribution, mechanism: Mechanism) -> bool:
    """Whether the law is a mixture of normal laws of one number, and the noise has a closed form for a normal law."""
    base = peel(law)[0]
    if not isinstance(base, MixtureSameFamily) or not kind_of(law) or base.event_shape:
        return False
    return kind_of(base.component_distribution) == "Normal" and normal.is_closed(mechanism)


def log_marginal(law: MixtureSameFamily, mechanism: Mechanism, released: Any) -> Any:
    """log density of the release, entry by entry; traceable."""
    return jax.nn.logsumexp(_log_terms(law, mechanism, released), axis=-1)


def invert(uniform: Any, law: MixtureSameFamily, mechanism: Mechanism, released: Any) -> Any:
    """The statistic given its release, for one uniform variate per entry: it tells the component, then the quantile."""
    logs = _log_terms(law, mechanism, jnp.broadcast_to(released, uniform.shape))
    passed = jnp.cumsum(jax.nn.softmax(logs, axis=-1), axis=-1)
    wanted = uniform[..., None] * passed[..., -1:]
    chosen = jnp.minimum(jnp.sum(passed <= wanted, axis=-1, keepdims=True), logs.shape[-1] - 1)
    before = jnp.where(chosen > 0, jnp.take_along_axis(passed, jnp.maximum(chosen - 1, 0), axis=-1), 0.0)
    share = jnp.take_along_axis(passed, chosen, axis=-1) - before
    within = jnp.clip((wanted - before) / jnp.where(share > 0.0, share, 1.0), 0.0, 1.0 - 2.0**-53)[..., 0]
    mean, spread = (
        jnp.take_along_axis(jnp.broadcast_to(part, logs.shape), chosen, axis=-1)[..., 0] for part in _parts(law)
    )
    return normal.invert(within, mechanism, released, mean, spread)


def _parts(law: MixtureSameFamily) -> tuple[Any, Any]:
    """Means and standard deviations of the components, along the last axis."""
    parts = peel(law.component_distribution)[0]
    return parts.loc, parts.scale


def _log_terms(law: MixtureSameFamily, mechanism: Mechanism, released: Any) -> Any:
    """log w_k m_k(r), components along a new last axis."""
    by_entry = jax.tree.map(lambda leaf: leaf[..., None] if jnp.ndim(leaf) else leaf, mechanism)
    marginals = normal.log_marginal(by_entry, jnp.asarray(released)[..., None], *_parts(law))
    log_shares = jax.nn.log_softmax(law.mixing_distribution.logits, axis=-1)
    return jnp.where(log_shares > -jnp.inf, log_shares + marginals, -jnp.inf)
