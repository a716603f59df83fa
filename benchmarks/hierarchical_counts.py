"""1,000 noisy counts under a hierarchical Gamma-Poisson model: exact augmentation beside NUTS that ignores the noise.

python benchmarks/hierarchical_counts.py            # some minutes
python benchmarks/hierarchical_counts.py --quick    # fewer runs, to see that it works

Effective draws are the posterior variance divided by the variance of the posterior mean over independent runs, for the
worst of a, b and the rates looked at; seconds include starts, warm-up and adaptation, not compilation, for both.
"""

import argparse
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC as NumPyroMCMC
from numpyro.infer import NUTS as NumPyroNUTS

import noisewise as nw
from noisewise.samplers.augmentation import Augmentation

UNITS, SCALE = 1_000, 6.0
LOOKED_AT = 50
"""Rates whose means are compared, besides a and b."""


def problem(seed=1, units=UNITS):
    """Model, release, and the confidential counts behind it."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(5.0, 1.0 / 0.25, units))
    mechanism = nw.DiscreteGaussian(scale=SCALE)
    noisy = np.asarray(mechanism.sample(rng, counts))
    model = nw.Model(
        prior={
            "a": dist.HalfNormal(10.0),
            "b": dist.HalfNormal(1.0),
            "rate": lambda a, b: dist.Gamma(a, b).expand([units]),
        },
        statistics={"count": lambda rate: dist.Poisson(rate)},
    )
    return model, nw.Release(count=mechanism.released(noisy)), counts


def ours(model, release, draws, seed, **settings):
    """One run: posterior means and variances of a, b and some rates, and seconds."""
    start = time.perf_counter()
    posterior = nw.sample(model, release, Augmentation(**settings), draws=draws, seed=seed, on_failure="return")
    seconds = time.perf_counter() - start
    columns = np.column_stack([posterior["a"], posterior["b"], posterior["rate"][:, :LOOKED_AT]])
    return columns.mean(axis=0), columns.var(axis=0), seconds


class Naive:
    """NumPyro's NUTS fitted to counts as if they had no noise; compiled on the first call."""

    def __init__(self, counts, draws=1_000, chain_method="vectorized", centred=True):
        counts = np.maximum(np.asarray(counts), 0)

        def fitted(observed):
            a = numpyro.sample("a", dist.HalfNormal(10.0))
            b = numpyro.sample("b", dist.HalfNormal(1.0))
            with numpyro.plate("units", len(counts)):
                if centred:
                    rate = numpyro.sample("rate", dist.Gamma(a, b))
                else:
                    rate = numpyro.deterministic("rate", numpyro.sample("unit", dist.Gamma(a, 1.0)) / b)
                numpyro.sample("count", dist.Poisson(rate), obs=observed)

        self.counts = counts
        kernel = NumPyroNUTS(fitted)
        self.chains = NumPyroMCMC(
            kernel, num_warmup=1_000, num_samples=draws, num_chains=4, chain_method=chain_method, progress_bar=False
        )

    def __call__(self, seed):
        """As `ours`."""
        start = time.perf_counter()
        self.chains.run(jax.random.key(seed), self.counts)
        found = {name: np.asarray(values, dtype=float) for name, values in self.chains.get_samples().items()}
        seconds = time.perf_counter() - start
        columns = np.column_stack([found["a"], found["b"], found["rate"][:, :LOOKED_AT]])
        return columns.mean(axis=0), columns.var(axis=0), seconds


def naive_nuts(counts, seed, **settings):
    """One run of NUTS on the counts as if noise-free; keep a `Naive` to run again without compiling."""
    return Naive(counts, **settings)(seed)


def effective_rate(runs):
    """Effective draws per second of the worst scalar, the number of effective draws per run, and seconds per run."""
    means, variances, seconds = (np.array(part) for part in zip(*runs, strict=True))
    effective = variances.mean(axis=0) / means.var(axis=0, ddof=1)
    return effective.min() / seconds.mean(), effective, seconds.mean()


def main():
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--draws", type=int, default=6_400)
    parser.add_argument("--skip-nuts", action="store_true")
    arguments = parser.parse_args()
    runs = 3 if arguments.quick else arguments.runs
    model, release, _ = problem()
    ours(model, release, arguments.draws, 0)
    show("Augmentation", [ours(model, release, arguments.draws, seed) for seed in range(1, runs + 1)])
    if arguments.skip_nuts:
        return
    for method, centred in (("vectorized", True), ("sequential", True), ("sequential", False)):
        naive = Naive(release["count"].value, chain_method=method, centred=centred)
        naive(0)
        show(
            f"naive NUTS, {method}, {'as written' if centred else 'scaled'}",
            [naive(seed) for seed in range(1, runs + 1)],
        )


def show(label, runs):
    """One line of the comparison."""
    rate, effective, seconds = effective_rate(runs)
    of_rates = effective[2:].min()
    print(
        f"{label:40s} {rate:8.1f} effective draws/s  (per run: a {effective[0]:.0f}, b {effective[1]:.0f}, "
        f"worst rate {of_rates:.0f}; {seconds:.2f} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
