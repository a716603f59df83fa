"""Laws of real numbers with atoms: what simulates them is right, and what integrates or differentiates refuses."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from numpyro.distributions import transforms
from scipy import optimize, special, stats

import noisewise as nw

RELEASED, SCALE = 0.6, 0.05


def share(p):
    """A count of four as a share."""
    return dist.TransformedDistribution(dist.Binomial(4, p), transforms.AffineTransform(0.0, 0.25))


@cache
def problem():
    model = nw.Model({"p": dist.Beta(1.0, 1.0)}, {"share": share})
    return model, nw.Release(share=nw.Laplace(scale=SCALE).released(RELEASED))


def mixed(mu):
    """Half a point at mu, half a normal law around it."""
    parts = [dist.Delta(mu), dist.Normal(mu, 1.0)]
    halves = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    return dist.MixtureGeneral(halves, parts, support=dist.constraints.real)


def test_an_integral_over_a_law_with_atoms_is_refused():
    with pytest.raises(nw.InputError, match=r"fit: 'statistics\['share'\]' must have no atoms .*Use nw.MCEM"):
        nw.fit(*problem(), nw.EM())


@pytest.mark.long
def test_left_to_choose_simulation_finds_the_maximum(seed):
    """Against the sum over the five shares there can be."""
    s = np.arange(5)

    def loss(p):
        return -special.logsumexp(stats.binom.logpmf(s, 4, p) - abs(RELEASED - s / 4) / SCALE)

    truth = optimize.minimize_scalar(loss, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-9}).x
    fit = nw.fit(*problem(), start={"p": 0.5}, seed=seed, on_failure="return")
    assert type(fit.estimator).__name__ == "MCEM"
    assert abs(fit.estimate["p"] - truth) < LIMIT * fit.monte_carlo_error["p"]
    assert fit.monte_carlo_error["p"] < 0.01


@pytest.mark.parametrize("mechanism", [nw.Exact(), nw.Laplace(scale=0.5)], ids=["exact", "noisy"])
def test_an_atom_that_moves_has_no_score(mechanism):
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"x": mixed})
    for estimator in (nw.EM(), nw.MCEM(), None):
        with pytest.raises(nw.InputError, match=r"must not have an atom that moves with the parameters"):
            nw.fit(model, nw.Release(x=mechanism.released(0.3)), estimator, seed=1)
