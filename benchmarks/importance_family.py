"""Effective draws per second of the importance family beside NumPy by hand, in one process, turn by turn.

Effective draws: posterior variance over the variance of the posterior mean between independent runs, pilots included.
"""

import sys
import time
from pathlib import Path

import handwritten
import numpy as np
import numpyro.distributions as dist
import regression_total

import noisewise as nw
from noisewise.engine import processors

WORKERS = processors()


def effective(ours, theirs, variance, runs):
    """For each side, effective draws of the worst coordinate per second and per second of processor time."""
    found = []
    results = {0: [], 1: []}
    for seed in range(runs):
        for side, function in enumerate((ours, theirs)):
            start, used = time.perf_counter(), time.process_time()
            mean = function(seed)
            results[side].append((np.atleast_1d(mean), time.perf_counter() - start, time.process_time() - used))
    for side in (0, 1):
        means = np.array([mean for mean, _, _ in results[side]])
        size = variance / means.var(axis=0, ddof=1)
        seconds, used = (np.mean([entry[i] for entry in results[side]]) for i in (1, 2))
        found.append((float(np.min(size / seconds)), float(np.min(size / used))))
    return found


def count(sampler, draws, by_hand, runs):
    """Privatised count with a Gamma(2, 1) prior against Algorithm 1."""
    model = nw.Model(prior={"theta": dist.Gamma(2.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))

    def ours(seed):
        posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, progress=False)
        return posterior.weights @ posterior["theta"]

    def propose(rng, chunk):
        theta = rng.standard_gamma(2.0, chunk)
        return theta, np.exp(-np.abs(37.4 - rng.poisson(theta)) / 5.0)

    def theirs(seed):
        return handwritten.algorithm_1(propose, by_hand, seed, WORKERS, 2**16)[0].mean()

    nw.sample(model, release, sampler, draws=100, seed=0, on_failure="return")
    return effective(ours, theirs, 3.299138800430019, runs)


def regression(sampler, draws, by_hand, runs):
    """Nine noisy cross-products against importance sampling from the prior."""
    model, release = regression_total.problem()

    def ours(seed):
        posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, progress=False, on_failure="return")
        return [posterior.weights @ posterior[name] for name in regression_total.COEFFICIENTS]

    def theirs(seed):
        return regression_total.estimate(*regression_total.handwritten(by_hand, seed, WORKERS))

    reference = nw.sample(model, release, sampler, draws=4 * draws, seed=10**6, progress=False, on_failure="return")
    variance = reference.summary().loc[list(regression_total.COEFFICIENTS), "sd"].to_numpy() ** 2
    return effective(ours, theirs, variance, runs)


def main():
    """Print both comparisons."""
    for label, (ours, theirs) in (
        ("count, adapted", count(nw.Importance(proposal="adapted"), 5_000_000, 4_000, 20)),
        ("regression, adapted", regression(nw.Importance(proposal="adapted"), 100_000, 100_000, 20)),
    ):
        print(
            f"{label}: {ours[0]:.4g} against {theirs[0]:.4g} effective draws/s, {ours[0] / theirs[0]:.4g} times", end=""
        )
        print(f" ({ours[1] / theirs[1]:.4g} by processor time)")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
