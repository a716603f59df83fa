"""One statistic given its release, entry by entry: which way integrates it out, and that way's results.

For a law whose entries are independent and a mechanism that acts on each alone. Everything is traceable: laws and
mechanisms may hold traced numbers, and `Route`, which decides the program, is fixed beforehand.
Derivation: docs/derivations/conditional.md.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution
from numpyro.distributions.distribution import Independent, TransformedDistribution

from noisewise.inference.conditional import enumeration, landmarks, normal, normal_mixture, quadrature, ratios
from noisewise.inference.conditional.marginal import Marginal
from noisewise.mechanisms import Exact, Mechanism
from noisewise.model.atoms import has_atoms
from noisewise.model.families import facts_of
from noisewise.model.wrappers import kind_of, peel, unchecked

__all__ = ["Marginal", "Route", "draw", "log_bound", "log_marginal", "route", "unfit"]


@dataclass(frozen=True)
class Route:
    """How the statistic is integrated out: all that a compiled program depends on besides shapes."""

    way: Literal["exact", "closed", "mixed", "window", "panels"]
    """`mixed`: a closed form for every component of a mixture."""
    kind: str
    size: int = 0
    """Values in a window."""
    whole: bool = False
    """Whether the window is the whole support."""
    width: int = 0
    """Values in a table of the noise, where a sum goes by ratios; 0 where none does."""


def unfit(law: Distribution, mechanism: Mechanism) -> str | None:
    """Why the statistic cannot be integrated out entry by entry, or None."""
    noise, kind, base = type(mechanism).__name__, kind_of(law), peel(law)[0]
    if mechanism.event_dim:
        return f"{noise} acts on all entries together"
    if mechanism.inputs:
        return f"{noise} reads another confidential value, '{mechanism.inputs[0]}'"
    if base.event_shape:
        return f"the entries of {type(base).__name__} depend on each other"
    if isinstance(mechanism, Exact):
        return None
    if not kind:
        inner = law
        while isinstance(inner, Independent):
            inner = inner.base_dist
        what = "is transformed" if isinstance(inner, TransformedDistribution) else "is not one that is known here"
        return f"the law {type(inner).__name__} {what}"
    if facts_of(kind).discrete:
        return None
    if getattr(base.support, "is_discrete", False):
        return f"the sum over the whole numbers of {kind} is not known here"
    if has_atoms(law):
        return f"the law {kind} has atoms"
    if mechanism.integers:
        return f"{noise} needs whole numbers, and {kind} gives others"
    if not landmarks.known(base, kind):
        return f"where the density of {kind} lies is not known here"
    if not normal.is_closed(mechanism) and mechanism.landmarks(0.0) is None:
        return f"where the density of {noise} changes is not known here"
    return None


def route(law: Distribution, mechanism: Mechanism, size: int | None = None) -> Route:
    """How to integrate the statistic out, where `unfit` has no objection; `size` sets the values in a window."""
    kind, base = kind_of(law), peel(law)[0]
    if isinstance(mechanism, Exact):
        return Route("exact", kind)
    if facts_of(kind).discrete:
        if size is not None:
            return Route("window", kind, size)
        needed, whole = enumeration.window_size(base, mechanism)
        return Route("window", kind, needed, whole, 0 if whole else ratios.width(kind, mechanism))
    if kind == "Normal" and normal.is_closed(mechanism):
        return Route("closed", kind)
    return Route("mixed" if normal_mixture.applies(law, mechanism) else "panels", kind)


def log_marginal(law: Distribution, mechanism: Mechanism, released: Any, by: Route | None = None) -> Marginal:
    """log density of the release given the law's parameters, entry by entry, and what may be missing from it."""
    return _log_marginal(law, mechanism, released, by=route(law, mechanism) if by is None else by)


def log_bound(law: Distribution, mechanism: Mechanism, released: Any, by: Route) -> Any:
    """log density of the release by the route `by`, or an upper bound of it where a window may leave something out."""
    base = _entry(law)
    if ratios.applies(base, by.kind, mechanism, released, by.width):
        return ratios.log_marginal(base, by.kind, mechanism, released, by.size, by.width)
    marginal = log_marginal(law, mechanism, released, by)
    return marginal.log_bound if by.way == "window" else marginal.log_kept


@partial(jax.jit, static_argnames="by")
def _log_marginal(law: Distribution, mechanism: Mechanism, released: Any, by: Route) -> Marginal:
    base, released = _entry(law), jnp.asarray(released)
    if by.way == "exact":
        log_kept = base.log_prob(released)
    elif by.way == "closed":
        log_kept = normal.log_marginal(mechanism, released, base.loc, base.scale)
    elif by.way == "mixed":
        log_kept = normal_mixture.log_marginal(base, mechanism, released)
    elif by.way == "window":
        return enumeration.log_marginal(base, by.kind, mechanism, released, by.size, by.whole)
    else:
        return quadrature.log_marginal(base, by.kind, mechanism, released)
    return Marginal(log_kept, jnp.full(jnp.shape(log_kept), -jnp.inf))


def draw(uniform: Any, law: Distribution, mechanism: Mechanism, released: Any, by: Route | None = None) -> Any:
    """The statistic given its release, for one uniform variate per entry: its quantile, as far as the rule goes; of a
    mixture of normal laws, that of one component.
    """
    return _draw(uniform, law, mechanism, released, by=route(law, mechanism) if by is None else by)


@partial(jax.jit, static_argnames="by")
def _draw(uniform: Any, law: Distribution, mechanism: Mechanism, released: Any, by: Route) -> Any:
    base, uniform = _entry(law), jnp.asarray(uniform)
    released = jnp.broadcast_to(jnp.asarray(released), uniform.shape)
    if by.way == "exact":
        return released
    if by.way == "closed":
        return normal.invert(uniform, mechanism, released, base.loc, base.scale)
    if by.way == "mixed":
        return normal_mixture.invert(uniform, base, mechanism, released)
    if by.way == "window":
        return enumeration.draw(uniform, base, by.kind, mechanism, released, by.size, by.whole)
    return quadrature.draw(uniform, base, by.kind, mechanism, released)


def _entry(law: Distribution) -> Distribution:
    """The law of one entry beneath its wrappers, without NumPyro's validation."""
    return unchecked(jax.tree.map(lambda leaf: leaf, copy.copy(peel(law)[0])))
