"""1,000 noisy counts in a hierarchical Gamma-Poisson model: NUTS with the counts summed out, beside naive NumPyro NUTS.

Effective draws: posterior variance over the variance of the posterior mean between independent runs, worst of a and b,
warm-up included. Programs are compiled before the clock starts, on both sides.
"""

import argparse
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC
from numpyro.infer import NUTS as Naive

import noisewise as nw
from noisewise.samplers.nuts import NUTS

COUNTS, SCALE = 1_000, 6.0


def released_counts():
    """Counts from the model, with discrete Gaussian noise."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(5.0, 1.0 / 0.25, COUNTS))
    return np.asarray(nw.DiscreteGaussian(scale=SCALE).sample(rng, counts)).astype(int)


def ours(values, warmup):
    """A function from seed and draws to columns of the two parameters."""
    model = nw.Model(
        prior={
            "a": dist.HalfNormal(10.0),
            "b": dist.HalfNormal(1.0),
            "rate": lambda a, b: dist.Gamma(a, b).expand([COUNTS]),
        },
        statistics={"counts": lambda rate: dist.Poisson(rate)},
    )
    release = nw.Release(counts=nw.DiscreteGaussian(scale=SCALE).released(values))

    def run(seed, draws):
        found = nw.sample(model, release, NUTS(warmup=warmup), draws=draws, seed=seed, on_failure="return")
        return np.column_stack([found["a"], found["b"]])

    return run


def naive(values, warmup):
    """The same model with the noisy counts (at least 0) taken for the true ones, in NumPyro itself, in 64 bits."""

    def model(counts):
        a = numpyro.sample("a", dist.HalfNormal(10.0))
        b = numpyro.sample("b", dist.HalfNormal(1.0))
        with numpyro.plate("units", COUNTS):
            rate = numpyro.sample("rate", dist.Gamma(a, b))
            numpyro.sample("counts", dist.Poisson(rate), obs=counts)

    chains = {}

    def run(seed, draws):
        with jax.enable_x64(True):
            if draws not in chains:
                chains[draws] = MCMC(
                    Naive(model),
                    num_warmup=warmup,
                    num_samples=draws // 4,
                    num_chains=4,
                    chain_method="vectorized",
                    progress_bar=False,
                )
            chains[draws].run(jax.random.key(seed), np.maximum(values, 0))
            found = chains[draws].get_samples()
            return np.column_stack([found["a"], found["b"]])

    return run


def main():
    """Print effective draws per second of both, run in turn, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    given = parser.parse_args()
    values = released_counts()
    sides = {"noisewise, counts summed out": ours(values, given.warmup), "NumPyro, naive": naive(values, given.warmup)}
    means, variances, seconds = ({name: [] for name in sides} for _ in range(3))
    for seed in range(given.runs + 1):
        for name, run in sides.items():
            start = time.perf_counter()
            found = run(seed, given.draws)
            if seed:  # the first run compiles
                seconds[name].append(time.perf_counter() - start)
                means[name].append(found.mean(axis=0))
                variances[name].append(found.var(axis=0))
    rates = {}
    for name in sides:
        effective = np.mean(variances[name], axis=0) / np.var(means[name], axis=0, ddof=1)
        rates[name] = effective.min() / np.mean(seconds[name])
        print(f"{name}: {effective.min():.0f} effective draws in {np.mean(seconds[name]):.1f} s: {rates[name]:.3g}/s")
    print(f"ratio {rates['noisewise, counts summed out'] / rates['NumPyro, naive']:.2f}")


if __name__ == "__main__":
    main()
