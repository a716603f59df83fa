"""NumPyro: NUTS on the naive model, which takes the released values for the confidential ones."""

import os
from functools import cache

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from problems import LALONDE, RELEASED, SHAPES, measure

CORES = len(os.sched_getaffinity(0))
numpyro.set_host_device_count(CORES)


def count(shape, released):
    theta = numpyro.sample("theta", dist.Gamma(shape, 1.0))
    numpyro.factor("likelihood", released * jax.numpy.log(theta) - theta)  # Poisson, at a value that is not whole


def lalonde(released):
    tau, mu = numpyro.sample("tau", dist.Normal(0.0, 5.0)), numpyro.sample("mu", dist.Normal(4.0, 5.0))
    sigma_t, sigma_c = (numpyro.sample(name, dist.Gamma(2.0, 0.2)) for name in ("sigma_t", "sigma_c"))
    numpyro.sample("mean_t", dist.Normal(mu + tau, sigma_t / np.sqrt(185.0)), obs=released[0])
    numpyro.sample("mean_c", dist.Normal(mu, sigma_c / np.sqrt(260.0)), obs=released[1])
    numpyro.sample("var_t", dist.Gamma(92.0, 92.0 / sigma_t**2), obs=released[2])
    numpyro.sample("var_c", dist.Gamma(129.5, 129.5 / sigma_c**2), obs=released[3])


@cache
def sampler(problem, size):
    """Compiled at its first run, which is not timed."""
    options = {"num_warmup": 500, "num_samples": size // CORES, "num_chains": CORES, "progress_bar": False}
    return MCMC(NUTS(lalonde if problem == "Lalonde" else count), chain_method="parallel", **options)


def run(problem, size, seed):
    released = RELEASED[problem]
    arguments = (np.array(released),) if problem == "Lalonde" else (SHAPES[problem], released[0])
    made = sampler(problem, size)
    made.run(jax.random.PRNGKey(seed), *arguments)
    found = made.get_samples()
    return [np.asarray(found[name]) for name in (LALONDE if problem == "Lalonde" else ("theta",))], None, None


if __name__ == "__main__":
    measure(run, f"NumPyro {numpyro.__version__}")
