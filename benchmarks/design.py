"""A design's curve of 20 budgets beside one budget done by hand.

    python benchmarks/design.py [--write]

The privatised count. By hand: as many releases at one budget, each sampled by `nw.sample`, and the interval's width
noted. Seconds are the best of three turns, by turns, after one run to compile. Then a histogram: 1,000 people in 12
cells, discrete Laplace noise on each, and the width of one cell's share; run once.
"""

import sys
import time

import numpy as np
import numpyro.distributions as dist
import page

import noisewise as nw

RELEASES, REPEATS = 128, 3
MOST = 3
"""Times one budget by hand, that the whole curve may take."""
MODEL = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
BUDGET, TARGET = 0.245, {"width": "theta", "at_most": 16.0}
CELLS = 12
TABLE = nw.Model(
    prior={"share": dist.Dirichlet(np.full(CELLS, 2.0))},
    statistics={"count": lambda share: dist.Multinomial(1_000, share)},
)
WIDTH = {"width": "share[3]", "at_most": 0.05}
HEAD = ["what", "budgets", "releases at each", "found", "seconds", "ratio", "at most"]


def noise(epsilon):
    return nw.Laplace(epsilon=epsilon, sensitivity=1.0)


def by_hand(releases):
    """Average width of the 95% interval, and its standard error."""
    rng = np.random.default_rng(1)
    widths = []
    for count in MODEL.simulate(releases, seed=1)["count"]:
        release = nw.Release(count=noise(BUDGET).released(noise(BUDGET).sample(rng, count)))
        low, high = nw.sample(MODEL, release, draws=4_000, seed=1).interval(0.95)["theta"]
        widths.append(high - low)
    return np.mean(widths), np.std(widths, ddof=1) / np.sqrt(releases)


def designed(releases):
    return nw.design(MODEL, {"count": noise}, target=TARGET, replicates=releases, progress=False)


def histogram(releases):
    plan = {"count": lambda epsilon: nw.DiscreteLaplace(epsilon=epsilon, sensitivity=2)}
    return nw.design(TABLE, plan, target=WIDTH, replicates=releases, progress=False)


def told(name, found, seconds, ratio=""):
    """A row of the table: what a design found, and its seconds."""
    releases = f"{RELEASES}" if found.replicates == RELEASES else f"{RELEASES} to {found.replicates}"
    least = f"epsilon {found.budget:.3g} (standard error {found.error:.2g})"
    return [name, f"{len(found.curve)}", releases, least, f"{seconds:.1f}", ratio, f"{MOST}" if ratio else ""]


def timed(work):
    start = time.perf_counter()
    found = work(RELEASES)
    return found, time.perf_counter() - start


def main():
    by_hand(2), designed(16)  # compile
    turns = [(timed(by_hand), timed(designed)) for _ in range(REPEATS)]
    (width, error), found = turns[0][0][0], turns[0][1][0]
    one, many = (min(turn[at][1] for turn in turns) for at in range(2))
    rows = [
        ["by hand", "1", f"{RELEASES}", f"width {width:.2f} (standard error {error:.2f})", f"{one:.1f}", "", ""],
        told("nw.design", found, many, f"{many / one:.2f}"),
        told(f"nw.design, a histogram of {CELLS} cells", *timed(histogram)),
    ]
    for row in rows:
        print(" | ".join(row), flush=True)
    if sys.argv[1:] == ["--write"]:
        words = [page.measured_by("python benchmarks/design.py --write"), __doc__.split("\n\n")[2]]
        page.write("design", "\n\n".join(["## What a design costs", *words, page.table([HEAD, *rows])]))


if __name__ == "__main__":
    main()
