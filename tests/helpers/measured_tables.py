"""Small tables measured several ways, and every table that they might be with its exact probability."""

from itertools import product

import numpy as np
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln, logsumexp

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.measured import MeasuredTable


def margins(shape):
    """Matrices of row sums and of column sums."""
    cells = np.arange(np.prod(shape)).reshape(shape)
    return tuple(np.array([np.isin(cells.ravel(), line).astype(int) for line in lines]) for lines in (cells, cells.T))


def enumerated(log_law, release, matrices, most):
    """All tables up to `most` in every cell, and their probabilities given the release."""
    size = next(iter(matrices.values())).shape[1]
    tables = np.array(list(product(range(most + 1), repeat=size)))
    logs = log_law(tables)
    for name, matrix in matrices.items():
        mechanism, value = release[name].mechanism, np.asarray(release[name].value)
        logs = logs + np.asarray(mechanism.log_prob(value, tables @ matrix.T)).reshape(len(tables), -1).sum(axis=1)
    chance = np.exp(logs - logs.max())
    kept = chance > 0
    return tables[kept], chance[kept] / chance.sum()


def tallied(found, tables):
    """How often each of the tables was found; a table that is none of them counts beyond the end."""
    width = int(max(found.max(), tables.max())) + 1
    powers = width ** np.arange(tables.shape[1])
    order = np.argsort(tables @ powers)
    keys, wanted = found.reshape(len(found), -1) @ powers, (tables @ powers)[order]
    place = np.searchsorted(wanted, keys).clip(max=len(wanted) - 1)
    missed = wanted[place] != keys
    counts = np.zeros(len(tables) + 1, dtype=int)
    np.add.at(counts, np.where(missed, len(tables), order[place]), 1)
    return counts


def moved(model, release, seed, chains=2000, sweeps=12, broken=None):
    """Independent chains of the step alone, from one start."""
    joint = Joint(Problem(model, release), {})
    step, rng = MeasuredTable.of(joint, "cells"), np.random.default_rng(seed)
    state = State({"cells": np.ones((4, *model.shape("cells")), dtype=np.int64)})
    step.settle(rng, state)
    state.values["cells"] = np.repeat(state.values["cells"][:1], chains, axis=0)
    for _ in range(sweeps):
        step.step(broken(rng) if broken else rng, state, warm=False)
    return state.values["cells"]


BOUNDS = np.array([[3, 0], [5, 2]])
LAWS = {
    "bounded": (lambda mean: nw.counts_up_to(BOUNDS), lambda k, mean: stats.randint.logpmf(k, 0, BOUNDS.ravel() + 1)),
    "from two": (
        lambda mean: dist.DiscreteUniform(2, 6).expand(mean.shape),
        lambda k, mean: stats.randint.logpmf(k, 2, 7),
    ),
    "Poisson": (dist.Poisson, stats.poisson.logpmf),
    "NegativeBinomial2": (
        lambda mean: dist.NegativeBinomial2(mean, 2.0),
        lambda k, mean: stats.nbinom.logpmf(k, 2.0, 2.0 / (2.0 + mean)),
    ),
    "Binomial": (lambda mean: dist.Binomial(5, mean / 6.0), lambda k, mean: stats.binom.logpmf(k, 5, mean / 6.0)),
    "DiscreteUniform": (
        lambda mean: dist.DiscreteUniform(0, 6).expand(mean.shape),
        lambda k, mean: stats.randint.logpmf(k, 0, 7),
    ),
}
"""NumPyro's law of a cell by its mean, and SciPy's."""


def model_of(law, mean):
    """A model without parameters: only the table is unknown."""
    made = LAWS[law][0](mean)
    return nw.Model({}, {"cells": lambda: made.to_event(mean.ndim - made.event_dim)})


def log_law_of(law, mean):
    """The log density of tables, one a row."""
    return lambda tables: LAWS[law][1](tables, np.ravel(mean)).sum(axis=1)


def enumerated_likelihood(mean, release, matrices, most):
    """The log likelihood of a release as a function of the parameters: Poisson cells of the means given, all tables."""
    tables = np.array(list(product(range(most + 1), repeat=4)))
    noise = np.zeros(len(tables))
    for name, item in release.items():
        log_eta = np.asarray(item.mechanism.log_prob(np.asarray(item.value), tables @ matrices[name].T))
        noise = noise + log_eta.reshape(len(tables), -1).sum(axis=1)
    tables, noise = tables[np.isfinite(noise)], noise[np.isfinite(noise)]
    fixed = noise - gammaln(tables + 1.0).sum(axis=1)

    def height(parameters):
        means = mean(*parameters)
        if np.any(means <= 0.0):
            return -np.inf
        return logsumexp(fixed + tables @ np.log(means)) - np.sum(means)

    return height
