"""`make bench`: effective draws per second of the worst parameter, side by side, turn by turn in one process.

Effective draws are the posterior variance over the variance of the posterior mean between independent runs, for all
competitors alike; seconds include pilots, choosing, starts and warm-up, not the compilation of a model's first run.
With r runs the variance of a mean is known to about sqrt(2 / r) of itself, and a ratio of two to about 2 / sqrt(r).
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import clamped_total
import handwritten
import hierarchical_counts
import page
import regression_total

import noisewise as nw
from noisewise.engine import processors

WORKERS = processors()
QUIET = {"progress": False, "on_failure": "return"}


def effective(competitors, variance, runs):
    """Effective draws per second of each competitor's worst parameter; `competitors`: {name: function of a seed}."""
    means = {name: [] for name in competitors}
    seconds = dict.fromkeys(competitors, 0.0)
    for seed in range(runs):
        for name, run in competitors.items():
            start = time.perf_counter()
            means[name].append(np.atleast_1d(run(seed)))
            seconds[name] += time.perf_counter() - start
    rates = {}
    for name, found in means.items():
        size = variance / np.var(found, axis=0, ddof=1)
        rates[name] = float(np.min(size)) * runs / seconds[name]
    return rates


def by_library(model, release, names, sampler, draws, chosen=None):
    """A competitor: posterior means by this library. Names the samplers it used in `chosen`."""

    def run(seed):
        posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, **QUIET)
        if chosen is not None:
            chosen.add(f"{type(posterior.sampler).__name__} ({posterior.status})")
        weights = np.full(len(posterior), 1 / len(posterior)) if posterior.weights is None else posterior.weights
        return np.concatenate([np.ravel(np.tensordot(weights, posterior[name], axes=1)) for name in names])

    run(10**6)  # compiles
    return run


def count(runs):
    """Prior Gamma(2, 1), in conflict with the release: the chosen sampler beside Algorithm 1 by hand."""
    model = nw.Model(prior={"theta": dist.Gamma(2.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))

    def propose(rng, chunk):
        theta = rng.standard_gamma(2.0, chunk)
        return theta, np.exp(-np.abs(37.4 - rng.poisson(theta)) / 5.0)

    used = set()
    competitors = {
        "chosen": by_library(model, release, ["theta"], None, 10_000_000, used),
        "by hand": lambda seed: handwritten.algorithm_1(propose, 4_000, seed, WORKERS, 2**16)[0].mean(),
    }
    return effective(competitors, 3.299138800430019, runs), used


def counts(runs):
    """1,000 noisy counts: the chosen sampler beside NUTS that takes them for the truth, in its best setting."""
    model, release, _ = hierarchical_counts.problem()
    used = set()
    ours = {"chosen": by_library(model, release, ["a", "b"], None, 25_600, used)}
    posterior = nw.sample(model, release, nw.Augmentation(), draws=51_200, seed=77, **QUIET)
    variance = np.array([posterior["a"].var(), posterior["b"].var()])
    found = effective(ours, variance, runs)
    for method in ("vectorized", "sequential"):
        naive = hierarchical_counts.Naive(release["count"].value, chain_method=method)
        naive(10**6)
        means, variances, seconds = (np.array(part) for part in zip(*(naive(k) for k in range(runs)), strict=True))
        size = (variances.mean(axis=0) / means.var(axis=0, ddof=1))[:2].min()
        found[f"naive NUTS, {method}"] = float(size / seconds.mean())
    return found, used


def total(runs):
    """Two clamped sums: augmentation beside a loop by hand, and the chosen sampler beside the library's own."""
    model, release = clamped_total.problem()
    names = clamped_total.PARAMETERS
    reference = nw.sample(model, release, nw.Augmentation(), draws=204_800, seed=77, **QUIET)
    variance = np.array([reference[name].var() for name in names])
    used = set()
    competitors = {
        "chosen": by_library(model, release, names, None, 204_800, used),
        "Augmentation": by_library(model, release, names, nw.Augmentation(), 204_800),
        "Rejection": by_library(model, release, names, nw.Rejection(), 60),
        "Importance": by_library(model, release, names, nw.Importance(), 100_000),
        "by hand": lambda seed: clamped_total.handwritten(seed).mean(axis=0),
        "by hand, tightened": lambda seed: clamped_total.handwritten_tight(seed).mean(axis=0),
    }
    return effective(competitors, variance, runs), used


def regression(runs):
    """Nine noisy cross-products: the chosen sampler beside importance sampling from the prior by hand."""
    model, release = regression_total.problem()
    names = regression_total.COEFFICIENTS
    adapted = nw.Importance(proposal="adapted")
    reference = nw.sample(model, release, adapted, draws=800_000, seed=77, **QUIET)
    variance = reference.summary().loc[list(names), "sd"].to_numpy() ** 2
    used = set()

    def by_hand(seed):
        return regression_total.estimate(*regression_total.handwritten(200_000, seed, WORKERS))

    competitors = {"chosen": by_library(model, release, names, None, 400_000, used), "by hand": by_hand}
    return effective(competitors, variance, runs), used


GOALS = {
    "count": (count, [("chosen", "by hand", 300.0)]),
    "counts": (counts, [("chosen", "naive NUTS, vectorized", 1.0), ("chosen", "naive NUTS, sequential", 1.0)]),
    "total": (
        total,
        [
            ("Augmentation", "by hand", 50.0),
            ("Augmentation", "by hand, tightened", None),
            *(("chosen", name, 1.0) for name in ("Rejection", "Importance", "Augmentation")),
        ],
    ),
    "regression": (regression, [("chosen", "by hand", 2.0)]),
}


HEAD = ["problem", "ours", "effective/s", "beside it", "effective/s", "ratio", "goal"]


def measured(name, runs):
    """Rows of text for one problem."""
    measure, goals = GOALS[name]
    rates, used = measure(runs)
    for ours, theirs, goal in goals:
        label = f"chosen: {', '.join(sorted(used))}" if ours == "chosen" else ours
        cells = [f"{rates[ours]:.3g}", theirs, f"{rates[theirs]:.3g}", f"{rates[ours] / rates[theirs]:.3g}"]
        yield [name, label, *cells, "" if goal is None else f"{goal:g}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(GOALS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.only:
        found = list(measured(name, arguments.runs))
        table = Table(*HEAD, title=f"{WORKERS} threads")
        for row in found:
            table.add_row(*row)
        Console(width=150).print(table)
        rows += found
    if arguments.write:
        about = " ".join(__doc__.split("\n\n")[1].split())
        command = page.measured_by(f"python benchmarks/samplers.py --runs {arguments.runs} --write")
        page.write("samplers", "\n\n".join(["## The samplers", command, about, page.table([HEAD, *rows])]))


if __name__ == "__main__":
    main()
