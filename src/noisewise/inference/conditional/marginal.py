"""What every way of integrating a statistic out gives: the likelihood of its release, and what may be missing."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Marginal(NamedTuple):
    """log of what was added up, and log of what may be missing from it; entry by entry."""

    log_kept: Any
    log_beyond: Any

    @property
    def log_bound(self) -> Any:
        """log of the two together."""
        return jnp.logaddexp(self.log_kept, self.log_beyond)

    @property
    def share(self) -> Any:
        """What may be missing, as a share of the two together."""
        return jnp.where(self.log_beyond > -jnp.inf, jnp.exp(self.log_beyond - self.log_bound), 0.0)


def log_sum(terms: Any) -> Any:
    """log sum exp over the first axis whose gradient is zero, not NaN, where every term is -inf."""
    top = jax.lax.stop_gradient(jnp.max(terms, axis=0))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    total = jnp.sum(jnp.exp(terms - top), axis=0)
    return jnp.where(total > 0.0, top + jnp.log(jnp.where(total > 0.0, total, 1.0)), -jnp.inf)


def pick(log_weights: Any, uniform: Any) -> Any:
    """Index along the first axis, drawn in proportion to the weights by inverting their sums."""
    weights = jnp.exp(log_weights - jnp.max(log_weights, axis=0))
    sums = jnp.cumsum(weights, axis=0)
    # at most the last index of positive weight, however the sums were rounded
    return jnp.sum(sums <= uniform * sums[-1], axis=0)
