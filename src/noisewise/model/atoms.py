"""Laws that give single values positive probability (points, hurdles, counts within), and whether these values move."""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Delta, Distribution, TransformedDistribution

from noisewise.model.law import Law
from noisewise.model.wrappers import laws_within, peel
from noisewise.numerics import Values, double


def is_fixed(law: Distribution) -> bool:
    """Whether the law is a point: no coordinate, and no density to count."""
    return isinstance(peel(law)[0], Delta)


def has_atoms(law: Distribution) -> bool:
    """Whether a law of real numbers gives single ones positive probability: points, hurdles, counts within.

    Its log_prob is relative to a measure with atoms, so no step that proposes by a density is exact.
    """
    parts = list(laws_within(law))
    mixing = {id(part.mixing_distribution) for part in parts if hasattr(part, "mixing_distribution")}
    return any(_is_atomic(part) for part in parts if id(part) not in mixing)


def _is_atomic(part: Distribution) -> bool:
    discrete = bool(getattr(part.support, "is_discrete", False))
    return discrete or isinstance(part, Delta) or type(part).__name__.startswith("Hurdle")


def atoms_move(law: Law) -> bool:
    """Whether an atom, other than a lone point, moves with a value outside the record.

    No measure dominates such a law.
    """
    moves, structs = [False], law.structs

    def look(outer: Values, inner: Values) -> Any:
        distribution = law.function(**outer, **inner)
        parts = list(laws_within(distribution))
        places = [part.v for part in parts if isinstance(part, Delta)]
        places += [part.transforms for part in parts if isinstance(part, TransformedDistribution) and has_atoms(part)]
        moving = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(places))
        moves.append(moving and not is_fixed(distribution))
        return 0.0

    with double():  # under vmap alone, what does not depend on a mapped value is no tracer
        outer = {name: jnp.ones((1, *structs[name].shape), structs[name].dtype) for name in law.outer}
        inner = {name: jnp.ones(structs[name].shape, structs[name].dtype) for name in law.inner}
        if outer:
            jax.vmap(look, in_axes=(0, None))(outer, inner)
    return moves[-1]
