"""PyMC: sequential Monte Carlo with simulators and the Laplace distance at the noise's scale."""

import logging
import os
import warnings

import numpy as np
import pymc as pm
from problems import LALONDE, RELEASED, SCALES, SHAPES, measure

warnings.simplefilter("ignore")
logging.getLogger("pymc").setLevel(logging.ERROR)


def count(rng, theta, size=None):
    return rng.poisson(theta, size=size)


def mean_t(rng, mu, tau, sigma_t, size=None):
    return rng.normal(mu + tau, sigma_t / np.sqrt(185.0), size=size)


def mean_c(rng, mu, sigma_c, size=None):
    return rng.normal(mu, sigma_c / np.sqrt(260.0), size=size)


def var_t(rng, sigma_t, size=None):
    return rng.gamma(92.0, sigma_t**2 / 92.0, size=size)


def var_c(rng, sigma_c, size=None):
    return rng.gamma(129.5, sigma_c**2 / 129.5, size=size)


def simulators(problem):
    """The model's parameters, and (simulator, its parameters) of each statistic."""
    if problem != "Lalonde":
        return [(count, [pm.Gamma("theta", SHAPES[problem], 1.0)])]
    tau, mu = pm.Normal("tau", 0.0, 5.0), pm.Normal("mu", 4.0, 5.0)
    sigma_t, sigma_c = (pm.Gamma(name, 2.0, 0.2) for name in ("sigma_t", "sigma_c"))
    return [(mean_t, [mu, tau, sigma_t]), (mean_c, [mu, sigma_c]), (var_t, [sigma_t]), (var_c, [sigma_c])]


def run(problem, size, seed):
    cores = len(os.sched_getaffinity(0))
    with pm.Model():
        for (simulator, parents), released, scale in zip(
            simulators(problem), RELEASED[problem], SCALES[problem], strict=True
        ):
            options = {"distance": "laplace", "sum_stat": "identity", "epsilon": scale, "observed": released}
            pm.Simulator(simulator.__name__, simulator, *parents, **options)
        found = pm.sample_smc(draws=size, chains=cores, cores=cores, random_seed=seed, progressbar=False)
    names = LALONDE if problem == "Lalonde" else ("theta",)
    return [found.posterior[name].to_numpy().ravel() for name in names], None, None


if __name__ == "__main__":
    measure(run, f"PyMC {pm.__version__}")
