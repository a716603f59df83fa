"""This library, with the sampler that it chooses."""

from functools import cache

import jax.numpy as jnp
import numpyro.distributions as dist
from problems import LALONDE, RELEASED, SCALES, SHAPES, measure

import noisewise as nw


@cache
def problem_of(problem):
    released, scales = RELEASED[problem], SCALES[problem]
    if problem != "Lalonde":
        prior = {"theta": dist.Gamma(SHAPES[problem], 1.0)}
        model = nw.Model(prior=prior, statistics={"count": lambda theta: dist.Poisson(theta)})
        return model, nw.Release(count=nw.Laplace(scale=scales[0]).released(released[0]))
    prior = {"tau": dist.Normal(0.0, 5.0), "mu": dist.Normal(4.0, 5.0)}
    prior |= {name: dist.Gamma(2.0, 0.2) for name in ("sigma_t", "sigma_c")}
    statistics = {
        "mean_t": lambda mu, tau, sigma_t: dist.Normal(mu + tau, sigma_t / jnp.sqrt(185.0)),
        "mean_c": lambda mu, sigma_c: dist.Normal(mu, sigma_c / jnp.sqrt(260.0)),
        "var_t": lambda sigma_t: dist.Gamma(92.0, 92.0 / sigma_t**2),
        "var_c": lambda sigma_c: dist.Gamma(129.5, 129.5 / sigma_c**2),
    }
    values = zip(statistics, released, scales, strict=True)
    released_values = {name: nw.Laplace(scale=scale).released(value) for name, value, scale in values}
    return nw.Model(prior=prior, statistics=statistics), nw.Release(released_values)


def run(problem, size, seed):
    posterior = nw.sample(*problem_of(problem), draws=size, seed=seed, progress=False, on_failure="return")
    names = LALONDE if problem == "Lalonde" else ("theta",)
    independent = len(posterior) if posterior.weights is None and posterior.chains is None else None
    return [posterior[name] for name in names], posterior.weights, independent if posterior.islands is None else None


if __name__ == "__main__":
    measure(run, f"noisewise {nw.__version__}")
