"""Parts of the prior: the regions where each component of a law that is a mixture is the likeliest of them.

Two humps of a prior may lead to two explanations of a release, and a hump may be as narrow as a spike. Rows of a pilot
are therefore weighed, and fitted to, part by part: the likelier of two explanations does not hide the other before the
weights can tell. Derivation: docs/derivations/importance.md.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, MixtureGeneral, MixtureSameFamily

from noisewise.inference.blocks import Columns
from noisewise.inference.conditional.laws import sketch_of
from noisewise.model import Model
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.samplers.proposals.proposal import made_once

MOST_PARTS = 12
"""Most parts, of all mixtures among the laws of parameters together, that are kept apart."""


def number_of_parts(model: Model) -> int:
    """How many parts the prior has: 1 where it has no mixtures, or those have too many components together."""
    return math.prod(_components(model).values())


def parts(model: Model, columns: Columns) -> Array:
    """The number of the part that each row of parameter values is in."""
    components = _components(model)
    if not components:
        return np.zeros(len(next(iter(columns.values()))), dtype=np.int64)

    def number(row: Values) -> Any:
        found: Any = 0
        for name in components:
            of_each = _component_log_probs(model.law_at(name, row), row[name])
            for likeliest in jnp.argmax(of_each, axis=-1).ravel():
                found = found * of_each.shape[-1] + likeliest
        return found

    program = model.compiled.setdefault(("proposal", "parts"), Compiled(lambda: jax.vmap(number)))
    read = {parent for name in components for parent in (name, *model.parents(name))}
    with double():
        return np.asarray(program({name: np.asarray(columns[name]) for name in sorted(read)}))


def _components(model: Model) -> dict[str, int]:
    """By parameter, how many combinations of components its entries have; none where all together are too many."""
    components: dict[str, int] = made_once(model, "components", lambda: _looked_up(model))
    return components


def _looked_up(model: Model) -> dict[str, int]:
    found = {}
    for name in model.parameters:
        shape = sketch_of(model, name, partial(_shape, shape=model.shape(name)))
        if shape and not model.is_discrete(name):
            found[name] = shape[-1] ** math.prod(shape[:-1])
    return found if math.prod(found.values()) <= MOST_PARTS else {}


def _shape(law: Distribution, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The entries of a law that is a mixture, and the number of its components; empty where it is none."""
    is_mixture = isinstance(peel(law)[0], (MixtureSameFamily, MixtureGeneral))
    return tuple(_component_log_probs(law, jnp.zeros(shape)).shape) if is_mixture else ()


def _component_log_probs(law: Distribution, value: Any) -> Any:
    """log of chance times density of each component, at a value of a law that is a mixture beneath its wrappers."""
    base, _, transforms = peel(law)
    for transform in reversed(transforms):
        value = transform.inv(value)
    return base.component_log_probs(value)
