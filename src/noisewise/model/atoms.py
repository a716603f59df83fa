"""Laws that give single values positive probability (points, hurdles, counts within), and whether these values move."""

from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from numpyro.distributions import Delta, Distribution, TransformedDistribution

from noisewise.model.law import Law
from noisewise.model.wrappers import laws_within, peel
from noisewise.numerics import Values, double
from noisewise.numerics.tracing import sources

_MOVING: WeakKeyDictionary[Law, bool] = WeakKeyDictionary()


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
    """Whether an atom moves with a value outside the record; False for a law that is a single point.

    No one measure dominates such a law at all values. Each law is traced once.
    """
    if law not in _MOVING:
        _MOVING[law] = _move(law)
    return _MOVING[law]


def _move(law: Law) -> bool:
    points: list[bool] = []

    def places(outer: Values, inner: Values) -> Any:
        distribution = law.function(**outer, **inner)
        points.append(is_fixed(distribution))
        parts = list(laws_within(distribution))
        atoms = [part.v for part in parts if isinstance(part, Delta)]
        atoms += [part.transforms for part in parts if isinstance(part, TransformedDistribution) and has_atoms(part)]
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(atoms)]

    outer = {name: law.row[name] for name in law.outer}
    inner = {name: law.structs[name] for name in law.inner}
    if not outer:
        return False
    with double():
        program = jax.make_jaxpr(jax.vmap(places, in_axes=(0, None)))(outer, inner).jaxpr
    return not points[-1] and any(min(reached, default=len(outer)) < len(outer) for reached in sources(program))
