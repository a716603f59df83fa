"""Free coordinates: there and back, and the priors whose mass lies where floating point has no coordinates."""

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, z_of_mean
from scipy import special, stats

import noisewise as nw
from noisewise.samplers import mcmc
from noisewise.samplers.problem import Problem
from noisewise.space import Space, unwalkable

WALKERS = (nw.MCMC(), nw.SMC(), nw.Augmentation(), nw.NUTS())


def model_of(**prior):
    return nw.Model(prior=prior, statistics={"s": lambda x: dist.Normal(0.0 * x.sum(), 1.0)})


REACHED = {
    "Jeffreys": dict(x=dist.Beta(0.5, 0.5)),
    "Gamma": dict(x=dist.Gamma(0.1, 0.1)),
    "simplex": dict(x=dist.Dirichlet(np.full(3, 0.5))),
    "moving support": dict(top=dist.Gamma(2.0, 1.0), x=lambda top: dist.Uniform(-top, top)),
    "point": dict(y=dist.Normal(0.0, 1.0), x=lambda y: dist.Delta(2.0 * y)),
}
LOST = {
    "Beta": dict(x=dist.Beta(0.01, 0.01)),
    "Gamma": dict(x=dist.Gamma(0.001, 0.001)),
    "simplex": dict(x=dist.Dirichlet(np.full(3, 0.02))),
    "of many": dict(x=dist.Beta(1.0, 0.05).expand([200])),
}


@pytest.mark.parametrize("prior", REACHED.values(), ids=REACHED)
def test_coordinates_lead_back(prior):
    model = model_of(**prior)
    assert unwalkable(model) is None
    space, values = Space(model), model.simulate(200, 1)
    again, density = space.points(space.free_from(values), values)
    assert np.all(np.isfinite(density))
    for name in space.names:
        assert np.allclose(again[name], values[name], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("prior", LOST.values(), ids=LOST)
def test_priors_beyond_coordinates_are_refused_by_all_that_walk(prior):
    model = model_of(**prior)
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(0.3)))
    for sampler in WALKERS:
        assert "of the prior of 'x' lies at the edge of floating point" in sampler.unfit(problem)
    assert nw.Rejection().unfit(problem) is None
    assert nw.Importance("adapted").unfit(problem) is None


def spiked():
    """Nearly all or nearly none say yes; the posterior mean of p by enumeration over the count."""
    model = nw.Model(prior={"p": dist.Beta(0.01, 0.01)}, statistics={"yes": lambda p: dist.Binomial(10, p)})
    release = nw.Release(yes=nw.Laplace(scale=2.0).released(8.0))
    s = np.arange(11)
    log_weight = stats.betabinom.logpmf(s, 10, 0.01, 0.01) - np.abs(8.0 - s) / 2.0
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    return model, release, weight @ ((0.01 + s) / 10.02)


def test_chains_on_such_a_prior_would_be_wrong(seed, monkeypatch):
    """Why they are refused: rejection is right, chains let through are not."""
    model, release, truth = spiked()
    right = nw.sample(model, release, nw.Rejection(), draws=20_000, seed=seed)
    assert abs(z_of_mean(right["p"], truth)) < LIMIT
    monkeypatch.setattr(mcmc, "unwalkable", lambda model: None)
    wrong = nw.sample(model, release, nw.MCMC(warmup=64), draws=4096, seed=seed, on_failure="return")
    assert abs(z_of_mean(wrong["p"].reshape(16, -1).mean(axis=1), truth)) > stats.t.isf(5e-7, 15)
