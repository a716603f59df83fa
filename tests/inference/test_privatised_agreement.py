"""NUTS of NumPyro on `Privatised` and `nw.sample`, two ways to one posterior: means and squares of every parameter.

Each comparison raises an alarm on correct code with probability 1e-6 (`exactness.py`): 2 for the count, 8 for Lalonde,
4 for the regression, 104 for the hierarchy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from targets import lalonde_model, lalonde_release

import noisewise as nw
from noisewise.numerics import double

pytestmark = pytest.mark.long


def noisy(mechanism, counts, seed):
    return np.asarray(mechanism.sample(np.random.default_rng(seed), counts))


# Four problems, each as a NumPyro function and as a noisewise model ------------------------------------------


def count():
    laplace = nw.Laplace(scale=5.0)

    def function():
        rate = numpyro.sample("rate", dist.Gamma(25.0, 1.0))
        numpyro.sample("count", nw.Privatised(dist.Poisson(rate), laplace), obs=37.4)

    model = nw.Model({"rate": dist.Gamma(25.0, 1.0)}, {"count": lambda rate: dist.Poisson(rate)})
    return function, model, nw.Release(count=laplace.released(37.4))


def lalonde():
    release = lalonde_release([5.2, 6.1, 71.0, 25.5])

    def function():
        tau, mu = numpyro.sample("tau", dist.Normal(0.0, 5.0)), numpyro.sample("mu", dist.Normal(4.0, 5.0))
        treated, control = (numpyro.sample(f"sigma_{group}", dist.Gamma(2.0, 0.2)) for group in "tc")
        laws = {
            "mean_t": dist.Normal(mu + tau, treated / jnp.sqrt(185.0)),
            "mean_c": dist.Normal(mu, control / jnp.sqrt(260.0)),
            "var_t": dist.Gamma(92.0, 92.0 / treated**2),
            "var_c": dist.Gamma(129.5, 129.5 / control**2),
        }
        for name, law in laws.items():
            numpyro.sample(name, nw.Privatised(law, release[name].mechanism), obs=release[name].value)

    return function, lalonde_model(), release


def regression():
    x = np.linspace(-1.5, 1.5, 30)
    mechanism = nw.DiscreteLaplace(scale=4.0)
    published = noisy(mechanism, np.random.default_rng(1).poisson(np.exp(2.0 + 0.8 * x)), 2)

    def function():
        level, slope = numpyro.sample("level", dist.Normal(2.0, 1.0)), numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("county", 30):
            law = dist.Poisson(jnp.exp(level + slope * x))
            numpyro.sample("count", nw.Privatised(law, mechanism), obs=published)

    model = nw.Model(
        {"level": dist.Normal(2.0, 1.0), "slope": dist.Normal(0.0, 1.0)},
        {"count": lambda level, slope: dist.Poisson(jnp.exp(level + slope * x))},
    )
    return function, model, nw.Release(count=mechanism.released(published))


def hierarchy():
    rng, mechanism = np.random.default_rng(3), nw.DiscreteGaussian(scale=4.0)
    published = noisy(mechanism, rng.poisson(rng.gamma(5.0, 4.0, 50)), 4)

    def function():
        a, b = numpyro.sample("a", dist.HalfNormal(10.0)), numpyro.sample("b", dist.HalfNormal(1.0))
        with numpyro.plate("group", 50):
            rate = numpyro.sample("rate", dist.Gamma(a, b))
            numpyro.sample("count", nw.Privatised(dist.Poisson(rate), mechanism), obs=published)

    model = nw.Model(
        {
            "a": dist.HalfNormal(10.0),
            "b": dist.HalfNormal(1.0),
            "rate": lambda a, b: dist.Gamma(a, b).expand([50]),
        },
        {"count": lambda rate: dist.Poisson(rate)},
    )
    return function, model, nw.Release(count=mechanism.released(published))


PROBLEMS = {"count": count, "Lalonde": lalonde, "regression": regression, "hierarchy": hierarchy}


def by_numpyro(function, seed):
    """Four chains: draws by name, chains first."""
    with double():
        how = {"num_chains": 4, "chain_method": "vectorized", "progress_bar": False}
        chains = MCMC(NUTS(function, target_accept_prob=0.9), num_warmup=500, num_samples=1000, **how)
        chains.run(jax.random.key(seed))
        found = chains.get_samples(group_by_chain=True)
        return {name: np.asarray(one) for name, one in found.items()}


def scores(ours, posterior, name):
    """z of the difference between both routes, for every entry: of means, and of means of squares."""
    chains = ours[name].reshape(*ours[name].shape[:2], -1)
    theirs = posterior[name].reshape(len(posterior), -1)
    found = []
    for power in (1, 2):
        first, second = chains**power, theirs**power
        size = np.array([float(effective_sample_size(column)) for column in np.moveaxis(first, -1, 0)])
        errors = first.std(axis=(0, 1)) / np.sqrt(size), posterior.precision_of(second)["mcse"]
        off = first.mean(axis=(0, 1)) - np.average(second, axis=0, weights=posterior.weights)
        found.append(off / np.hypot(*errors))
    return np.abs(np.array(found))


@pytest.mark.parametrize("name", PROBLEMS)
def test_both_routes_have_one_posterior(name):
    function, model, release = PROBLEMS[name]()
    posterior = nw.sample(model, release, draws=20_000, seed=5)
    ours = by_numpyro(function, 6)
    for parameter in model.parameters:
        assert np.all(scores(ours, posterior, parameter) < LIMIT), parameter


def test_the_naive_fit_would_be_noticed():
    """The same check, with the noise left out of the NumPyro model."""
    _, model, release = regression()

    def naive():
        level, slope = numpyro.sample("level", dist.Normal(2.0, 1.0)), numpyro.sample("slope", dist.Normal(0.0, 1.0))
        counts = np.maximum(release["count"].value, 0)
        numpyro.sample("count", dist.Poisson(jnp.exp(level + slope * np.linspace(-1.5, 1.5, 30))), obs=counts)

    posterior = nw.sample(model, release, draws=20_000, seed=5)
    assert any(np.any(scores(by_numpyro(naive, 6), posterior, name) > LIMIT) for name in ("level", "slope"))
