"""1,000 noisy counts under a hierarchical Gamma-Poisson model: exact posteriors beside NUTS that ignores the noise.

python benchmarks/hierarchical_counts.py --write    # some minutes; writes docs/benchmarks.md
python benchmarks/hierarchical_counts.py --quick    # fewer runs, to see that it works

Effective draws are the posterior variance over the variance of the posterior mean between independent runs, for the
worst of a, b and 50 of the rates; the median of these scalars stands beside, since the worst of 52 is known less well.
Seconds include choosing, pilots, starts, warm-up and adaptation, not compilation, for all alike, and all return as many
draws. Competitors take turns. The naive fit is NumPyro's NUTS on the released counts as if they had no noise, as a user
writes it, four chains, with rates as written or scaled by b, the chains in a row or in step: the best of these counts.
"""

import argparse
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import page
from numpyro.infer import MCMC as NumPyroMCMC
from numpyro.infer import NUTS as NumPyroNUTS

import noisewise as nw

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


class Ours:
    """An exact posterior by a sampler, None for the one that is chosen."""

    def __init__(self, model, release, draws, sampler=None):
        self.problem, self.draws, self.sampler = (model, release), draws, sampler

    def __call__(self, seed):
        """One run: posterior means and variances of a, b and some rates, and seconds."""
        start = time.perf_counter()
        given = {"draws": self.draws, "seed": seed, "progress": False, "on_failure": "return"}
        posterior = nw.sample(*self.problem, self.sampler, **given)
        seconds = time.perf_counter() - start
        columns = np.column_stack([posterior["a"], posterior["b"], posterior["rate"][:, :LOOKED_AT]])
        weights = posterior.weights
        means = np.average(columns, axis=0, weights=weights)
        return means, np.average((columns - means) ** 2, axis=0, weights=weights), seconds


class Naive:
    """NumPyro's NUTS fitted to counts as if they had no noise; compiled on the first call."""

    def __init__(self, counts, draws=4_000, chain_method="vectorized", centred=True):
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
            kernel,
            num_warmup=1_000,
            num_samples=draws // 4,
            num_chains=4,
            chain_method=chain_method,
            progress_bar=False,
        )

    def __call__(self, seed):
        """As `Ours`."""
        start = time.perf_counter()
        self.chains.run(jax.random.key(seed), self.counts)
        found = {name: np.asarray(values, dtype=float) for name, values in self.chains.get_samples().items()}
        seconds = time.perf_counter() - start
        columns = np.column_stack([found["a"], found["b"], found["rate"][:, :LOOKED_AT]])
        return columns.mean(axis=0), columns.var(axis=0), seconds


def effective_rates(runs):
    """Effective draws per second, of the worst scalar and the median of all, and seconds of a run."""
    means, variances, seconds = (np.array(part) for part in zip(*runs, strict=True))
    effective = variances.mean(axis=0) / means.var(axis=0, ddof=1)
    return effective.min() / np.median(seconds), np.median(effective) / np.median(seconds), np.median(seconds)


def competitors(draws):
    """By label."""
    model, release, _ = problem()
    counts = release["count"].value
    forms = [("vectorized", True), ("sequential", True), ("sequential", False)]
    label = "naive NUTS, chains {}, {}"
    naive = {
        label.format({"vectorized": "in step"}.get(method, "in a row"), "as written" if centred else "scaled"): Naive(
            counts, draws, method, centred
        )
        for method, centred in forms
    }
    return {
        "nw.sample, as chosen": Ours(model, release, draws),
        "nw.NUTS()": Ours(model, release, draws, nw.NUTS()),
        **naive,
    }


HEAD = ["method", "effective draws/s, worst", "median", "seconds", "times the naive fit, worst", "median"]


def main():
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    runs = 3 if chosen.quick else chosen.runs
    methods = competitors(chosen.draws)
    found = {label: [] for label in methods}
    for seed in range(runs + 1):
        for label, method in methods.items():
            run = method(seed)
            found[label] += [run] if seed else []  # the first compiles
            print(label, f"{run[2]:.2f} s", flush=True)
    rates = {label: effective_rates(done) for label, done in found.items()}
    naive = [max(rate[k] for label, rate in rates.items() if label.startswith("naive")) for k in (0, 1)]
    rows = [
        [label, *(f"{number:.3g}" for number in (*rate, rate[0] / naive[0], rate[1] / naive[1]))]
        for label, rate in rates.items()
    ]
    print(page.table([HEAD, *rows]))
    if chosen.write:
        command = f"python benchmarks/hierarchical_counts.py --runs {runs} --draws {chosen.draws} --write"
        told = [page.measured_by(command), __doc__.split("\n\n")[2].replace("\n", " "), page.table([HEAD, *rows])]
        page.write("hierarchy", "\n\n".join(["## 1,000 noisy counts beside a fit that ignores the noise", *told]))


if __name__ == "__main__":
    main()
