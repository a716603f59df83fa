"""One small problem of each kind of model and mechanism: the rows of the published table of which sampler applies."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import noisewise as nw

COUNT = {"count": lambda theta: dist.Poisson(theta)}
GAMMA = {"theta": dist.Gamma(5.0, 1.0)}
LAPLACE = nw.Laplace(scale=2.0)
SPIKE = dist.MixtureGeneral(
    dist.Categorical(np.array([0.5, 0.5])), [dist.Delta(0.0), dist.Normal(0.0, 1.0)], support=dist.constraints.real
)


def _one(prior, statistics, **released):
    return lambda: (nw.Model(prior, statistics), nw.Release(released))


def _total(n):
    return nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.clip(x, -3.0, 3.0), n=n)


KINDS = {
    "discrete law, continuous noise": _one(GAMMA, COUNT, count=LAPLACE.released(7.3)),
    "discrete law, discrete noise": _one(GAMMA, COUNT, count=nw.DiscreteGaussian(scale=2.0).released(7)),
    "continuous law, noise": _one(
        {"mu": dist.Normal(0.0, 1.0)}, {"s": lambda mu: dist.Normal(mu, 1.0)}, s=LAPLACE.released(0.3)
    ),
    "discrete law, no noise": _one(GAMMA, COUNT, count=nw.Exact().released(7)),
    "continuous law, no noise": _one(
        {"mu": dist.Normal(0.0, 1.0)}, {"s": lambda mu: dist.Normal(mu, 1.0)}, s=nw.Exact().released(0.3)
    ),
    "randomised response": _one(
        {"p": dist.Beta(2.0, 2.0)},
        {"bits": lambda p: dist.Bernoulli(p).expand([3]).to_event(1)},
        bits=nw.RandomizedResponse(epsilon=1.0, categories=2).released([1, 0, 1]),
    ),
    "discrete parameter": _one(
        {"n": dist.Poisson(8.0), "p": dist.Beta(2.0, 2.0)},
        {"yes": lambda n, p: dist.Binomial(n, p)},
        yes=LAPLACE.released(4.2),
    ),
    "statistic of a statistic": _one(
        GAMMA | {"p": dist.Beta(2.0, 2.0)},
        COUNT | {"yes": lambda count, p: dist.Binomial(count, p)},
        count=LAPLACE.released(7.3),
        yes=LAPLACE.released(3.1),
    ),
    "Total": _one({"mu": dist.Normal(0.0, 1.0)}, {"t": _total(20)}, t=LAPLACE.released(3.0)),
    "Total, unknown n": _one(
        {"mu": dist.Normal(0.0, 1.0), "n": dist.Poisson(20.0)}, {"t": _total("n")}, t=LAPLACE.released(3.0)
    ),
    "Total, no noise": _one({"mu": dist.Normal(0.0, 1.0)}, {"t": _total(20)}, t=nw.Exact().released(3.0)),
    "Simulator": _one(
        {"mu": dist.Normal(0.0, 1.0)},
        {"s": nw.Simulator(lambda rng, mu: rng.normal(mu))},
        s=LAPLACE.released(0.3),
    ),
    "Simulator, no noise": _one(
        {"mu": dist.Normal(0.0, 1.0)},
        {"s": nw.Simulator(lambda rng, mu: rng.normal(mu))},
        s=nw.Exact().released(0.3),
    ),
    "parameter that is a function of another": _one(
        {"mu": dist.Normal(0.0, 1.0), "twice": lambda mu: dist.Delta(2.0 * mu)},
        {"s": lambda twice: dist.Normal(twice, 1.0)},
        s=LAPLACE.released(0.3),
    ),
    "prior with mass at the edge of its support": _one(
        {"p": dist.Beta(0.01, 0.01)}, {"yes": lambda p: dist.Binomial(10, p)}, yes=LAPLACE.released(4.2)
    ),
    "prior with atoms": _one({"mu": SPIKE}, {"s": lambda mu: dist.Normal(mu, 1.0)}, s=LAPLACE.released(0.3)),
}
