"""`nw.design` over 20 budgets beside one budget done by hand: `python benchmarks/design.py`.

The privatised count. By hand: as many releases, each sampled by `nw.sample`, and the interval's width noted.
"""

import time

import numpy as np
import numpyro.distributions as dist

import noisewise as nw

RELEASES = 128
MODEL = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})


def noise(epsilon):
    return nw.Laplace(epsilon=epsilon, sensitivity=1.0)


def by_hand(epsilon, releases):
    """Average width of the 95% interval, and its standard error."""
    rng = np.random.default_rng(1)
    widths = []
    for count in MODEL.simulate(releases, seed=1)["count"]:
        release = nw.Release(count=noise(epsilon).released(noise(epsilon).sample(rng, count)))
        low, high = nw.sample(MODEL, release, draws=4_000, seed=1).interval(0.95)["theta"]
        widths.append(high - low)
    return np.mean(widths), np.std(widths, ddof=1) / np.sqrt(releases)


def main():
    target = {"width": "theta", "at_most": 16.0}
    by_hand(0.2, 2), nw.design(MODEL, {"count": noise}, target=target, replicates=16)  # compile
    start = time.perf_counter()
    width, error = by_hand(0.245, RELEASES)
    one = time.perf_counter() - start
    start = time.perf_counter()
    found = nw.design(MODEL, {"count": noise}, target=target, replicates=RELEASES)
    twenty = time.perf_counter() - start
    print(found.headline())
    print(f"one budget by hand (epsilon 0.245): width {width:.2f}, standard error {error:.2f}, {one:.1f} s")
    print(f"nw.design, {len(found.curve)} budgets: {twenty:.1f} s, {twenty / one:.2f} times; {found.sampled} sampled")


if __name__ == "__main__":
    main()
