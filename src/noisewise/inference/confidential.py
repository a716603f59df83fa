"""Draws of the confidential statistics behind a NumPyro model's releases, given draws of its parameters.

Each posterior draw of the parameters gets one draw of every statistic from p(s | theta, release), as `infer_discrete`
does for discrete sites: with the parameters, these are draws of the joint posterior.
"""

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
from noisewise.numerics import Array

CELLS = 2**12
"""Entries that are drawn at a time, all sites and draws together."""


def confidential(
    model: Callable[..., Any], samples: Mapping[str, Any], *args: Any, seed: int, **kwargs: Any
) -> dict[str, Array]:
    """The confidential statistic of every observed site of a NumPyro model whose law is `Privatised`: exact draws.

    `samples` are draws of the model's latent sites by name, draws first, as `mcmc.get_samples()` gives them; `args` and
    `kwargs` are those of the model. One draw of each statistic comes back for each draw of the parameters.
    """
    who = "confidential"
    if not callable(model):
        raise refusal(who, "model", "must be a NumPyro model function", model, "Give the function that was sampled.")
    if not isinstance(samples, Mapping) or not samples:
        advice = "Give mcmc.get_samples()."
        raise refusal(who, "samples", "must map names of sites to draws", samples, advice)
    lengths = {name: np.shape(value)[:1] for name, value in samples.items()}
    if len(set(lengths.values())) > 1 or () in lengths.values():
        advice = "Give mcmc.get_samples(), without group_by_chain."
        raise refusal(who, "samples", "must have the same number of draws throughout", lengths, advice)
    seed = checks.integer(who, "seed", seed, least=0, advice="Give a whole number.")
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
        raise refusal(who, "model", "must have an observed site whose law is Privatised", model, advice)
    entries = sum(math.prod(site.shape) for site in drawn.values())
    batch = max(1, min(draws, CELLS // max(entries, 1)))
    program = jax.jit(lambda rows, keys: jax.lax.map(lambda pair: at_row(*pair), (rows, keys), batch_size=batch))
    return jax.tree.map(np.asarray, program(rows, keys))


def _released(trace: Mapping[str, Any]) -> dict[str, tuple[Privatised, Any]]:
    """Observed sites whose law is `Privatised` beneath what plates and handlers put around it."""
    found = {}
    for name, site in trace.items():
        if site["type"] == "sample" and site["is_observed"]:
            law = site["fn"]
            while isinstance(law, (ExpandedDistribution, Independent, MaskedDistribution)):
                law = law.base_dist
            if isinstance(law, Privatised):
                found[name] = law, site["value"]
    return found
