"""Independent draws of conjugate models: what rejects nothing, beside Algorithm 1.

    python benchmarks/conjugate.py [--repeats 9] [--write]

A count with a Gamma rate, released at 37.4 (37.001 under noise of scale 0.001) with Laplace noise. `predictive` draws
the count from its exact law given the release, then the rate; `joint` is Algorithm 1 of Gong (2022) in this library,
`by hand` the same in chunked, threaded NumPy. All draws are independent. Competitors take turns, with as many draws in
a run as take part of a second; medians of seconds, after one run that compiles.
"""

import argparse
import statistics
import time

import handwritten
import numpy as np
import numpyro.distributions as dist
import page

import noisewise as nw
from noisewise.engine import processors

DRAWS, PROPOSALS = 4_000_000, 2_000_000
RELEASED = 37.4
CASES = [(25.0, 5.0), (2.0, 5.0), (25.0, 1e-3), (25.0, 1e4)]
PREDICTIVE, JOINT = nw.Rejection(plan="predictive"), nw.Rejection(plan="joint")
HEAD = ("rate", "scale of the noise", "first result, s", "predictive, draws/s", "joint, draws/s", "by hand, draws/s")
HEAD += ("predictive over joint", "over by hand")


def problem(shape, scale):
    """The model and its release."""
    model = nw.Model(prior={"theta": dist.Gamma(shape, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(scale=scale).released(released(scale)))


def released(scale):
    """At a small scale near a whole number, as it would be."""
    return round(RELEASED) + scale if scale < 1.0 else RELEASED


def seconds_of(run, draws, seed):
    """For so many draws."""
    start = time.perf_counter()
    run(draws, seed)
    return time.perf_counter() - start


def measured(shape, scale, repeats):
    """Seconds of the first 10,000 draws, then draws per second of each competitor."""
    model, release = problem(shape, scale)

    def by(sampler):
        return lambda draws, seed: nw.sample(model, release, sampler, draws=draws, seed=seed, progress=False)

    def propose(rng, chunk):
        theta = rng.standard_gamma(shape, chunk)
        return theta, np.exp(-np.abs(released(scale) - rng.poisson(theta)) / scale)

    def by_hand(draws, seed):
        handwritten.algorithm_1(propose, draws, seed, processors(), 2**16)

    start = time.perf_counter()
    by(PREDICTIVE)(10_000, 0)
    first = time.perf_counter() - start
    fewer = int(PROPOSALS * by(JOINT)(1_000, 1).acceptance_rate)
    competitors = {"predictive": (by(PREDICTIVE), DRAWS), "joint": (by(JOINT), fewer), "by hand": (by_hand, fewer)}
    seconds = {name: [] for name in competitors}
    for turn in range(repeats + 1):
        for name, (run, draws) in competitors.items():
            spent = seconds_of(run, draws, turn)
            seconds[name] += [spent] if turn else []
    return first, *(draws / statistics.median(seconds[name]) for name, (_, draws) in competitors.items())


def row_of(shape, scale, measures):
    """One line of the table."""
    first, ours, *others = measures
    rates = [f"{rate:.3g}" for rate in (ours, *others)]
    ratios = [f"{ours / rate:.1f}" for rate in others]
    return (f"Gamma({shape:g}, 1)", f"{scale:g}", f"{first:.2f}", *rates, *ratios)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for shape, scale in CASES:
        rows.append(row_of(shape, scale, measured(shape, scale, arguments.repeats)))
        print(*rows[-1], sep="\t", flush=True)
    if arguments.write:
        command = f"python benchmarks/conjugate.py --repeats {arguments.repeats} --write"
        told = [page.measured_by(command), __doc__.split("\n\n")[2].replace("\n", " ")]
        page.write("conjugate", "\n\n".join(["## Without a rejection", *told, page.table([HEAD, *rows])]))
