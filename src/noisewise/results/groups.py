"""Groups with which ArviZ compares and checks models: densities and simulations at every draw of a posterior."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional import entry
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.model import Model
from noisewise.model.law import log_density
from noisewise.numerics import Array, double

CELLS = 2**12
"""Released entries, counted over all draws, whose densities are computed at a time."""

Draws = Mapping[str, Array]


def of(
    problem: Problem, draws: Draws, seed: int, prior: bool, predictive: bool
) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """Groups of columns by name, and notes on them for the tree's attributes."""
    model, count = problem.model, len(next(iter(draws.values())))
    densities, without = log_likelihood(problem, draws)
    priors = log_prior(model, draws)
    columns = {"log_likelihood": densities, "log_prior": priors}
    notes: dict[str, Any] = {"log_likelihood": "of each released entry, not of each person"}
    if without:
        notes["without_log_likelihood"] = without
    else:
        parts = [part.reshape(count, -1).sum(axis=1) for part in (*densities.values(), *priors.values())]
        columns["sample_stats"] = {"lp": np.sum(parts, axis=0)}
    if prior:
        simulated = model.simulate(count, seed)
        simulated |= model.derive(simulated)
        columns["prior"] = {name: simulated[name] for name in draws if name in simulated}
    if predictive:  # a stream of its own: prior draws of this seed share no random number with it
        columns["posterior_predictive"] = predicted(problem, draws, generator(seed, Purpose.PREDICTIVE))
    return {group: named for group, named in columns.items() if named}, notes


def log_likelihood(problem: Problem, draws: Draws) -> tuple[dict[str, Array], list[str]]:
    """log density of every released entry given the parameters, its statistic integrated out; names that have none.

    To leave out an entry is to leave out a release, not a person.
    """
    by_name: dict[str, Array] = {}
    without: list[str] = []
    for name, item in problem.release.items():
        example = problem.model.example(name) if problem.model.has_density(name) else None
        if example is None or entry.unfit(example, item.mechanism) is not None:
            without.append(name)
        else:
            by_name[name] = _log_marginals(problem, name, draws)
    return by_name, without


def _log_marginals(problem: Problem, name: str, draws: Draws) -> Array:
    model, item = problem.model, problem.release[name]
    parents = {parent: draws[parent] for parent in model.parents(name)}
    count = len(next(iter(draws.values())))
    shape = model.shape(name)

    def at_row(row: Mapping[str, Any]) -> Any:
        marginal = entry.log_marginal(model.law_at(name, row), item.mechanism, jnp.asarray(item.value))
        return jnp.broadcast_to(marginal.log_kept, shape)

    with double():
        if not parents:
            return np.broadcast_to(np.asarray(at_row({})), (count, *shape))
        batch = max(1, min(count, CELLS // max(math.prod(shape), 1)))
        program = jax.jit(lambda rows: jax.lax.map(at_row, rows, batch_size=batch))
        return np.asarray(program(jax.device_put(parents)))


def log_prior(model: Model, draws: Draws) -> dict[str, Array]:
    """log prior density of every parameter given those it depends on."""

    def at_row(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: log_density(model.law_at(name, row), row[name]) for name in model.parameters}

    with double():
        rows = {name: jnp.asarray(draws[name], float) for name in model.parameters}
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(at_row))(rows)) if rows else {}


def predicted(problem: Problem, draws: Draws, rng: np.random.Generator) -> dict[str, Array]:
    """New releases, one for each draw of the parameters: new statistics from the model, then new noise."""
    model = problem.model
    given = {name: draws[name] for name in model.parameters}
    count = len(next(iter(draws.values())))
    values = model.draw(rng, [name for name in model.order if name not in given], count, given)
    released = {}
    for name, item in problem.release.items():
        inputs = {other: values[other] for other in item.mechanism.inputs}
        released[name] = np.asarray(item.mechanism.sample(rng, values[name], **inputs))
    return released
