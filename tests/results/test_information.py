"""What privacy cost, against the law of total variance."""

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT

import noisewise as nw
from noisewise.results.information import lost
from noisewise.results.posterior import Posterior


def drawn(model, release, columns, **fields):
    """A posterior made of given draws."""
    parameters = tuple(name for name in columns if name in model.parameters)
    released = {name: item.value for name, item in release.items()}
    return Posterior(columns, parameters, released, release.hash, nw.Rejection(), 1, **fields)


def normal_draws(rng, size, prior=2.0, spread=1.0, scale=1.5, value=1.3):
    """Draws of (theta, s) given s + noise, all normal, and the share of Var(theta) that the noise causes."""
    model = nw.Model({"theta": dist.Normal(0.0, prior)}, {"s": lambda theta: dist.Normal(theta, spread)})
    release = nw.Release(s=nw.Gaussian(scale=scale).released(value))
    joint = np.array([[prior**2, prior**2], [prior**2, prior**2 + spread**2]])
    against = joint[:, 1] / (joint[1, 1] + scale**2)
    covariance = joint - np.outer(against, joint[:, 1])
    values = rng.multivariate_normal(against * value, covariance, size=size)
    inside = prior**2 * spread**2 / (prior**2 + spread**2)
    return model, release, values, 1.0 - inside / covariance[0, 0]


@pytest.mark.parametrize("weighted", [False, True])
def test_variance_due_to_the_noise_is_the_law_of_total_variance(seed, weighted):
    rng = np.random.default_rng(seed)
    model, release, values, truth = normal_draws(rng, 40_000)
    log_weights = None
    if weighted:  # thinned about the centre of theta, which leaves too much variance, and weighted back
        chance = np.where(np.abs(values[:, 0] - values[:, 0].mean()) > 1.0, 1.0, 0.3)
        chosen = rng.random(len(values)) < chance
        values, log_weights = values[chosen], -np.log(chance[chosen])
    posterior = drawn(model, release, {"theta": values[:, 0], "s": values[:, 1]}, log_weights=log_weights)
    found = lost(posterior, release, {"theta": rng.normal(0.0, 2.0, 10_000)}, 0.95)[0]
    error = 2.0 * np.sqrt(truth) * (1.0 - truth) / np.sqrt(0.5 * posterior.ess["theta"])  # of R^2, by the delta method
    assert abs(found.noise_share - truth) < LIMIT * error
    less = normal_draws(rng, 10, scale=1.0)[3]
    assert abs(found.noise_share - less) > LIMIT * error  # the same check tells another scale


def test_noise_free_statistics_cost_nothing_and_few_draws_tell_nothing(seed):
    rng = np.random.default_rng(seed)
    model, release, values, _ = normal_draws(rng, 30)
    prior = {"theta": rng.normal(0.0, 2.0, 1_000)}
    few = drawn(model, release, {"theta": values[:, 0], "s": values[:, 1]})
    assert lost(few, release, prior, 0.95)[0].noise_share is None
    naive = release.naive()
    exact = drawn(model, naive, {"theta": values[:, 0], "s": np.full(30, 1.3)})
    assert lost(exact, naive, prior, 0.95)[0].noise_share is None
