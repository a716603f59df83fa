"""Two versions of the library side by side: processor time of the same calls, in turn, each in a process of its own.

    python benchmarks/versions.py OLD/src [--turns 9] [--only WORD ...]

Prints, for every call, the median processor seconds of the other version and of this one after one run to compile;
seconds for each effective draw of this version over those of the other, or just seconds where a fit has none (above 1:
this version takes longer), with the half-width of its 95% interval in logs; and which sampler ran, and how it ended.
Calls are of the kind that the first version answered rightly.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def calls():
    """By name: a function of a seed, which gives a result with a status."""
    import clamped_total
    import hierarchical_counts
    import jax.numpy as jnp
    import numpyro.distributions as dist
    import regression_total

    import noisewise as nw

    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0)
    counts = {
        a: (
            nw.Model(prior={"theta": dist.Gamma(a, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)}),
            nw.Release(count=noise.released(37.4)),
        )
        for a in (25.0, 2.0)
    }
    arms = (
        nw.Model(
            prior={"p": dist.Beta(1.0, 1.0).expand([2])},
            statistics={"yes": lambda p: dist.Binomial(jnp.array([185, 260]), p)},
        ),
        nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(np.array([140, 196]))),
    )
    mean = (
        nw.Model(
            prior={"mu": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(5.0)},
            statistics={"mean": lambda mu, sigma: dist.Normal(mu, sigma / 10.0)},
        ),
        nw.Release(mean=nw.Gaussian(scale=0.5).released(3.2)),
    )
    rows = np.random.default_rng(1).normal(2.0, 1.5, 20_000)
    rows = (
        nw.Model(
            prior={"mu": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(5.0)},
            statistics={"x": lambda mu, sigma: dist.Normal(mu * jnp.ones(20_000), sigma)},
        ),
        nw.Release(x=nw.Laplace(scale=2.0).released(rows + np.random.default_rng(2).laplace(0.0, 2.0, len(rows)))),
    )

    def sampled(problem, draws, sampler=None):
        return lambda seed: nw.sample(*problem, sampler, draws=draws, seed=seed, progress=False, on_failure="return")

    return {
        "count, Gamma(25, 1)": sampled(counts[25.0], 1_000_000),
        "count, Gamma(2, 1)": sampled(counts[2.0], 1_000_000),
        "count, Rejection": sampled(counts[25.0], 1_000_000, nw.Rejection()),
        "count, Importance": sampled(counts[25.0], 1_000_000, nw.Importance()),
        "count, SMC": sampled(counts[25.0], 20_480, nw.SMC()),
        "count, MCMC": sampled(counts[25.0], 20_480, nw.MCMC()),
        "count, Augmentation": sampled(counts[25.0], 20_480, nw.Augmentation()),
        "count, NUTS": sampled(counts[25.0], 4_000, nw.NUTS()),
        "two shares": sampled(arms, 100_000),
        "two shares, Rejection": sampled(arms, 1_000, nw.Rejection()),
        "mean": sampled(mean, 200_000),
        "mean, Augmentation": sampled(mean, 20_480, nw.Augmentation()),
        "clamped total": sampled(clamped_total.problem(), 20_480),
        "regression": sampled(regression_total.problem(), 4_000),
        "counts of 1,000 units, NUTS": sampled(hierarchical_counts.problem()[:2], 2_000, nw.NUTS()),
        "count, EM": lambda seed: nw.fit(*counts[2.0], seed=seed),
        "count, MCEM": lambda seed: nw.fit(*counts[2.0], nw.MCEM(), seed=seed),
        "20,000 rows, EM": lambda seed: nw.fit(*rows, seed=seed),
    }


def work():
    """Answer one line for each line: a name and a seed in; seconds, effective draws and what ran out."""
    known = calls()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        name, seed = json.loads(line)
        start = time.process_time()
        result = known[name](seed)
        seconds = time.process_time() - start
        effective = min(map(float, result.ess.values())) if hasattr(result, "ess") else 1.0
        ran = f"{type(getattr(result, 'sampler', result)).__name__} {result.status}"
        print(json.dumps([seconds, effective, ran]), flush=True)


class Version:
    """One version's process."""

    def __init__(self, source):
        path = os.pathsep.join([str(source), str(HERE)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self.names = json.loads(self.process.stdout.readline())

    def run(self, name, seed):
        print(json.dumps([name, seed]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", nargs="+", default=[""])
    given = parser.parse_args()
    old, new = Version(given.old.resolve()), Version(HERE.parent / "src")
    print(f"{'':32} {'before':>9} {'now':>9} {'for each effective draw':>24}")
    for name in new.names:
        if not any(word in name for word in given.only):
            continue
        ran = [version.run(name, 0)[2] for version in (old, new)]
        turns = range(1, given.turns + 1)
        cost = np.array([[version.run(name, turn)[:2] for version in (old, new)] for turn in turns])
        seconds, each = cost[..., 0], np.log(cost[..., 0] / cost[..., 1])
        logs = each[:, 1] - each[:, 0]
        ratio, half = np.exp(np.median(logs)), 1.96 * 1.2533 * np.std(logs, ddof=1) / np.sqrt(len(logs))
        before, now = np.median(seconds, axis=0)
        print(
            f"{name:32} {before:9.4f} {now:9.4f} {ratio:13.3f} +- {half:7.3f}   {' | '.join(dict.fromkeys(ran))}",
            flush=True,
        )
    old.end()
    new.end()


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else main()
