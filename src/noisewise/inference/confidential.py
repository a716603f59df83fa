"""Draws of the confidential statistics behind releases, given draws of a NumPyro model's or a law's parameters.

Each posterior draw of the parameters gets one draw of every statistic from p(s | theta, release), as `infer_discrete`
does for discrete sites: with the parameters, these are draws of the joint posterior.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions.distribution import ExpandedDistribution, Independent, MaskedDistribution

from noisewise import checks
from noisewise.errors import refusal
from noisewise.inference.privatised import Privatised
from noisewise.model.wrappers import peel
from noisewise.numerics import Array

CELLS = 2**12
"""Entries that are drawn at a time, all sites and draws together."""


def confidential(
    model_or_law: Callable[..., Any] | Privatised, samples: Any, *args: Any, seed: int, **kwargs: Any
) -> Any:
    """Exact draws of the confidential statistics, one for each draw of the parameters.

    For a NumPyro model function, returns the statistic of every observed site whose law is `Privatised`, by name.
    `samples` are draws of the model's latent sites by name, draws first, as `mcmc.get_samples()` gives them; `args` and
    `kwargs` are the model's arguments. For a `Privatised` law whose parameters are draws, draws first, returns one
    array; `samples` is then the released value.
    """
    seed = checks.integer("confidential", "seed", seed, least=0, advice="Give a whole number.")
    if not isinstance(model_or_law, Privatised):
        return _of_model(model_or_law, samples, args, kwargs, seed)
    if args or kwargs:
        advice = "Give the law, what was released, and seed."
        raise refusal("confidential", "args", "must be left out with a law", (*args, *kwargs), advice)
    return _of_law(model_or_law, samples, seed)


def _of_law(law: Privatised, released: Any, seed: int) -> Array:
    """Draws for a law, some rows at a time, so that the windows of all rows need not be in memory at once."""
    released = np.asarray(released)
    try:
        shape = np.broadcast_shapes(released.shape, law.shape())
    except ValueError:
        rule = f"must broadcast to the shape {law.shape()} of the law"
        raise refusal("confidential", "samples", rule, released, "Give what was released, one per entry.") from None
    released = np.broadcast_to(released, shape)
    uniform = np.asarray(jax.random.uniform(jax.random.key(seed), shape, jnp.result_type(float)))
    rows = shape[0] if shape else 1
    many = max(1, CELLS * rows // max(math.prod(shape), 1))
    if many >= rows or any(np.ndim(leaf) >= len(shape) for leaf in jax.tree.leaves(law.mechanism)):
        return np.asarray(law.drawn(uniform, released))
    parts = []
    for start in range(0, rows, many):
        index = np.arange(start, start + many) % rows  # the last part is as long: one program for all
        parts.append(np.asarray(_rows(law, index, len(shape)).drawn(uniform[index], released[index])))
    return np.concatenate(parts)[:rows]


def _rows(law: Privatised, index: Array, dimensions: int) -> Privatised:
    """The law at the parameter draws numbered `index`."""
    part = copy.copy(law)
    part.law = _picked(peel(law.law)[0], index, dimensions)
    return part


def _picked(base: Any, index: Array, dimensions: int) -> Any:
    """A law at some rows of its first axis, and the laws inside it likewise."""
    inner = {"_mixing_distribution": dimensions, "_component_distribution": dimensions + 1, "base_dist": dimensions}
    inner = {name: own for name, own in inner.items() if name in vars(base)}
    own = dimensions + (1 if "Categorical" in type(base).__name__ else 0)  # probabilities have one axis more

    def pick(leaf: Any) -> Any:
        return leaf[index] if np.ndim(leaf) == own and len(leaf) > 1 else leaf

    part = jax.tree.map(pick, base)
    part._batch_shape = (len(index), *np.broadcast_shapes(base.batch_shape, (1,) * dimensions)[1:])
    for name, axes in inner.items():
        setattr(part, name, _picked(getattr(base, name), index, axes))
    return part


def _of_model(
    model: Callable[..., Any], samples: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> dict[str, Array]:
    who = "confidential"
    if not callable(model):
        advice = "Give the function that was sampled, or nw.Privatised(law, mechanism)."
        raise refusal(who, "model_or_law", "must be a NumPyro model function, or a Privatised law", model, advice)
    if not isinstance(samples, Mapping) or not samples:
        advice = "Give mcmc.get_samples()."
        raise refusal(who, "samples", "must map names of sites to draws", samples, advice)
    lengths = {name: np.shape(value)[:1] for name, value in samples.items()}
    if len(set(lengths.values())) > 1 or () in lengths.values():
        advice = "Give mcmc.get_samples(), without group_by_chain."
        raise refusal(who, "samples", "must have the same number of draws throughout", lengths, advice)
    rows = {name: jnp.asarray(value) for name, value in samples.items()}
    draws = len(next(iter(rows.values())))

    def at_row(row: Mapping[str, Any], key: Any) -> dict[str, Any]:
        simulate, draw = jax.random.split(key)
        run = handlers.trace(handlers.substitute(handlers.seed(model, simulate), data=dict(row)))
        sites = _released(run.get_trace(*args, **kwargs))
        keys = jax.random.split(draw, max(len(sites), 1))
        return {
            name: law.confidential(own, value) for own, (name, (law, value)) in zip(keys, sites.items(), strict=False)
        }

    keys = jax.random.split(jax.random.key(seed), draws)
    first = jax.tree.map(lambda column: column[0], rows)
    drawn = jax.eval_shape(at_row, first, keys[0])
    if not drawn:
        advice = "Observe the release: numpyro.sample(name, nw.Privatised(law, mechanism), obs=value)."
        raise refusal(who, "model_or_law", "must have an observed site whose law is Privatised", model, advice)
    entries = sum(math.prod(site.shape) for site in drawn.values())
    batch = max(1, min(draws, CELLS // max(entries, 1)))
    program = jax.jit(lambda rows, keys: jax.lax.map(lambda pair: at_row(*pair), (rows, keys), batch_size=batch))
    return jax.tree.map(np.asarray, program(rows, keys))


def _released(trace: Mapping[str, Any]) -> dict[str, tuple[Privatised, Any]]:
    """Observed sites whose law is `Privatised` beneath what plates and handlers put around it."""
    released = {}
    for name, site in trace.items():
        if site["type"] == "sample" and site["is_observed"]:
            law = site["fn"]
            while isinstance(law, (ExpandedDistribution, Independent, MaskedDistribution)):
                law = law.base_dist
            if isinstance(law, Privatised):
                released[name] = law, site["value"]
    return released
