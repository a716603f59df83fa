"""NumPyro: NUTS on the naive model, which takes the released values for the confidential ones."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from problems import LALONDE, RELEASED, SHAPES, measure

CORES = len(os.sched_getaffinity(0))


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
def chain(problem, size):
    """One chain as one compiled program: `MCMC.run` by itself would trace and compile its start in every run."""
    released = RELEASED[problem]
    arguments = (np.array(released),) if problem == "Lalonde" else (SHAPES[problem], released[0])

    def whole(key):
        made = MCMC(
            NUTS(lalonde if problem == "Lalonde" else count), num_warmup=500, num_samples=size, progress_bar=False
        )
        made.run(key, *arguments)
        return made.get_samples()

    return jax.jit(whole)


def run(problem, size, seed):
    """A chain on every processor, in threads."""
    one = chain(problem, size // CORES)
    keys = jax.random.split(jax.random.PRNGKey(seed), CORES)
    with ThreadPoolExecutor(CORES) as pool:
        found = list(pool.map(lambda key: jax.block_until_ready(one(key)), keys))
    names = LALONDE if problem == "Lalonde" else ("theta",)
    return [np.concatenate([np.asarray(part[name]) for part in found]) for name in names], None, None


if __name__ == "__main__":
    measure(run, f"NumPyro {numpyro.__version__}")
