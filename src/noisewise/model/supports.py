"""Supports of laws, seen through wrappers: their ends, whether these move with parameters, what lies inside."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import boolean, circular, multinomial, nonnegative, positive, real, unit_interval
from numpyro.distributions.distribution import ExpandedDistribution, Independent, TransformedDistribution
from numpyro.distributions.transforms import AffineTransform, ExpTransform, SigmoidTransform, SoftplusTransform

from noisewise.model.wrappers import peel
from noisewise.numerics import Values, double
from noisewise.numerics.tracing import depends

MONOTONE = (AffineTransform, ExpTransform, SigmoidTransform, SoftplusTransform)


def possible(law: Distribution, value: Any) -> Any:
    """Whether `value` lies in the support of `law`, seen through its wrappers (see `log_density` for whole numbers)."""
    if isinstance(law, (Independent, ExpandedDistribution)):
        return possible(law.base_dist, value)
    if isinstance(law, TransformedDistribution):
        inside = jnp.asarray(True)
        for transform in reversed(law.transforms):
            inside &= jnp.all(transform.codomain(value))
            value = transform.inv(value)
        return inside & possible(law.base_dist, value)
    support = law.support
    if not getattr(support, "is_discrete", False):
        return jnp.all(support(value))
    if law.event_shape:
        return jnp.all(value >= 0)
    return jnp.all(support(jnp.floor(value)) & support(jnp.ceil(value)))


def inside(law: Distribution, value: Any) -> Any:
    """Whether each entry lies in the support, seen through wrappers."""
    if isinstance(law, (Independent, ExpandedDistribution)):
        return inside(law.base_dist, value)
    if isinstance(law, TransformedDistribution):
        within = jnp.asarray(True)
        for transform in reversed(law.transforms):
            within &= transform.codomain(value)
            value = transform.inv(value)
        return within & inside(law.base_dist, value)
    return law.support(value)


def innermost(support: Any) -> Any:
    """The constraint on one entry beneath those on arrays of them."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support


def declared_ends(support: Any) -> tuple[Any, Any]:
    """The ends that a support states for one entry; infinite where it has none."""
    support = innermost(support)
    low, high = (0, 1) if support is boolean else (-np.inf, np.inf)
    return getattr(support, "lower_bound", low), getattr(support, "upper_bound", high)


def chart(support: Any) -> str:
    """The coordinates that suit one entry: "real", "positive" or "unit"; "" where none of these does."""
    support = innermost(support)
    charts = (("real", [real]), ("positive", [positive, nonnegative]), ("unit", [unit_interval]))
    return next((name for name, constraints in charts if any(support is constraint for constraint in constraints)), "")


def support_moves(law: Callable[[Values], Any], structs: Values) -> bool:
    """Whether the ends of the law's support may depend on the parameters: then Louis's identity lacks a term."""
    with double():
        return depends(jax.make_jaxpr(lambda values: support_ends(law(values)))(structs).jaxpr)


def support_ends(law: Distribution) -> list[Any]:
    """Lower and upper end of the law's support; infinite where it has none; traceable.

    An affine transform declares the whole line unless its domain was given to it, so for monotone transforms the ends
    are those of the base law, transformed.
    """
    base, _, transforms = peel(law)
    if not all(isinstance(transform, MONOTONE) for transform in transforms):
        base, transforms = law, []
    support = innermost(base.support)
    ends = [-jnp.pi, jnp.pi] if support is circular else [*declared_ends(support)]
    if isinstance(support, multinomial):  # one number of draws for all cells
        ends = [0.0, jnp.asarray(support.upper_bound)[..., None]]
    limits = [jnp.asarray(end, float) for end in ends]
    for transform in transforms:
        if isinstance(transform, AffineTransform) and all(_is_infinite(end) for end in ends):
            continue  # the whole line stays so, whatever the parameters
        moved = [transform(end) for end in limits]
        limits, ends = [jnp.minimum(*moved), jnp.maximum(*moved)], [0.0, 0.0]
    return limits


def _is_infinite(end: Any) -> bool:
    """Whether an end is known, without the parameters, to be infinite."""
    return isinstance(end, (float, np.ndarray)) and bool(np.all(np.isinf(end)))
